"""What steers other tools is read before a stream is sent, and found on a vault that has it already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

from tests.unit.ops.ops_world import context, dataset, snap
from zvault.config.schema import Backup
from zvault.ops.replication.steering_properties import read_steering_of_source, read_steering_of_vault
from zvault.ops.state.cached_backups import CachedBackup
from zvault.zfs.client import Zfs

Rows = Mapping[str, Mapping[str, str]]


class Host:
    """Prints by dataset and property where it comes from."""

    def __init__(self, there: Rows, fails: str = "") -> None:
        self.there, self.fails = there, fails
        self.asked: list[list[str]] = []

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        self.asked.append(list(argv))
        if self.fails:
            return SimpleNamespace(returncode=1, stdout="", stderr=self.fails, complaint=lambda: self.fails)
        wanted = argv[argv.index("-s") + 1].split(",")
        rows = [
            f"{name}\t{prop}\t{source}\n"
            for name in argv
            for prop, source in self.there.get(name, {}).items()
            if source in wanted
        ]
        return SimpleNamespace(returncode=0, stdout="".join(rows), stderr="")


def zfs(host: Host) -> Zfs:
    return cast(Zfs, SimpleNamespace(host=host, lzc=None))


def known() -> CachedBackup:
    where = context()
    return CachedBackup(where.env.backup("b"), where.env.config, "host")


def backup(**more: Any) -> Backup:
    return Backup.model_validate({"source": "tank", "vault": "cold", **more})


THERE = {"tank": {"autobackup:x": "local", "a:b": "local"}, "tank/a": {"com.sun:auto-snapshot": "received"}}


async def of_source(host: Host, table: Backup, its: CachedBackup | None = None) -> tuple[Any, list[str]]:
    said: list[str] = []
    emit = cast(Any, lambda event: said.append(f"{event.name}: {event.text}"))
    return await read_steering_of_source(zfs(host), table, ["tank", "tank/a"], emit, its), said


async def test_what_a_stream_would_bring() -> None:
    assert await of_source(Host(THERE), backup()) == (
        {"tank": ("autobackup:x",), "tank/a": ("com.sun:auto-snapshot",)},
        [],
    )
    found, _ = await of_source(Host(THERE), backup(receive={"let_in": ["autobackup:*"]}))
    assert found == {"tank/a": ("com.sun:auto-snapshot",)}


async def test_without_properties_in_the_stream_nobody_is_asked() -> None:
    host = Host(THERE)
    assert await of_source(host, backup(send={"properties": False})) == ({}, [])
    assert host.asked == []


async def test_a_source_that_does_not_tell_is_told_of_and_its_vault_looked_at_again() -> None:
    its = known()
    its.free_of_steering.add(7)
    found, (said,) = await of_source(Host({}, fails="I/O error"), backup(), its)
    assert found == {}
    assert said.startswith("message: which properties of the source steer other tools is not known")
    assert its.free_of_steering == set()


COPIES = [
    replace(dataset(name, snap(number, name)), guid=number)
    for number, name in enumerate(("cold/tank", "cold/tank/a"), 1)
]


async def test_what_came_in_before_is_found_and_what_is_free_of_it_not_asked_again() -> None:
    its, host = known(), Host({"cold/tank": {"autobackup:x": "received", "syncoid:sync": "local"}})
    assert await read_steering_of_vault(zfs(host), COPIES, its) == {"cold/tank": ("autobackup:x",)}
    host.there = {}
    assert await read_steering_of_vault(zfs(host), COPIES, its) == {}
    assert [argv[-2:] for argv in host.asked] == [["cold/tank", "cold/tank/a"], ["all", "cold/tank"]]
    assert await read_steering_of_vault(zfs(host), COPIES, its) == {}
    assert len(host.asked) == 2


async def test_a_damaged_dataset_hides_no_other_and_is_asked_again() -> None:
    class Damaged(Host):
        async def run(self, argv: Sequence[str], **more: Any) -> Any:
            self.fails = "cannot open 'cold/tank/bad': I/O error" if "cold/tank/bad" in argv else ""
            return await super().run(argv, **more)

    its, names = known(), [f"cold/tank/{letter}" for letter in "abcde"]
    copies = [
        replace(dataset(name, snap(number, name)), guid=number)
        for number, name in enumerate(["cold/tank/bad", *names], 1)
    ]
    host = Damaged({"cold/tank/d": {"autobackup:x": "received"}})
    assert await read_steering_of_vault(zfs(host), copies, its) == {"cold/tank/d": ("autobackup:x",)}
    assert its.free_of_steering == {2, 3, 4, 6}
    host.asked.clear()
    assert await read_steering_of_vault(zfs(host), copies[:1], its) == {}
    assert len(host.asked) == 1
