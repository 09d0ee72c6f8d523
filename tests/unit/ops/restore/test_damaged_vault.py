"""What can be restored of a vault of which one dataset cannot be listed: all the others."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, dataset, snap, tree
from zvault.core.errors import NotFound, ToolFailed
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.ops.restore.plan_restore import RestoreRequest, find_root
from zvault.zfs.whole_listing import PartialListing


class Damaged:
    """A vault's ZFS that cannot open tank/a/bad."""

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        raise PartialListing(f"'{root}' cannot be listed whole")

    async def tree_around_damage(self, root: str, why: PartialListing) -> Tree:
        names = [root, f"{root}/a", f"{root}/well"]
        found = tree(*(dataset(name, snap(1, name)) for name in names))
        return replace(found, unlisted={DatasetName(f"{root}/a/bad"): "I/O error"})


async def found(name: str, *, recursive: bool = False) -> str:
    vault: Any = SimpleNamespace(name="cold", zfs=Damaged())
    _, root = await find_root(
        context(), vault, RestoreRequest("b", name, None, "tank/back", recursive=recursive)
    )
    return root.name


async def test_whatever_can_be_listed_is_found() -> None:
    assert await found("tank/well", recursive=True) == "cold/host/tank/well"
    assert await found("tank/a") == "cold/host/tank/a"
    with pytest.raises(NotFound, match="has no 'tank/nope'"):
        await found("tank/nope")


@pytest.mark.parametrize(
    ("name", "recursive"),
    [("tank/a/bad", False), ("tank/a/bad/below", False), ("tank/a", True), ("tank", True)],
)
async def test_what_cannot_is_neither_missing_nor_left_out_in_silence(name: str, recursive: bool) -> None:
    with pytest.raises(ToolFailed, match="'cold/host/tank/a/bad' on the vault cannot be listed: I/O error"):
        await found(name, recursive=recursive)
