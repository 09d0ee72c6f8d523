"""Whatever befalls both sides and the daemon: the lag that zvault tells is the true one, a longer one, or unknown."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.unit.daemon.lag_world import Own, Pool, VaultSide, World, forget_state, install, oracle
from tests.unit.examples import cases
from tests.unit.ops.ops_world import HOUR
from zvault.core.model import Tree

MEMORY = Path("/dev/shm")
"""Each history writes what it has to several times; nothing of it needs a disk."""

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.integers(0, 2)),
        st.tuples(st.just("run"), st.integers(0, 2)),
        st.tuples(st.just("run, a stream breaks"), st.integers(0, 5)),
        st.tuples(st.just("power cut"), st.integers(1, 80)),
        st.tuples(
            st.sampled_from(
                [
                    "restart",
                    "vault up",
                    "vault down",
                    "rename",
                    "create",
                    "replace",
                    "prune the source",
                    "prune the vault",
                    "another pool",
                    "the vault goes back",
                    "the vault loses its newest",
                    "another vault",
                    "another place",
                    "lose the state",
                ]
            ),
            st.integers(0, 5),
        ),
    ),
    max_size=14,
)


async def take(world: World, what: str, number: int) -> None:
    """One step of a history."""
    for kind in (of_the_daemon, of_the_source, of_the_vault, of_the_configuration):
        await kind(world, what, number)


def backup_of(world: World, number: int) -> str:
    return world.backups[number % len(world.backups)]


def dataset_of(world: World, number: int) -> str:
    names = sorted(name for name in world.source if name != "tank")
    return names[number % len(names)]


async def of_the_daemon(world: World, what: str, number: int) -> None:
    backup = backup_of(world, number)
    match what:
        case "run":
            await world.run(backup)
        case "run, a stream breaks":
            world.breaks.add(dataset_of(world, number))
            await world.run(backup)
        case "power cut":
            await world.run(backup, crash_at=1 + number // len(world.backups))
        case "restart":
            await world.restart()
        case "lose the state":
            forget_state(world)


async def of_the_source(world: World, what: str, number: int) -> None:
    name = dataset_of(world, number)
    match what:
        case "rename":
            world.source[f"tank/y{world.new()}"] = world.source.pop(name)
        case "create":
            world.source[f"tank/z{world.new()}"] = Own(world.new())
        case "replace":
            world.source[name] = Own(world.new())
        case "prune the source":
            for own in world.source.values():
                own.points = [one for one in own.points[:-1] if own.holds.get(one.guid)] + own.points[-1:]


async def of_the_vault(world: World, what: str, number: int) -> None:
    vault = world.config[backup_of(world, number)]["vault"]
    pool = world.pools[vault]
    match what:
        case "vault up":
            world.bring_up(vault)
        case "vault down":
            world.up.discard(vault)
        case "prune the vault":
            for own in pool.datasets.values():
                own.points = own.points[-1 - number :]
        case "another pool":
            world.pools[vault] = Pool(world.new())
            world.bring_up(vault)
        case "the vault goes back":
            for own in pool.datasets.values():
                own.points = own.points[:number]
            world.bring_up(vault)
            world.tampered.add(vault)
        case "the vault loses its newest":
            for own in pool.datasets.values():
                own.points = own.points[:-1]
            world.tampered.add(vault)


async def of_the_configuration(world: World, what: str, number: int) -> None:
    backup = backup_of(world, number)
    table = world.config[backup]
    match what:
        case "another vault":
            world.reload(backup, vault="usb" if table["vault"] == "cold" else "cold")
        case "another place":
            world.reload(backup, into=f"place{number}/{backup}/{{dataset}}")


async def checked(world: World, steps: list[tuple[str, int]]) -> None:
    """Take the steps, and compare what is told with what is so after each."""
    for what, number in steps:
        world.clock.at += HOUR
        await take(world, what, number)
        await world.refresh()
        # What somebody did to a pool behind zvault's back is unknown until it is up; what zvaultd saw then outlives it.
        world.tampered -= world.up
        for backup in world.backups:
            if world.config[backup]["vault"] in world.tampered:
                continue
            compare(world, backup)


def compare(world: World, backup: str) -> None:
    truth = oracle(world, backup)
    told = world.status.dataset_lags(backup)
    document = world.status.backup(world.context.env.backup(backup))
    assert told.keys() == truth.keys()
    for name, so in truth.items():
        lag, seconds = told[name]
        if seconds is not None:
            assert so.seconds is not None, f"{backup}: {name} is not on the vault"
            assert seconds >= so.seconds, f"{backup}: {name} lags further"
        if lag.pending is not None:
            assert lag.pending >= so.pending, f"{backup}: more of {name} is not on the vault"
    worst = [so.seconds for so in truth.values()]
    if document["lag_seconds"] is not None:
        assert document["lag_seconds"] >= max(value for value in worst if value is not None)
        assert None not in worst


@pytest.mark.parametrize("backups", [("b",), ("b", "c"), ("b", "c", "d")])
@settings(max_examples=cases(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
@example(steps=[("power cut", 12), ("restart", 0)])
@example(steps=[("run", 0), ("another pool", 0), ("vault down", 0), ("restart", 0)])
@example(steps=[("run", 0), ("the vault goes back", 0), ("vault down", 0), ("restart", 0)])
@example(
    steps=[
        *[("run", 0)] * 2,
        ("the vault loses its newest", 0),
        ("vault up", 0),
        ("vault down", 0),
        ("restart", 0),
    ]
)
@example(steps=[("run", 0), ("another place", 1)])
@example(steps=[("run", 0), ("another place", 1), ("power cut", 4), ("restart", 0)])
@example(steps=[("another place", 1), ("run", 0), ("another place", 2), ("run", 0), ("another place", 1)])
async def test_lag_is_never_better_than_the_truth(
    monkeypatch: pytest.MonkeyPatch, backups: tuple[str, ...], steps: list[tuple[str, int]]
) -> None:
    install(monkeypatch)
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as folder:
        world = World(Path(folder), backups)
        try:
            await checked(world, steps)
        finally:
            world.history.close()


async def test_a_vault_that_is_exported_while_it_is_listed_is_no_empty_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ZFS says the same of a pool that is not imported and of a dataset that it does not have."""
    install(monkeypatch)
    world = World(tmp_path, ("b",))
    await world.run("b")
    world.bring_up("cold")

    async def exported(_: VaultSide, __: str, *, sizes: bool) -> Tree:
        world.up.discard("cold")
        return Tree()

    monkeypatch.setattr(VaultSide, "tree_or_none", exported)
    for _ in range(2):
        await world.refresh()
        compare(world, "b")
        assert world.status.lag("b") == 0
    world.history.close()


async def test_what_is_known_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After a good run the lag is exact, with the vault up, down, and after a restart: not all is unknown."""
    install(monkeypatch)
    world = World(tmp_path, ("b", "c"))
    await world.run("b")
    world.clock.at += HOUR
    for step in ("vault up", "vault down", "restart", "rename", "prune the source"):
        await take(world, step, 0)
        await world.refresh()
        compare(world, "b")
        document = world.status.backup(world.context.env.backup("b"))
        assert (document["lag_seconds"], document["pending"]) == (HOUR, 0), step
        assert world.status.backup(world.context.env.backup("c"))["lag_seconds"] is None
    world.history.close()
