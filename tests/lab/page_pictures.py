"""The host that docs/how-to/look-at-the-page.md has pictures of: a made-up week of a house with a small office."""

from __future__ import annotations

import asyncio
import json
import random
import time
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.unit.daemon.page.page_documents import backup, backup_page, found, overview, vault, verdict
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.health.conditions import CONDITIONS
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.policy.retention import decide_retention
from zvault.daemon.assemble import assemble_daemon
from zvault.ops.replication.listing import BothListings

DAY, GIB, TIB = 86400.0, 1 << 30, 1 << 40
HOUR = 3600.0
HOST = "filer1"


def _late(name: str, why: str) -> Any:
    condition = next(one for one in CONDITIONS["backup"] if one.key == "late")
    return verdict({**found(condition, why), "next": condition.next.format(name=name)})


def _proofs(now: float, days: float) -> dict[str, Any]:
    return {
        "guids": {"proven": now - HOUR, "tried": now - HOUR, "result": "ok", "max_age": DAY, "told": ""},
        "sample": {
            "proven": now - days * DAY,
            "tried": now - DAY,
            "result": "ok",
            "max_age": 9 * DAY,
            "told": "",
        },
    }


def _backup(now: float, name: str, into: str, lag: float, most: float, every: float, **more: Any) -> Any:
    made = {
        "source": f"tank/{name}",
        "vault": into,
        "into": f"{into}/{HOST}/{name}",
        "lag_seconds": lag,
        "max_lag_seconds": most,
        "last_success": now - lag,
        "last_run": now - lag,
        "next_run": now + every - lag % every,
        "next_snapshot": None,
        "proofs": _proofs(now, 3),
    }
    return backup(name, **(made | more))


def _device(name: str, path: str, spec: str, size: int) -> Any:
    return {
        "name": name,
        "spec": spec,
        "path": path,
        "state": "up",
        "detail": "",
        "size": size,
        "store": None,
    }


def _vault(now: float, name: str, size: int, used: float, devices: list[Any], **more: Any) -> Any:
    scrub: Any = {
        "seen": now,
        "state": "finished",
        "started": now - 9.2 * DAY,
        "ended": now - 9 * DAY,
        "last": now - 9 * DAY,
        "share": None,
        "bytes_done": 0,
        "bytes_total": 0,
        "rate": None,
        "left_seconds": None,
        "found": 0,
        "held": False,
        "pausing": "",
        "errors": 0,
        "unexplained": 0,
        "half_received": [],
        "files": 0,
        "damages": [],
    }
    made = {
        "pool": name,
        "size": size,
        "allocated": int(size * used),
        "free": int(size * (1 - used)),
        "devices": devices,
        "users": [],
        "scrub": scrub,
        "uncounted": [],
    }
    return vault(name, **(made | more))


def _days(now: float) -> list[Any]:
    dice = random.Random(4)
    today = datetime.fromtimestamp(now, UTC).date()
    days = []
    for back in range(364, -1, -1):
        state = "late" if back in {2, 40, 41, 203} else "failed" if back in {97, 160} else "ok"
        days.append(
            {
                "date": (today - timedelta(days=back)).isoformat(),
                "state": state,
                "runs": 52,
                "faults": 0 if state == "ok" else 3,
                "bytes": int(dice.lognormvariate(23.5, 0.7)),
                "seconds": dice.uniform(2000, 5000),
                "lag": dice.uniform(0.9, 2.5) * HOUR * (9 if state == "late" else 1),
            }
        )
    return days


def first_page() -> Any:
    """All of it, with one backup that is late and one run under way."""
    now = time.time()
    late = _late("mail", "the lag of tank/mail is 9h 12m, more than max_lag = 4h")
    asked = {"put": 41_204, "get": 3_310, "list": 96, "delete": 0}
    cost = {"cost": 7.35, "forecast": 9.61, "currency": "$", **asked}
    vaults = [
        _vault(
            now,
            "cloud",
            10 * TIB,
            0.31,
            [
                _device(
                    "cloud-0",
                    "/dev/nbd0",
                    "zvault:zv/cloud size=10T endpoint=https://s3.example.org",
                    10 * TIB,
                )
            ],
            cost=cost,
            users=["home"],
        ),
        _vault(
            now, "cold", 90 * TIB, 0.78, [_device("cold-0", "/dev/rbd0", "rbd_meta/cold in data", 90 * TIB)]
        ),
    ]
    running = [
        {
            "id": "20261124T090000-4c1d",
            "backup": "home",
            "trigger": "schedule",
            "started": now - 741,
            "bytes_done": 41 * GIB,
            "bytes_total": 64 * GIB,
            "rate": 58e6,
            "streams": [
                {"dataset": "tank/home/anna", "bytes": 30 * GIB, "total": 44 * GIB, "rate": 41e6},
                {"dataset": "tank/home/photos", "bytes": 11 * GIB, "total": 20 * GIB, "rate": 17e6},
            ],
            "more": 0,
            "waiting": None,
            "error": None,
        }
    ]
    partial = {"last_run": now - 0.2 * HOUR, "last_result": "partial", "pending": 18}
    backups = [
        _backup(now, "mail", "cold", 9.2 * HOUR, 4 * HOUR, HOUR, verdict=late, late=True, **partial),
        _backup(now, "home", "cloud", 0.9 * HOUR, 4 * HOUR, HOUR, state="running", run=running[0]["id"]),
        _backup(now, "photos", "cold", 7 * HOUR, 2 * DAY, DAY),
        _backup(now, "vm", "cold", 0.4 * HOUR, 2 * HOUR, HOUR / 2),
    ]
    today = datetime.fromtimestamp(now, UTC).date()
    week = [
        {
            "date": (today + timedelta(days=ahead)).isoformat(),
            "what": what,
            "name": name,
            "times": [],
            "words": words,
        }
        for ahead in range(7)
        for what, name, words in (
            ("run", "vm", "every 30 minutes"),
            ("run", "home", "every hour"),
            *([("scrub", "cold", "by its age")] if ahead == 3 else []),
        )
    ]
    return overview(
        backups,
        vaults,
        host=HOST,
        schedules={"mail": "hourly", "home": "hourly", "photos": "daily", "vm": "every 30m"},
        extras={
            "cold": {"full_in": 71 * DAY, "scrub_due": now + 3 * DAY},
            "cloud": {"full_in": None, "scrub_due": now + 20 * DAY},
        },
        running=running,
        week=week,
        days=_days(now),
    )


