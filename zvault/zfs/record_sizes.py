"""How a host's datasets are cut into blocks: one question for a whole tree. argv of ``zfs get`` for it is here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from zvault.core.errors import NotFound, understood
from zvault.core.names import DatasetName
from zvault.system.process.runner import ToolRunner

DEADLINE = 300.0
PROPERTIES = ("type", "recordsize", "volblocksize", "compressratio", "compression", "encryption")


@dataclass(frozen=True, slots=True)
class Blocks:
    """One dataset: ``record`` is its recordsize or volblocksize in bytes, ``ratio`` its compressratio."""

    name: DatasetName
    volume: bool
    record: int
    ratio: float
    compressed: bool
    encrypted: bool


async def blocks(host: ToolRunner, root: str) -> dict[str, Blocks]:
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
            ",".join(PROPERTIES),
            root,
        ],
        deadline=DEADLINE,
        check=False,
    )
    if result.returncode != 0:
        raise NotFound(f"the blocks of '{root}' cannot be looked at", result.complaint(), "see 'zfs list'")
    return parse(result.stdout)


def parse(text: str) -> dict[str, Blocks]:
    """The blocks of each dataset, from the lines name, property, value. Raises ToolFailed."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    with understood("what zfs tells of the blocks of datasets"):
        for line in text.splitlines():
            name, key, value = line.split("\t")
            found[name][key] = value
        return {name: _blocks(name, values) for name, values in found.items()}


def _blocks(name: str, values: dict[str, str]) -> Blocks:
    volume = values["type"] == "volume"
    return Blocks(
        DatasetName(name),
        volume,
        int(values["volblocksize" if volume else "recordsize"]),
        float(values["compressratio"].removesuffix("x")),
        values["compression"] != "off",
        values["encryption"] not in {"off", "-"},
    )
