"""What other backups in the same pool go on from is found by GUID, and listed only where there are any."""

from typing import Any

import pytest

from tests.unit.ops.ops_world import context, dataset, snap, tree, vaulted
from zvault.core.model import Dataset, Tree
from zvault.ops.context import Context
from zvault.ops.replication.other_bases import find_other_bases


class Pool:
    """A vault's pool of which it is noted what is listed."""

    def __init__(self, *there: Dataset) -> None:
        self.there, self.listed = tree(*there), list[str]()

    async def tree_or_none(self, root: str, *, sizes: bool = True) -> Tree:
        assert not sizes
        self.listed.append(root)
        return Tree({name: one for name, one in self.there.datasets.items() if one.name.is_within(root)})


def with_other(**other: Any) -> Context:
    """Backup b of tank, and another one, c, of what this says."""
    where = context()
    table = {"source": "tank", "vault": "cold", "into": "second/{dataset}", **other}
    config = {
        "daemon": {"timezone": "UTC"},
        "vault": {"cold": {"pool": "cold"}, "usb": {"pool": "usb"}},
        "backup": {"b": {"source": "tank", "vault": "cold"}, "c": table},
    }
    where.env.config = type(where.env.config).model_validate(config)
    return where


async def found(where: Context, pool: Pool) -> dict[str, set[int]]:
    source = [dataset("tank", *map(snap, range(1, 6))), dataset("tank/home", snap(7, "tank/home"))]
    return dict(await find_other_bases(where, where.env.backup("b"), pool, source))  # type: ignore[arg-type]


async def test_the_newest_that_another_place_shares_is_its_base_wherever_it_lies_there() -> None:
    pool = Pool(vaulted("cold/second/tank", 1, 2), vaulted("cold/second/tank/was-home", 7))
    assert await found(with_other(), pool) == {"tank": {102}, "tank/home": {107}}
    assert await found(with_other(exclude=["tank/home"]), pool) == {"tank": {102}}


@pytest.mark.parametrize(
    "other",
    [
        {"vault": "usb"},
        {"source": "ssh://root@far/tank"},
        {"source": "data"},
        {"exclude": ["tank", "tank/home"]},
    ],
)
async def test_nothing_is_listed_where_no_other_backup_has_the_same_in_that_pool(
    other: dict[str, Any],
) -> None:
    pool = Pool(vaulted("cold/second/tank", 1, 2))
    assert await found(with_other(**other), pool) == {}
    assert pool.listed == []
