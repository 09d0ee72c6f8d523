"""How a host's datasets are cut into blocks: one question for a whole tree. argv of ``zfs get`` for it is here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from zvault.core.errors import NotFound, refuse_unparsable
from zvault.core.names import DatasetName
from zvault.system.process.runner import ToolRunner

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
    """Every filesystem and volume at and below a dataset, by name. Raises NotFound."""
    result = await host.run(
        [
            "zfs",
            "get",
            "-Hp",
            "-r",
            "-t",
            "filesystem,volume",
            "-o",
            "name,property,value",
            ",".join(SIZE_PROPERTIES),
            root,
        ],
        deadline=RECORD_SIZES_DEADLINE,
        check=False,
    )
    if result.returncode != 0:
        raise NotFound(f"the blocks of '{root}' cannot be looked at", result.complaint(), "see 'zfs list'")
    return parse_block_sizes(result.stdout)


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
