"""The pools and backups of a month of the daemon's clock: what is so, what is told, and what should be.

What should be is worked out in ``month_oracle``, from the documentation; what is so is read by ``zfs list``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import quick_tick
import world
from crash_world import DROP_IN, api
from month_oracle import HOUR, Calendar, pruned, told
from world import DISK, World, ctl, eventually, named_at, sh

QUARTERS = Calendar("*/15 * * * *", minutes=(0, 15, 30, 45))
HOURS = Calendar("hourly", minutes=(0,))
NIGHTS = Calendar("30 2 * * *", minutes=(30,), hours=(2,))
WEEKS = Calendar("weekly", minutes=(0,), hours=(0,), weekdays=(0,))

LATEST = 10.0
"""Seconds that a run may begin after its time: a tick, on a busy machine."""


@dataclass
class Plan:
    """A backup as configured: its datasets, its vault, when it runs, what each side keeps (``within`` in seconds)."""

    datasets: tuple[str, ...]
    vault: str
    schedule: Calendar
    source: Mapping[str, int]
    keep: Mapping[str, int]

    def text(self, name: str) -> str:
        """Its table in the configuration."""

        def rules(side: Mapping[str, int]) -> str:
            words = (f'{rule} = "{n}s"' if rule == "within" else f"{rule} = {n}" for rule, n in side.items())
            return f"{{ {', '.join(words)} }}"

        return f"""
