"""A month of the daemon's clock, in steps: each backup ran when it should have, each side has what the rules keep, and
the status tells each trouble that the test has brought about, and no other.

The clock is set to just before, or just after, what the calendar in ``month_oracle`` says is due next. What is expected
is worked out there, from the documentation; what is so is read by ``zfs list``.
"""

from __future__ import annotations

import calendar
import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import quick_tick
import world
from crash_world import DROP_IN, api, same_files
from month_oracle import HOUR, Calendar, berlin, pruned, told
from world import DISK, World, ctl, eventually, sh, shell

LAB = {"mem": "3G", "timeout": 600}

QUARTERS = Calendar("*/15 * * * *", minutes=(0, 15, 30, 45))
HOURS = Calendar("hourly", minutes=(0,))
NIGHTS = Calendar("30 2 * * *", minutes=(30,), hours=(2,))
WEEKS = Calendar("weekly", minutes=(0,), hours=(0,), weekdays=(0,))

SCRAPE = 20.0
"""Seconds in which a trouble is to be told once it is there, and its end."""

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
        self._write()
        before = history()
        expected = set(self.due(moment))
        self._set(moment)
        self._ran(expected, before)
        self.look()

    def on_time(self, moment: int) -> None:
        """Wait for a time at which something is due, from seconds before it; nothing else comes until then."""
        due = self.due(moment)
        assert set(due.values()) == {moment}, (told(moment), due)
        print(f"{time.monotonic():7.1f} {told(moment)} on time: {', '.join(due)}", flush=True)
        self._write()
        before = history()
        for name, next_run in next_runs().items():
            assert next_run == self.plans[name].schedule.first_after(self.at), (name, told(next_run))
        self._set(moment - 2.0)
        for run in self._ran(set(due), before):
            assert run["trigger"] == "schedule", run
            assert 0 <= run["started"] - moment < LATEST, (run, told(run["started"]))
        self.look()

    def _set(self, moment: float) -> None:
        self.at = moment
        time.clock_settime(time.CLOCK_REALTIME, moment)

    def _write(self) -> None:
        """Something new for every backup, which no two snapshots share."""
        self.serial += 1
        for name in ("tank/a", "tank/a/below", "tank/b"):
            (Path("/") / name / "file").write_bytes(os.urandom(20_000) + self.serial.to_bytes(8, "big"))

    def _ran(self, expected: set[str], before: list[dict[str, Any]]) -> list[dict[str, Any]]:
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
        if plan.vault in self.away:
            sides.result = "failed"
        else:
            made = [one for one in moments(plan.datasets[0], run["backup"]) if one not in sides.source]
            new = [one for one in made if run["started"] - 1 <= one <= run["ended"]]
            assert len(new) == 1, f"one new snapshot for {run}, and not {[told(one) for one in made]}"
            sides.result = "failed" if plan.vault in self.full else "ok"
            arrived = set() if plan.vault in self.full else {*sides.source, *new} - set(sides.vault)
            if sides.vault and sides.result == "ok":
                arrived = {one for one in arrived if one > sides.vault[-1]}
            vault = pruned(sides.vault, arrived, plan.keep, run["ended"])
            there = [*sides.source, *new]
            unsent = {one for one in there if not vault.left or one >= vault.left[-1]}
            source = pruned(sides.source, new, plan.source, run["ended"], needed=unsent)
            sides.source, sides.vault = source.left, vault.left
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
            seconds=SCRAPE,
        )

    def metrics(self) -> None:
        """The next runs, and each lag, as they are told to Prometheus."""

        def wrong() -> dict[str, Any]:
            samples, now = world.metrics(), time.time()
            found: dict[str, Any] = {}
            for name, plan in self.plans.items():
                key = f'zvault_backup_next_run_timestamp_seconds{{backup="{name}"}}'
                if samples.get(key) != plan.schedule.first_after(now):
                    found[key] = samples.get(key)
                for dataset in plan.datasets:
                    key = f'zvault_backup_lag_seconds{{backup="{name}",dataset="{dataset}"}}'
                    lag = samples.get(key)
                    if lag is None or abs(now - self.sides[name].vault[-1] - lag) > 5:
                        found[key] = lag
            if samples["zvault_config_reload_success"] != (self.warnings == 0):
                found["reload"] = self.warnings
            return found

        eventually(lambda: f"the metrics: {wrong()}", lambda: not wrong(), seconds=SCRAPE)


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
    return [
        calendar.timegm(time.strptime(name.removeprefix(f"{prefix}_"), "%Y-%m-%dT%H:%M:%SZ"))
        for name in names
        if name.startswith(f"{prefix}_")
    ]


@contextmanager
def wall_clock() -> Iterator[None]:
    """The wall clock is as it was before when this ends."""
    real = time.time() - time.monotonic()
    try:
        yield
    finally:
        time.clock_settime(time.CLOCK_REALTIME, real + time.monotonic())


@pytest.fixture
def month() -> Iterator[Month]:
    it = Month()
    it.clean()
    with wall_clock():
        time.clock_settime(time.CLOCK_REALTIME, berlin(3, 1, 0, 10))
        it.source()
        try:
            yield it
        finally:
            it.clean()


def take_away(month: Month) -> None:
    """The vault ``cold`` is gone, and cannot be imported."""
    eventually(
        "nobody to look at the pool", lambda: shell("zpool export cold && echo gone", check=False) == "gone"
    )
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", str(DISK / "cold.img")).strip()
    sh("losetup", "--detach", loop)
    month.away.add("cold")


def bring_back(month: Month) -> None:
    sh("losetup", "--find", str(DISK / "cold.img"))
    month.away.remove("cold")


