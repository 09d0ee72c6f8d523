"""What zdb lists of objects, whatever their names say. The seeds are zdb's of OpenZFS 2.3, of files with such names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fuzz.mutation import seed
from zvault.zfs.repair.zdb_objects import ListedObjectLines, parse_zdb_objects

FORGED = seed("zfs_output", "zdb-blocks-forged").decode()
"""Five objects: 2 has an attribute, 4 a name and 6 a target with a line as zdb has it; the name of 5 has a block."""
TITLE = "\n    Object  lvl   iblk   dblk  dsize  dnsize  lsize   %full  type\n"
HEAD = "  {number:8d}    1   128K   128K   304K     512   384K  100.00  ZFS plain file\n\tdnode maxblkid: 2\n"
BLOCK = "               0 L0 DVA[0]=<0:{at:x}:1000>"
MARK = "Indirect blocks:"


def part(number: int) -> str:
    """What zdb said of one of the five."""
    parts = FORGED.split("\n    Object  lvl   iblk   dblk  dsize")
    text = next(one for one in parts[1:] if one.partition("\n")[2].split()[0] == str(number))
    return f"Dataset w/a@s [ZPL]\n\n    Object  lvl   iblk   dblk  dsize{text}\n\n"


def test_of_names_that_look_like_zdbs_own_words_several_objects_are_not_clear():
    assert parse_zdb_objects(FORGED, [2, 3, 4, 5, 6]) is None


def test_alone_each_has_its_own_blocks():
    found = {number: (parse_zdb_objects(part(number), [number]) or {})[number] for number in (2, 3, 4, 5, 6)}
    assert [len(found[number].blocks) for number in (2, 3, 4, 5, 6)] == [4, 1, 3, 1, 0]
    assert "DVA[0]=<0:50000:1000>" in found[5].blocks[0]
    assert not any(":400000:1000" in line for one in found.values() for line in one.blocks)
    assert {number: one.path for number, one in found.items()} == {
        2: "/plain",
        3: "/two",
        4: None,
        5: None,
        6: "/link",
    }
    assert found[4].head[:4] == ["4", "2", "128K", "128K"]


def test_several_whose_names_are_names():
    found = parse_zdb_objects(part(3) + part(5), [3, 5])
    assert found is not None
    assert "DVA[0]=<0:c5000:2000>" in found[3].blocks[0]
    assert [len(one.blocks) for one in found.values()] == [1, 1]
    assert "DVA[0]=<0:50000:1000>" in found[5].blocks[0]


def test_what_lacks_one_or_has_another_one_is_not_clear():
    assert parse_zdb_objects(part(3), [3, 5]) is None
    assert parse_zdb_objects(part(3) + part(5), [5, 3]) is None
    assert parse_zdb_objects("", [3]) is None
    assert parse_zdb_objects(part(3), [4]) is None


LINES = st.sampled_from(
    [
        MARK,
        "",
        "x",
        TITLE.strip("\n"),
        HEAD.format(number=1).partition("\n")[0],
        HEAD.format(number=2).partition("\n")[0],
        BLOCK.format(at=0x666000),
        "\tpath\t/forged",
        "\tuid     0",
        "\tdnode maxblkid: 0",
    ]
)
NAMES = st.lists(LINES, max_size=8).map("\n".join)


def said(number: int, name: str, target: str) -> str:
    """What zdb says of a file with one block at a place that its number tells."""
    return (
        f"{TITLE}{HEAD.format(number=number)}\tpath\t/{name}\n\ttarget\t{target}\n\tuid     0\n"
        f"{MARK}\n{BLOCK.format(at=number << 12)}\n\n\t\tsegment [0, 1000) size    4K\n"
    )


def truth(number: int) -> list[str]:
    return [BLOCK.format(at=number << 12)]


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=4))
def test_no_name_changes_what_blocks_an_object_has(files: list[tuple[str, str]]):
    numbers = list(range(1, len(files) + 1))
    texts = [said(number, *file) for number, file in zip(numbers, files, strict=True)]
    all_at_once = parse_zdb_objects("Dataset a\n" + "".join(texts) + "\n", numbers)
    if not any(MARK in text for file in files for text in file):
        assert all_at_once is not None
    for number, text in zip(numbers, texts, strict=True):
        alone = parse_zdb_objects(f"Dataset a\n{text}\n", [number])
        for found in (all_at_once, alone):
            assert found is None or found[number].blocks == truth(number)
        assert alone is not None
        assert isinstance(alone[number], ListedObjectLines)
        assert alone[number].head[0] == str(number)
        assert (
            alone[number].path is None or alone[number].path == f"/{files[number - 1][0]}".partition("\n")[0]
        )
