"""A host for a year: its pools, its clock, and the zvaultd that runs on it; and what it counts of itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from apscheduler.schedulers import base as apscheduler

from tests.unit.daemon.year.simulated_time import SimulatedClock, SimulatedLoop
from tests.unit.daemon.year.simulated_zfs import (
    Own,
    Pool,
    Pools,
    SimulatedZfs,
    SimulatedZpool,
    carry,
)
from zvault.api.events import RunEvent, RunFinished, RunStarted, SnapshotMade
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.config.templates import resolve_templates
from zvault.core.errors import ToolMissing
from zvault.core.integrity.verification import LevelProof
from zvault.core.policy import cron_schedule
from zvault.daemon import app, assemble, lag_readings, scheduler
from zvault.daemon.assemble import assemble_daemon
from zvault.daemon.journald import log
from zvault.daemon.monitors.sleep_monitor import SleepMonitor
from zvault.daemon.monitors.stall_monitor import StallMonitor
from zvault.ops import run as run_module
from zvault.ops.replication import listing as sides_module
from zvault.ops.replication import run_plan
from zvault.ops.replication.small_streams import SmallStreams
from zvault.ops.replication.transfer import Transfers
from zvault.ops.vaults import inhibitor, vault
from zvault.ops.verification import verification
from zvault.system import tasks
from zvault.system.logind import InhibitorLock
from zvault.system.process.runner import HostRunner

HOUR, DAY = 3600.0, 86400.0

RULES: dict[str, dict[str, int]] = {
    "source": {"last": 2, "hourly": 6},
    "vault": {"last": 3, "hourly": 24, "daily": 7, "weekly": 3},
}

OWN_TIME = "20m"
"""How often backup a makes snapshots apart from its runs. b makes them in its runs alone."""

CONFIG: dict[str, Any] = {
    "daemon": {"timezone": "Europe/Berlin", "host": "host", "metrics": "off"},
    "vault": {name: {"pool": name, "scrub": {"every": "off"}} for name in ("cold", "usb")},
    "backup": {
        name: {
            "source": f"tank/{name}",
            "vault": where,
            "schedule": "hourly",
            "keep": RULES,
            "prune_limit": "100%",
            "retries": 1,
            "verify": {"every": "2d"},
            "max_lag": "3h",
            "snapshot": times,
        }
        for name, where, times in (("a", "cold", {"every": OWN_TIME}), ("b", "usb", {}))
    },
}

EVERY: dict[str, float] = {
    "OBSERVE_EVERY": 1200.0,
    "STATUS_LINE_INTERVAL": 3600.0,
    "READINGS_EVERY": DAY,
    "NOTIFY_PAUSE": 3600.0,
    "VAULT_INTERVAL": 1200.0,
    "FEED_INTERVAL": 1200.0,
    "STATE_INTERVAL": 7200.0,
    "CONFIG_INTERVAL": DAY,
    "VERIFY_INTERVAL": 1200.0,
}
"""Seconds between zvaultd's looks: what matters here comes by the hour, and a second is looked at no closer."""

TICK = 300.0

SIMULATED = "this host is simulated"
"""Why no program can be run."""


class NoTools(HostRunner):
    """A host on which no program can be run."""

    async def run(self, argv: Any, **_: Any) -> Any:
        raise ToolMissing(f"{argv[0]} is not installed", SIMULATED, "")


