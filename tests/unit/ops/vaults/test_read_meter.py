"""What was read of a vault is measured at its devices, and a measurement that fails fails nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.ops_world import dataset, snap, tree
from zvault.api.events import RunEvent, VaultHolds, VaultRead
from zvault.core.errors import DeadlineExceeded
from zvault.core.names import DatasetName
from zvault.ops.replication.listing import BothListings
from zvault.ops.vaults.read_meter import start_read_meter
from zvault.ops.verification.proofs import report_held_bytes
from zvault.system.process.runner import ProcessResult

HEADS = "mirror-0\t9000\n"


class Host:
    """Answers each question with the next of some outputs; an error is raised."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.asked.append(argv)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        wrong = answer.startswith("bad")
        return ProcessResult(tuple(argv), int(wrong), "" if wrong else answer, answer if wrong else "", 0.0)


async def measured(*answers: str | Exception, moved: int = 100) -> list[RunEvent]:
    told: list[RunEvent] = []
    vault: Any = SimpleNamespace(name="cold", pool="cold", zfs=SimpleNamespace(host=Host(*answers)))
    meter = await start_read_meter(vault, "drill", told.append)
    await meter.report_reading(moved, 2.0)
    return told


async def test_the_bytes_of_its_devices_count() -> None:
    told = await measured(HEADS + "sda\t1000\nsdb\t2000\n", HEADS + "sda\t1030\nsdb\t2050\n")
    assert told == [VaultRead(vault="cold", kind="drill", bytes=80, seconds=2.0)]


async def test_what_nobody_counted_is_not_told() -> None:
    whole = "sda\t1000\n"
    for answers in (
        ("bad property 'read_bytes': invalid property\n",),
        ("bad: no such pool\n",),
        (DeadlineExceeded("zpool get did not end"),),
        ("sda\t-\n",),
        ("",),
        (whole, DeadlineExceeded("zpool get did not end")),
        (whole, whole),
    ):
        assert await measured(*answers) == []


async def test_a_backup_is_as_much_as_its_datasets_refer_to() -> None:
    names = ("tank", "tank/a", "tank/new")
    source = tree(*(dataset(name, snap(2 * n + 1, name)) for n, name in enumerate(names)))
    vault = tree(
        *(dataset(f"cold/{name}", snap(2 * n + 1, f"cold/{name}")) for n, name in enumerate(names[:2]))
    )
    sides = BothListings(source, vault, tuple((one, DatasetName(f"cold/{one.name}")) for one in source))
    told: list[RunEvent] = []
    host = Host("cold/tank\treferenced\t96\ncold/tank/a\treferenced\t1000\n")
    opened: Any = SimpleNamespace(name="cold", zfs=SimpleNamespace(host=host))
    await report_held_bytes(opened, sides, told.append)
    assert told == [VaultHolds(vault="cold", datasets=2, bytes=1096)]
    assert [argv[-2:] for argv in host.asked] == [["cold/tank", "cold/tank/a"]]
