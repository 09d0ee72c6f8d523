"""How a host's datasets are cut into blocks: one question for a whole tree. argv of ``zfs get`` for it is here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from zvault.core.errors import refuse_unparsable
from zvault.core.names import DatasetName
from zvault.system.process.runner import ToolRunner
from zvault.zfs import parse_listing
from zvault.zfs.list_command import make_list_error, split_in_batches
from zvault.zfs.whole_listing import list_whole

RECORD_SIZES_DEADLINE = 300.0
SIZE_PROPERTIES = ("type", "recordsize", "volblocksize", "compressratio", "compression", "encryption")


@dataclass(frozen=True, slots=True)
class BlockSizes:
    """One dataset: ``record`` is its recordsize or volblocksize in bytes, ``ratio`` its compressratio."""

    name: DatasetName
    volume: bool
    record: int
    ratio: float
    compressed: bool
    encrypted: bool


async def read_block_sizes(host: ToolRunner, root: str) -> dict[str, BlockSizes]:
    """Every filesystem and volume at and below a dataset, by name.

    Raises NotFound, ToolFailed, and PartialListing where one of them cannot be opened: ``read_named_block_sizes``
    reads those of the others.
    """
    result = await list_whole(host, _argv("-r", [root]), RECORD_SIZES_DEADLINE)
    if result.returncode != 0:
        raise make_list_error(root, result)
    return parse_block_sizes(result.stdout)


async def read_named_block_sizes(host: ToolRunner, names: Sequence[str]) -> dict[str, BlockSizes]:
    """The same of some datasets alone; those that are gone are left out. Raises ToolFailed."""
    found: dict[str, BlockSizes] = {}
    for some in split_in_batches(names):
        result = await list_whole(host, _argv("-d0", some), RECORD_SIZES_DEADLINE)
        if result.returncode != 0 and not parse_listing.is_only_missing(result.stderr):
            raise make_list_error(some[0], result)
        found |= parse_block_sizes(result.stdout)
    return found


def _argv(depth: str, names: Sequence[str]) -> list[str]:
    columns = ["-o", "name,property,value", ",".join(SIZE_PROPERTIES)]
    return ["zfs", "get", "-Hp", depth, "-t", "filesystem,volume", *columns, *names]


def parse_block_sizes(text: str) -> dict[str, BlockSizes]:
    """The blocks of each dataset, from the lines name, property, value. Raises ToolFailed."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    with refuse_unparsable("what zfs tells of the blocks of datasets"):
        for line in text.splitlines():
            name, key, value = line.split("\t")
            found[name][key] = value
        return {name: _blocks(name, values) for name, values in found.items()}


def _blocks(name: str, values: dict[str, str]) -> BlockSizes:
    volume = values["type"] == "volume"
    return BlockSizes(
        DatasetName(name),
        volume,
        int(values["volblocksize" if volume else "recordsize"]),
        float(values["compressratio"].removesuffix("x")),
        values["compression"] != "off",
        values["encryption"] not in {"off", "-"},
    )
