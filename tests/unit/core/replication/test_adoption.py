"""Which backup goes on from another tool's replica."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import Refused, ToolFailed
from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.name_rules import check_target_template, check_word, make_vault_dataset
from zvault.core.names import DatasetName, make_snapname
from zvault.core.replication.adoption import (
    AdoptionHints,
    find_adoption,
    list_adoption_commands,
    suggest_name,
    write_adoption_tables,
)

DAILY = "autosnap_2026-11-{day:02}_00:00:01_daily"


def side(datasets: dict[str, dict[str, int]]) -> Tree:
    """Datasets with their snapshots: GUIDs by snapname, oldest first."""
    return Tree(
        {
            DatasetName(name): Dataset(
                DatasetName(name),
                guid=number,
                type="filesystem",
                snapshots=tuple(
                    Snapshot(DatasetName(name), snapname, guid, 10 * age, 1000 * age)
                    for age, (snapname, guid) in enumerate(snapshots.items())
                ),
            )
            for number, (name, snapshots) in enumerate(datasets.items())
        }
    )


def tree(root: str, *paths: str, days: range = range(1, 4), first: int = 0) -> Tree:
    names = [f"{root}/{path}" if path else root for path in paths]
    return side(
        {
            name: {DAILY.format(day=day): 1000 * number + first + day for day in days}
            for number, name in enumerate(names)
        }
    )


@pytest.mark.parametrize(
    ("replica", "into"),
    [
        ("cold/mirror", "mirror/{path}"),
        ("cold/hosts/filer/data", "hosts/filer/data/{path}"),
        ("cold/tank/data", "{dataset}"),
        ("cold/backup/tank/data", "backup/{dataset}"),
        ("cold/xtank/data", "xtank/data/{path}"),
    ],
)
def test_a_tree_is_found_wherever_it_is(replica: str, into: str) -> None:
    source = DatasetName("tank/data")
    here, there = (
        tree(source, "", "home", "home/ann", days=range(2, 5)),
        tree(replica, "", "home", "home/ann"),
    )
    found = find_adoption(source, here, DatasetName(replica), there)
    assert found.into == into
    check_target_template(into)
    for name, held in found.followed.items():
        assert make_vault_dataset(into, "cold", "h", name, source) == held
    assert len(found.followed) == 3
    assert (found.elsewhere, found.missing, found.strangers) == ((), (), ())
    assert found.also == ("autosnap_*",)


@pytest.mark.parametrize(
    ("snapname", "pattern"),
    [
        ("2026-11-27-223107", "20??-??-??*"),
        ("20261127-0000", "20??????*"),
        ("zrepl_20261127_223107_000", "zrepl_*"),
        ("autosnap_2026-11-27_22:31:07_daily", "autosnap_*"),
        ("before-upgrade", "before-upgrade"),
    ],
)
def test_what_is_proposed_for_also_matches_no_other_names(snapname: str, pattern: str) -> None:
    source, replica = DatasetName("tank"), DatasetName("cold/a")
    found = find_adoption(source, side({"tank": {snapname: 1}}), replica, side({"cold/a": {snapname: 1}}))
    assert found.also == (pattern,)
    assert fnmatchcase(snapname, pattern)
    assert not fnmatchcase(make_snapname("zvault", datetime(2026, 11, 27, tzinfo=UTC)), pattern)


def test_what_is_missing_elsewhere_or_strange_is_told() -> None:
    source, replica = DatasetName("tank"), DatasetName("cold/a")
    here = side({"tank": {"x": 1}, "tank/new": {"x": 2}, "tank/now": {"x": 3}, "tank/b": {"x": 4}})
    there = side(
        {"cold/a": {"x": 1}, "cold/a/then": {"x": 3}, "cold/a/other": {"y": 9}, "cold/a/b": {"x": 4}}
    )
    found = find_adoption(source, here, replica, there)
    assert found.into == "a/{path}"
    assert (found.elsewhere, found.missing, found.strangers) == (
        ("tank/now",),
        ("tank/new",),
        ("cold/a/other",),
    )
    assert found.also == ("x",)
    lines = list(write_adoption_tables("tank", "tank", "cold", ("cold", "ssh://vault"), found))
    assert lines[:4] == ["[vault.cold]", 'pool = "cold"', 'host = "ssh://vault"', ""]
    assert '#exclude = ["tank/new"]  # of these there is no replica: else they are sent in full' in lines


@pytest.mark.parametrize("odd", ['a" b', "a\\", "a\nhooks = 1", "a\x1b", "ü", "a#b", "\U0001f40d", "a\x7f"])
def test_a_name_of_another_host_stays_one_string(odd: str) -> None:
    source, replica = DatasetName("tank"), DatasetName(f"cold/{odd}")
    here = side({"tank": {odd: 1}, f"tank/{odd}": {"x": 2}})
    found = find_adoption(source, here, replica, side({replica: {odd: 1}}))
    text = "\n".join(write_adoption_tables("v1.0", "tank", suggest_name(odd), (f"co{odd}ld", None), found))
    for line in text, text.replace("#exclude", "exclude").replace("#also", "also"):
        read = tomllib.loads(line)
        assert set(read) == {"vault", "backup"}
        assert read["vault"][suggest_name(odd)] == {"pool": f"co{odd}ld"}
        assert read["backup"]["v1.0"]["into"] == f"{odd}/{{path}}"
    assert (read["backup"]["v1.0"]["exclude"], read["backup"]["v1.0"]["also"]) == ([f"tank/{odd}"], [odd])


@pytest.mark.parametrize("there", [False, True, None])
def test_large_records_are_a_one_way_door_that_is_named(there: bool | None) -> None:
    """What zvault sends with -L keeps plain syncoid, zrepl and znapzend from ever going on."""
    found = find_adoption(DatasetName("tank"), tree("tank", ""), DatasetName("cold/r"), tree("cold/r", ""))
    hints = AdoptionHints(("tank", "tank/b"), there, "autobackup:offsite")
    text = "\n".join(write_adoption_tables("tank", "tank", "cold", None, found, hints))
    assert "# tank and 1 more may have records over 128K. Decide before the first run" in text
    read = tomllib.loads(text)["backup"]["tank"]
    assert read.get("send") == ({"large_blocks": False} if there is False else None)
    assert tomllib.loads(text.replace("#send", "send").replace("#select", "select"))["backup"]["tank"] == {
        **read,
        "send": {"large_blocks": False},
        "select": "autobackup:offsite",
    }
    plain = "\n".join(write_adoption_tables("tank", "tank", "cold", None, found))
    assert "large_blocks" not in plain
    assert "select" not in plain


@given(st.text(max_size=80))
def test_it_is_called_as_the_configuration_allows(name: str) -> None:
    check_word(suggest_name(name))


def test_parents_that_only_hold_replicas_are_no_strangers() -> None:
    here, there = (
        side({"tank/a": {"x": 1}}),
        side({"cold/z": {}, "cold/z/tank": {}, "cold/z/tank/a": {"x": 1}}),
    )
    found = find_adoption(DatasetName("tank/a"), here, DatasetName("cold/z"), there)
    assert (found.into, found.strangers) == ("z/{dataset}", ())


def test_what_was_written_to_a_replica_since_is_to_be_taken_back() -> None:
    here = side({"tank": {"x": 1}, "tank/a b": {"x": 2}, "tank/c": {"x": 3}, "tank/d": {"x": 4}})
    there = side(
        {"cold/r": {"x": 1}, "cold/r/a b": {"x": 2}, "cold/r/c": {"x": 3, "own": 9}, "cold/r/d": {"x": 4}}
    )
    sizes = {"cold/r": 14336, "cold/r/a b": 512, "cold/r/c": 7}
    written = Tree({name: replace(one, written=sizes.get(name, 0)) for name, one in there.datasets.items()})
    found = find_adoption(DatasetName("tank"), here, DatasetName("cold/r"), written)
    assert found.changed == {"cold/r@x": 14336, "cold/r/a b@x": 512}
    assert list(list_adoption_commands(DatasetName("cold/r"), found)) == [
        "zfs unmount cold/r",
        "zfs rollback cold/r@x",
        "zfs rollback 'cold/r/a b@x'",
    ]
    unchanged = find_adoption(DatasetName("tank"), here, DatasetName("cold/r"), there)
    assert list(list_adoption_commands(DatasetName("cold/r"), unchanged)) == []


def test_names_prove_nothing() -> None:
    source, replica = DatasetName("tank"), DatasetName("cold/tank")
    with pytest.raises(Refused, match="no replica") as caught:
        find_adoption(source, tree(source, ""), replica, tree(replica, "", first=500))
    assert "GUID" in caught.value.why


def test_a_pools_root_dataset_cannot_be_gone_on_with() -> None:
    with pytest.raises(Refused, match="root dataset") as caught:
        find_adoption(DatasetName("tank"), tree("tank", "", "a"), DatasetName("cold"), tree("cold", "", "a"))
    assert "zvaultctl adopt tank/NAME cold/NAME" in caught.value.next


@given(
    st.sets(st.sampled_from(["a", "b", "a/x", "a/y", "b/x/y"]), min_size=1),
    st.sampled_from(["cold/r", "cold/tank", "cold/r/tank"]),
)
def test_into_leads_to_every_replica(paths: set[str], replica: str) -> None:
    source, every = DatasetName("tank"), ["", *sorted(paths)]
    found = find_adoption(source, tree(source, *every), DatasetName(replica), tree(replica, *every))
    assert {make_vault_dataset(found.into, "cold", "h", name, source): name for name in found.followed} == {
        held: name for name, held in found.followed.items()
    }


def unlisted(whole: Tree, *names: str) -> Tree:
    """The same tree, of which these datasets cannot be opened."""
    left = {name: one for name, one in whole.datasets.items() if name not in names}
    return replace(whole, datasets=left, unlisted=dict.fromkeys(map(DatasetName, names), "I/O error"))


def test_what_may_be_in_what_cannot_be_listed_is_neither_missing_nor_a_stranger() -> None:
    here, there = tree("tank/data", "", "a", "b"), tree("cold/data", "", "a", "b")
    for mine, theirs, unknown in (
        (here, unlisted(there, "cold/data/b"), ["tank/data/b"]),
        (unlisted(here, "tank/data/b"), there, ["cold/data/b"]),
        (unlisted(here, "tank/data/b"), unlisted(there, "cold/data/b"), []),
    ):
        found = find_adoption(DatasetName("tank/data"), mine, DatasetName("cold/data"), theirs)
        assert (found.missing, found.strangers, list(found.unknown)) == ((), (), unknown)
        assert found.followed[DatasetName("tank/data/a")] == "cold/data/a"
        assert not [
            line for line in write_adoption_tables("b", "tank/data", "cold", None, found) if "exclude" in line
        ]


def test_nothing_in_common_but_with_what_cannot_be_listed_is_not_known() -> None:
    here, there = tree("tank/data", "a"), tree("cold/data", "a")
    with pytest.raises(ToolFailed, match=r"cold/data/a cannot be listed \(I/O error\)"):
        find_adoption(
            DatasetName("tank/data"), here, DatasetName("cold/data"), unlisted(there, "cold/data/a")
        )
