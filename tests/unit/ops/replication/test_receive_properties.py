"""Properties that a backup chooses are set on what its vault has, and on nothing else; each change is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.ops.ops_world import dataset, snap, tree
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.ops.replication.listing import BothListings
from zvault.ops.replication.receive_properties import update_properties
from zvault.zfs.client import Zfs


class Host:
    """A vault's host: tells values and sources of properties, and notes what is changed."""

    def __init__(
        self,
        told: dict[tuple[str, str], tuple[str, str]],
        refuses: str = "",
        steering: dict[str, str] | None = None,
    ) -> None:
        self.told, self.refuses, self.steering = told, refuses, steering or {}
        self.did: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        if "name,property,source" in argv:
            rows = [(one, prop, "received") for one, prop in self.steering.items() if one in argv]
            return SimpleNamespace(returncode=0, stdout="".join("\t".join(row) + "\n" for row in rows))
        if argv[1] == "get":
            name, *names = argv[argv.index("name,value,source") + 1 :]
            rows = [(one, *self.told.get((one, name), ("-", "-"))) for one in names]
            return SimpleNamespace(returncode=0, stdout="".join("\t".join(row) + "\n" for row in rows))
        if argv[-1] == self.refuses:
            raise ToolFailed("'zfs set' failed", "no")
        self.did.append(" ".join(argv[1:]))
        return None


def backup(**receive: Any) -> Backup:
    return Backup.model_validate({"source": "tank", "vault": "cold", "receive": receive})


async def update(host: Host, table: Backup, *there: Dataset) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    emit = cast(Any, lambda event: said.append((event.name, event.text)))
    source = tree(dataset("tank", snap(1)), dataset("tank/a", snap(2, "tank/a")))
    pairs = tuple((one, DatasetName(f"cold/{one.name}")) for one in source)
    both = BothListings(source, tree(*there), pairs)
    await update_properties(cast(Zfs, SimpleNamespace(host=host, lzc=None)), table, both, emit)
    return said


ROOT = dataset("cold/tank", snap(1, "cold/tank"))
BELOW = dataset("cold/tank/a", snap(2, "cold/tank/a"))
RECORD = "org.zvault:receive-properties"


async def test_without_a_choice_and_a_record_nothing_is_asked_but_what_steers_other_tools() -> None:
    class Curious(Host):
        async def run(self, argv: Sequence[str], **more: Any) -> Any:
            assert "received" in argv
            assert "name,property,source" in argv
            return await super().run(argv, **more)

    assert await update(Curious({}), backup(), ROOT, BELOW) == []


async def test_what_steers_other_tools_is_taken_out_of_force_and_stays_so() -> None:
    """An adopted replica has it from the tool that sent it."""
    told = {("cold/tank/a", "autobackup:x"): ("child", "received")}
    host = Host(told, steering={"cold/tank/a": "autobackup:x", "cold/tank": "a:b"})
    said = await update(host, backup(), ROOT, BELOW)
    assert host.did == [f"set {RECORD}=-autobackup:x cold/tank/a", "inherit autobackup:x cold/tank/a"]
    assert said == [("message", "on 1 of the vault's datasets: autobackup:x is as in the dataset above")]

    host = Host({})
    there = replace(BELOW, receive_properties="-autobackup:x")
    assert await update(host, backup(), ROOT, there) == []
    assert host.did == []


async def test_what_is_let_in_after_all_is_in_force_again() -> None:
    host = Host({})
    there = replace(BELOW, receive_properties="-autobackup:x")
    await update(host, backup(let_in=["autobackup:*"]), ROOT, there)
    assert host.did == ["inherit -S autobackup:x cold/tank/a", f"inherit {RECORD} cold/tank/a"]
    host = Host({}, steering={"cold/tank/a": "autobackup:x"})
    assert await update(host, backup(let_in=["autobackup:*"]), ROOT, BELOW) == []
    assert host.did == []


async def test_what_is_set_is_set_with_its_record_and_told() -> None:
    host = Host({("cold/tank", "sync"): ("always", "local")})
    said = await update(host, backup(set={"sync": "always", "a:b": "x"}), ROOT, BELOW)
    assert host.did == [
        f"set a:b=x {RECORD}=a:b sync cold/tank",
        f"set sync=always a:b=x {RECORD}=a:b sync cold/tank/a",
    ]
    assert said == [
        ("message", "on 2 of the vault's datasets: a:b is set to x"),
        ("message", "on 1 of the vault's datasets: sync is set to always"),
    ]


async def test_what_is_in_force_is_left_alone() -> None:
    host = Host({(one.name, "sync"): ("always", "local") for one in (ROOT, BELOW)})
    there = [replace(one, receive_properties="sync") for one in (ROOT, BELOW)]
    assert await update(host, backup(set={"sync": "always"}), *there) == []
    assert host.did == []


async def test_what_is_no_longer_chosen_goes_and_comes_from_the_source_only_where_it_may() -> None:
    host = Host({})
    said = await update(host, backup(), replace(BELOW, receive_properties="atime mountpoint sync"))
    assert host.did == [
        f"set {RECORD}=atime sync cold/tank/a",
        "inherit sync cold/tank/a",
        "inherit -S atime cold/tank/a",
        f"inherit {RECORD} cold/tank/a",
    ]
    assert [text for _, text in said] == [
        "on 1 of the vault's datasets: sync is as in the dataset above",
        "on 1 of the vault's datasets: atime is as the source has it",
    ]


async def test_what_is_no_backup_of_it_is_not_touched() -> None:
    host = Host({})
    other = dataset("cold/tank/a", snap(9, "cold/tank/a"))
    begun = replace(ROOT, snapshots=(), resume_token="1-a")
    assert await update(host, backup(set={"sync": "always"}), begun, other) == []
    assert host.did == []


async def test_what_cannot_be_set_is_told_and_the_rest_is_done() -> None:
    host = Host(
        {(one.name, "recordsize"): ("1048576", "received") for one in (ROOT, BELOW)}, refuses="cold/tank"
    )
    said = await update(host, backup(leave_out=["recordsize"]), ROOT, BELOW)
    assert host.did == [f"set {RECORD}=-recordsize cold/tank/a", "inherit recordsize cold/tank/a"]
    assert said == [
        ("message", "on 1 of the vault's datasets: recordsize is as in the dataset above"),
        ("warning", "1 of the vault's datasets lack properties of this backup: 'zfs set' failed: no"),
    ]


async def test_a_value_that_looks_like_other_lines_hides_nothing() -> None:
    """A source may have sent it: what it says of another dataset counts for nothing."""

    class Forged(Host):
        async def run(self, argv: Sequence[str], **more: Any) -> Any:
            if argv[1] == "get" and "name,value,source" in argv:
                row = "cold/tank\tx\ncold/tank/a\tx\tlocal\n\treceived\ncold/tank/a\t-\t-\n"
                return SimpleNamespace(returncode=0, stdout=row)
            if argv[1] == "get":
                return SimpleNamespace(returncode=0, stdout="-\t-\n")
            return await super().run(argv, **more)

    host = Forged({})
    await update(host, backup(set={"a:b": "x"}), ROOT, BELOW)
    assert len(host.did) == 2