KEEP = {
    "source": {"hourly": 24},
    "vault": {"hourly": 48, "daily": 30, "weekly": 8, "monthly": 12, "yearly": 3},
}


def datasets_page(folder: Path) -> Any:
    """A dataset of the backup that is late, as zvaultd tells of it that listed it ten minutes ago."""
    now, name, into = time.time(), DatasetName("tank/mail/anna"), DatasetName(f"cold/{HOST}/mail/anna")
    late = int(now - 9.2 * HOUR)
    table = {
        "source": "tank/mail",
        "vault": "cold",
        "into": "{host}/mail/{path}",
        "every": "1h",
        "keep": KEEP,
    }
    config = {
        "daemon": {"host": HOST, "timezone": "UTC"},
        "vault": {"cold": {"pool": "cold"}},
        "backup": {"mail": table},
    }
    daemon = assemble_daemon(Config.model_validate(config), Paths(folder, folder, folder, folder))
    try:
        names = daemon.context.env.config.backup["mail"].snapshot.names

        def made(at: DatasetName, hours: int) -> Snapshot:
            when = late + hours * int(HOUR)
            return Snapshot(
                at, names.make(datetime.fromtimestamp(when, UTC)), 10**6 + hours, 10**6 + hours, when
            )

        foreign = Snapshot(name, "before-the-upgrade", 7, 7, int(now - 12 * DAY))
        source = Dataset(
            name, 1, "filesystem", snapshots=(foreign, *(made(name, hours) for hours in range(-24, 9)))
        )
        rules = daemon.context.env.config.backup["mail"].keep.vault
        every = [made(into, hours) for hours in range(-24 * 365 * 3, 1)]
        kept = decide_retention(
            every, rules, now=now - HOUR * 11, zone=UTC, protected={}, ours=lambda _: True
        )
        vault = Dataset(into, 2, "filesystem", snapshots=tuple(it.snapshot for it in kept if it.keep))
        sides = BothListings(Tree({name: source}), Tree({into: vault}), ((source, into),))
        listings = daemon.runs.readings.listings
        listings.keep("mail", sides, daemon.runs.lags.way("mail"), now - 600)
        found = json.loads(asyncio.run(daemon.page.dataset(f"1\0mail\0{name}")))
        return {**found, "next_run": now + 0.8 * HOUR}
    finally:
        daemon.history.close()


def files_of_a_snapshot() -> Any:
    """A folder of a snapshot that somebody has mounted."""
    now = time.time()
    names = (
        ("letters", "folder", None, 12),
        ("photos 2019", "folder", None, 340),
        (".profile", "file", 807, 900),
        ("accounts.ods", "file", 48_213, 3),
        ("inbox.mbox", "file", 3_412_889_014, 0.4),
        ("latest", "link", None, 3),
    )
    return {
        "now": now,
        "host": HOST,
        "backup": "mail",
        "mount": {
            "id": "0a",
            "snapshot": f"cold/{HOST}/mail/anna@zvault_2026-11-23T21:00:00Z",
            "folder": "/mnt/look",
            "since": now - 240,
        },
        "path": b64encode(b"office").decode(),
        "first": 0,
        "entries": [
            {
                "name": b64encode(name.encode()).decode(),
                "kind": kind,
                "size": size,
                "mtime": now - days * DAY,
                "link": b64encode(b"accounts.ods").decode() if kind == "link" else "",
            }
            for name, kind, size, days in names
        ],
        "total": len(names),
        "more": False,
        "error": "",
    }


def backups_page() -> Any:
    """The backup that is late."""
    now = time.time()
    late = first_page()["status"]["backups"][0]
    names = ["tank/mail", "tank/mail/anna", "tank/mail/office", "tank/mail/queue"]
    datasets = [
        {
            "dataset": name,
            "lag": lag * HOUR,
            "pending": pending,
            "newest": now - lag * HOUR,
            "base": now - lag * HOUR,
        }
        for name, lag, pending in zip(names, (9.2, 9.2, 1.2, 1.2), (9, 9, 1, 1), strict=True)
    ]
    run = backup_page()["runs"][0]
    why = "the device of vault 'cold' does not answer: its cluster has not enough OSDs"
    runs = [
        {
            **run,
            "id": f"20261124T{9 - back:02}0000-{4000 + back:x}",
            "backup": "mail",
            "trigger": "schedule",
            "started": now - back * HOUR,
            "ended": now - back * HOUR + 44,
            "seconds": 44.0,
            "result": "partial" if back < 9 else "ok",
            "bytes": 310 << 20,
            "error": {"reason": "failed", "what": "2 datasets could not be sent", "why": why, "next": ""}
            if back < 9
            else None,
            "warning": None,
        }
        for back in range(1, 11)
    ]
    return backup_page(
        backup=late,
        schedule="hourly",
        datasets=datasets,
        total=4,
        runs=runs,
        days=_days(now),
        host=HOST,
        now=now,
        mounts=[],
    )
