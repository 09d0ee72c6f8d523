"""Histories of two pools: what befalls a source and its vault, event by event, and the plan that follows."""

from hypothesis import strategies as st

from tests.unit.core.replication.pool_model import Clock, Data, Illegal, Pool
from tests.unit.core.replication.pools_model import Pools, Stop
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import ASIDE_INFIX, Pairing
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import OnConflict, TransferPlan, TransferPolicy
from zvault.core.replication.planner import PoolAnswers, plan_tree

OURS = "zvault_"
SOURCE, VAULT = DatasetName("tank/s"), DatasetName("cold/s")


def ours(snap: Snapshot) -> bool:
    return snap.snapname.startswith(OURS)


def pools() -> Pools:
    clock = Clock()
    found = Pools(Pool(clock, {"tank": Data(clock.tick())}), Pool(clock, {"cold": Data(clock.tick())}))
    found.source.create(SOURCE)
    return found


def excluded(name: str, all_in: bool) -> bool:
    return not all_in and name.rpartition("/")[2] == "x"


def listing(two: Pools) -> Tree:
    """What a look at the vault shows: the root, and what was set aside beside it."""
    beside = [DatasetName(name) for name in two.vault.data if name.startswith(VAULT + ASIDE_INFIX)]
    beside = [name for name in beside if name.parent == VAULT.parent]
    trees = [two.vault.tree(name) for name in (VAULT, *beside)]
    return Tree({name: one for tree in trees for name, one in tree.datasets.items()})


def pairing(two: Pools, all_in: bool = False) -> Pairing:
    source = two.source.tree(SOURCE)
    placed = [(dataset, dataset.name.moved(SOURCE, VAULT)) for dataset in source]
    wanted = [one for one in placed if not excluded(one[0].name, all_in)]
    return pair_datasets(source, wanted, listing(two), left_out=[one for one in placed if one not in wanted])


STAMPS = iter(range(10**9))


def planned(
    two: Pools,
    on_conflict: OnConflict,
    all_in: bool = False,
    *,
    is_now: Pools | None = None,
    keep_newest: bool = False,
) -> list[TransferPlan]:
    """The plan. Where ``two`` is what was listed earlier, ``is_now`` answers what the pools are asked.

    ``keep_newest``: of what was backed up, retention keeps the newest of each dataset, as it does whatever the rules.
    """
    found = pairing(two, all_in)
    unchanged = set()
    for pair in found.pairs:
        if pair.vault is not None and pair.base is not None and not pair.vault.written:
            if is_now is not None and is_now.vault.data[pair.vault.name].written:
                continue
            snaps = two.vault.data[pair.vault.name].snaps
            place = next(i for i, snap in enumerate(snaps) if snap.guid == pair.base[1].guid)
            if all(snap.quiet for snap in snaps[place + 1 :]):
                unchanged.add(pair.vault.name)
    held = {
        f"{name}@{snap.snapname}" for name, data in two.vault.data.items() for snap in data.snaps if snap.held
    }
    kept = {
        f"{name}@{snaps[-1].snapname}": "the newest"
        for name, data in two.vault.data.items()
        if keep_newest and (snaps := [snap for snap in data.snaps if snap.snapname.startswith(OURS)])
    }
    number = next(STAMPS)
    stamp = f"{20000000 + number // 1000000:08d}T{number % 1000000:06d}Z"
    return plan_tree(
        found,
        listing(two),
        wanted=ours,
        policy=TransferPolicy(on_conflict=on_conflict, stamp=stamp),
        answers=PoolAnswers(two.interrupted(), unchanged, held, kept),
    )


# What may befall the pools; numbers choose what it befalls.

NAMES = ("a", "b", "c", "x")


def _pick(pool: Pool, number: int) -> str:
    names = sorted(name for name in pool.data if "/" in name)
    if not names:
        raise Illegal("none yet")
    return names[number % len(names)]


def _new_name(pool: Pool, number: int) -> str:
    return f"{_pick(pool, number // 4)}/{NAMES[number % 4]}"


def _snap_of(pool: Pool, number: int) -> tuple[str, str]:
    found = [(name, snap.snapname) for name, data in sorted(pool.data.items()) for snap in data.snaps]
    if not found:
        raise Illegal("none yet")
    return found[number % len(found)]


