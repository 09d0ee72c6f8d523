"""A property selects what inherits it within the source, against a model of how ZFS hands properties down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.names import DatasetName
from zvault.core.property_selection import check_user_property, choose_by_property

NAMES = [
    DatasetName(name) for name in ("tank", "tank/s", "tank/s/a", "tank/s/a/b", "tank/s/a/b/c", "tank/s/d")
]
ROOT = DatasetName("tank/s")
VALUE = st.sampled_from(["true", "on", "child", "parent", "false", "TRUE", ""])
Set = tuple[str, str]  # how: "local" or "received"; what


def told(settings: dict[DatasetName, Set], name: DatasetName) -> tuple[str, str]:
    """What ``zfs get`` says of a dataset, by what is set on it and above."""
    for holder in (name, *reversed(list(name.ancestors))):
        if holder in settings:
            how, value = settings[holder]
            return value, how if holder == name else f"inherited from {holder}"
    return "-", "-"


def meant(settings: dict[DatasetName, Set], name: DatasetName) -> bool:
    """What the words of the documentation say."""
    holder = next((one for one in (name, *reversed(list(name.ancestors))) if one in settings), None)
    if holder is None or not holder.is_within(ROOT):
        return False
    how, value = settings[holder]
    wanted = {"true", "on", "parent"} if holder == name else {"true", "on", "child"}
    return how == "local" and value in wanted


@given(st.dictionaries(st.sampled_from(NAMES), st.tuples(st.sampled_from(["local", "received"]), VALUE)))
def test_what_is_selected(settings: dict[DatasetName, Set]) -> None:
    within = [name for name in NAMES if name.is_within(ROOT)]
    found = choose_by_property({name: told(settings, name) for name in within}, ROOT)
    assert {name for name, one in found.items() if one.taken} == {
        name for name in within if meant(settings, name)
    }
    for name, one in found.items():
        assert one.taken == one.reason.endswith("which selects it"), "the reason says what was decided"
        value, source = told(settings, name)
        assert f"'{value}'" in one.reason or source == "-"


def test_what_is_inherited_from_one_that_is_not_told_does_not_count() -> None:
    rows = {"tank/s/a": ("true", "inherited from tank/s"), "tank/s": ("false", "local")}
    assert not any(one.taken for one in choose_by_property(rows, ROOT).values())


def test_what_is_inherited_from_a_damaged_one_counts_as_set_by_hand() -> None:
    """Nobody can read who set it there; on the others the rules are the same."""
    rows = {
        "tank/s/a": ("true", "inherited from tank/s"),
        "tank/s/d": ("parent", "inherited from tank/s"),
        "tank/s/e": ("true", "received"),
        "tank/s/f": ("true", "inherited from tank"),
    }
    found = choose_by_property(rows, ROOT, {ROOT})
    assert [name for name, one in found.items() if one.taken] == ["tank/s/a"]


@pytest.mark.parametrize("name", ["org.example:backup", "autobackup:offsite1", ":x", "a:b:c", "a_b+c-d.e:1"])
def test_a_user_property(name: str) -> None:
    check_user_property(name)


@pytest.mark.parametrize(
    "name", ["", "backup", "-a:b", "Org:x", "a:b c", "org.zvault:sent", "a:" + "b" * 300, "a:b=c", "a:b,c:d"]
)
def test_no_user_property(name: str) -> None:
    with pytest.raises(ValueError, match=r"user property|zvault's own"):
        check_user_property(name)
