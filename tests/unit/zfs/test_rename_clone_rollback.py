"""What zfs says when it will not rename, roll back or promote, as 2.3.9 said it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from zvault.core.errors import Busy, Conflict, ToolFailed, ZvaultError
from zvault.core.names import DatasetName
from zvault.system.process.runner import ProcessResult
from zvault.zfs import rename_clone_rollback
from zvault.zfs.whole_listing import PartialListing


def host(returncode: int, stderr: str = "", stdout: str = "") -> Any:
    async def run(argv: list[str], **_: Any) -> ProcessResult:
        return ProcessResult(tuple(argv), returncode, stdout, stderr, 0.1)

    return SimpleNamespace(run=run)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("cannot rename 'cold/p': dataset is busy", Busy),
        (
            "cannot rollback to 'cold/m@s3': clones of previous snapshots exist\n"
            "use '-R' to force deletion of the following clones and dependents:\ncold/mc",
            Conflict,
        ),
        ("cannot create 'cold/none/r': parent does not exist", ToolFailed),
    ],
)
async def test_a_refusal_is_of_its_kind_and_says_what_zfs_said(said: str, kind: type[ZvaultError]) -> None:
    with pytest.raises(kind) as raised:
        await rename_clone_rollback.rename_dataset(host(1, said), "cold/p", "cold/r")
    assert said.splitlines()[0].partition(": ")[2] in raised.value.why


@pytest.mark.parametrize(("kind", "options"), [("filesystem", ["-u"]), ("volume", []), ("", ["-u"])])
async def test_a_volume_is_renamed_without_the_option_that_is_for_filesystems(
    kind: str, options: list[str]
) -> None:
    """zfs of 2.1 to 2.4: "operation not applicable to datasets of this type"."""
    ran: list[list[str]] = []

    async def run(argv: list[str], **_: Any) -> ProcessResult:
        ran.append(argv)
        asked = argv[:2] == ["zfs", "get"]
        return ProcessResult(
            tuple(argv), 0 if kind or not asked else 1, f"{kind}\n" if asked else "", "", 0.1
        )

    await rename_clone_rollback.rename_dataset(cast(Any, SimpleNamespace(run=run)), "cold/a", "cold/b")
    assert ran[-1] == ["zfs", "rename", *options, "cold/a", "cold/b"]


async def test_beside_a_dataset_are_those_whose_names_go_on_from_its_own() -> None:
    there = host(0, stdout="cold\ncold/h\ncold/h_old-1 a\ncold/h_old-2\ncold/h_older\ncold/i_old-1\n")
    found = await rename_clone_rollback.list_datasets_beside(there, DatasetName("cold/h"), "_old-")
    assert found == ["cold/h_old-1 a", "cold/h_old-2"]
    gone = host(1, "dataset does not exist")
    assert await rename_clone_rollback.list_datasets_beside(gone, DatasetName("cold/h"), "_old-") == []
    assert await rename_clone_rollback.list_datasets_beside(there, DatasetName("cold"), "") == [], (
        "a pool has nothing beside it"
    )
    cut_short = host(0, "cannot iterate filesystems: I/O error", stdout="cold\n")
    with pytest.raises(PartialListing, match="cannot be listed"):
        await rename_clone_rollback.list_datasets_beside(cut_short, DatasetName("cold/h"), "_old-")


async def test_nothing_is_made_of_a_snapshot_that_is_marked_as_inconsistent() -> None:
    with pytest.raises(Conflict, match="cannot be made a filesystem of"):
        await rename_clone_rollback.roll_dataset_back(host(0, stdout="1\n"), "cold/a@s1")
    with pytest.raises(Conflict, match="cannot be made a filesystem of"):
        await rename_clone_rollback.clone_snapshot(host(0, stdout="1\n"), "cold/a@s1", "cold/b", "filesystem")
    await rename_clone_rollback.roll_dataset_back(host(0, stdout="0\n"), "cold/a@s1")
