"""A vault as it was: what is refused, which moment is opened, and that nothing is left wherever it ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import START, context
from zvault.blockstore.history import Moment
from zvault.blockstore.history import up_to as find
from zvault.config.schema import Vault
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.name_rules import check_dataset_name
from zvault.ops.vaults import past as module
from zvault.ops.vaults.inhibitor import VaultInhibitor
from zvault.ops.vaults.past import PastVaults
from zvault.ops.vaults.past_moment import fit, look_up
from zvault.ops.vaults.past_record import Past, pasts, pool_name, unreadable, up_to
from zvault.ops.vaults.past_world import lost
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.runner import Result
from zvault.system.state_files import LeaseStore

STORE = "zvault:zv/cold size=10G credential=zvault.s3"
KEEPS = {"pool": "cold", "device": [{"nbd": f"{STORE} history=last:9"}]}


def vault(**table: Any) -> Vault:
    return Vault.model_validate({"pool": "cold", **table}).named("cold")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"host": "ssh://zvault@attic"}, "it is on ssh://zvault@attic"),
        ({}, "no device of zvault's"),
        ({"device": [{"nbd": "nbdkit:file /x"}]}, "nbdkit:file /x is no block store"),
        ({"device": [{"rbd": "p/i"}]}, "rbd:p/i is no block store"),
        ({"device": [{"nbd": STORE}, {"nbd": "zvault:zv/other size=1G"}]}, "it has 2 devices"),
        ({"device": [{"nbd": STORE, "cache": {"bcache": "/dev/x"}}]}, "its device has a cache"),
    ],
)
def test_vaults_that_have_no_past(table: dict[str, Any], why: str):
    with pytest.raises(Refused) as refused:
        fit(vault(**table))
    assert why in refused.value.why
    assert refused.value.next


# Which moment


class Bucket:
    """A runner whose program says this."""

    def __init__(self, out: str, returncode: int = 0) -> None:
        self.out, self.code = out, returncode
        self.argv: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> Result:
        self.argv = list(argv)
        return Result(tuple(argv), self.code, self.out, "it failed", 0.0)


async def look(out: str, *, keeps: bool = True) -> Past:
    config = vault(device=[{"nbd": f"{STORE} history=last:9" if keeps else STORE}])
    runner: Any = Bucket(out)
    return await look_up(runner, config, fit(config)[1], START)


async def test_a_moment():
    found = await look('{"epoch": 3, "number": 120, "taken": 1794999999.5}')
    assert (found.at, found.name, found.lease) == ("3-120", "cold:3-120", "past/cold/3-120")
    assert found.pool == "cold_zvault-at-20261118T110639Z"


@pytest.mark.parametrize(
    ("keeps", "following"), [(True, "blockstore history cold"), (False, "history=hourly")]
)
async def test_no_moment(keeps: bool, following: str):
    error = {"kind": "NotFound", "what": "nothing", "why": "no moment of its past is kept", "next": "x"}
    with pytest.raises(NotFound) as found:
        await look(json.dumps({"error": error}), keeps=keeps)
    assert found.value.why == "no moment of its past is kept"
    assert following in found.value.next


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: st.dictionaries(st.sampled_from(["epoch", "number", "taken", "error"]), inner),
        ).map(json.dumps),
    )
)
def test_whatever_the_program_says_is_a_moment_or_an_error_in_words(out: str):
    with contextlib.suppress(ZvaultError):
        found = asyncio.run(look(out))
        check_dataset_name(found.pool)
        assert re.fullmatch(r"past/cold/\d{1,20}-\d{1,20}", found.lease)


@pytest.mark.parametrize("wrong", ["-1", "1e3", "true", "9" * 30, "null", '"1"'])
async def test_numbers_that_no_checkpoint_has(wrong: str):
    with pytest.raises(ToolFailed, match="cannot be looked up"):
        await look(f'{{"epoch": {wrong}, "number": 1, "taken": 1}}')


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 4e9))), st.floats(-1, 4e9))
def test_the_last_one_up_to_a_time_is_the_one_that_the_store_finds(made: list[tuple[int, float]], at: float):
    """Whatever clocks said: so 'close --at' means what 'open --at' opened."""
    found = [Past("cold", epoch, number, taken, "p") for number, (epoch, taken) in enumerate(made)]
    moments = [Moment(one.epoch, one.number, one.taken, 1, 1) for one in found]
    try:
        expected = find(moments, at, "here")
    except NotFound:
        assert up_to(found, at) is None
        return
    last = up_to(found, at)
    assert last is not None
    assert (last.epoch, last.number) == (expected.epoch, expected.number)
    assert 0 < last.taken <= at


@pytest.mark.parametrize("taken", [0, -1, START + 1, '"x"', "NaN"])
async def test_a_time_that_is_unknown_or_not_up_to_the_one_asked_for(taken: object):
    with pytest.raises(ToolFailed, match="cannot be looked up"):
        await look(f'{{"epoch": 1, "number": 1, "taken": {taken}}}')


@given(st.floats(0, 2.5e11))
def test_the_pool_is_a_name_of_a_pool(taken: float):
    check_dataset_name(pool_name("cold", taken))


def test_what_is_written_down_is_read_back(tmp_path: Path):
    leases = LeaseStore(tmp_path, boot_id="this")
    made = [Past("cold", 1, 2, 9.5, "p", "somebody", 2**64 - 1, opened=True), Past("attic", 3, 4, 1.0, "q")]
    for one in made:
        leases.put(one.lease, one.as_lease())
    assert pasts(leases) == [made[1], made[0]]
    assert pasts(leases, "cold") == [made[0]]


WHOLE = Past("cold", 1, 2, 9.5, "p", "somebody", 77, opened=True).as_lease()


def put_raw(folder: Path, data: object) -> None:
    path = folder / "past/cold/1-2"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"boot_id": "this", "time": 1, "data": data}))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        *({key: value for key, value in WHOLE.items() if key != gone} for gone in WHOLE),
        *(
            {**WHOLE, "taken": taken}
            for taken in ("x", None, [1], float("nan"), float("inf"), 1e300, -1, True)
        ),
        *({**WHOLE, "guid": guid} for guid in ("x", None, 1.5, -1, 2**64, True)),
        {**WHOLE, "pool": None},
        {**WHOLE, "pool": "-f"},
        {**WHOLE, "pool": "p/home"},
        {**WHOLE, "user": 5},
        {**WHOLE, "opened": "no"},
        {**WHOLE, "pinned": 1},
    ],
)
def test_a_lease_that_tells_of_nothing_known_is_told_and_passed_over(
    tmp_path: Path, wrong: dict[str, object]
):
    leases = LeaseStore(tmp_path, boot_id="this")
    other = Past("cold", 3, 4, 1.0, "q")
    leases.put(other.lease, other.as_lease())
    put_raw(tmp_path, wrong)
    assert pasts(leases) == [other]
    (told,) = unreadable(leases)
    assert "past/cold/1-2" in told


def test_a_lease_whose_name_is_no_moment_is_told(tmp_path: Path):
    leases = LeaseStore(tmp_path, boot_id="this")
    leases.put("past/cold/x", WHOLE)
    assert pasts(leases) == []
    (told,) = unreadable(leases)
    assert "past/cold/x" in told


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), json_values))
def test_whatever_a_lease_holds_it_is_read_or_told(data: dict[str, Any]):
    with tempfile.TemporaryDirectory() as folder:
        put_raw(Path(folder), {**WHOLE, **data})
        leases = LeaseStore(Path(folder), boot_id="this")
        found = pasts(leases)
        assert len(found) + len(unreadable(leases)) == 1
        for one in found:
            assert one.when.endswith("UTC")
            check_dataset_name(one.pool)


# What is made, and goes


class Killed(BaseException):
    """zvaultd is killed at this step."""


@dataclass
class World:
    """A host; ``steps`` counts what is done to it, and the one of number ``fails`` is met by ``error``."""

    folder: Path
    devices: set[str] = field(default_factory=set)
    changing: set[str] = field(default_factory=set)
    pools: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    fails: int = -1
    error: BaseException | None = None
    dead: bool = False
    busy: bool = False
    lost: set[str] = field(default_factory=set)
    slow: dict[str, asyncio.Event] = field(default_factory=dict)
    """By the name of a vault as it was: until when its pool waits to get another GUID."""
    moment: Past = field(default_factory=lambda: Past("cold", 1, 2, START, "cold_then"))

    def step(self) -> None:
        if self.dead:
            raise Killed
        self.steps += 1
        if self.steps == self.fails and self.error is not None:
            self.dead = isinstance(self.error, Killed)
            raise self.error

    @property
    def left(self) -> list[object]:
        files = [path for path in (self.folder / "lease/past").rglob("*") if path.is_file()]
        return [*self.devices, *self.changing, *self.pools, *files]

    # What PastVaults asks of the host

    def stack(self, past: Past) -> Any:
        async def up(_: Any) -> list[Any]:
            self.step()
            self.devices.add(past.name)
            self.step()
            return [SimpleNamespace(path="/dev/nbd7")]

        async def down(_: Any) -> None:
            self.step()
            assert self.pools.get(past.pool) != 77, "the pool lies on it"
            assert past.name not in self.changing
            self.devices.discard(past.name)

        async def probe() -> list[Any]:
            state = "gone" if past.name in self.lost else "up"
            return [SimpleNamespace(name=past.name, state=state, detail="its server died")]

        return SimpleNamespace(up=up, down=down, probe=probe)

    async def change_guid(self, _: Any, __: Any, device: str, pool: str, name: str) -> int:
        assert name in self.devices
        self.changing.add(name)
        self.step()
        try:
            if name in self.slow:
                await self.slow[name].wait()
        finally:
            self.changing.discard(name)
        return 77

    async def end(self, _: Any, name: str) -> None:
        self.step()
        self.changing.discard(name)

    async def import_readonly(self, _: Any, pool: str, guid: int, device: str, altroot: str) -> None:
        self.step()
        self.pools[pool] = guid
        self.step()

    async def kernel_state(self, pool: str) -> str | None:
        return "ONLINE" if pool in self.pools else None

    async def state(self, pool: str) -> Any:
        return SimpleNamespace(guid=self.pools[pool])

    async def export(self, pool: str) -> None:
        self.step()
        if self.busy:
            raise Busy(f"cannot export {pool}", "pool is busy")
        del self.pools[pool]

    def vaults(self) -> PastVaults:
        """Those of a zvaultd that starts now."""
        self.dead = False
        where = context(folder=self.folder, vault=KEEPS)
        where.clients.zpool = self  # type: ignore[assignment]
        made = PastVaults(where, Vaults(where))
        made._leases._boot_id = "this"
        put, drop = made._leases.put, made._leases.drop

        def put_step(name: str, data: Any) -> None:
            self.step()
            put(name, data)
            self.step()

        def drop_step(name: str) -> None:
            self.step()
            drop(name)

        made._leases.put, made._leases.drop = put_step, drop_step  # type: ignore[method-assign]

        async def stack(past: Past, _: Any) -> Any:
            return self.stack(past)

        made._stack = stack  # type: ignore[method-assign]
        return made


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    it = World(tmp_path)
    (tmp_path / "local.toml").write_text("[queue]\n")

    async def found(*_: Any) -> Past:
        return it.moment

    monkeypatch.setattr(module, "look_up", found)
    for name in ("change_guid", "end", "import_readonly"):
        monkeypatch.setattr(module.new_guid, name, getattr(it, name))

    class Awake(VaultInhibitor):
        async def _take(self, why: str, say: Any) -> None:
            return

        async def _release(self) -> None:
            return

    monkeypatch.setattr("zvault.ops.vaults.lifecycle.VaultInhibitor", Awake)
    return it


def quiet(_: str) -> None:
    return


async def open_and_close(vaults: PastVaults) -> None:
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)


async def test_it_is_opened_once_and_closed(world: World):
    vaults = world.vaults()
    first = await vaults.open("cold", START, quiet)
    assert (first.guid, first.opened, first.pinned) == (77, True, True)
    done = world.steps
    assert await vaults.open("cold", START + 5, quiet) == first
    assert world.steps == done, "it is joined"
    assert [one.pool for one in await vaults.close("cold", None, quiet)] == ["cold_then"]
    assert world.left == []
    with pytest.raises(NotFound):
        await vaults.close("cold", None, quiet)


async def test_wherever_it_fails_nothing_is_left(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)
    for number in range(1, world.steps + 1):
        world.steps, world.fails, world.error = 0, number, ToolFailed("it failed", "for a test")
        with contextlib.suppress(ToolFailed):
            await open_and_close(vaults)
        world.fails = -1
        assert await vaults.sweep(quiet) == []
        assert world.left == [], number


async def test_wherever_zvaultd_is_killed_the_next_one_takes_all_of_it_away(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    await vaults.close("cold", None, quiet)
    many = world.steps
    assert many > 10
    for number in range(1, many + 1):
        vaults = world.vaults()
        world.steps, world.fails, world.error = 0, number, Killed()
        with pytest.raises(Killed):
            await open_and_close(vaults)
        vaults, world.fails = world.vaults(), -1
        assert await vaults.sweep(quiet) == []
        assert world.left == [], number
        assert (await vaults.open("cold", START, quiet)).opened
        await vaults.close("cold", None, quiet)


async def test_of_another_boot_only_the_lease_is_there(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.devices.clear()
    world.pools = {"cold_then": 5}
    vaults._leases._boot_id = "next"
    assert await vaults.sweep(quiet) == []
    assert world.left == ["cold_then"], "a pool that somebody imported since"


async def test_a_pool_of_that_name_that_zvault_did_not_import_is_left_alone(world: World):
    vaults = world.vaults()
    world.pools["cold_then"] = 5
    with pytest.raises(Refused, match="is not opened as it was"):
        await vaults.open("cold", START, quiet)
    assert world.left == ["cold_then"]


async def test_a_pool_that_was_imported_where_none_was_yet_is_not_exported(world: World):
    """Killed before its pool had a GUID of its own, zvaultd had imported none."""
    vaults = world.vaults()
    vaults._note(world.moment)
    world.pools["cold_then"] = 5
    assert await vaults.sweep(quiet) == []
    assert world.left == ["cold_then"]


async def test_a_second_moment_of_the_same_second_has_another_name(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.moment = replace(world.moment, number=3)
    world.devices.clear()
    assert (await vaults.open("cold", START, quiet)).pool == "cold_then-3"


async def test_users_have_it_open_and_the_last_one_closes_it(world: World):
    vaults = world.vaults()
    async with vaults.seen("cold", START, "one", quiet) as (there, _):
        assert there.env.vault("cold").pool == "cold_then"
        assert there.env.target_of(there.env.backup("b"), "tank").pool == "cold_then"
        assert vaults._context.env.vault("cold").pool == "cold", "the vault itself is as it was"
        async with vaults.use("cold", START, "two", quiet):
            with pytest.raises(Busy, match="in use"):
                await vaults.close("cold", None, quiet)
            assert await vaults.sweep(quiet) == []
        assert world.pools == {"cold_then": 77}
    assert world.left == []
    async with vaults.seen("cold", None, "one", quiet) as (there, _):
        assert there is vaults._context


async def test_what_somebody_opened_stays_after_its_users(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    async with vaults.use("cold", START, "one", quiet):
        pass
    assert world.pools == {"cold_then": 77}
    assert await vaults.sweep(quiet, all_of_it=False) == []
    assert world.pools == {"cold_then": 77}


async def test_one_whose_server_died_is_opened_anew(world: World):
    vaults = world.vaults()
    await vaults.open("cold", START, quiet)
    world.lost.add("cold:1-2")
    async with vaults.use("cold", START, "one", quiet) as there:
        assert world.steps > 12, "it was taken away, and made again"
        with pytest.raises(DeviceGone, match="cannot be read any more"):
            await vaults.open("cold", START, quiet)
        assert "its server died" in str(await lost(there.vault.past, world.stack(there.vault.past)))
    assert world.left == [], "nobody opened this one until it is closed"


async def test_what_is_busy_is_told_and_taken_away_later(world: World):
    vaults, said = world.vaults(), list[str]()
    world.busy = True
    async with vaults.use("cold", START, "one", said.append):
        pass
    assert "could not be closed" in said[-1]
    assert world.pools == {"cold_then": 77}
    (left,) = await vaults.sweep(quiet, all_of_it=False)
    assert "is left open" in left
    world.busy = False
    assert await vaults.sweep(quiet, all_of_it=False) == []
    assert world.left == []


async def test_what_the_host_says_no_to_is_told_and_keeps_nothing_else_open(world: World):
    vaults, said = world.vaults(), list[str]()
    await vaults.open("cold", START, quiet)
    world.moment = replace(world.moment, vault="attic", pool="attic_then")
    other = world.moment.as_lease()
    vaults._leases.put(world.moment.lease, other)
    drop = vaults._leases.drop

    def read_only(name: str) -> None:
        if "cold" not in name:
            raise OSError(30, "Read-only file system")
        drop(name)

    vaults._leases.drop = read_only  # type: ignore[method-assign]
    (left,) = await vaults.sweep(quiet)
    assert "vault attic as it was" in left
    assert "Read-only file system" in left
    assert world.pools == {}
    vaults._leases.drop = drop  # type: ignore[method-assign]
    assert await vaults.sweep(quiet) == []
    assert world.left == []
    world.moment = replace(world.moment, vault="cold", pool="cold_then")
    async with vaults.use("cold", START, "one", quiet, warn=said.append):
        vaults._leases.drop = lambda _: (_ for _ in ()).throw(OSError(5, "Input/output error"))  # type: ignore[method-assign]
    assert "Input/output error" in said[-1]


# One beside another

SOON = 1.0
"""Seconds within which something comes that waits for nothing."""


class Held:
    """A use that lasts until it is cancelled, as a restore's."""

    def __init__(self, vaults: PastVaults, user: str) -> None:
        self.began = asyncio.Event()
        self.task = asyncio.ensure_future(self._use(vaults, user))

    async def _use(self, vaults: PastVaults, user: str) -> None:
        async with vaults.use("cold", START, user, quiet):
            self.began.set()
            await asyncio.Event().wait()

    async def cancelled(self) -> None:
        self.task.cancel()
        async with asyncio.timeout(SOON):
            with pytest.raises(asyncio.CancelledError):
                await self.task


