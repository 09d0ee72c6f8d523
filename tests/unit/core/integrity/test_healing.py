"""Damage and the streams that repair it, against a model of blocks that live from one snapshot to another."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.integrity.damage import (
    METADATA_NAME,
    DamagedFile,
    DamagedSnapshotSearch,
    HealTarget,
    LoggedBlock,
    SnapshotObject,
    count_damaged_files,
    find_oldest_damaged,
    list_damages,
    locate_heal_targets,
    make_heal_targets,
    parse_damage,
)
from zvault.core.integrity.healing import (
    DatasetCopy,
    HealingStream,
    choose_aside_name,
    explain_unhealed,
    list_resend_commands,
    select_healing_streams,
)
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import ASIDE_INFIX, is_aside

NAME = "cold/lab/tank"


def dataset(count: int) -> Dataset:
    snaps = tuple(Snapshot(DatasetName(NAME), f"s{n}", 100 + n, 10 * n, 1000 * n) for n in range(count))
    return Dataset(DatasetName(NAME), 1, "filesystem", snapshots=snaps)


@dataclass(frozen=True)
class Block:
    """A damaged block: of a file, in the snapshots from ``born`` until before ``gone``."""

    path: str
    born: int
    gone: int

    def wound(self, *, logged: bool = True) -> HealTarget:
        """As the error log tells it; without that ZFS leaves out the oldest snapshot."""
        snapnames = tuple(f"s{n}" for n in range(self.born, self.gone))
        if not logged:
            return HealTarget(NAME, self.path, snapnames[1:])
        number = 8 if self.path == "/a" else 9
        return HealTarget(
            NAME,
            self.path,
            snapnames,
            LoggedBlock(NAME, number, 0, self.gone, 10 * self.born - 5),
            exact=True,
        )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[int, set[Block], list[DatasetCopy]]:
    count = draw(st.integers(1, 6))
    blocks = set()
    for _ in range(draw(st.integers(1, 5))):
        born = draw(st.integers(0, count - 1))
        blocks.add(Block(draw(st.sampled_from(["/a", "/b"])), born, draw(st.integers(born + 1, count))))
    copies = []
    for number in range(draw(st.integers(0, 2))):
        snaps = draw(st.sets(st.integers(0, count - 1)))
        marks = draw(st.sets(st.integers(0, count - 1)))
        copies.append(
            DatasetCopy(
                str(number),
                f"place {number}",
                {100 + n: f"tank@s{n}" for n in snaps},
                {100 + n: f"tank#s{n}" for n in marks},
            )
        )
    return count, blocks, copies


def carries(cure: HealingStream, block: Block) -> bool:
    """Whether a stream brings a block: its snapshot has it, and it was written after the base."""
    to = int(cure.target.snapname[1:])
    base = -1 if cure.base is None else int(cure.base[-1])
    return block.born <= to < block.gone and block.born > base


def heal(
    count: int, blocks: set[Block], copies: list[DatasetCopy], *, logged: bool = True
) -> tuple[set[Block], list[HealingStream]]:
    there, tried = dataset(count), list[HealingStream]()
    left = set(blocks)
    while True:
        hurt = [block.wound(logged=logged) for block in sorted(left, key=str)]
        cures = select_healing_streams(hurt, {NAME: there}, {NAME: copies}, tried)
        if not cures:
            return left, tried
        for cure in cures:
            assert cure not in tried
            tried.append(cure)
            left = {block for block in left if not carries(cure, block)}


@given(worlds())
def test_what_anybody_has_is_healed_and_nothing_else_is_left(world):
    count, blocks, copies = world
    left, _ = heal(count, blocks, copies)
    had = {guid - 100 for copy in copies for guid in copy.snapshots}
    assert left == {block for block in blocks if not had & set(range(block.born, block.gone))}


@given(worlds())
def test_names_alone_suffice_where_a_block_is_in_several_snapshots(world):
    count, blocks, copies = world
    blocks = {block for block in blocks if block.gone - block.born > 1}
    left, _ = heal(count, blocks, copies, logged=False)
    had = {guid - 100 for copy in copies for guid in copy.snapshots}
    assert left == {block for block in blocks if not had & set(range(block.born, block.gone))}


@given(worlds())
def test_what_is_left_is_told_with_a_reason_and_lost_where_nobody_has_it(world):
    count, blocks, copies = world
    left, _ = heal(count, blocks, copies)
    had = {guid - 100 for copy in copies for guid in copy.snapshots}
    blocks = sorted(left, key=str)
    told = explain_unhealed([block.wound() for block in blocks], {NAME: dataset(count)}, {NAME: copies}, {})
    assert all(one.why for one in told)
    assert [one.lost for one in told] == [not had & set(range(block.born, block.gone)) for block in blocks]


def source(*numbers: int, marks: tuple[int, ...] = ()) -> DatasetCopy:
    return DatasetCopy(
        "", "the source", {100 + n: f"tank@s{n}" for n in numbers}, {100 + n: f"tank#s{n}" for n in marks}
    )


def test_a_block_that_is_new_in_a_snapshot_comes_from_the_one_before():
    (cure,) = select_healing_streams(
        [Block("/f", 2, 4).wound()], {NAME: dataset(4)}, {NAME: [source(0, 1, 2, 3)]}
    )
    assert (cure.base, cure.snapshot, cure.target.snapname) == ("tank@s1", "tank@s2", "s2")
    assert cure.reason == "the source has tank@s2; what was written after tank@s1 is read"


def test_a_bookmark_is_base_enough():
    (cure,) = select_healing_streams(
        [Block("/f", 2, 4).wound()], {NAME: dataset(5)}, {NAME: [source(3, marks=(0, 1))]}
    )
    assert (cure.base, cure.snapshot) == ("tank#s1", "tank@s3")


def test_what_did_not_help_is_followed_by_the_next_place_and_then_by_all_of_it():
    hurt = [Block("/f", 1, 2).wound()]
    other = DatasetCopy("attic", "vault attic", {101: "attic/x@s1"})
    copies = {NAME: [source(0, 1), other]}
    tried: list[HealingStream] = []
    order = []
    while cures := select_healing_streams(hurt, {NAME: dataset(3)}, copies, tried):
        tried += cures
        order += [(cure.copy, cure.base) for cure in cures]
    assert order == [("", "tank@s0"), ("attic", None), ("", None)]


def test_the_newest_snapshot_is_as_good_as_any():
    (cure,) = select_healing_streams(
        [Block("/f", 2, 3).wound()], {NAME: dataset(3)}, {NAME: [source(0, 1, 2, 3)]}
    )
    assert (cure.base, cure.snapshot, cure.target.snapname) == ("tank@s1", "tank@s2", "s2")


def test_metadata_is_not_sent_for():
    for number, level in ((8, 1), (0, 0), (0, -1)):
        wound = HealTarget(NAME, "/f", ("s0",), LoggedBlock(NAME, number, level, 0, 0))
        assert select_healing_streams([wound], {NAME: dataset(1)}, {NAME: [source(0)]}) == []
        assert (
            "no stream carries it"
            in explain_unhealed([wound], {NAME: dataset(1)}, {NAME: [source(0)]}, {})[0].why
        )


def test_reasons():
    there, copies = {NAME: dataset(2)}, {NAME: [source(0)]}
    hurt = make_heal_targets(
        [
            DamagedFile(METADATA_NAME, None, "<0x3d>"),
            DamagedFile(None, None, "<0x21>:<0x8>"),
            DamagedFile(NAME, "s0", "/f"),
            DamagedFile("cold/other", "s", "/f"),
        ]
    )
    pool, unknown, data, other = explain_unhealed(hurt, there, copies, {})
    assert "own metadata" in pool.why
    assert "two scrubs" in unknown.why
    assert "what the source sends of it has other bytes" in data.why
    assert not data.lost
    assert "no snapshot" in other.why
    (broke,) = explain_unhealed(
        make_heal_targets([DamagedFile(NAME, "s0", "/f")]), there, copies, {NAME: "the stream broke off: bad"}
    )
    assert broke.why == "the source has it, but the stream broke off: bad"
    wound = HealTarget(NAME, "/f", ("s0",))
    (told,) = explain_unhealed([wound], there, copies, {}, {wound: "it is in pieces"})
    assert told.why == "it is in pieces"


def test_the_error_log_tells_the_snapshots_that_names_leave_out():
    there = {NAME: dataset(3)}
    logged = [LoggedBlock(NAME, 8, 0, 3, 5), LoggedBlock(NAME, 9, 0, 0, 15)]
    named = [
        DamagedFile(NAME, None, "/f"),
        DamagedFile(NAME, "s2", "/f"),
        DamagedFile(METADATA_NAME, None, "<0x1>"),
    ]
    found = locate_heal_targets(logged, there, {(NAME, 8): "/f"}, named)
    assert [(one.path, one.snapnames) for one in found] == [
        ("/f", ("s1", "s2")),
        ("<0x9>", ("s2",)),
        ("<0x1>", ()),
    ]
    assert [str(one) for one in list_damages(found, named)] == [
        "<metadata>:<0x1>",
        f"{NAME}:/f",
        f"{NAME}@s1:/f",
        f"{NAME}@s2:/f",
        f"{NAME}@s2:<0x9>",
    ]
    assert count_damaged_files(found) == 3


@given(worlds(), st.booleans())
def test_the_last_snapshot_that_has_a_block_is_found_with_few_looks(world, told):
    """``told``: the log tells when a block was written; else its first snapshot does."""
    count, blocks, _ = world
    there, entries, looks = dataset(count), dict[LoggedBlock, Block](), 0
    for number, block in enumerate(sorted(blocks, key=str)):
        birth = 10 * block.born - 5
        entries[LoggedBlock(NAME, 8 + number, 0, number, birth if told else 0, f"s{block.born}")] = block

    def seen(at: int) -> dict[int, SnapshotObject]:
        return {
            one.number: SnapshotObject(
                "/f", {one.block: 10 * block.born - 5 if block.born <= at < block.gone else 10 * at - 5}
            )
            for one, block in entries.items()
        }

    search = DamagedSnapshotSearch(there, entries)
    search.births({one.number: seen(block.born)[one.number] for one, block in entries.items()})
    while (snapshot := search.next_look()) is not None:
        search.saw(snapshot, seen(int(snapshot.snapname[1:])))
        looks += 1
    assert {one: int(snap.snapname[1:]) + 1 for one, snap in search.newest().items()} == {
        one: block.gone for one, block in entries.items()
    }
    assert looks < count
    found = locate_heal_targets(list(entries), {NAME: there}, {}, (), search.newest())
    assert [(wound.snapnames, wound.exact) for wound in found] == [
        (tuple(f"s{n}" for n in range(block.born, block.gone)), True) for block in entries.values()
    ]


def test_what_cannot_be_seen_block_by_block_goes_by_names():
    there = {NAME: dataset(3)}
    one = LoggedBlock(NAME, 8, 0, 3, 5)
    search = DamagedSnapshotSearch(there[NAME], [one])
    looked = search.next_look()
    assert looked is not None
    search.saw(looked, {})
    assert search.next_look() is None
    (wound,) = locate_heal_targets(
        [one], there, {(NAME, 8): "/f"}, [DamagedFile(NAME, "s2", "/f")], search.newest()
    )
    assert (wound.snapnames, wound.exact) == (("s1", "s2"), False)


def test_a_block_that_no_snapshot_has_has_no_oldest_one():
    assert find_oldest_damaged(dataset(2), HealTarget(NAME, "/f", (), LoggedBlock(NAME, 8, 0, 0, 99))) is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "cold/a@zvault_2026-11-21T09:00:00Z:/dir/a:/f",
            ("cold/a", "zvault_2026-11-21T09:00:00Z", "/dir/a:/f"),
        ),
        ("cold/a@s1:<0x8>", ("cold/a", "s1", "<0x8>")),
        ("cold/a:/f", ("cold/a", None, "/f")),
        ("cold/my files@s:/f g", ("cold/my files", "s", "/f g")),
        ("<0x21>:<0x8>", (None, None, "<0x21>:<0x8>")),
        ("<metadata>:<0x3d>", (METADATA_NAME, None, "<0x3d>")),
        ("/mnt/x/dir/f", ("cold/a", "s1", "/dir/f")),
        ("/elsewhere/f", (None, None, "/elsewhere/f")),
        ("cold/odd:/b@s:/f", ("cold/odd:/b", "s", "/f")),
    ],
)
def test_names_of_zpool_status(text, found):
    known = {"cold/a@s1", "cold/a", "cold/odd:/b@s"}
    assert parse_damage(text, known, {"/mnt/x": "cold/a@s1", "/mnt": "cold/b"}) == DamagedFile(*found)


def test_a_file_is_counted_once():
    assert (
        count_damaged_files(
            [DamagedFile(NAME, "s0", "/f"), DamagedFile(NAME, "s1", "/f"), DamagedFile(NAME, None, "/g")]
        )
        == 2
    )


@pytest.mark.parametrize(
    ("dataset", "apart"),
    [("cold/lab/tank/home", f"cold/lab/tank/home-old{ASIDE_INFIX}20261123T080000Z"), ("cold", None)],
)
def test_what_is_to_be_sent_anew_is_given_a_name_that_no_backup_follows(
    dataset: str, apart: str | None
) -> None:
    name = choose_aside_name(DatasetName(dataset), f"{ASIDE_INFIX}20261123T080000Z")
    assert name == apart
    assert name is None or is_aside(name)


def test_only_what_no_stream_puts_right_is_to_be_sent_anew() -> None:
    block = LoggedBlock(NAME, 7, 0, 0, 1)
    data, indirect = (HealTarget(NAME, "/f", ("s0",), replace(block, level=level)) for level in (0, 1))
    assert list_resend_commands([data], {NAME: dataset(1)}, ASIDE_INFIX) == []
    (command,) = list_resend_commands([data, indirect, indirect], {NAME: dataset(1)}, ASIDE_INFIX)
    assert command.startswith(f"zfs rename {NAME} ")