def _create(two: Pools, number: int) -> None:
    two.source.create(_new_name(two.source, number), encrypted=number % 5 == 0)


def take_ours(two: Pools, number: int) -> None:
    snapname = f"{OURS}{two.source.clock.tick()}"
    for name in list(two.source.data):
        if "/" in name:
            two.source.snapshot(name, snapname)


def _take_foreign(two: Pools, number: int) -> None:
    two.source.snapshot(_pick(two.source, number), f"by-hand-{number % 7}")


def _clone(two: Pools, number: int) -> None:
    two.source.clone(*_snap_of(two.source, number // 16), _new_name(two.source, number))


def _promote(two: Pools, number: int) -> None:
    clones = sorted(name for name, data in two.source.data.items() if data.origin is not None)
    if clones:
        two.source.promote(clones[number % len(clones)])


def _rename(two: Pools, number: int) -> None:
    old = _pick(two.source, number // 7)
    if old != SOURCE:
        two.source.rename(old, _new_name(two.source, number))


def _swap(two: Pools, number: int) -> None:
    one, other = _pick(two.source, number), _pick(two.source, number // 7)
    if SOURCE in (one, other) or one == other or f"{one}/".startswith(f"{other}/"):
        return
    two.source.rename(one, f"{SOURCE}/swapping")
    two.source.rename(other, one)
    two.source.rename(f"{SOURCE}/swapping", other)


def _destroy_snapshot(two: Pools, number: int) -> None:
    two.source.destroy_snapshot(*_snap_of(two.source, number))


def _destroy(two: Pools, number: int) -> None:
    if (name := _pick(two.source, number)) != SOURCE:
        two.source.destroy(name)


def _bookmark(two: Pools, number: int) -> None:
    name, snapname = _snap_of(two.source, number)
    snap = two.source.data[name].named(snapname)
    two.source.data[name].marks.append(type(snap)(snap.guid, f"mark{two.source.clock.tick()}", snap.txg))


def _run(two: Pools, number: int) -> None:
    two.carry_out(planned(two, "stop"))


def _broken_run(two: Pools, number: int) -> None:
    two.fuel = number % 9
    try:
        two.carry_out(planned(two, "stop"))
    except Stop:
        pass
    finally:
        two.fuel = None


def _vault_pick(two: Pools, number: int) -> str:
    names = sorted(name for name, data in two.vault.data.items() if data.snaps)
    if not names:
        raise Illegal("none yet")
    return names[number % len(names)]


def _vault_snapshot(two: Pools, number: int) -> None:
    two.vault.snapshot(_vault_pick(two, number // 4), f"by-hand-{number % 7}")
    if number % 3 == 0:
        two.vault.data[_vault_pick(two, number // 4)].snaps[-1].held = True


def _vault_write(two: Pools, number: int) -> None:
    if number % 2:
        two.vault.data[_vault_pick(two, number // 4)].written = 4096


def _vault_clone(two: Pools, number: int) -> None:
    two.vault.clone(*_snap_of(two.vault, number), f"{_vault_pick(two, number // 4)}/mine")


def _vault_create(two: Pools, number: int) -> None:
    if number % 3 == 0:
        two.vault.create(_new_name(two.vault, number))


ON_SOURCE = [
    *[take_ours] * 4,
    *[_create] * 2,
    *[_run] * 3,
    *[_rename] * 2,
    _swap,
    *[_clone] * 2,
    *[_promote] * 2,
    _bookmark,
    _take_foreign,
]
EVENTS = [
    *ON_SOURCE,
    *[_broken_run] * 2,
    *[_destroy_snapshot] * 2,
    _destroy,
    _vault_snapshot,
    _vault_write,
    _vault_clone,
    _vault_create,
]


def histories(longest: int) -> st.SearchStrategy[bytes]:
    return st.one_of(st.binary(max_size=10), st.binary(min_size=longest, max_size=2 * longest))


def after(history: bytes, events: list = EVENTS) -> Pools:
    two = pools()
    take_ours(two, 0)
    for which, number in zip(history[::2], history[1::2], strict=False):
        before = two.copy()
        try:
            events[which % len(events)](two, number)
        except Illegal:
            if events[which % len(events)] in (_run, _broken_run):
                raise
            two = before
    take_ours(two, 0)
    return two


# What must hold, whatever befell them
