"""What a look at both sides makes of them, and what is rolled back or sent."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    TANK,
    context,
    dataset,
    sides,
    snap,
    snapname,
    tree,
    vaulted,
    with_source,
    with_vault,
)
from zvault.core.errors import NotFound, ToolFailed
from zvault.core.model import Bookmark, Snapshot, Tree
from zvault.core.name_rules import DatasetChoice
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import KEEP_HOLD, make_mark_name
from zvault.core.replication.plan_model import InterruptedReceive, TransferAction, TransferPlan
from zvault.core.replication.vault_encryption import KeysAbove, VaultEncryption
from zvault.ops.replication.listing import (
    BothListings,
    list_both_sides,
    list_selected,
    make_own_filter,
    make_sent_filter,
)
from zvault.ops.replication.plan_all import moves_bytes, plan_all
from zvault.ops.replication.vault_encryption import expect_encryptions, list_exposed
from zvault.ops.state.source_tree import list_source
from zvault.zfs.stream_argv import SendFlags

POOL = 77

# Looking


class FakeZfs(NoKeys):
    def __init__(self, tree: Tree | None) -> None:
        self.there = tree
        self.asked: list[Any] = []
        self.host = self

    async def run(self, argv: list[str], **_: Any) -> Any:
        """Asked for what lies beside the root on the vault."""
        self.asked.append(argv[-1])
        return SimpleNamespace(returncode=0, stdout="cold/host\ncold/host/tank\n", stderr="")

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        self.asked.append(root)
        assert self.there is not None
        return self.there

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        self.asked.append(root)
        return self.there or Tree()

    async def interrupted(self, token: str) -> InterruptedReceive:
        self.asked.append(token)
        return InterruptedReceive(token, 102)


async def test_one_look_lists_each_side_once() -> None:
    source = FakeZfs(tree(dataset("tank", snap(1), snap(2)), dataset("tank/a")))
    vault = FakeZfs(tree(dataset("cold/host/tank"), dataset("cold/host/tank/a")))
    where = context()
    with_source(where, source)
    found = await list_both_sides(where, where.env.backup("b"), vault)  # type: ignore[arg-type]
    assert [(pair[0].name, pair[1]) for pair in found.pairs] == [
        ("tank", "cold/host/tank"),
        ("tank/a", "cold/host/tank/a"),
    ]
    assert source.asked == ["tank"]
    assert vault.asked == ["cold/host/tank"]
    assert found.vault_seen


class KeyedZfs(FakeZfs):
    """A vault on which ``cold/host/tank`` is a raw copy of an encrypted dataset."""

    async def keys_above(self, root: str, there: Any) -> KeysAbove:
        own = "cold/host/tank"
        return KeysAbove({"cold": "", "cold/host": "", own: own}, frozenset({own}))


@pytest.mark.parametrize(
    ("source", "lying"),
    [("tank/open", VaultEncryption.CLEAR_AS_SOURCE), ("usb/open", VaultEncryption.EXPOSED)],
)
async def test_a_backup_below_another_ones_raw_copy_lies_as_its_source_does(
    source: str, lying: VaultEncryption
) -> None:
    """tank is encrypted and goes raw; what its source has in the clear below it may have a backup of its own."""
    where = context(source=source, into="{host}/tank/open/{path}")
    raw = context(source="tank", exclude=["tank/open"]).env.backup("b")
    both = {**where.env.config.backup, "c": raw}
    where.env.config = where.env.config.model_copy(update={"backup": both})
    with_source(where, FakeZfs(tree(dataset(source, snap(1, source), snap(2, source)))))
    vault = KeyedZfs(tree(vaulted("cold/host/tank/open", 1)))
    seen = await list_both_sides(where, where.env.backup("b"), vault)  # type: ignore[arg-type]
    (plan,) = await plan_all(with_vault(where, vault), where.env.backup("b"), seen)
    assert expect_encryptions(seen, [plan])[plan.dataset].lying is lying
    assert list_exposed(seen) == (
        {} if lying is VaultEncryption.CLEAR_AS_SOURCE else {plan.target: "cold/host/tank"}
    )


async def test_where_something_is_missing_one_looks_at_what_was_set_aside_too() -> None:
    vault = FakeZfs(tree(dataset("cold/host/tank")))
    where = context()
    with_source(where, FakeZfs(tree(dataset("tank"), dataset("tank/a"))))
    await list_both_sides(where, where.env.backup("b"), vault)  # type: ignore[arg-type]
    assert vault.asked == ["cold/host/tank", "cold/host"]


async def test_a_vault_that_is_down_was_not_seen_rather_than_empty() -> None:
    where = context()
    with_source(where, FakeZfs(tree(dataset("tank"))))
    found = await list_both_sides(where, where.env.backup("b"), None)
    assert not found.vault_seen
    assert len(found.vault) == 0


class Crowded(FakeZfs):
    """A vault in whose pool others have what cannot be listed."""

    async def names(self, root: str) -> list[DatasetName]:
        return [DatasetName(name) for name in ("cold", "cold/host", "cold/host/tank", "cold/other")]

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        if root == "cold":
            raise ToolFailed("the listing of 'cold' cannot be understood", "it has 3000000 lines")
        return await super().tree(root, sizes=sizes)


async def test_what_others_have_in_the_pool_stops_only_what_may_be_there() -> None:
    """What goes on from its base, and what no pool ever had, is sent; what this pool had is not sent again."""
    lost = Bookmark(
        DatasetName("tank/lost"), make_mark_name(POOL, 101), 101, 1, snap(1, "tank/lost").creation
    )
    source = FakeZfs(
        tree(
            dataset("tank", snap(1), snap(2)),
            dataset("tank/lost", snap(1, "tank/lost"), snap(2, "tank/lost"), lost),
            dataset("tank/new", snap(1, "tank/new"), snap(2, "tank/new")),
        )
    )
    vault = Crowded(tree(dataset("cold/host/tank", snap(1, "cold/host/tank"))))
    where = with_vault(with_source(context(), source), vault)

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=POOL)

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    backup = where.env.backup("b")
    found = await list_both_sides(where, backup, vault, elsewhere=True)  # type: ignore[arg-type]
    plans = {plan.dataset: plan for plan in await plan_all(where, backup, found)}
    assert {name: plan.action for name, plan in plans.items()} == {
        "tank": TransferAction.INCREMENTAL,
        "tank/lost": TransferAction.CONFLICT,
        "tank/new": TransferAction.FULL,
    }
    assert "3000000 lines" in plans[DatasetName("tank/lost")].reason


def test_excludes_leave_out_what_they_name() -> None:
    source = tree(dataset("tank"), dataset("tank/a"), dataset("tank/a/tmp"), dataset("tank/b"))
    backup = context(exclude=["tank/a", "tank/b"]).env.backup("b")
    assert [dataset.name for dataset in list_selected(backup, source)] == ["tank", "tank/a/tmp"]


def test_a_backup_of_nothing_is_an_error() -> None:
    backup = context(exclude=["tank", "tank/**"]).env.backup("b")
    with pytest.raises(NotFound, match="nothing is left of 'tank'"):
        list_selected(backup, tree(dataset("tank"), dataset("tank/a")))


def test_a_property_selects_besides_the_patterns() -> None:
    source = tree(dataset("tank"), dataset("tank/a"), dataset("tank/b"))
    taken = DatasetChoice(True, "set to 'true' on it")
    source = replace(source, choices={"tank/a": taken, "tank/b": taken, "tank/gone": taken})
    backup = context(exclude=["tank/b"], select="a:b").env.backup("b")
    assert [dataset.name for dataset in list_selected(backup, source)] == ["tank/a"]
    with pytest.raises(NotFound, match="the property a:b selects none"):
        list_selected(backup, replace(source, choices={}))


async def test_what_is_not_selected_by_the_property_is_left_out_of_the_look() -> None:
    class Marked(FakeZfs):
        async def run(self, argv: list[str], **_: Any) -> Any:
            rows = "tank\ttrue\treceived\ntank/a\ttrue\tinherited from tank\ntank/b\ttrue\tlocal\n"
            return SimpleNamespace(returncode=0, stdout=rows)

    where = context(select="a:b")
    with_source(where, Marked(tree(dataset("tank"), dataset("tank/a"), dataset("tank/b"))))
    found = await list_both_sides(where, where.env.backup("b"), None)
    assert [pair[0].name for pair in found.pairs] == ["tank/b"]
    assert [pair[0].name for pair in found.left_out] == ["tank", "tank/a"]


def test_ours_is_what_has_exactly_our_form() -> None:
    ours = make_own_filter(context(snapshot={"prefix": "nightly"}).env.backup("b"))
    yes = "nightly_2026-11-21T09:00:00Z"
    no = [
        "zvault_2026-11-21T09:00:00Z",
        "nightly_2026-11-21",
        "nightly_2026-02-30T09:00:00Z",
        f"{yes}x",
        "nightly_",
    ]
    assert [ours(Snapshot(TANK, snapname, 1, 1, 1)) for snapname in [yes, *no]] == [True] + [False] * 5


async def test_tokens_are_asked_of_the_source_only_where_there_are_any() -> None:
    where = context()
    source = FakeZfs(None)
    with_source(where, source)
    with_token = sides(
        dataset("tank", snap(1), snap(2)), dataset("cold/host/tank", snap(1), resume_token="1-abc")
    )
    (plan,) = await plan_all(where, where.env.backup("b"), with_token)
    assert plan.action is TransferAction.RESUME
    assert source.asked == ["1-abc"]
    (plan,) = await plan_all(where, where.env.backup("b"), sides(dataset("tank", snap(1)), None))
    assert plan.action is TransferAction.FULL
    assert source.asked == ["1-abc"]


# A source that lost what the vault has


class Deserted(FakeZfs):
    """A vault whose snapshots after the base the source does not have any more; ``written`` bytes came after that."""

    def __init__(self, written: int = 4096, tag: str = "") -> None:
        super().__init__(None)
        self.written = written
        self.tag = tag

    async def get(self, _: str, *properties: str) -> dict[str, str]:
        return dict.fromkeys(properties, str(self.written))

    async def holds(self, names: list[str]) -> dict[str, set[str]]:
        return {name: {self.tag} for name in names if self.tag}


async def rollback(keep: dict[str, Any], *lost: Snapshot, tag: str = "", **more: Any) -> TransferPlan:
    """The plan where the source kept snapshot 1 and made 99, and the vault has ``lost`` after snapshot 1."""
    where = context(START + 100 * HOUR, on_conflict="rollback", keep={"vault": keep}, **more)
    with_source(where, FakeZfs(None))
    with_vault(where, Deserted(tag=tag))
    there = dataset("cold/host/tank", snap(1, "cold/host/tank"), *lost, written=4096)
    new = snap(99, name="new_2026-11-22T09:00:00Z") if "snapshot" in more else snap(99)
    (plan,) = await plan_all(where, where.env.backup("b"), sides(dataset("tank", snap(1), new), there))
    return plan


def lost(*numbers: int) -> list[Snapshot]:
    return [snap(number, "cold/host/tank") for number in numbers]


async def test_what_retention_keeps_is_not_rolled_away() -> None:
    """A source that destroyed all but its oldest snapshot had 29 genuine ones rolled away on the vault."""
    plan = await rollback({"hourly": 48}, *lost(*range(2, 31)))
    assert (plan.action, plan.changes) == (TransferAction.CONFLICT, ())
    assert (
        f"it is not rolled back: retention keeps @{snapname(2)}, which the source has not: hourly"
        in plan.reason
    )
    assert plan.next.startswith(
        "find out why tank lacks what the vault has: if it lost that, restore it; if another"
    )
    assert (
        "a clone of this one, sends there too, give each its own 'into' or host name; or 'zfs rename"
        in plan.next
    )
    # Without any rule all is kept, and whatever the rules say, the newest.
    assert (await rollback({}, *lost(2))).action is TransferAction.CONFLICT
    assert (await rollback({"within": "1s"}, *lost(2))).action is TransferAction.CONFLICT


async def test_what_was_never_backed_up_is_rolled_back_as_before() -> None:
    mine = snap(5, "cold/host/tank", name="mine")
    plan = await rollback({}, mine)
    assert plan.action is TransferAction.INCREMENTAL
    assert str(plan.changes[0]).endswith("giving up @mine and 4K written since")
    # What `also` sends is never pruned, nor what bears another prefix of zvault's form.
    assert (await rollback({}, mine, also=["mine"])).action is TransferAction.CONFLICT
    assert (await rollback({}, *lost(2), snapshot={"prefix": "new"})).action is TransferAction.CONFLICT


async def test_what_only_zvault_holds_is_rolled_back_unless_retention_keeps_it() -> None:
    mine = snap(5, "cold/host/tank", name="mine")
    assert (await rollback({}, mine, tag=KEEP_HOLD)).action is TransferAction.INCREMENTAL
    assert (await rollback({}, mine, tag="me")).action is TransferAction.CONFLICT
    assert (await rollback({"weekly": 8}, *lost(2), tag=KEEP_HOLD)).action is TransferAction.CONFLICT


@pytest.mark.parametrize("action", list(TransferAction))
def test_only_streams_move_bytes(action: TransferAction) -> None:
    streams = {TransferAction.FULL, TransferAction.INCREMENTAL, TransferAction.RESUME}
    assert moves_bytes(TransferPlan("tank", "cold/tank", action, "")) == (action in streams)


async def test_only_what_came_after_a_base_makes_one_ask_what_it_changed() -> None:
    asked = []

    class Vault(FakeZfs):
        async def get(self, name: str, *properties: str) -> dict[str, str]:
            asked.append((name, properties))
            return dict.fromkeys(properties, "0")

        async def holds(self, snapshots: list[str]) -> dict[str, set[str]]:
            return {}

    where = context()
    with_source(where, FakeZfs(None))
    vault = Vault(None)
    with_vault(where, vault)
    there = vaulted("cold/host/tank", 1, 2)
    (plan,) = await plan_all(where, where.env.backup("b"), sides(dataset("tank", snap(1), snap(2)), there))
    assert (plan.action, asked) == (TransferAction.NOTHING, [])
    foreign = snap(9, "cold/host/tank", name="by-hand")
    more = dataset("cold/host/tank", snap(1, "cold/host/tank"), foreign)
    (plan,) = await plan_all(where, where.env.backup("b"), sides(dataset("tank", snap(1), snap(2)), more))
    assert asked == [("cold/host/tank", (f"written@{snapname(1)}",))]
    assert plan.action is TransferAction.INCREMENTAL


def test_also_adds_snapshots_by_their_names_to_what_is_sent() -> None:
    wanted = make_sent_filter(context(also=["manual-*"]).env.backup("b"))
    snapnames = [snapname(1), "manual-1", "auto-1"]
    assert [one for one in snapnames if wanted(Snapshot(TANK, one, 1, 1, 1))] == [
        snapname(1),
        "manual-1",
    ]


@pytest.mark.parametrize(
    ("here", "there", "action"),
    [("17", "17", "incremental"), ("17", "99", "conflict"), ("-", "99", "incremental")],
    ids=["raw", "sent decrypted", "unknown"],
)
async def test_a_replica_that_was_encrypted_anew_is_no_raw_copy(here: str, there: str, action: str) -> None:
    """As a tool leaves it that sends decrypted below an encrypted dataset: every raw stream failed on it."""
    asked: list[str] = []

    class Side(FakeZfs):
        def __init__(self, mark: str) -> None:
            super().__init__(None)
            self.mark = mark

        async def get(self, name: str, *properties: str) -> dict[str, str]:
            assert properties == ("ivsetguid",)
            asked.append(name)
            return {"ivsetguid": self.mark}

        async def loaded_keys(self, roots: list[str]) -> set[str]:
            return set(roots)

    where = context()
    with_source(where, Side(here))
    with_vault(where, Side(there))
    source = dataset("tank", snap(1), snap(2), encrypted=True, key_root="tank")
    replica = vaulted("cold/host/tank", 1, encrypted=True, key_root="cold/host")
    backup = where.env.backup("b")
    (plan,) = await plan_all(where, backup, sides(source, replica))
    assert str(plan.action) == action
    assert asked == [snap(1).name, f"cold/host/tank@{snapname(1)}"]
    if action == "conflict":
        assert "are encrypted by different keys: it was sent there decrypted" in plan.reason
        assert "zfs rename" in plan.next
    # What zvault sent is on record: nobody is asked, in whatever run.
    known = replace(replica, sent=f"{source.guid:x}:Lcw")
    await plan_all(where, backup, sides(source, known))
    assert len(asked) == 2


async def test_what_is_not_encrypted_is_not_sent_where_that_is_required() -> None:
    where = context(send={"encrypted": "required"})
    with_source(where, FakeZfs(None))
    with_vault(where, FakeZfs(None))
    backup = where.env.backup("b")
    (plan,) = await plan_all(where, backup, sides(dataset("tank", snap(1)), None))
    assert plan.action is TransferAction.CONFLICT
    assert 'send.encrypted = "required" sends nothing that is not' in plan.reason
    assert plan.next.startswith('exclude it ("tank")')
    secret = dataset("tank", snap(1), encrypted=True, key_root="tank")
    (plan,) = await plan_all(where, backup, sides(secret, None))
    assert plan.action is TransferAction.FULL


@pytest.mark.parametrize(
    ("unlocked", "place", "action", "why"),
    [
        (True, "cold/host", "full", ""),
        (False, "cold/host", "conflict", "the key of tank is not loaded on the source"),
        (True, "", "conflict", "would store it in the clear"),
    ],
)
async def test_what_is_sent_decrypted_needs_its_key_and_a_place_that_encrypts(
    unlocked: bool, place: str, action: str, why: str
) -> None:
    class Side(FakeZfs):
        def __init__(self, *keys: str) -> None:
            super().__init__(tree(dataset("tank", snap(1), encrypted=True, key_root="tank")))
            self.keys = keys

        async def loaded_keys(self, roots: list[str]) -> set[str]:
            return set(self.keys).intersection(roots)

    where = context(send={"encrypted": "decrypted"})
    backup = where.env.backup("b")
    assert not backup.send.properties, "ZFS sends those of an encrypted dataset with -w only"
    with_source(where, Side(*["tank"] * unlocked))
    with_vault(where, Side("cold/host"))
    source = await list_source(where.clients, backup)
    flags = SendFlags.of(backup.send.to_encrypted(), source.datasets["tank"]).argv()
    assert flags == ["-L", "-c"], "neither -w nor -p nor -e"
    above = KeysAbove({"cold": "", "cold/host": place})
    pairs = ((source.datasets["tank"], DatasetName("cold/host/tank")),)
    (plan,) = await plan_all(where, backup, BothListings(source, Tree(), pairs, keys_above=above))
    assert (str(plan.action), why in plan.reason) == (action, True), plan.reason
    assert ("zfs load-key tank" in plan.next) is not unlocked
