"""Whose base a hold or bookmark keeps, and that nothing which may be one is ever reaped."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import context, dataset, snap, tree, with_vault
from zvault.core.model import Bookmark, Dataset, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import make_hold_tag, make_mark_name
from zvault.ops.context import Context
from zvault.ops.retention import holds as holds_module
from zvault.ops.retention.holds import (
    BaseProtection,
    KnownVaults,
    find_keepsakes,
    judge_protection,
    list_base_protections,
    select_reapable,
)
from zvault.ops.state.pool_book import SeenPool

TANK = DatasetName("tank")
COLD, USB, LOST = 0xC01D, 0x05B, 0x105
ALL_UP = KnownVaults({COLD: "cold", USB: "usb"}, ())
USB_GUID = KnownVaults({COLD: "cold"}, ("usb",), {LOST: None})
USB_DOWN = KnownVaults({COLD: "cold"}, ("usb",))
USB_KNOWN = KnownVaults({COLD: "cold"}, ("usb",), {COLD: "cold", USB: "usb", LOST: None})
USB_TURNS = KnownVaults({}, ("usb",), {USB: "usb", LOST: "usb"})
USB_ANEW = KnownVaults({}, ("usb",), {USB: "usb", LOST: "usb"}, {USB})
TURNS = KnownVaults({COLD: "cold", USB: "usb"}, (), {LOST: "usb"})


def mark(number: int, vault: int = COLD) -> Bookmark:
    return Bookmark(TANK, make_mark_name(vault, 100 + number), 100 + number, number, 0)


def hold(number: int, vault: int = COLD) -> BaseProtection:
    one = snap(number)
    return BaseProtection("hold", "tank", one.name, one.guid, one.creation, vault)


def there(*numbers: int, **fields: object) -> Dataset:
    return dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in numbers), **fields)


SOURCE = dataset("tank", snap(1), snap(2), snap(3), mark(2))
AFTER_RUNS = dataset("tank", snap(4), mark(1), mark(2), mark(3))
"""As after two runs: the base is bookmarked, the one before it, and one that a run came not to destroy."""


def test_ours_are_told_by_the_exact_form_of_their_names() -> None:
    source = dataset(
        "tank",
        snap(1),
        mark(1),
        Bookmark(TANK, "zvault_x_1", 7, 1, 0),
        Bookmark(TANK, "mine", 8, 1, 0),
    )
    holds = {
        snap(1).name: {
            make_hold_tag(COLD),
            "zvault:",
            "zvault:0C01D",
            "zvault:+1",
            "zvault:xyz",
            "mine",
            "zvault",
        }
    }
    assert [(one.kind, one.name, one.vault_guid) for one in list_base_protections(tree(source), holds)] == [
        ("hold", snap(1).name, COLD),
        ("bookmark", mark(1).name, COLD),
    ]


@pytest.mark.parametrize(
    ("one", "known", "targets", "state", "reason"),
    [
        (hold(2), ALL_UP, [there(1, 2)], "in use", "the base of cold/host/tank"),
        (hold(2), USB_DOWN, [there(1, 2)], "in use", "the base of cold/host/tank"),
        (hold(1), ALL_UP, [there(1, 2)], "orphaned", "left behind by an interrupted run: the base is a newer one"),
        (hold(3), ALL_UP, [there(1, 2)], "orphaned", "left behind by an interrupted run: the base is a newer one"),
        (hold(3), ALL_UP, [there(2, resume_token="1-a")], "in use", "an interrupted receive into cold/host/tank"),
        (hold(2), ALL_UP, [None], "in use", "the vault's dataset is not there"),
        (hold(1), ALL_UP, [there(7)], "in use", "cold/host/tank shares no base with the source"),
        (hold(1), ALL_UP, [there(3)], "in use", "the base of cold/host/tank is not protected yet"),
        (hold(1), ALL_UP, [there(2), there(1)], "in use", "the base of cold/host/tank"),
        (hold(2), ALL_UP, [], "orphaned", "no backup takes tank into vault cold"),
        (hold(2, LOST), ALL_UP, [], "orphaned", "no configured vault has a pool with this GUID"),
        (hold(2, LOST), USB_DOWN, [], "unknown", "may be the base of vault usb, which is down"),
        (hold(2, USB), USB_DOWN, [], "unknown", "may be the base of vault usb, which is down"),
        (hold(2, USB), USB_KNOWN, [], "in use", "in use by vault usb, which is down"),
        (hold(2, USB), USB_TURNS, [], "unknown", "may be the base of vault usb, which is down"),
        (hold(2, USB), USB_ANEW, [], "unknown", "vault usb had this pool, and began anew: it may be found again"),
        (hold(2, LOST), USB_ANEW, [], "in use", "in use by vault usb, which is down"),
        (hold(2, LOST), USB_KNOWN, [], "orphaned", "no configured vault has a pool with this GUID"),
        (hold(2, 0x7), USB_KNOWN, [], "unknown", "may be the base of vault usb, which is down"),
        (hold(2, LOST), USB_GUID, [], "unknown", "may be the base of vault usb"),
        (hold(2, LOST), TURNS, [], "unknown", "vault usb had this pool before: they may take turns"),
    ],
)  # fmt: skip
def test_states(
    one: BaseProtection, known: KnownVaults, targets: list[Dataset | None], state: str, reason: str
) -> None:
    found = judge_protection(one, known, SOURCE, targets)
    assert (found.state, found.vault) == (state, (known.seen | known.names).get(one.vault_guid))
    assert found.reason.startswith(reason)


@pytest.mark.parametrize(("number", "state"), [(3, "in use"), (2, "in use"), (1, "orphaned")])
def test_the_base_before_the_newest_is_in_use_too_as_a_bookmark(number: int, state: str) -> None:
    one = replace(hold(number), kind="bookmark", name=mark(number).name)
    assert judge_protection(one, ALL_UP, AFTER_RUNS, [there(1, 2, 3)]).state == state
    assert judge_protection(hold(number), ALL_UP, AFTER_RUNS, [there(1, 2, 3)]).state == (
        "in use" if number == 3 else "orphaned"
    )


def test_by_itself_only_orphans_go_and_with_a_guid_unknown_ones_of_that_pool() -> None:
    used = replace(hold(1), state="in use")
    orphan = replace(hold(2), state="orphaned")
    unknown = replace(hold(3, LOST), state="unknown")
    other = replace(hold(4, USB), state="unknown")
    all_of_them = [used, orphan, unknown, other]
    assert select_reapable(all_of_them, None) == [orphan]
    assert select_reapable(all_of_them, LOST) == [unknown]
    assert select_reapable(all_of_them, COLD) == [orphan]
    assert select_reapable([used], COLD) == []


NUMBERS = st.sets(st.integers(1, 8), max_size=6)


@given(
    on_source=NUMBERS,
    on_vault=NUMBERS,
    held=NUMBERS,
    marked=NUMBERS,
    vault=st.sampled_from([COLD, USB, LOST]),
    known=st.sampled_from(
        [ALL_UP, USB_DOWN, USB_KNOWN, TURNS, USB_TURNS, USB_ANEW, KnownVaults({}, ("cold", "usb"))]
    ),
    named=st.booleans(),
)
def test_a_base_of_a_vault_that_exists_is_never_reaped(
    on_source: set[int],
    on_vault: set[int],
    held: set[int],
    marked: set[int],
    vault: int,
    known: KnownVaults,
    named: bool,
) -> None:
    marks = [mark(number, vault) for number in sorted(marked)]
    source = dataset("tank", *(snap(number) for number in sorted(on_source)), *marks)
    found = list_base_protections(
        tree(source), {snap(number).name: {make_hold_tag(vault)} for number in sorted(held & on_source)}
    )
    assert len(found) == len(held & on_source) + len(marks)
    states = [judge_protection(one, known, source, [there(*sorted(on_vault))]) for one in found]
    going = {one.guid - 100 for one in select_reapable(states, vault if named else None)}
    base = max((number for number in on_vault if number in on_source | marked), default=None)
    if vault in known.names:
        assert base not in going
        assert not going or base in marked, "nothing goes before the base is protected"
        assert base is not None or not going, "without a base it is for somebody to look"
    elif not named and (known.seen.get(vault) or (known.unasked and vault not in known.seen)):
        assert not going


class Host:
    """All pools of a host: what is listed of each name, and what is held."""

    def __init__(self, trees: dict[str, Tree]) -> None:
        self.trees = trees

    async def tree(self, root: str, **_: object) -> Tree:
        return self.trees[root]

    async def tree_or_none(self, root: str, **_: object) -> Tree:
        return self.trees.get(root, Tree())

    async def held_below(self, _: str) -> list[str]:
        return []

    async def tagged(self, _: Sequence[str], __: str) -> set[str]:
        return set()

    async def holds(self, _: Sequence[str]) -> dict[str, set[str]]:
        return {snap(2).name: {make_hold_tag(COLD)}}


def shared_guid(
    folder: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, str], *, up: Sequence[str]
) -> Context:
    """Two tables for one pool, or for a pool and its copy; of one of them there is no backup."""
    where = context(folder=folder)
    config = {
        "daemon": {"timezone": "UTC"},
        "vault": {"cold": {"pool": "cold"}, "other": other},
        "backup": {"b": {"source": "tank", "vault": "cold"}},
    }
    where.env.config = type(where.env.config).model_validate(config)
    host: Any = Host({"tank": tree(SOURCE), "cold/host/tank": tree(there(1, 2)), "cold": tree(there(1, 2))})
    monkeypatch.setattr(holds_module, "_uncached", lambda *_: host)
    with_vault(where, host)
    where.clients._vaults["other", None, ""] = host

    async def state(pool: str) -> Any:
        return SimpleNamespace(guid=COLD) if pool in up else None

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    return where


@pytest.mark.parametrize("other", [{"pool": "cold"}, {"pool": "copy"}], ids=["same", "copy"])
async def test_a_base_is_in_use_whichever_of_two_vaults_with_one_guid_stands_on_it(
    other: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = shared_guid(tmp_path, monkeypatch, other, up=["cold", "copy"])
    found, _ = await find_keepsakes(where, {})  # type: ignore[arg-type]
    assert [(one.kind, one.state) for one in found] == [("hold", "in use"), ("bookmark", "in use")]
    assert {one.reason for one in found} == {"the base of cold/host/tank"}


async def test_a_copy_that_is_up_gives_no_base_up_of_a_vault_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = shared_guid(tmp_path, monkeypatch, {"pool": "copy"}, up=["copy"])
    where.records.pools.note(COLD, SeenPool.of(where.env.vault("cold")))
    found, _ = await find_keepsakes(where, {})  # type: ignore[arg-type]
    assert {one.reason for one in found} == {"in use by vault cold, which is down"}
    assert not select_reapable(found, None)
