"""Documents as the daemon makes them, for tests of zvaultctl: by its own functions, from small inputs.

Each takes changes to its fields. What a test changes or writes by hand is checked by FakeDaemon when it is served.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.events import make_event
from zvault.api.blockstore import EngineStatus
from zvault.api.events import RunEvent
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.health.backup import BackupFacts, ProofFacts, judge_backup
from zvault.core.health.vault import judge_vault
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lag import DatasetLag
from zvault.daemon.assemble import assemble_runs
from zvault.daemon.event_publisher import EventPublisher
from zvault.daemon.history import RunHistory
from zvault.daemon.status import DaemonStatus
from zvault.devices.device_state import DeviceState
from zvault.devices.nbd import blockstore_server
from zvault.object_store.metered_store import BOUNDS
from zvault.ops import vault_documents
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment, WallClock
from zvault.ops.vault_facts import make_health_document, make_judged_vault, make_vault_facts
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import HostRunner
from zvault.zfs.pool.pool import PoolState

HOUR = 3600.0

ENDED = 1_790_000_000.25
"""When the backup's last run began and ended."""

NOW = 1_790_000_723.5

SINCE = time.time() - 73.5 * HOUR
"""When a vault's inhibitor was taken: no test takes half an hour."""

CONFIG = Config.model_validate(
    {
        "vault": {"cold": {"pool": "coldpool"}},
        "backup": {"home": {"source": "tank/home", "vault": "cold", "max_lag": "3h"}},
    }
)


FOLDER = tempfile.TemporaryDirectory(prefix="zvault-test-")


class StoppedClock(WallClock):
    def time(self) -> float:
        return NOW


def trouble(reason="transfer", what="the stream broke", why="zfs receive: out of space", next="make room"):
    return {"reason": reason, "what": what, "why": why, "next": next}


@cache
def daemon() -> DaemonStatus:
    """A daemon's state, of one backup that ran well 12 minutes ago."""
    return made(Path(FOLDER.name))


def made(folder: Path) -> DaemonStatus:
    """The same, whose files are in a folder."""
    paths = Paths(folder, folder, folder, folder)
    context = Context.of(Environment(CONFIG, paths, HostRunner(), "host", StoppedClock()))
    history = RunHistory(folder / "history.sqlite")
    history.begin("r1", "home", "schedule", ENDED, context.env.way(CONFIG.backup["home"]))
    history.end("r1", ENDED, "ok", {"bytes": 0, "datasets": 3, "sent": 0, "pruned": 0}, None)
    runs = assemble_runs(context, Vaults(context), history, EventPublisher())
    newest = Snapshot(DatasetName("tank/home"), "a", 1, 1, int(NOW - 723))
    runs.lags["home"] = {name: DatasetLag(name, newest, 0) for name in ("tank/home", "a", "b")}
    parts: Any = (
        SimpleNamespace(documents=_seen, vaults=SimpleNamespace(all=list)),
        runs,
        history,
        SimpleNamespace(next_run=lambda _: 1_790_003_600.0, behind=lambda: 0.0),
    )
    looked: Any = SimpleNamespace(trouble=None, looked=True, space=1 << 30)
    config: Any = SimpleNamespace(differs="")
    return DaemonStatus(context, *parts, started=1_789_000_000.0, state=looked, config=config)


async def _seen() -> list[Any]:
    return []


def backup(name="home", **changes):
    """Its verdict is on what was changed."""
    found = daemon().backup(CONFIG.backup["home"]) | {"name": name} | changes
    return found | {"verdict": make_health_document(judge_backup(backup_facts(found)))}


def backup_facts(found):
    """What a backup's document tells of it."""
    ago = found["last_success"]
    proofs = found["proofs"]
    return BackupFacts(
        found["name"],
        found["last_result"],
        found["last_error"],
        NOW - ago if ago is not None else None,
        found["lag_seconds"],
        found["max_lag_seconds"],
        held_back=found["held_back"] or 0,
        proofs={
            level: ProofFacts(1.0, None, proof["result"] == "differs", proof["told"])
            for level, proof in (proofs or {}).items()
        },
    )


def device(**changes):
    found = DeviceState("cold-0", "nbdkit:file /srv/cold.img", "/dev/nbd0", "up", "", 1 << 40)
    return vault_documents.make_device_document(found, NOW) | changes