async def held(vaults: PastVaults, user: str) -> Held:
    made = Held(vaults, user)
    await asyncio.wait_for(made.began.wait(), SOON)
    return made


async def slowly_opened(world: World, vaults: PastVaults, number: int) -> asyncio.Task[Past]:
    """Another moment that somebody opens, and that takes its time."""
    world.moment = replace(world.moment, number=number, pool=f"cold_{number}")
    name = world.moment.name
    world.slow[name] = asyncio.Event()
    opening = asyncio.ensure_future(vaults.open("cold", START, quiet))
    async with asyncio.timeout(SOON):
        while name not in world.changing:
            await asyncio.sleep(0.01)
    return opening


async def test_while_a_sleep_is_announced_who_opens_keeps_nobody_from_leaving(world: World):
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    vaults._context.activity.awake.clear()
    opening = asyncio.ensure_future(vaults.open("cold", START, quiet))
    await asyncio.sleep(0.05)
    await restoring.cancelled()
    assert world.left == []
    assert not opening.done()
    vaults._context.activity.awake.set()
    assert (await opening).opened


async def test_while_one_is_opened_slowly_another_is_opened_left_closed_and_swept(world: World):
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    first = world.moment
    opening = await slowly_opened(world, vaults, 3)
    await restoring.cancelled()
    assert list(world.pools) == []
    world.moment = first
    async with asyncio.timeout(SOON):
        await vaults.open("cold", START, quiet)
        with pytest.raises(Busy, match="in use") as busy:
            await vaults.close("cold", None, quiet)
        assert module.BY_HAND in busy.value.why
        assert await vaults.sweep(quiet, all_of_it=False) == []
        assert list(world.pools) == [first.pool]
    world.slow["cold:1-3"].set()
    assert (await opening).pinned
    assert sorted(world.pools) == ["cold_3", first.pool]
    assert await vaults.sweep(quiet) == []
    assert world.left == []


