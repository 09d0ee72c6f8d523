"""What zfs 2.3.9 printed, as it printed it."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Bookmark, Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.zfs.parse_listing import (
    DATASET_COLUMNS,
    PLACEHOLDER,
    SENT,
    DatasetPoints,
    build_tree,
    date_points,
    is_only_missing,
    join_listings,
    parse_number,
    parse_own_properties,
    parse_points,
    parse_stamps,
    parse_stream_size,
)
from zvault.zfs.trial_dataset import TRIAL_MARK

TOKEN = "1-d15124140-e0-789c636064000310a501c49c50360710a715e5e7a69766a630"

DATASETS = f"""\
tank\tfilesystem\t11974192127599986751\t105210880\t24576\t-\toff\t-\t1795266287
tank/my data\tfilesystem\t265146441535123029\t105017344\t0\t-\toff\t-\t1795266287
tank/my data/sub\tfilesystem\t77\t1024\t1024\t{TOKEN}\t-\t-\t-
tank/my\tfilesystem\t88\t12288\t0\t-\taes-256-gcm\t-\t-
tank/vol\tvolume\t99\t67108864\t0\t-\toff\t-\t1795266287
""".splitlines()

POINTS = """\
tank/my data@s3\t6904132151611110387\t12
tank/my data@zv_2026-11-21T13:37:33Z\t14806802050577876531\t10
tank/my data#b1\t14806802050577876531\t10
tank/my data@a tag: with.dots-and_more\t17260889467093802152\t11
tank/my data#zvault_1f_2\t17260889467093802152\t11
tank/vol@s1\t5\t13
tank/elsewhere@zv_2026-11-21T13:37:33Z\t14806802050577876531\t13
tank/elsewhere#gone\t6\t12
""".splitlines()


MADE = {
    "tank/my data@s3": 1795265055,
    "tank/my data@zv_2026-11-21T13:37:33Z": 1795268253,
    "tank/my data#b1": 1795268253,
    "tank/my data@a tag: with.dots-and_more": 1795265054,
    "tank/my data#zvault_1f_2": 1795265054,
    "tank/vol@s1": 1795265059,
    "tank/elsewhere@zv_2026-11-21T13:37:33Z": 1795268253,
}


def parse_tree(
    lines: Iterable[str],
    of_each: Mapping[str, DatasetPoints],
    own: Mapping[str, Mapping[str, str]] | None = None,
    key_root: str = "",
) -> Tree:
    return build_tree(join_listings(lines, of_each, own or {}, key_root)).tree


def test_a_listing_becomes_datasets_with_their_points_oldest_first() -> None:
    found = parse_tree(DATASETS, parse_points(POINTS, MADE), {"tank/my data": {SENT: "1f:Lce"}})
    assert found.get("tank/my data") == Dataset(
        DatasetName("tank/my data"),
        265146441535123029,
        "filesystem",
        used=105017344,
        sent="1f:Lce",
        snapshots=(
            Snapshot(
                DatasetName("tank/my data"), "zv_2026-11-21T13:37:33Z", 14806802050577876531, 10, 1795268253
            ),
            Snapshot(
                DatasetName("tank/my data"), "a tag: with.dots-and_more", 17260889467093802152, 11, 1795265054
            ),
            Snapshot(DatasetName("tank/my data"), "s3", 6904132151611110387, 12, 1795265055),
        ),
        bookmarks=(
            Bookmark(DatasetName("tank/my data"), "b1", 14806802050577876531, 10, 1795268253),
            Bookmark(DatasetName("tank/my data"), "zvault_1f_2", 17260889467093802152, 11, 1795265054),
        ),
    )


def test_what_is_made_when_is_read_from_names_as_far_as_they_tell() -> None:
    known, unknown = date_points(POINTS)
    assert known == {
        name: when for name, when in MADE.items() if name.partition("@")[2][:3] == "zv_" or "#b1" in name
    }
    # A bookmark is as old as the snapshot beside it, not as one of the same GUID in another dataset.
    assert unknown == [
        "tank/my data@s3",
        "tank/my data@a tag: with.dots-and_more",
        "tank/vol@s1",
        "tank/my data#zvault_1f_2",
        "tank/elsewhere#gone",
    ]


def test_what_went_before_it_was_asked_when_it_was_made_is_left_out() -> None:
    found = parse_points(POINTS, MADE)
    assert found["tank/elsewhere"].bookmarks == ()
    assert len(found["tank/elsewhere"].snapshots) == 1


def test_a_complaint_about_what_is_gone_is_told_from_others() -> None:
    gone = "cannot open 'tank/a@s': dataset does not exist\n"
    assert is_only_missing(gone * 2)
    assert not is_only_missing("")
    assert not is_only_missing(gone + "cannot open 'tank/b@s': I/O error\n")


def test_guids_keep_all_their_64_bits() -> None:
    (mark, _) = parse_tree(DATASETS, parse_points(POINTS, MADE)).datasets["tank/my data"].bookmarks
    assert mark.guid == 14806802050577876531 > 2**63


def test_parents_come_before_children_and_a_tree_stays_together() -> None:
    # By plain text "tank/my data" would come between "tank/my" and "tank/my/x": a space sorts before a slash.
    names = ["tank/my data", "tank/my/x", "tank/my", "tank", "tank/my data/sub"]
    lines = [f"{name}\tfilesystem\t1\t0\t0\t-\toff\t-\t-" for name in names]
    assert list(parse_tree(lines, {}).datasets) == [
        "tank",
        "tank/my",
        "tank/my/x",
        "tank/my data",
        "tank/my data/sub",
    ]


def test_the_other_columns() -> None:
    found = parse_tree(DATASETS, parse_points(POINTS, MADE))
    assert found.datasets["tank/my data/sub"].resume_token == TOKEN
    assert found.datasets["tank"].resume_token is None
    assert found.datasets["tank"].written == 24576
    assert [dataset.name for dataset in found if dataset.encrypted] == ["tank/my"]
    assert found.datasets["tank/vol"].type == "volume"


def test_points_of_a_dataset_that_came_in_between_are_left_out() -> None:
    assert "tank/elsewhere" not in parse_tree(DATASETS, parse_points(POINTS, MADE)).datasets


def test_an_empty_listing_is_an_empty_tree() -> None:
    assert len(parse_tree([], {})) == 0


def test_what_is_not_there_counts_as_nothing() -> None:
    assert [parse_number(text) for text in ("-", "", "0", "18446744073709551615")] == [0, 0, 0, 2**64 - 1]


RESUMED = """\
resume token contents:
nvlist version: 0
\tfromguid = 0xef8aff84a9685ca8
\tobject = 0x4
\toffset = 0xfe0000
\tbytes = 0x100a908
\ttoguid = 0x5fd0679cbb2233f3
\ttoname = tank/my data@s3
incremental\ttank/my data@s2\ttank/my data@s3\t4195944
size\t4195944
"""


def test_an_estimate_is_the_last_line() -> None:
    assert parse_stream_size(RESUMED) == 4195944
    assert parse_stream_size("incremental\ts1\ttank@s2\t7\nincremental\ts2\ttank@s3\t8\nsize\t15\n") == 15


def test_an_estimate_below_what_arrived_already_is_none() -> None:
    """So said ZFS 2.3.9 of the rest of a stream of 8 KiB, cut off before its last record."""
    assert parse_stream_size("resume token contents:\nsize\t18446744073709551216\n") is None


def test_no_estimate_is_none_rather_than_zero() -> None:
    assert (
        parse_stream_size("cannot resume send: 'tank@s5' used in the initial send no longer exists\n") is None
    )
    assert parse_stream_size("full\tsize\t12\n") is None


def line(name: str, **values: str) -> str:
    known = {"name": name, "type": "filesystem", "guid": "1", **values}
    return "\t".join(known.get(column, "-") for column in DATASET_COLUMNS)


def test_what_the_pool_encrypts_counts_as_it_was_sent() -> None:
    roots = {"cold": "cold", "cold/a": "cold", "cold/raw": "cold/raw", "cold/raw/b": "cold/raw"}
    lines = [line(name, encryptionroot=root) for name, root in roots.items()]
    assert {one.name for one in parse_tree(lines, {}) if one.encrypted} == set(roots)
    assert {one.name for one in parse_tree(lines, {}, key_root="cold") if one.encrypted} == {
        "cold/raw",
        "cold/raw/b",
    }
    assert not any(one.encrypted for one in parse_tree([line("cold")], {}, key_root=""))


def test_a_placeholder_is_only_what_bears_its_own_name_and_holds_nothing() -> None:
    lines = [line("cold/h"), line("cold/h/other"), line("cold/h/real")]
    own = {"cold/h": "cold/h", "cold/h/other": "cold/h", "cold/h/real": "cold/h/real"}
    marks = {name: {PLACEHOLDER: value} for name, value in own.items()}
    found = parse_tree(lines, parse_points(["cold/h/real@s\t7\t3"], {"cold/h/real@s": 100}), marks)
    assert [one.name for one in found if one.placeholder] == ["cold/h"]


def test_only_what_zvault_made_for_a_while_is_left_out_of_a_listing() -> None:
    names = ["tank", "tank/home", "tank/zvault-drill-1f", "tank/zvault-drill-1f/drill", "tank/zvault-scratch"]
    marks = {"tank": "tank", "tank/home": "tank/home", "tank/zvault-drill-1f": "tank/zvault-drill-1f"}
    marks |= {"tank/zvault-scratch": "tank", "tank/mine": "tank/mine"}
    own = {name: {TRIAL_MARK: value} for name, value in marks.items()}
    found = parse_tree([line(name) for name in [*names, "tank/zvault-scratchy", "tank/mine"]], {}, own)
    assert list(found.datasets) == ["tank", "tank/home", "tank/mine", "tank/zvault-scratchy"]


def test_own_properties_are_taken_only_where_they_are_surely_what_they_seem() -> None:
    said = (
        "tank/a\torg.zvault:sent\t1f:Lce\n"
        "tank/b\torg.zvault:sent\tx\ty\n"
        "tank/a\torg.zvault:sent\tfalse\n"
        "no line of its own\n"
        "tank/c\torg.zvault:sent\t\x1b[2J\n"
        "tank/d\torg.example:x\t1\n"
    )
    assert parse_own_properties(said.splitlines()) == {"tank/a": {SENT: "1f:Lce"}}


@given(st.lists(st.text("ab\t\n@/#-: org.zvault:scratch\x1b", max_size=40), max_size=8))
def test_no_property_breaks_a_listing(said: list[str]) -> None:
    own = parse_own_properties("\n".join(said).splitlines())
    assert list(parse_tree([line("tank"), line("tank/home")], {}, own).datasets) == ["tank", "tank/home"]


def test_a_promote_shows_in_the_stamps_of_both() -> None:
    """It moves snapshots, and need not move ``snapshots_changed``."""
    before = parse_stamps([line("tank/a"), line("tank/b", origin="tank/a@s")])
    after = parse_stamps([line("tank/a", origin="tank/b@s"), line("tank/b")])
    assert all(before[name] != after[name] for name in before)


@pytest.mark.parametrize(
    "text", ["-5", "+5", " 5", "1_0", "²", "٣", "9" * 21, "9" * 5000, "18446744073709551616"]
)
def test_what_zfs_does_not_print_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        parse_number(text)
    assert parse_stream_size(f"size {text.replace(' ', '_')}") is None
    line = f"tank@zvault_2026-11-21T09:00:00Z\t{text}\t3"
    with pytest.raises(ValueError, match="64 bits"):
        parse_points([line], {"tank@zvault_2026-11-21T09:00:00Z": 1})
