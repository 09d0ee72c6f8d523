"""What zfs says when it will not rename, roll back or promote, as 2.3.9 said it."""

from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import Busy, Conflict, ToolFailed, ZvaultError
from zvault.system.process import Result
from zvault.zfs import rearrange


def host(returncode: int, stderr: str = "", stdout: str = "") -> Any:
    async def run(argv: list[str], **_: Any) -> Result:
        return Result(tuple(argv), returncode, stdout, stderr, 0.1)

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
        await rearrange.rename(host(1, said), "cold/p", "cold/r")
    assert said.splitlines()[0].partition(": ")[2] in raised.value.why


async def test_children_are_those_right_below_and_none_of_what_is_not_there() -> None:
    assert await rearrange.children(host(0, stdout="cold/h\ncold/h/a b\ncold/h/c\n"), "cold/h") == [
        "cold/h/a b",
        "cold/h/c",
    ]
    assert await rearrange.children(host(1, "dataset does not exist"), "cold/h") == []


async def test_nothing_is_made_of_a_snapshot_that_is_marked_as_inconsistent() -> None:
    with pytest.raises(Conflict, match="cannot be made a filesystem of"):
        await rearrange.rollback(host(0, stdout="1\n"), "cold/a@s1")
    with pytest.raises(Conflict, match="cannot be made a filesystem of"):
        await rearrange.clone(host(0, stdout="1\n"), "cold/a@s1", "cold/b", "filesystem")
    await rearrange.rollback(host(0, stdout="0\n"), "cold/a@s1")
