"""Documents of the daemon's API, as tests of zvaultctl serve them. Each takes changes to its fields."""

from __future__ import annotations

import time

HOUR = 3600.0

SINCE = time.time() - 73.5 * HOUR
"""When a vault's inhibitor was taken: no test takes half an hour."""


def trouble(reason="transfer", what="the stream broke", why="zfs receive: out of space", next="make room"):
    return {"reason": reason, "what": what, "why": why, "next": next}


def backup(name="home", **changes):
    return {
        "name": name,
        "source": "tank/home",
        "vault": "cold",
        "into": "{host}/{dataset}",
        "state": "idle",
        "lag_seconds": 723.5,
        "max_lag_seconds": 3 * HOUR,
        "late": False,
        "last_success": 1_790_000_000.25,
        "last_run": 1_790_000_000.25,
        "last_result": "ok",
        "last_error": None,
        "next_run": 1_790_003_600.0,
        "run": None,
        "datasets": 3,
        "pending": 0,
        "bytes_done": 0,
        "bytes_total": None,
        "proofs": {},
    } | changes


def device(**changes):
    return {
        "name": "cold-0",
        "spec": "nbdkit:file /srv/cold.img",
        "path": "/dev/nbd0",
        "state": "up",
        "detail": "",
        "size": 1 << 40,
    } | changes


def vault(name="cold", **changes):
    return {
        "name": name,
        "pool": "coldpool",
        "state": "up",
        "health": "ONLINE",
        "size": 1 << 40,
        "allocated": 1 << 38,
        "free": 3 << 38,
        "devices": [device()],
        "users": ["home"],
        "pinned": False,
        "inhibitor": True,
        "inhibitor_since": SINCE,
        "error": None,
        "scrub": None,
    } | changes


def status(*backups, vaults=None, warnings=()):
    return {
        "daemon": {"version": "0.1.0", "pid": 4711, "started": 1_789_000_000.0, "warnings": list(warnings)},
        "backups": list(backups),
        "vaults": [vault()] if vaults is None else vaults,
    }


def event(kind, /, **fields):
    return {"event": kind, "run": 42, "backup": "home", "time": 1_790_000_000.0} | fields


def run_events(result="ok", error=None, middle=()):
    return [
        event("run-started", trigger="hand"),
        event("vault-up", vault="cold", message="pool coldpool imported from /dev/nbd0"),
        event("inhibitor", held=True, message="sleep and shutdown wait for the run"),
        event("snapshot", tag="zvault_2026-11-21T09:00:00Z", datasets=3),
        event(
            "plan",
            datasets=[
                {
                    "dataset": "tank/home",
                    "action": "incremental",
                    "written": 0,
                    "bytes": 1 << 30,
                    "reason": "shares a base",
                },
                {"dataset": "tank/home/a", "action": "full", "bytes": 1 << 30, "reason": "new"},
                {"dataset": "tank/home/b", "action": "nothing", "bytes": 0, "reason": "unchanged"},
            ],
            bytes_total=2 << 30,
        ),
        *[
            e
            for i, name in enumerate(("tank/home", "tank/home/a"))
            for e in (
                event(
                    "transfer-started",
                    dataset=name,
                    kind="incremental",
                    **{"from": "a", "to": "b", "bytes": 1 << 30},
                ),
                event(
                    "progress",
                    dataset=name,
                    bytes=1 << 29,
                    total=1 << 30,
                    rate=float(100 << 20),
                    buffer=[3, 97],
                    run_bytes=(i << 30) + (1 << 29),
                    run_total=2 << 30,
                ),
                event("transfer-finished", dataset=name, bytes=1 << 30, seconds=10.24),
            )
        ],
        *middle,
        event("pruned", side="source", count=2, snapshots=["tank/home@x", "tank/home@y"]),
        event("pruned", side="vault", count=0, snapshots=[]),
        event("run-finished", result=result, bytes=2 << 30, seconds=20.48, error=error),
    ]


def store(**changes):
    """What a block store's server said last; ``changes`` of its figures."""
    return {
        "mode": "writeback",
        "journal_used": 3 << 28,
        "journal_capacity": 8 << 30,
        "live_bytes": 280 << 30,
        "stored_bytes": 312 << 30,
        "fenced": False,
        "ready": True,
        "closed": False,
        "trouble": None,
        "requests": None,
    } | changes