def grow(pool: str, size: str) -> None:
    """A vault gets a larger device."""
    image = str(DISK / f"{pool}.img")
    loop = sh("losetup", "--noheadings", "-O", "NAME", "--associated", image).strip()
    sh("truncate", "-s", size, image)
    sh("losetup", "--set-capacity", loop)
    sh("zpool", "online", "-e", pool, loop)


def reload(month: Month, *, good: bool = True) -> None:
    """Have the configuration of now taken over; one that is not ``good`` is told, and not in force."""
    month.configure()
    if not good:
        with world.CONFIG.open("a") as file:
            file.write("\nsched = 1\n")
    sh("systemctl", "reload", "zvaultd")
    month.warnings = 0 if good else 1
    month.look()


def test_a_month(month: Month) -> None:
    first_days(month)
    a_vault_is_away(month)
    a_vault_is_full(month)
    reloads(month)
    restarts(month)
    the_clock_is_put_forward(month)
    the_clock_is_put_back(month)
    same_files("tank/a", "cold/lab/tank/a")


def first_days(month: Month) -> None:
    """Each backup runs at once, for it never ran; an hour in full; then nights, and what is jumped over runs once."""
    month.configure()
    month.at = time.time()
    sh("systemctl", "start", "zvaultd")
    month._ran(set(month.plans), [])
    month.look()
    for minute in (15, 30, 45, 60):
        month.on_time(berlin(3, 1, 0, minute))
    month.to(berlin(3, 1, 2, 15, 1))
    month.on_time(berlin(3, 1, 2, 30))
    for day in (2, 3, 5, 6, 7):
        month.to(berlin(3, day, 2, 30, 1))
    month.to(berlin(3, 7, 23, 45, 1))
    month.on_time(berlin(3, 8, 0, 0))


def a_vault_is_away(month: Month) -> None:
    """What goes there fails, and says so; what goes elsewhere runs on. Once it is back, the next run is ok."""
    take_away(month)
    month.look()
    for day in (8, 9, 10):
        month.to(berlin(3, day, 2, 30, 1))
    assert [month.health(name) for name in month.plans] == ["failed", "ok", "ok"]
    assert month.late("quarter")
    bring_back(month)
    month.to(berlin(3, 11, 12, 0, 1))
    month.to(berlin(3, 15, 0, 0, 1))


def a_vault_is_full(month: Month) -> None:
    """What does not fit fails, and is on the vault with the next run once it has room."""
    month.to(berlin(3, 15, 2, 30, 1))
    world.noise(Path("/tank/b/big"), 100)
    month.full.add("small")
    for day in (16, 17):
        month.to(berlin(3, day, 2, 30, 1))
    assert [month.health(name) for name in month.plans] == ["ok", "failed", "ok"]
    assert month.late("night")
    grow("small", "512M")
    month.full.clear()
    month.to(berlin(3, 18, 2, 30, 1))


def reloads(month: Month) -> None:
    """A shorter rule prunes step by step; another schedule holds at once; a bad configuration changes nothing."""
    quarter = month.plans["quarter"]
    quarter.keep = {"last": 1}
    reload(month)
    month.on_time(berlin(3, 18, 2, 45))
    assert month.health("quarter") == "held-back"
    month.on_time(berlin(3, 18, 3, 0))
    quarter.schedule = HOURS
    reload(month)
    month.on_time(berlin(3, 18, 4, 0))
    quarter.schedule, quarter.keep = QUARTERS, plans()["quarter"].keep
    reload(month)
    reload(month, good=False)
    month.to(berlin(3, 19, 2, 30, 1))
    reload(month)


def restarts(month: Month) -> None:
    """What came while the daemon was down runs once when it is back, and nothing else does."""
    month.to(berlin(3, 22, 2, 30, 1))
    stopped(month, berlin(3, 22, 2, 40))
    stopped(month, berlin(3, 24, 12, 5))
    pid = world.main_pid()
    os.kill(pid, signal.SIGKILL)
    world.restarted(pid)
    month._ran(set(), history())
    month.look()
    month.to(berlin(3, 27, 2, 30, 1))


def stopped(month: Month, until: float) -> None:
    """The daemon is down meanwhile."""
    before = history()
    sh("systemctl", "stop", "zvaultd")
    month._write()
    expected = set(month.due(until))
    month._set(until)
    sh("systemctl", "start", "zvaultd")
    for run in month._ran(expected, before):
        assert run["trigger"] == "catch-up", run
    month.look()


def the_clock_is_put_forward(month: Month) -> None:
    """After 01:59 comes 03:00: every quarter of an hour that there is has its run, and 02:30 is at 03:30."""
    month.to(berlin(3, 28, 1, 30, 1))
    month.on_time(berlin(3, 28, 1, 45))
    for minute in (0, 15, 30, 45):
        month.on_time(berlin(3, 28, 3, minute))
    month.to(berlin(3, 28, 23, 45, 1))
    month.on_time(berlin(3, 29, 0, 0))
    month.to(berlin(3, 29, 2, 15, 1))
    month.on_time(berlin(3, 29, 2, 30))


def the_clock_is_put_back(month: Month) -> None:
    """After the first 02:59 comes 02:00: every quarter of an hour has its run, the night only its first 02:30."""
    month.to(berlin(10, 31, 2, 15, 1))
    month.on_time(berlin(10, 31, 2, 30))
    month.on_time(berlin(10, 31, 2, 45))
    for minute in (0, 15, 30, 45):
        month.on_time(berlin(10, 31, 2, minute, again=True))
    month.to(berlin(10, 31, 23, 45, 1))
    month.on_time(berlin(11, 1, 0, 0))
    month.to(berlin(11, 1, 2, 15, 1))
    month.on_time(berlin(11, 1, 2, 30))