def vault(name="cold", **changes):
    async def devices() -> list[DeviceState]:
        return [DeviceState("cold-0", "nbdkit:file /srv/cold.img", "/dev/nbd0", "up", "", 1 << 40)]

    async def imported() -> PoolState:
        return PoolState("coldpool", 1, 1 << 40, 1 << 38, 3 << 38, "ONLINE")

    keeper: Any = SimpleNamespace(
        name="cold",
        config=CONFIG.vault["cold"],
        users={"home": 1},
        pinned=False,
        awake=SimpleNamespace(held=True, since=SINCE),
        held_by=lambda: None,
        is_away=lambda: False,
        error=None,
        context=SimpleNamespace(
            env=SimpleNamespace(clock=StoppedClock()),
            records=SimpleNamespace(
                conditions=SimpleNamespace(get=lambda _: None), undo=SimpleNamespace(names=lambda _: [])
            ),
        ),
        devices=devices,
        imported=imported,
    )
    found = asyncio.run(vault_documents.make_vault_document(keeper)) | {"name": name} | changes
    return make_judged_vault(daemon().context, found, judge_vault(make_vault_facts(daemon().context, found)))


def status(*backups, vaults=None, warnings=()):
    found = daemon()
    found.warnings = {str(number): text for number, text in enumerate(warnings)}
    document = asyncio.run(found.document())
    return document | {"backups": list(backups), "vaults": [vault()] if vaults is None else vaults}


def event(kind, /, *, run="42", **fields):
    """An event as a run's emitter publishes it."""
    heard = []
    runs = daemon().runs
    runs.runner.events.subscribe(RunEvent, heard.append)
    try:
        runs.runner.emitter(run, "home")(make_event(kind, **fields))
    finally:
        runs.runner.events.subscribers.remove((RunEvent, heard.append))
    return heard[0]


def finished(result="ok", /, *, run="42", **changes):
    """The end of a run that sent two of three datasets."""
    fields = {
        "trigger": "hand",
        "result": result,
        "bytes": 2 << 30,
        "datasets": 3,
        "sent": 2,
        "pruned": 2,
        "seconds": 20.48,
        "error": None,
    }
    return event("run-finished", run=run, **fields | changes)


def run_events(result="ok", error=None, middle=()):
    rows = [
        ("tank/home", "incremental", 1 << 30),
        ("tank/home/a", "full", 1 << 30),
        ("tank/home/b", "nothing", 0),
    ]
    return [
        event("run-started", trigger="hand"),
        event("vault-up", vault="cold", message="pool coldpool imported from /dev/nbd0"),
        event("inhibitor", held=True, message="sleep waits for the run"),
        event("snapshot", snapname="zvault_2026-11-21T09:00:00Z", datasets=3),
        event(
            "plan",
            datasets=[
                {"dataset": name, "action": action, "bytes": size, "reason": "shares a base"}
                for name, action, size in rows
            ],
            bytes_total=2 << 30,
        ),
        *[one for number, (name, _, _) in enumerate(rows[:2]) for one in transfer(name, number << 30)],
        *middle,
        event("pruned", side="source", count=2, snapshots=["tank/home@x", "tank/home@y"]),
        event("pruned", side="vault", count=0, snapshots=[]),
        finished(result, error=error),
    ]


def transfer(dataset, before):
    """The events of one stream of 1G, of two in the run; ``before`` bytes were sent before it."""
    step = {"kind": "incremental", "from": "a", "to": "b", "bytes": 1 << 30, "reason": "shares a base"}
    return [
        event("transfer-started", dataset=dataset, **step),
        event(
            "progress",
            dataset=dataset,
            bytes=1 << 29,
            total=1 << 30,
            rate=float(100 << 20),
            buffer=(3, 97),
            run_bytes=before + (1 << 29),
            run_total=2 << 30,
        ),
        event(
            "transfer-finished",
            dataset=dataset,
            bytes=1 << 30,
            seconds=10.24,
            run_bytes=before + (1 << 30),
            run_total=2 << 30,
        ),
    ]


FIGURES: EngineStatus = {
    "mode": "writeback",
    "journal_used": 3 << 28,
    "journal_capacity": 8 << 30,
    "live_bytes": 280 << 30,
    "stored_bytes": 312 << 30,
    "fenced": False,
    "trouble": None,
}


def store(**changes):
    """What a block store's server said last."""
    said = {"at": NOW, "ready": True, "closed": False, "engine": FIGURES, "bounds": list(BOUNDS)}
    return dict(blockstore_server.make_store_document(said, NOW)) | changes
