"""What zvault made for a while is destroyed, and nothing that does not bear its mark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from zvault.core.errors import NotFound, Refused, ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.zfs import properties, scratch_datasets

NAME = "tank/zvault-look-1"


class Host:
    """Answers each command with what stands for its first two words."""

    def __init__(self, **answers: tuple[int, str, str]) -> None:
        self.answers = answers
        self.ran: list[list[str]] = []

    async def run(self, argv: Sequence[str], *, check: bool = True, **_: Any) -> ProcessResult:
        self.ran.append(list(argv))
        code, out, err = self.answers.get("_".join(argv[:2]), (0, "", ""))
        if check and code:
            raise ToolFailed(argv[0], err)
        return ProcessResult(tuple(argv), code, out, err, 0.0)

    def destroyed(self) -> list[str]:
        return [one[-1] for one in self.ran if one[1] == "destroy"]


@pytest.mark.parametrize(
    "mark", ["-\t-", "tank/other\tlocal", f"{NAME}\tinherited from tank", f"{NAME}\treceived"]
)
async def test_what_does_not_bear_its_own_name_is_left_alone(mark: str) -> None:
    host = Host(zfs_get=(0, f"{mark}\n", ""))
    with pytest.raises(Refused, match="does not bear zvault's mark"):
        await scratch_datasets.destroy_scratch(host, NAME)
    assert host.destroyed() == []


async def test_what_bears_it_is_destroyed_and_what_is_gone_is_no_error() -> None:
    host = Host(zfs_get=(0, f"{NAME}\tlocal\n", ""))
    await scratch_datasets.destroy_scratch(host, NAME)
    assert host.destroyed() == [NAME]
    await scratch_datasets.destroy_scratch(
        Host(zfs_get=(1, "", f"cannot open '{NAME}': dataset does not exist")), NAME
    )


async def test_in_a_pool_that_is_not_imported_it_may_be_there_all_the_same() -> None:
    gone = (1, "", f"cannot open '{NAME}': dataset does not exist")
    with pytest.raises(NotFound, match="'tank' is not imported"):
        await scratch_datasets.destroy_scratch(Host(zfs_get=gone, zpool_list=(1, "", "no such pool")), NAME)


async def test_each_is_marked_as_it_is_made() -> None:
    host = Host()
    assert await scratch_datasets.clone_volume(host, "tank/vol@s", NAME) == f"/dev/zvol/{NAME}"
    await scratch_datasets.make_scratch_parent(host, NAME)
    assert all(f"org.zvault:scratch={NAME}" in one for one in host.ran)


async def test_properties_by_dataset_without_zvaults_own_and_what_a_vault_keeps_out() -> None:
    lines = (
        "tank\tcompression\tzstd\ntank\torg.zvault:sent\tx\ntank\tmountpoint\t/t\ntank/a\tme:note\tone\ttwo\n"
    )
    found = await properties.read_values(Host(zfs_get=(0, lines, "")), ["tank", "tank/a"], "value")
    assert found == {"tank": {"compression": "zstd"}, "tank/a": {"me:note": "one\ttwo"}}
    with pytest.raises(ToolFailed):
        await properties.read_values(Host(zfs_get=(1, "", "no")), ["tank"], "value")


async def test_what_was_written_between_snapshots() -> None:
    host = Host(zfs_get=(0, "tank@a\t1024\ntank@b\t0\ntank@c\t-\n", ""))
    assert await properties.read_written(host, "tank") == {"a": 1024, "b": 0}
