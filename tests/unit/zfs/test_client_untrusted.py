"""What a zfs that is not what it seems prints: listings, names and properties that are not believed."""

import asyncio
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.zfs.zfs_tools import Answer, zfs
from zvault.core.errors import ToolFailed
from zvault.core.model import DATASET_TYPES, Dataset
from zvault.zfs import list_command


@pytest.mark.parametrize(
    "name", ["tank/b", "tank/ab@s", "cold/x", "tank/a/\x1b[2J", "", "tank/a/b@s@t", "-rf"]
)
async def test_a_listing_of_what_was_not_asked_for_is_not_believed(name: str) -> None:
    def lying(argv: list[str]) -> Answer:
        columns = argv[argv.index("-o") + 1].count(",")
        return (
            0,
            "".join(
                f"{one}{chr(9) + '-' if columns else ''}" + "\t-" * (columns - 1) + "\n"
                for one in ("tank/a", name)
            ),
            "",
        )

    with pytest.raises(ToolFailed, match="cannot be believed"):
        await zfs(lying)[0].tree("tank/a")


async def test_a_listing_that_is_no_listing_is_an_error_that_is_known() -> None:
    with pytest.raises(ToolFailed, match="cannot be understood"):
        await zfs(lambda _: (0, "tank/a\tx\n", ""))[0].tree("tank/a")


@pytest.mark.parametrize("said", ["x\n", "a\tb\tc\n", "tank@a\t-1\n"])
async def test_what_no_zfs_prints_is_told_as_that(said: str) -> None:
    client, _ = zfs(lambda _: (0, said, ""))
    with pytest.raises(ToolFailed, match=r"cannot be (understood|believed)"):
        await client.held_below("tank")
    with pytest.raises(ToolFailed, match="the properties of 'tank' cannot be understood"):
        await client.get("tank", "written")
    client, _ = zfs(lambda _: (0, f"written\t{said}", ""))
    with pytest.raises(ToolFailed, match="the property written of 'tank' cannot be understood"):
        await client.number("tank", "written")


LINE = ("tank", "filesystem", "1", "0", "0", "-", "off", "-", "-")
FIELDS = st.text(st.characters(exclude_characters="\t\n\0\r", codec="utf-8"), max_size=12)


@given(
    at=st.integers(0, len(LINE) - 1),
    text=FIELDS
    | st.sampled_from(["volume", "snapshot", "bookmark", "-", "", "-1", "1" * 30, "t@s", "@", "a/b@c"]),
)
@example(at=1, text="share")
@example(at=7, text="no snapshot")
def test_whatever_a_field_of_a_listing_holds_it_is_known_or_refused(at: int, text: str) -> None:
    """No field is taken for what it is not, which would be met far from here, as a fault of zvault's own."""
    line = "\t".join((*LINE[:at], text, *LINE[at + 1 :])) + "\n"
    client, _ = zfs(lambda argv: (0, "" if "snapshot,bookmark" in argv else line, ""))
    try:
        tree = asyncio.run(client.tree("tank"))
    except ToolFailed as error:
        told = error.what
    else:
        (dataset,) = tree.datasets.values()
        assert_known(dataset)
        return
    assert re.search("cannot be (believed|understood)", told)


def assert_known(dataset: Dataset) -> None:
    assert dataset.type in DATASET_TYPES
    assert 0 <= dataset.guid < 1 << 64
    assert dataset.origin is None or re.fullmatch("[^@]+@[^@]+", dataset.origin)
    assert all(str(value).isprintable() for value in (dataset.origin, dataset.resume_token))


async def test_a_listing_of_more_lines_than_fit_is_refused_before_any_is_looked_at(monkeypatch) -> None:
    monkeypatch.setattr(list_command, "MOST_LISTING_LINES", 3)
    lines = ["tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n"] * 3
    client, _ = zfs(lambda argv: (0, "" if "snapshot,bookmark" in argv else "".join(lines), ""))
    await client.tree("tank")
    lines.append("no line at all\n")
    with pytest.raises(ToolFailed, match="has 4 lines, and 3 are taken at most"):
        await client.tree("tank")


async def test_what_zvault_set_there_is_bounded_too(monkeypatch) -> None:
    monkeypatch.setattr(list_command, "MOST_LISTING_LINES", 3)
    client, tools = zfs(
        lambda argv: (
            0,
            "" if "snapshot,bookmark" in argv else "tank\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n",
            "",
        )
    )
    tools.own = "tank\torg.zvault:sent\tx\n" * 4
    with pytest.raises(ToolFailed, match="too long"):
        await client.tree("tank")


@pytest.mark.parametrize(("length", "taken"), [(255, True), (256, False)])
async def test_a_name_longer_than_zfs_allows_is_not_believed(length: int, taken: bool) -> None:
    name = "tank/" + "x" * (length - 5)
    rows = [f"{one}\tfilesystem\t1\t0\t0\t-\toff\t-\t-\n" for one in ("tank", name)]
    client, _ = zfs(lambda argv: (0, "" if "snapshot,bookmark" in argv else "".join(rows), ""))
    if taken:
        assert name in (await client.tree("tank")).datasets
    else:
        with pytest.raises(ToolFailed, match="cannot be believed"):
            await client.tree("tank")
