"""What a restore puts back, on a host whose ``zfs get`` and ``zfs set`` are a table of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.unit.events import split_event
from zvault.api.events import RunEvent
from zvault.core.errors import ToolFailed
from zvault.core.integrity.restore_comparison import RestoreComparison
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import SourceProperties
from zvault.ops.restore.put_back_properties import RestoredProperties, WantedProperties
from zvault.system.process.runner import ProcessResult


@dataclass
class Table:
    """A host, and the Zfs on it. ``refused`` are properties that cannot be set."""

    values: dict[str, dict[str, str]]
    refused: frozenset[str] = frozenset()
    keys_inherited: list[str] = field(default_factory=list)

    @property
    def host(self) -> Table:
        return self

    lzc = host

    async def inherit_key(self, dataset: str) -> None:
        self.keys_inherited.append(dataset)
        above = dataset.rpartition("/")[0]
        self.values[dataset]["encryptionroot"] = self.values[above]["encryptionroot"]

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        check: bool = True,
    ) -> ProcessResult:
        if argv[:2] == ["zfs", "get"]:
            at = argv.index("name,property,value") + 1
            names = argv[at].split(",")
            lines = [
                f"{dataset}\t{name}\t{self.values[dataset].get(name, '-')}"
                for dataset in argv[at + 1 :]
                for name in (self.values[dataset] if names == ["all"] else names)
            ]
            return ProcessResult(tuple(argv), 0, "\n".join(lines), "", 0.0)
        assert argv[:2] == ["zfs", "set"], argv
        words = dict(word.split("=", 1) for word in argv[2:-1])
        if self.refused & words.keys():
            raise ToolFailed("zfs set failed", "out of space")
        self.values[argv[-1]] |= words
        return ProcessResult(tuple(argv), 0, "", "", 0.0)


def put_back(host: Table, *wanted: tuple[WantedProperties, str]) -> tuple[RestoredProperties, list[str]]:
    told: list[str] = []

    def emit(event: RunEvent) -> None:
        name, fields = split_event(event)
        told.append(f"{name}: {fields['text']}")

    return RestoredProperties(
        host, [one for one, _ in wanted], [DatasetName(name) for _, name in wanted], emit
    ), told  # type: ignore[arg-type]


LIMITS = {"quota": "0", "refquota": "0", "reservation": "0", "refreservation": "0"}


async def test_one_limit_that_is_refused_keeps_back_no_other() -> None:
    host = Table({"new": {}, "new/a": {**LIMITS, "recordsize": "131072"}}, frozenset({"reservation"}))
    record = SourceProperties({"quota": 500, "reservation": 70})
    wanted = WantedProperties(
        Dataset("cold/a", 1, "filesystem"), {"recordsize": "65536", "casesensitivity": "mixed"}, record
    )
    it, told = put_back(host, (wanted, "new/a"))
    await it.apply()
    assert host.values["new/a"]["quota"] == "500"
    assert host.values["new/a"]["recordsize"] == "65536"
    assert told == ["warning: new/a: reservation=70 cannot be set: out of space"]
    compared = RestoreComparison()
    found = await it.check(compared)
    assert [(one.what, one.wanted, one.found) for one in found] == [
        ("property casesensitivity", "mixed", "-"),
        ("property reservation", "70", "0"),
    ]
    assert compared.commands == ["zfs set reservation=70 new/a"]


async def test_without_a_record_limits_are_not_known_and_it_is_said() -> None:
    host = Table({"new": {}, "new/a": {**LIMITS}})
    it, told = put_back(host, (WantedProperties(Dataset("cold/a", 1, "filesystem"), {}, None), "new/a"))
    await it.apply()
    assert await it.check(RestoreComparison()) == []
    assert told == [
        "message: limits (quota, reservation) of cold/a are not known: no run since zvault keeps them has sent it"
    ]


def encrypted(root: str, form: str = "passphrase", **more: str) -> dict[str, str]:
    salt = "77" if form == "passphrase" else "0"
    known = {"encryptionroot": root, "keyformat": form, "pbkdf2salt": salt, "keystatus": "unavailable"}
    return {"canmount": "on", "mountpoint": f"/{root}", "keylocation": "prompt", **known, **more}


def child(name: str, level: int | None) -> WantedProperties:
    record = None if level is None else SourceProperties({}, level)
    return WantedProperties(
        Dataset(name, 1, "volume" if "vol" in name else "filesystem", encrypted=True), {}, record
    )


async def test_children_with_the_same_passphrase_inherit_it_without_any_key() -> None:
    names = ["new/e", "new/e/c", "new/e/c/d"]
    host = Table({"new": {}, **{name: {**encrypted(name), **LIMITS} for name in names}})
    it, _ = put_back(host, *((child(name.replace("new", "cold"), None), name) for name in names))
    await it.apply()
    assert host.keys_inherited == names[1:]
    compared = RestoreComparison()
    assert await it.check(compared) == []
    assert compared.commands == []


async def test_of_a_raw_key_the_commands_are_told() -> None:
    names = ["new/e", "new/e/c", "new/e/c/d"]
    values = {name: {**encrypted(name, "raw"), **LIMITS} for name in names}
    values["new/e"]["keylocation"] = "file:///k"
    host = Table({"new": {}, **values})
    it, _ = put_back(host, *((child(name, level), name) for level, name in enumerate(names)))
    await it.apply()
    assert host.keys_inherited == []
    compared = RestoreComparison()
    found = await it.check(compared)
    assert [(one.dataset, one.wanted) for one in found] == [("new/e/c", "new/e"), ("new/e/c/d", "new/e")]
    assert compared.commands == [
        "zfs load-key new/e",
        "zfs mount new/e",
        "zfs load-key -L file:///k new/e/c",
        "zfs change-key -i new/e/c",
        "zfs mount new/e/c",
        "zfs load-key -L file:///k new/e/c/d",
        "zfs change-key -i new/e/c/d",
        "zfs mount new/e/c/d",
    ]


async def test_a_child_restored_alone_keeps_its_key_and_it_is_said() -> None:
    host = Table({"new": {}, "new/c": {**encrypted("new/c", "raw"), **LIMITS}})
    it, told = put_back(host, (child("cold/e/c", 1), "new/c"))
    await it.apply()
    assert await it.check(RestoreComparison()) == []
    assert told[0].startswith("message: new/c is an encryption root of its own now")