[backup.{name}]
source = "{self.datasets[0]}"
vault = "{self.vault}"
schedule = "{self.schedule.text}"
keep = {{ source = {rules(self.source)}, vault = {rules(self.keep)} }}
snapshot = {{ prefix = "{name}" }}
verify = {{ every = "off" }}
retries = 0
"""


def plans() -> dict[str, Plan]:
    """Every 15 minutes, each night, and each week; the last two take the same dataset into two vaults."""
    return {
        "quarter": Plan(
            ("tank/a", "tank/a/below"),
            "cold",
            QUARTERS,
            {"last": 2, "hourly": 3},
            {"last": 3, "hourly": 5, "daily": 5, "weekly": 2},
        ),
        "night": Plan(("tank/b",), "small", NIGHTS, {"within": 84 * HOUR}, {"daily": 6, "weekly": 3}),
        "week": Plan(("tank/b",), "cold", WEEKS, {"last": 1}, {"within": 396 * HOUR, "monthly": 3}),
    }


@dataclass
class Sides:
    """What a backup should have on either side: when each snapshot was made; and how its last run should have ended."""

    source: list[int] = field(default_factory=list)
    vault: list[int] = field(default_factory=list)
    result: str = ""
    held_back: int = 0


class Month(World):
    """The pools ``tank``, ``cold`` and ``small``, the backups, and what the test knows of them."""

    def __init__(self) -> None:
        super().__init__()
        self.plans = plans()
        self.sides = {name: Sides() for name in self.plans}
        self.away: set[str] = set()
        self.full: set[str] = set()
        self.warnings = 0
        self.at = 0.0
        self.serial = 0

    def source(self) -> None:
        DISK.mkdir(exist_ok=True)
        for pool, size in {"tank": "768M", "cold": "512M", "small": "96M"}.items():
            sh("truncate", "-s", size, str(DISK / f"{pool}.img"))
            device = sh("losetup", "--find", "--show", str(DISK / f"{pool}.img")).strip()
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", "-O", "compression=off", pool, device)
        for name in ("tank/a", "tank/a/below", "tank/b"):
            sh("zfs", "create", name)
        DROP_IN.parent.mkdir(parents=True, exist_ok=True)
        DROP_IN.write_text(f"[Service]\nExecStart=\nExecStart={quick_tick.SERVER}\n")
        sh("systemctl", "daemon-reload")

    def clean(self) -> None:
        super().clean()
        sh("losetup", "--detach-all", check=False)
        DROP_IN.unlink(missing_ok=True)
        sh("systemctl", "daemon-reload")

    def config_text(self) -> str:
        vaults = "".join(
            f'\n[vault.{name}]\npool = "{name}"\nup = "always"\nscrub = {{ every = "off" }}\n'
            for name in ("cold", "small")
        )
        head = f'[daemon]\nmetrics = "{world.METRICS}"\nhost = "lab"\ntimezone = "Europe/Berlin"\n'
        return head + vaults + "".join(plan.text(name) for name, plan in self.plans.items())

    # Time passes

    def due(self, until: float) -> dict[str, int]:
        """The first time of each backup that comes after now, and until then."""
        found = {name: plan.schedule.missed(self.at, until, most=1) for name, plan in self.plans.items()}
        return {name: times[0] for name, times in found.items() if times}

    def to(self, moment: float) -> None:
        """Set the clock to a moment at which nothing is due: what came until then has passed, and runs once."""
        print(f"{time.monotonic():7.1f} {told(moment)}", flush=True)
        self.write()
        before = history()
        expected = set(self.due(moment))
        self.set_clock(moment)
        self.ran(expected, before)
        self.look()

    def on_time(self, moment: int) -> None:
        """Wait for a time at which something is due, from seconds before it; nothing else comes until then."""
        due = self.due(moment)
        assert set(due.values()) == {moment}, (told(moment), due)
        print(f"{time.monotonic():7.1f} {told(moment)} on time: {', '.join(due)}", flush=True)
        self.write()
        before = history()
        for name, next_run in next_runs().items():
            assert next_run == self.plans[name].schedule.first_after(self.at), (name, told(next_run))
        self.set_clock(moment - 2.0)
        for run in self.ran(set(due), before):
            assert run["trigger"] == "schedule", run
            assert 0 <= run["started"] - moment < LATEST, (run, told(run["started"]))
        self.look()

    def set_clock(self, moment: float) -> None:
        self.at = moment
        time.clock_settime(time.CLOCK_REALTIME, moment)

    def write(self) -> None:
        """Something new for every backup, which no two snapshots share."""
        self.serial += 1
        for name in ("tank/a", "tank/a/below", "tank/b"):
            (Path("/") / name / "file").write_bytes(os.urandom(20_000) + self.serial.to_bytes(8, "big"))

    def ran(self, expected: set[str], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Wait until these backups ran and nothing runs: each once, and no other. Foresee what they left."""
        known = {run["id"] for run in before}

        def settled() -> list[dict[str, Any]] | None:
            new = [run for run in history() if run["id"] not in known]
            done = {run["backup"] for run in new} >= expected and all(run["ended"] for run in new)
            return new if done else None

        if expected:
            eventually(
                lambda: f"{expected} to run: {history()[:4]}\n{world.journal()[-3000:]}", settled, every=0.1
            )
        self.at = time.time()
        new = [run for run in history() if run["id"] not in known]
        assert sorted(run["backup"] for run in new) == sorted(expected), new
        for run in sorted(new, key=lambda run: run["started"]):
            self._foresee(run)
        return new

    def _foresee(self, run: dict[str, Any]) -> None:
        """What a run should have left on both sides, and how it should have ended."""
        plan, sides = self.plans[run["backup"]], self.sides[run["backup"]]
        away = plan.vault in self.away
        made = [one for one in moments(plan.datasets[0], run["backup"]) if one not in sides.source]
        new = [one for one in made if run["started"] - 1 <= one <= run["ended"]]
        assert len(new) == 1, f"one new snapshot for {run}, and not {[told(one) for one in made]}"
        sides.result = "failed" if away or plan.vault in self.full else "ok"
        arrived = set() if sides.result == "failed" else {*sides.source, *new} - set(sides.vault)
        if sides.vault and sides.result == "ok":
            arrived = {one for one in arrived if one > sides.vault[-1]}
        # A vault that is away is not pruned; its source gets its snapshot, and is.
        vault = pruned(sides.vault, arrived, plan.keep, run["ended"]) if not away else None
        left = vault.left if vault is not None else sides.vault
        unsent = {one for one in (*sides.source, *new) if not left or one >= left[-1]}
        source = pruned(sides.source, new, plan.source, run["ended"], needed=unsent)
        sides.source, sides.vault = source.left, left
        if vault is not None:
            sides.held_back = (source.held_back + vault.held_back) * len(plan.datasets)
        assert run["result"] == sides.result, run

    # What is so

    def look(self) -> None:
        """Both sides have what they should, and all that is told is what is so."""
        for name, sides in self.sides.items():
            plan = self.plans[name]
            for dataset in plan.datasets:
                assert moments(dataset, name) == sides.source, self._differs(name, dataset, sides.source)
                if plan.vault not in self.away:
                    there = f"{plan.vault}/lab/{dataset}"
                    assert moments(there, name) == sides.vault, self._differs(name, there, sides.vault)
        self.status()
        self.metrics()

    def _differs(self, name: str, dataset: str, expected: list[int]) -> str:
        found = moments(dataset, name)
        lacks = [told(one) for one in expected if one not in found]
        more = [told(one) for one in found if one not in expected]
        return f"{dataset}: of {name} it lacks {lacks}, and has {more} that it should not"

    def late(self, name: str) -> bool:
        """Whether two times of a backup have passed since what its vault has."""
        return len(self.plans[name].schedule.missed(self.sides[name].vault[-1] + 1, time.time())) >= 2

    def health(self, name: str) -> str:
        """What the status should say of a backup."""
        sides = self.sides[name]
        if sides.result == "failed":
            return "failed"
        if self.late(name):
            return "late"
        return "held-back" if sides.held_back else sides.result

    def status(self) -> None:
        """The exit status, who is late, and the state of each backup and vault, are as the test has made them."""

        def expected() -> tuple[int, set[str], dict[str, str], int]:
            states = {name: self.health(name) for name in self.plans}
            states |= {name: "failed" if name in self.away else "ok" for name in ("cold", "small")}
            code = int(set(states.values()) != {"ok"} or self.warnings > 0)
            return code, {name for name in self.plans if self.late(name)}, states, self.warnings

        def found() -> tuple[int, set[str], dict[str, str], int]:
            done = ctl("status", "-H")
            states = {row[1]: row[2] for row in (line.split("\t") for line in done.out.splitlines())}
            whole = api("GET", "/v1/status")
            late = {one["name"] for one in whole["backups"] if one["late"]}
            return done.code, late, states, len(whole["daemon"]["warnings"])

        eventually(
            lambda: f"expected {expected()}, told {found()}\n{ctl('status').out}",
            lambda: found() == expected(),
        )

    def metrics(self) -> None:
        """The next runs, and each lag, as they are told to Prometheus."""

        def wrong() -> dict[str, Any]:
            began = time.time()
            samples, now = world.metrics(), time.time()
            found: dict[str, Any] = {}
            for name, plan in self.plans.items():
                key = f'zvault_backup_next_run_timestamp_seconds{{backup="{name}"}}'
                if samples.get(key) != plan.schedule.first_after(now):
                    found[key] = samples.get(key)
                for dataset in plan.datasets:
                    key = f'zvault_backup_lag_seconds{{backup="{name}",dataset="{dataset}"}}'
                    lag = samples.get(key)
                    if lag is None or not began - 5 <= self.sides[name].vault[-1] + lag <= now + 5:
                        found[key] = lag
            if samples["zvault_config_reload_success"] != (self.warnings == 0):
                found["reload"] = self.warnings
            return found

        eventually(lambda: f"the metrics: {wrong()}", lambda: not wrong())


def history() -> list[dict[str, Any]]:
    """The newest runs first."""
    return api("GET", "/v1/history?limit=12")["runs"]


def next_runs() -> dict[str, float]:
    """When each backup is due, as the status tells it."""
    return {one["name"]: one["next_run"] for one in api("GET", "/v1/status")["backups"]}


def moments(dataset: str, prefix: str) -> list[int]:
    """When the snapshots of a backup were made that a dataset has, by their names, oldest first."""
    listed = sh("zfs", "list", "-Hp", "-t", "snapshot", "-o", "name", "-s", "createtxg", "-d", "1", dataset)
    names = (line.partition("@")[2] for line in listed.splitlines())
    return [named_at(name) for name in names if name.startswith(f"{prefix}_")]
