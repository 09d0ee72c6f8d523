"""Which properties a vault has otherwise than its source: told in words, and asked for only where libzfs sees any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.ops_world import dataset, snap, tree
from zvault.core.errors import ToolMissing
from zvault.core.integrity.verification import ContentDifference
from zvault.core.names import DatasetName
from zvault.ops.replication.listing import BothListings
from zvault.ops.verification.proofs import compare_properties
from zvault.system.process.runner import ProcessResult
from zvault.zfs.lzc import Lzc

Values = Mapping[str, Mapping[str, str]]


class Host:
    """Prints properties by dataset, as words; notes of which datasets it was asked."""

    def __init__(self, words: Values) -> None:
        self.words = words
        self.asked: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        names = [name for name in self.words if name in argv]
        self.asked += names
        out = "".join(
            f"{name}\t{key}\t{value}\n" for name in names for key, value in self.words[name].items()
        )
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


class Helper(Lzc):
    """What libzfs tells of each dataset: what is set, or came with a stream; None where it cannot be used."""

    def __init__(self, told: Values | None, *, received: bool) -> None:
        super().__init__()
        self.told, self.received = told, received

    async def settings(self, names: Sequence[str]) -> dict[str, Any]:
        if self.told is None:
            raise ToolMissing("libzfs cannot be used", "it is not there")
        return {
            name: {
                "set": {key: [value, self.received] for key, value in self.told[name].items()},
                "received": self.told[name] if self.received else {},
            }
            for name in names
            if name in self.told
        }


NAMES = ("tank/a", "tank/b", "tank/c")


def sides() -> BothListings:
    source = tree(*(dataset(name, snap(2 * n + 1, name)) for n, name in enumerate(NAMES)))
    vault = tree(*(dataset(f"cold/{name}", snap(2 * n + 1, f"cold/{name}")) for n, name in enumerate(NAMES)))
    return BothListings(source, vault, tuple((one, DatasetName(f"cold/{one.name}")) for one in source))


WORDS = {"compression": "zstd", "readonly": "off", "org.zvault:sent": "x"}
NUMBERS = {"compression": "16", "readonly": "0", "org.zvault:sent": "x"}
OTHER = {"compression": "lz4", "readonly": "on", "org.zvault:sent": "y"}
OTHER_NUMBERS = {"compression": "15", "readonly": "1", "org.zvault:sent": "y"}


def side(words: Values, told: Values | None, *, received: bool = False) -> Any:
    return SimpleNamespace(host=Host(words), lzc=Helper(told, received=received))


def on_vault(of: Values) -> Values:
    return {f"cold/{name}": values for name, values in of.items()}


async def test_only_what_differs_is_asked_for_in_words() -> None:
    mine = side(dict.fromkeys(NAMES, WORDS), dict.fromkeys(NAMES, NUMBERS))
    words = {"tank/a": WORDS, "tank/b": OTHER, "tank/c": WORDS}
    numbers = {"tank/a": NUMBERS, "tank/b": OTHER_NUMBERS, "tank/c": {**NUMBERS, "readonly": "1"}}
    its = side(on_vault(words), on_vault(numbers), received=True)
    found = await compare_properties(mine, its, sides())
    assert found == [ContentDifference("tank/b", "property compression", "zstd", "lz4")]
    assert (mine.host.asked, its.host.asked) == (["tank/b"], ["cold/tank/b"])


async def test_where_nothing_differs_no_program_is_started() -> None:
    mine = side(dict.fromkeys(NAMES, WORDS), dict.fromkeys(NAMES, NUMBERS))
    its = side(on_vault(dict.fromkeys(NAMES, WORDS)), on_vault(dict.fromkeys(NAMES, NUMBERS)), received=True)
    assert await compare_properties(mine, its, sides()) == []
    assert mine.host.asked == its.host.asked == []


async def test_what_libzfs_cannot_tell_is_asked_for_all_the_same() -> None:
    for told in (None, {}):
        mine = side(dict.fromkeys(NAMES, WORDS), dict.fromkeys(NAMES, NUMBERS))
        its = side(on_vault(dict.fromkeys(NAMES, OTHER)), told, received=True)
        found = await compare_properties(mine, its, sides())
        assert [(one.dataset, one.path) for one in found] == [
            (name, "property compression") for name in NAMES
        ]