async def test_the_same_moment_is_opened_once_for_two_who_want_it(world: World):
    vaults = world.vaults()
    opening = await slowly_opened(world, vaults, 3)
    second = asyncio.ensure_future(vaults.open("cold", START, quiet))
    await asyncio.sleep(0.05)
    world.slow["cold:1-3"].set()
    assert await opening == await second
    assert list(world.pools) == ["cold_3"]


async def test_two_moments_of_one_second_opened_at_once_have_two_names(world: World):
    vaults = world.vaults()
    opening = await slowly_opened(world, vaults, 3)
    world.moment = replace(world.moment, number=4)
    other = await asyncio.wait_for(vaults.open("cold", START, quiet), SOON)
    world.slow["cold:1-3"].set()
    assert {other.pool, (await opening).pool} == {"cold_3", "cold_3-4"}


async def test_a_daemon_that_stops_gives_up_what_is_being_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("zvault.system.tasks.WATCH_EVERY", 0.01)
    vaults = world.vaults()
    restoring = await held(vaults, "restore")
    opening = await slowly_opened(world, vaults, 3)
    vaults.stop("the daemon is stopping")
    async with asyncio.timeout(SOON):
        with pytest.raises(Refused, match="is not opened as it was") as refused:
            await opening
        assert refused.value.why == "the daemon is stopping"
        with pytest.raises(Refused):
            await vaults.open("cold", START, quiet)
    assert list(world.pools) == ["cold_then"], "what is open stays for who uses it"
    await restoring.cancelled()
    assert world.left == []


async def test_what_is_being_taken_away_as_zvaultd_stops_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("zvault.system.tasks.WATCH_EVERY", 0.01)
    vaults, gate = world.vaults(), asyncio.Event()
    opening = await slowly_opened(world, vaults, 3)
    take_away = vaults._take_away

    async def slow(*args: Any) -> None:
        await gate.wait()
        await take_away(*args)

    vaults._take_away = slow  # type: ignore[method-assign]
    vaults.stop("the daemon is stopping")
    sweeping = asyncio.ensure_future(vaults.sweep(quiet))
    await asyncio.sleep(0.1)
    assert not sweeping.done()
    gate.set()
    assert await sweeping == []
    assert world.left == []
    with pytest.raises(Refused):
        await opening


async def test_without_room_for_what_is_written_nothing_is_opened(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    vaults = world.vaults()
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(Refused, match="no vault can be opened as it was") as refused:
        await vaults.open("cold", START, quiet)
    assert "1M free" in refused.value.why
    assert world.left == []