class Journal(logging.Handler):
    """Counts what is written to the journal, by the day."""

    def __init__(self, clock: SimulatedClock) -> None:
        super().__init__()
        self.clock = clock
        self.lines: Counter[int] = Counter()
        self.newest: deque[tuple[datetime, logging.LogRecord]] = deque(maxlen=60)
        self.errors: list[str] = []
        self.warnings: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines[int(self.clock.loop.now // DAY)] += 1
        self.newest.append((self.clock.now(), record))
        if record.levelno >= logging.WARNING and SIMULATED not in record.getMessage():
            self.warnings.append((self.clock.loop.now, record.getMessage()))
        if record.exc_info:
            self.errors.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@dataclass(frozen=True)
class Use:
    """What zvaultd uses of its host: open files, objects in memory, rows and bytes of its history."""

    files: int
    objects: int
    history: int
    state: int


@dataclass(frozen=True)
class Ended:
    """A run that ended: when, by the loop's time and by the clock (seconds), of what, why, and how."""

    at: float
    clock: float
    backup: str
    trigger: str
    result: str
    error: str


def in_toml(value: Any) -> str:
    """A table of the configuration on one line."""
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {in_toml(one)}' for key, one in value.items())} }}"
    return json.dumps(value)


@dataclass(frozen=True)
class Alarm:
    """A finding that would have somebody look: a warning, or critical. ``why`` is of the last time."""

    kind: str
    subject: str
    condition: str
    why: str = field(compare=False)


async def list_alarms(world: World) -> frozenset[Alarm]:
    """What zvaultd finds to be wrong at this moment, of everything that it judges."""
    document = await world.daemon.status.document()
    judged = [("zvaultd", "", document["daemon"]["verdict"])]
    judged += [("backup", one["name"], one["verdict"]) for one in document["backups"]]
    judged += [("vault", one["name"], one["verdict"]) for one in document["vaults"]]
    return frozenset(
        Alarm(kind, subject, one["condition"], one["why"])
        for kind, subject, verdict in judged
        for one in verdict["findings"]
        if one["level"] in {"warning", "critical"}
    )


class World:
    """The host. By the loop's time: ``verified``, when a verification wanted which vault; ``begun``, when a run of
    which backup began, and why; ``made``, when which one made a snapshot; and ``ended``.
    """

    def __init__(self, folder: Path, loop: SimulatedLoop, began: float, monkeypatch: pytest.MonkeyPatch):
        self.loop, self.folder = loop, folder
        self.clock = SimulatedClock(loop, began)
        self.pools = Pools(self.clock.time)
        for name in ("tank", "cold", "usb"):
            self.pools.pools[name] = Pool(self.pools.new())
        for name in ("tank", "tank/a", "tank/a/below", "tank/b"):
            self.pools.pools["tank"].datasets[name] = Own(self.pools.new())
        self.journal = Journal(self.clock)
        self.zpool = SimulatedZpool(self.pools, NoTools())
        self.verified: list[tuple[float, str]] = []
        self.begun: list[tuple[float, str, str]] = []
        self.snapshots: Counter[str] = Counter()
        self.made: list[tuple[float, str]] = []
        self.ended: list[Ended] = []
        self._install(monkeypatch)

    def _install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have nothing real but zvaultd itself."""
        world = self

        async def nothing(*_: object, **__: object) -> Any:
            return None

        async def none(*_: object, **__: object) -> Any:
            return {}

        async def for_ever(*_: object) -> None:
            await asyncio.Event().wait()

        async def proofs(*_: object, **__: object) -> Any:
            return world.proofs_of(_)

        @contextlib.asynccontextmanager
        async def inhibit(*, why: str, what: str, mode: str) -> AsyncIterator[InhibitorLock]:
            yield InhibitorLock(held=True)

        monkeypatch.setattr(log, "propagate", False)
        monkeypatch.setattr(log, "isEnabledFor", lambda level: level >= logging.INFO)
        for name, every in EVERY.items():
            monkeypatch.setattr(app, name, every)
        monkeypatch.setattr(scheduler, "TICK", TICK)
        monkeypatch.setattr(tasks, "WATCH_EVERY", 1e9)
        monkeypatch.setattr(assemble, "HostRunner", NoTools)
        monkeypatch.setattr(app, "read_loaded_version", lambda: (2, 3, 9))
        monkeypatch.setattr(apscheduler, "datetime", self.clock.datetime_class())
        monkeypatch.setattr(StallMonitor, "watch", for_ever)
        monkeypatch.setattr(SleepMonitor, "watch", for_ever)
        monkeypatch.setattr(inhibitor, "hold_inhibitor", inhibit)
        for name in ("set_vault_parameters", "restore_parameters"):
            monkeypatch.setattr(vault, name, nothing)
        monkeypatch.setattr(vault, "examine_pool", nothing)
        monkeypatch.setattr(lag_readings, "read_proofs", proofs)
        monkeypatch.setattr(run_module, "prove_guids", proofs)
        for name in ("update_vault", "update_properties"):
            monkeypatch.setattr(run_module, name, nothing)
        monkeypatch.setattr(run_module, "watch_drift", lambda *_: contextlib.nullcontext())
        monkeypatch.setattr(run_plan, "read_source", none)
        monkeypatch.setattr(
            sides_module.rename_clone_rollback, "list_datasets_beside", lambda *_: asyncio.sleep(0, [])
        )
        monkeypatch.setattr(SmallStreams, "learn", nothing)
        monkeypatch.setattr(Transfers, "lacking", lambda _: asyncio.sleep(0, []))
        monkeypatch.setattr(Transfers, "_carry", carry)
        monkeypatch.setattr(verification.Verification, "execute", _verified(self))

    def proofs_of(self, arguments: tuple[object, ...]) -> Any:
        """The proofs that are on the vault, which is told by any of a function's arguments."""
        zfs = next(one for one in map(_client, arguments) if one is not None)
        pool = self.pools.pools[zfs.vault]
        pool.proofs.setdefault("guids", LevelProof(since=int(self.clock.time())))
        return dict(pool.proofs)

    # The daemon

    async def start(self) -> None:
        paths = Paths(self.folder, self.folder, self.folder)
        (self.folder / "zvault.toml").write_text(
            "".join(f"{key} = {in_toml(CONFIG[key])}\n" for key in CONFIG)
        )
        config = Config.model_validate(resolve_templates(CONFIG).data)
        self.daemon = assemble_daemon(config, paths, self.clock)
        clients: Any = self.daemon.context.clients
        clients._sources[None] = SimulatedZfs(self.pools)
        for name in CONFIG["vault"]:
            clients._vaults[name, None, ""] = VaultZfs(self.pools, name)
        clients.zpool = self.zpool
        self.daemon.events.subscribe(RunEvent, self._hear)
        log.addHandler(self.journal)
        self.serving = asyncio.create_task(self.daemon.serve())
        await asyncio.sleep(1.0)

    async def stop(self) -> None:
        self.daemon._stop.set()
        await self.serving
        log.removeHandler(self.journal)

    def _hear(self, event: RunEvent) -> None:
        if isinstance(event, RunStarted):
            self.begun.append((self.loop.now, event.backup, event.trigger))
        if isinstance(event, SnapshotMade):
            self.made.append((self.loop.now, event.backup))
        if isinstance(event, RunFinished) and event.trigger == "snapshot":
            self.snapshots[event.result] += 1
        elif isinstance(event, RunFinished):
            why = event.error["what"] if event.error is not None else ""
            self.ended.append(
                Ended(self.loop.now, self.clock.time(), event.backup, event.trigger, event.result, why)
            )

    # What is so

    def sides(self, dataset: str) -> tuple[Own, Own | None]:
        where = CONFIG["backup"][dataset.split("/")[1]]["vault"]
        return self.pools.dataset(dataset), self.pools.pools[where].datasets.get(f"{where}/host/{dataset}")

    def use(self) -> Use:
        cron_schedule._next_time.cache_clear()  # it remembers up to a bound, which is reached within days
        gc.collect()
        history = self.daemon.history._do("select count(*) from run")[0][0]
        objects = len(gc.get_objects()) - len(self.ended)
        state = sum(one.stat().st_size for one in self.folder.rglob("*") if one.is_file())
        return Use(len(list(Path("/proc/self/fd").iterdir())), objects, history, state)

    def last_words(self) -> str:
        """The end of the journal."""
        return "\n".join(f"{at:%a %d %H:%M:%S} {record.getMessage()}" for at, record in self.journal.newest)


class VaultZfs(SimulatedZfs):
    """The client of one vault's pool."""

    def __init__(self, pools: Pools, name: str) -> None:
        super().__init__(pools)
        self.vault = name


def _client(argument: Any) -> VaultZfs | None:
    found = getattr(argument, "zfs", argument)
    return found if isinstance(found, VaultZfs) else None


def _verified(world: World) -> Any:
    """In place of a verification's comparisons, which read files: it needs the vault all the same."""

    async def execute(self: Any) -> None:
        name = self.backup.vault
        world.verified.append((world.loop.now, name))
        async with self.vaults[name].use(f"verify {self.name}", self.say):
            now = int(world.clock.time())
            proofs = world.pools.pools[name].proofs
            proofs[self.level] = LevelProof(proven=now, tried=now, result="ok")
            self.proofs = dict(proofs)
            self.found.datasets = 1

    return execute
