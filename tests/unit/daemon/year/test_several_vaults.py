"""A backup with several vaults, by zvaultd itself, over pools that are values: whichever of them is away, and when."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.daemon.year import year_oracle as oracle
from tests.unit.daemon.year import year_world
from tests.unit.daemon.year.simulated_time import SimulatedLoop
from tests.unit.daemon.year.simulated_zfs import Own, Point, SimulatedZfs, carry
from tests.unit.daemon.year.year_oracle import BERLIN
from tests.unit.daemon.year.year_world import HOUR, World, in_toml, list_alarms
from zvault.core.errors import DeviceGone
from zvault.ops.replication.transfer import Transfers

BEGIN = datetime(2026, 11, 3, 11, 17, tzinfo=BERLIN)
MEMORY = Path("/dev/shm")
DATASETS = ("tank/a", "tank/a/below")
SOURCE_RULES = {"last": 2, "hourly": 6}
RULES = {"cold": {"last": 3, "hourly": 24, "daily": 7}, "usb": {"hourly": 4, "daily": 7}}


def make_config(**changes: Any) -> dict[str, Any]:
    """One backup of ``tank/a`` into cold by the hour, and as ``changes`` say."""
    backup: dict[str, Any] = {
        "source": "tank/a",
        "schedule": "hourly",
        "keep": {"source": SOURCE_RULES, "vault": RULES["cold"]},
        "prune_limit": "100%",
        "retries": 0,
        "verify": {"every": "off"},
        "max_lag": "3h",
    }
    return {
        "daemon": {"timezone": "Europe/Berlin", "host": "host", "metrics": "off"},
        "vault": {name: {"pool": name, "scrub": {"every": "off"}} for name in ("cold", "usb")},
        "backup": {"a": {**backup, **changes}},
    }


def of_both(**usb: Any) -> dict[str, Any]:
    return make_config(vaults={"cold": {}, "usb": {"keep": {"vault": RULES["usb"]}, **usb}})


@dataclass
class Seen:
    """What happened: the snapshots that were made, by when (the loop's time); and the streams, by vault and dataset."""

    made: list[tuple[float, dict[str, Point]]] = field(default_factory=list)
    fulls: Counter[tuple[str, str]] = field(default_factory=Counter)

    def history(self, dataset: str) -> list[Point]:
        return [points[dataset] for _, points in self.made if dataset in points]


class Life:
    """The host, and what is checked at any time."""

    def __init__(self, world: World, seen: Seen) -> None:
        self.world, self.seen = world, seen

    def own(self, dataset: str, vault: str | None = None) -> Own | None:
        pools = self.world.pools.pools
        if vault is None:
            return pools["tank"].datasets[dataset]
        return pools[vault].datasets.get(f"{vault}/host/{dataset}")

    def check_bases(self) -> None:
        """The base of each vault, also of one that is away, is held on the source and bookmarked."""
        for dataset in DATASETS:
            source = self.own(dataset)
            assert source is not None
            marks = {mark.guid for mark in source.marks.values()}
            for vault in RULES:
                there = self.own(dataset, vault)
                if there is not None and there.points:
                    newest = max(there.points.values(), key=lambda one: one.txg)
                    assert newest.guid in marks, f"{vault} lost its base of {dataset}"
                    assert source.holds.get(newest.snapname), f"the base of {vault} is not held"

    def check_vault(self, vault: str, rules: dict[str, int]) -> None:
        """A vault that is back has what its rules keep of all that was ever made, as if it had never been away."""
        for dataset in DATASETS:
            there = self.own(dataset, vault)
            assert there is not None
            history = self.seen.history(dataset)
            assert {one.guid for one in there.points.values()} == oracle.kept(history, rules)

    def check_moments(self) -> None:
        """Each hour has one snapshot, of all datasets."""
        hours = Counter(int((at + BEGIN.timestamp()) // HOUR) for at, _ in self.seen.made)
        assert set(hours.values()) == {1}
        assert all(points.keys() == set(DATASETS) for _, points in self.seen.made)

    async def reload(self, config: dict[str, Any]) -> None:
        (self.world.folder / "zvault.toml").write_text(
            "".join(f"{key} = {in_toml(config[key])}\n" for key in config)
        )
        await self.world.daemon.config_reload.reload()
        assert self.world.daemon.metrics.reload_ok


def live(
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    script: Callable[[Life], Awaitable[None]],
    send: Callable[..., Awaitable[Any]] = carry,
) -> Life:
    """Have zvaultd serve while a script goes on; what it counts of. ``send`` is what a stream does."""
    with (
        monkeypatch.context() as patch,
        tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder,
    ):
        patch.setattr(year_world, "CONFIG", config)
        loop, seen = SimulatedLoop(), Seen()
        world = World(Path(folder), loop, BEGIN.timestamp(), patch)
        life = Life(world, seen)
        make = SimulatedZfs.snapshot

        async def snapshot(self: SimulatedZfs, names: Sequence[str], properties: Any) -> None:
            await make(self, names, properties)
            found = {name.partition("@")[0]: self._named(name) for name in names}
            points = {dataset: own.points[short] for dataset, (own, short) in found.items()}
            seen.made.append((world.loop.now, points))

        async def counted(self: Any, step: Any, plan: Any, dataset: Any, *rest: object) -> Any:
            if step.base is None:
                seen.fulls[self.opened.vault.name, dataset.name] += 1
            return await send(self, step, plan, dataset, *rest)

        patch.setattr(SimulatedZfs, "snapshot", snapshot)
        patch.setattr(Transfers, "_carry", counted)

        async def whole() -> None:
            await world.start()
            await script(life)
            life.check_bases()
            await world.stop()

        try:
            loop.run_until_complete(whole())
        finally:
            loop.close()
        assert world.journal.errors == []
        return life


absences = st.lists(
    st.tuples(st.sampled_from(["cold", "usb"]), st.integers(0, 26), st.integers(1, 14)), max_size=4
)


@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(absences)
def test_whichever_vault_is_away_each_ends_with_what_its_rules_keep(
    monkeypatch: pytest.MonkeyPatch, away: list[tuple[str, int, int]]
) -> None:
    """One snapshot an hour for both, no base is lost, nothing is sent in full twice; none waits for the other."""

    async def script(life: Life) -> None:
        pools = life.world.pools.pools
        for hour in range(42):
            for vault in RULES:
                pools[vault].away = any(
                    one == vault and begin <= hour < begin + lasts for one, begin, lasts in away
                )
            await asyncio.sleep(HOUR)
            life.check_bases()
            for vault, rules in RULES.items():
                if not pools[vault].away:
                    life.check_vault(vault, rules)

    life = live(monkeypatch, of_both(), script)
    life.check_moments()
    assert life.seen.fulls == {(vault, dataset): 1 for vault in RULES for dataset in DATASETS}
    failed = {one.backup for one in life.world.ended if one.result != "ok"}
    assert failed == {f"a@{vault}" for vault, _, _ in away}


def test_a_disk_that_is_away_for_long_does_not_fill_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``backlog = "newest"`` the source keeps its base, and else what its own rules keep."""

    async def script(life: Life) -> None:
        await asyncio.sleep(3 * HOUR)
        life.world.pools.pools["usb"].away = True
        base = life.own("tank/a", "usb")
        assert base is not None
        last = max(base.points.values(), key=lambda one: one.txg)
        await asyncio.sleep(72 * HOUR)
        source = life.own("tank/a")
        assert source is not None
        assert {one.guid for one in source.points.values()} == oracle.kept(
            life.seen.history("tank/a"), SOURCE_RULES, {last.guid}
        )
        life.world.pools.pools["usb"].away = False
        await asyncio.sleep(HOUR)

    life = live(monkeypatch, of_both(backlog="newest"), script)
    assert set(life.seen.fulls.values()) == {1}
    life.check_moments()


def test_a_second_vault_changes_nothing_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is sent in full again, no run is made up for, the history goes on; and so it does on the way back."""

    async def script(life: Life) -> None:
        daemon = life.world.daemon
        await asyncio.sleep(5 * HOUR)
        runs = daemon.history.runs("a", 99)
        for config, name, other in ((of_both(), "a@cold", "a"), (make_config(vault="cold"), "a", "a@cold")):
            begun = len([one for one in life.world.begun if one[1] == name])
            lags, proofs = daemon.runs.lags[other], daemon.runs.proofs[other]
            daemon.runs.counters.over_limit[other, "vault"] = 1
            await life.reload(config)
            assert daemon.runs.lags[name] == lags
            assert daemon.runs.proofs[name] == proofs
            assert daemon.runs.counters.over_limit.pop((name, "vault")) == 1
            await asyncio.sleep(60.0)
            assert [one for one in life.world.begun[begun:] if one[1] == name] == []
            assert daemon.history.runs(other, 99) == []
            assert [one["id"] for one in daemon.history.runs(name, 99)][-len(runs) :] == [
                one["id"] for one in runs
            ]
            assert daemon.scheduler.next_run(name) is not None
            await asyncio.sleep(5 * HOUR - 60.0)
            assert await list_alarms(life.world) == frozenset()
        source = life.own("tank/a")
        usb = life.own("tank/a", "usb")
        assert source is not None
        assert usb is not None
        left = max(usb.points.values(), key=lambda one: one.txg)
        assert source.holds.get(left.snapname), (
            "a vault that is taken from the list keeps its base, as a backup does"
        )

    life = live(monkeypatch, make_config(vault="cold"), script)
    assert life.seen.fulls == {(vault, dataset): 1 for vault in RULES for dataset in DATASETS}
    assert all(one.result == "ok" for one in life.world.ended)
    assert {one.backup for one in life.world.ended} == {"a", "a@cold", "a@usb"}


@pytest.mark.parametrize("change", ["to several", "to one", "to another name"])
@pytest.mark.parametrize("waits", [False, True], ids=["while it sends", "while it waits to try again"])
def test_a_run_in_the_middle_of_a_reload_goes_on_under_the_new_name(
    monkeypatch: pytest.MonkeyPatch, change: str, waits: bool
) -> None:
    """It ends well, nothing is sent beside it, and all that is known of it is the renamed backup's."""
    sending: list[tuple[str, str]] = []
    to_fail: list[str] = []

    async def send(self: Any, step: Any, plan: Any, dataset: Any, *rest: object) -> Any:
        stream = self.opened.vault.name, dataset.name
        assert stream not in sending, "two runs send the same dataset into the same place"
        sending.append(stream)
        try:
            await asyncio.sleep(600.0)
            if dataset.name in to_fail and self.opened.vault.name == "cold":
                to_fail.remove(dataset.name)
                raise DeviceGone("the device went away")
            return await carry(self, step, plan, dataset, *rest)
        finally:
            sending.remove(stream)

    tries = {"retries": 1, "retry_wait": "10m"}
    one, several = make_config(vault="cold", **tries), of_both()
    several["backup"]["a"] |= tries
    named = {**one, "backup": {"z": one["backup"]["a"]}}
    before, after = {"to several": (one, several), "to one": (several, one)}.get(change, (one, named))
    old, new = {"to several": ("a", "a@cold"), "to one": ("a@cold", "a")}.get(change, ("a", "z"))

    async def script(life: Life) -> None:
        daemon = life.world.daemon
        await asyncio.sleep(3 * HOUR)
        to_fail.extend(DATASETS if waits else ())
        while not [vault for vault, _ in sending if vault == "cold"]:
            await asyncio.sleep(60.0)
        await asyncio.sleep(700.0 if waits else 60.0)
        run = daemon.runs.runner.running(old)
        assert run is not None
        assert (run.waiting is not None) == waits
        await life.reload(after)
        await asyncio.sleep(60.0)
        assert daemon.runs.runner.running(new) is run
        await asyncio.sleep(2 * HOUR)
        assert daemon.history.runs(old, 99) == []
        assert {one.result for one in life.world.ended if one.backup in {old, new}} == {"ok"}
        assert run.id in [one["id"] for one in daemon.history.runs(new, 99)]
        assert await list_alarms(life.world) == frozenset()

    life = live(monkeypatch, before, script, send)
    assert life.seen.fulls["cold", "tank/a"] == 1


def test_what_is_unchanged_for_one_vault_is_new_to_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """With ``skip_unchanged`` a vault that comes back gets a snapshot of what it lacks, and lags no more."""

    async def script(life: Life) -> None:
        source, below = life.own("tank/a"), life.own("tank/a/below")
        assert source is not None
        assert below is not None
        for hour in range(9):
            life.world.pools.pools["usb"].away = 2 <= hour < 6
            source.written = 1
            below.written = 1 if hour in {0, 3} else below.written
            await asyncio.sleep(HOUR)
        for dataset in DATASETS:
            own = life.own(dataset)
            assert own is not None
            newest = list(own.points.values())[-1].guid
            for vault in RULES:
                there = life.own(dataset, vault)
                assert there is not None
                assert newest in {one.guid for one in there.points.values()}
                told = life.world.daemon.status.dataset_lags(f"a@{vault}")[dataset][1]
                assert told is not None
                assert told <= HOUR
        assert await list_alarms(life.world) == frozenset()

    config = of_both()
    config["backup"]["a"] |= {"snapshot": {"skip_unchanged": True}, "send": {"properties": False}}
    life = live(monkeypatch, config, script)
    hours = Counter(int((at + BEGIN.timestamp()) // HOUR) for at, _ in life.seen.made)
    assert sorted(hours.values()) == [1] * 9 + [2], "one more as usb came back"
    made_of_below = [at for at, points in life.seen.made if "tank/a/below" in points]
    assert 2 <= len(made_of_below) < len(life.seen.made)


def test_runs_by_hand_begin_together_and_send_one_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is asked for later has a state of later."""

    async def script(life: Life) -> None:
        runs = life.world.daemon.runs
        started = runs.start_all("a")
        assert started.get("runs", {}).keys() == {"a@cold", "a@usb"}
        await asyncio.sleep(30.0)
        assert len(life.seen.made) == 1
        runs.start("a@usb", "hand")
        await asyncio.sleep(5.0)
        runs.start("a@cold", "hand")
        await asyncio.sleep(30.0)
        assert len(life.seen.made) == 3

    config = of_both()
    del config["backup"]["a"]["schedule"]
    life = live(monkeypatch, config, script)
    assert [one.result for one in life.world.ended] == ["ok"] * 4


def test_snapshots_at_their_own_time_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def script(life: Life) -> None:
        await asyncio.sleep(12 * HOUR - 720.0)  # until five minutes after a run
        for vault, rules in RULES.items():
            life.check_vault(vault, rules)

    config = of_both()
    config["backup"]["a"] |= {"snapshot": {"every": "30m", "make": False}}
    life = live(monkeypatch, config, script)
    assert 23 <= len(life.seen.made) <= 25
    assert {one[1] for one in life.world.begun if one[2] == "snapshot"} == {"a@cold"}
