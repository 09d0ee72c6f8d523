"""/v1/list page by page: together the pages are the whole list."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import context, dataset, snap, tree, with_source, with_vault
from zvault.core.errors import ToolFailed
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.ops.list_documents import DatasetPagePart, make_list_document
from zvault.ops.vaults.vault import Vaults
from zvault.zfs.whole_listing import PartialListing

NAMES = ["tank", "tank/a", "tank/a/x", "tank/a b", "tank/b", "tank/c"]


class Source:
    """Its datasets, and how they were listed."""

    def __init__(self) -> None:
        self.there = tree(*(dataset(name, snap(1, name)) for name in NAMES))
        self.asked: list[str] = []

    async def tree(self, root: str, *, sizes: bool = True) -> Tree:
        assert not sizes
        return self.there

    async def used(self, names: Sequence[str]) -> dict[str, int]:
        self.asked += names
        return {name: NAMES.index(name) for name in names if name != "tank/c"}


async def page(source: Source, limit: int, after: str = "") -> tuple[list[str], str | None]:
    side: Any = source
    where = with_source(context(snapshots_only=True), side)
    found = await make_list_document(
        where, Vaults(where), "b", snapshots=True, page=DatasetPagePart(limit, after)
    )
    names = [row["dataset"] for row in found["datasets"]]
    assert [row["dataset"] for row in found["snapshots"]] == names
    # What went meanwhile is told as it was listed.
    assert [row["used"] for row in found["datasets"]] == [
        0 if name == "tank/c" else NAMES.index(name) for name in names
    ]
    return names, found["next"]


@pytest.mark.parametrize("limit", [1, 2, 4, 6, 100])
async def test_the_pages_together_are_all(limit: int) -> None:
    found: list[str] = []
    source, after = Source(), ""
    while True:
        names, following = await page(source, limit, after)
        assert 0 < len(names) <= limit
        found += names
        if following is None:
            break
        after = following
    assert found == NAMES
    assert source.asked == NAMES


async def test_a_page_follows_what_is_gone_by_now() -> None:
    source = Source()
    assert await page(source, 2) == (["tank", "tank/a"], "tank/a")
    del source.there.datasets["tank/a"]
    assert await page(source, 2, "tank/a") == (["tank/a/x", "tank/a b"], "tank/a b")
    assert await page(source, 2, "tank/zzz") == ([], None)


async def test_what_is_gone_is_on_the_first_page_with_what_it_uses_now() -> None:
    class Vault(NoKeys):
        host = SimpleNamespace()

        async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
            assert not sizes
            there = (
                dataset(f"{root}{name.removeprefix('tank')}", snap(1, f"{root}{name[4:]}")) for name in NAMES
            )
            return tree(*there, dataset(f"{root}/old", replace(snap(2, f"{root}/old"), guid=7), used=1))

        async def used(self, names: Sequence[str]) -> dict[str, int]:
            assert names == ["cold/host/tank/old"]
            return {"cold/host/tank/old": 5}

    source: Any = Source()
    where = with_source(context(), source)
    with_vault(where, Vault())

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=1)

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    first = await make_list_document(where, Vaults(where), "b", page=DatasetPagePart(4))
    assert [(row["vault_dataset"], row["used"]) for row in first["gone"]] == [("cold/host/tank/old", 5)]
    second = await make_list_document(where, Vaults(where), "b", page=DatasetPagePart(4, first["next"] or ""))
    assert second["gone"] == []


async def test_what_cannot_be_listed_is_named_and_a_backup_that_fails_hides_no_other() -> None:
    class Damaged(Source):
        fails: Exception | None = None

        async def tree(self, root: str, *, sizes: bool = True) -> Tree:
            raise self.fails or PartialListing("'tank' cannot be listed whole")

        async def tree_around_damage(self, root: str, why: PartialListing) -> Tree:
            return replace(self.there, unlisted={DatasetName("tank/bad"): "I/O error"})

    source: Any = Damaged()
    where = with_source(context(snapshots_only=True), source)
    found = await make_list_document(where, Vaults(where), None)
    assert [row["dataset"] for row in found["datasets"]] == NAMES
    (named,) = found["unlisted"]
    assert (named["backup"], named["dataset"]) == ("b", "tank/bad")
    assert named["why"].startswith("tank/bad cannot be listed (I/O error)")
    source.fails = ToolFailed("cannot list 'tank'", "permission denied")
    found = await make_list_document(where, Vaults(where), None)
    assert found["unlisted"] == [
        {"backup": "b", "dataset": "tank", "why": "cannot list 'tank': permission denied"}
    ]
    assert found["gone_unknown"] == ["b"]
    with pytest.raises(ToolFailed):
        await make_list_document(where, Vaults(where), "b")
