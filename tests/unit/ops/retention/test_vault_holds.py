"""The holds on a vault are moved in few calls, new ones first, and only where something changed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.unit.ops.ops_world import HOUR, START, context, dataset, sides, snap, snapname, tree
from tests.unit.ops.retention.test_prune import Told
from zvault.core.errors import DeadlineExceeded
from zvault.core.model import Dataset
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.ops.retention.arrivals import Arrivals, list_arrivals
from zvault.ops.retention.prune import apply_prune, drop_stuck
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.retention.vault_holds import explain_hold, move_holds
from zvault.system.process.runner import HostRunner
from zvault.zfs.changes import LzcFailure, NamesGone
from zvault.zfs.host import LocalHost

TARGET = "cold/host/tank"


class Vault:
    """Snapshots with their holds; writes down each call that changes something."""

    host = LocalHost(HostRunner())
    lapses: int | None = None

    def __init__(self, *held: int, gone: Sequence[int] = (), error: Exception | None = None) -> None:
        self.held = {snap(number, TARGET).name for number in held}
        self.gone = {snap(number, TARGET).name for number in gone}
        self.error = error
        self.did: list[str] = []
        self.asked: list[str] = []
        self.lzc = self

    async def tagged(self, names: Sequence[str], tag: str) -> set[str]:
        assert tag == KEEP_HOLD
        self.asked += names
        return self.held & set(names)

    async def hold(self, names: Sequence[str], tag: str) -> None:
        self._change("hold", names)
        self.held |= set(names) - self.gone
        if lost := set(names) & self.gone:
            raise NamesGone("gone", "gone", lost)

    async def release(self, names: Sequence[str], tag: str) -> None:
        self._change("release", names)
        self.held -= set(names)

    async def destroy(self, names: Sequence[str]) -> None:
        if stuck := self.held & set(names):
            raise LzcFailure("held", "held", [(name, "SnapshotIsHeld", 16) for name in stuck])
        self._change("destroy", names)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: {KEEP_HOLD} for name in names if name in self.held}

    async def clones(self, names: Sequence[str]) -> dict[str, list[str]]:
        return {}

    def _change(self, what: str, names: Sequence[str]) -> None:
        if self.error is not None:
            raise self.error
        self.did.append(" ".join([what, *sorted(name.partition("@")[2] for name in names)]))


def there(*numbers: int) -> Dataset:
    return dataset(TARGET, *(snap(number, TARGET) for number in numbers))


async def moved(vault: Vault, *numbers: int, arrived: Sequence[int] = (), **keep: Any) -> Told:
    """What a run that brought ``arrived`` makes of a vault with these snapshots: holds moved, then pruned."""
    told, where = Told(), context(START + 1000 * HOUR, keep={"vault": keep}, prune_limit="100%")
    backup = where.env.backup("b")
    came = Arrivals(vault=frozenset(100 + number for number in arrived))
    both = sides(dataset("tank", snap(numbers[-1])), there(*numbers))
    plans = plan_prune(where, backup, both, arrived=came)
    side: Any = vault
    await move_holds(where, backup, {"vault": side}, plans, told)
    await apply_prune(side, side, [plans[1]], told)
    return told


async def test_the_hold_moves_on_to_the_newest_and_the_new_one_is_made_first() -> None:
    vault = Vault(1)
    told = await moved(vault, 1, 2, arrived=[2])
    assert vault.did == [f"hold {snapname(2)}", f"release {snapname(1)}"]
    assert told.events == []


async def test_where_nothing_changed_nothing_waits_for_a_transaction_group() -> None:
    vault = Vault(2)
    assert (await moved(vault, 1, 2)).events == []
    assert vault.did == []


async def test_what_no_rule_keeps_is_released_before_it_is_pruned() -> None:
    # Hours 1, 200 and 400 are of three weeks.
    vault = Vault(1, 200)
    told = await moved(vault, 1, 200, 400, weekly=2)
    assert vault.did == [f"hold {snapname(400)}", f"release {snapname(1)}", f"destroy {snapname(1)}"]
    assert [event for event, _ in told.events] == ["pruned"]
    assert vault.held == {snap(200, TARGET).name, snap(400, TARGET).name}


async def test_what_is_gone_meanwhile_keeps_nothing_else_from_being_held_and_released() -> None:
    vault = Vault(1, gone=[400])
    await moved(vault, 1, 200, 400, weekly=2)
    assert vault.did[:2] == [f"hold {snapname(200)} {snapname(400)}", f"release {snapname(1)}"]


async def test_a_vault_that_does_not_let_it_be_done_is_told_and_the_rest_of_pruning_goes_on() -> None:
    class Forbidden(Vault):
        async def release(self, names: Sequence[str], tag: str) -> None:
            raise LzcFailure("cannot release", "permission denied", [], "let its user do it")

    vault = Forbidden(1)
    told = await moved(vault, 1, 2, 400, weekly=1)
    assert told.texts()[0].startswith(
        "the holds on the vault are not as they should be: cannot release: permission"
    )
    assert f"kept {TARGET}@{snapname(1)}: held by zvault:keep" in told.texts()[1]
    assert vault.did == [f"hold {snapname(400)}", f"destroy {snapname(2)}"]
    assert (await moved(Vault(error=DeadlineExceeded("hangs")), 1)).texts()[0].endswith("hangs")


async def test_what_zvault_holds_on_a_vault_is_not_in_the_way_of_a_plan_and_on_a_source_is() -> None:
    where = context(
        START + 1000 * HOUR, keep={"vault": {"last": 1}, "source": {"last": 1}}, prune_limit="100%"
    )
    both = sides(dataset("tank", snap(1), snap(2)), there(1, 2))
    on_source, on_vault = plan_prune(where, where.env.backup("b"), both)
    side: Any = Vault(1)
    side.held.add(snap(1).name)
    assert (await drop_stuck(side, on_vault)).selected == [snap(1, TARGET)]
    found = await drop_stuck(side, on_source)
    assert (found.selected, found.verdicts[0].reason) == ([], "held by zvault:keep")


async def test_the_limit_counts_what_was_there_before_the_run() -> None:
    """A source that sends a hundred snapshots in one run has no more of the old ones pruned than one that sends one."""
    where = context(START + 1000 * HOUR, keep={"vault": {"last": 1}}, prune_limit="50%")
    old, more = range(1, 11), range(11, 111)
    before = sides(dataset("tank", *(snap(number) for number in old)), there(*old))
    after = sides(dataset("tank", *(snap(number) for number in (*old, *more))), there(*old, *more))
    for came, allowed in ((list_arrivals(before, after), 5), (Arrivals(), 10)):
        _, on_vault = plan_prune(where, where.env.backup("b"), after, arrived=came)
        gone = [one.guid - 100 for one in on_vault.selected]
        assert [number for number in gone if number in old] == list(old)[:allowed]


def test_of_each_hold_on_a_vault_it_is_told_what_it_is_for() -> None:
    where = context(START + 1000 * HOUR, keep={"vault": {"last": 3, "weekly": 2}})
    backups = [(where.env.backup("b"), tree(there(1, 200, 399, 400, 401)))]
    told = {
        number: explain_hold(where.env, snap(number, TARGET).name, backups)[1]
        for number in (1, 200, 399, 401)
    }
    long = "a weekly, monthly or yearly rule keeps it"
    assert told == {1: "", 200: long, 399: "", 401: long}
    where = context(START + 1000 * HOUR, keep={"vault": {"last": 3}})
    backups = [(where.env.backup("b"), tree(there(1, 400, 401)))]
    assert explain_hold(where.env, snap(401, TARGET).name, backups) == (
        snap(401, TARGET),
        f"the newest of {TARGET}",
    )
    assert explain_hold(where.env, snap(400, TARGET).name, backups) == (snap(400, TARGET), "")
    assert explain_hold(where.env, snap(400, "cold/other").name, backups) == (None, "")


async def test_what_is_held_as_it_should_be_is_not_asked_again_until_something_may_have_changed_it() -> None:
    where, told = context(START + 1000 * HOUR, keep={"vault": {}}), Told()
    backup = where.env.backup("b")
    vault = Vault(2)
    side: Any = vault

    async def asked(source: Dataset, target: Dataset) -> list[str]:
        vault.asked = []
        both = replace(sides(source, target), known=where.known.of(where.env, backup))
        await move_holds(where, backup, {"vault": side}, plan_prune(where, backup, both), told)
        return vault.asked

    source, target = dataset("tank", snap(2)), there(1, 2)
    # No event tells of anything.
    assert await asked(source, target) == await asked(source, target) != []
    vault.lapses = 1
    assert await asked(source, target) != []
    assert await asked(source, target) == []
    # Somebody released it, and an event told so: it was listed anew.
    vault.held.clear()
    assert await asked(source, there(1, 2)) != []
    assert vault.did == [f"hold {snapname(2)}"]
    again = there(1, 2)
    # What was changed is looked at once more.
    assert await asked(source, again) != []
    assert await asked(source, again) == []
    # Events were lost.
    vault.held.clear()
    vault.lapses = 2
    assert await asked(source, again) != []
    assert vault.did == [f"hold {snapname(2)}"] * 2
    assert told.events == []
