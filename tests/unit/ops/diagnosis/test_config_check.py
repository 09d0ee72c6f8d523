"""What check-config asks of this host: what is not there is told, with what to do; nothing is made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import context, with_source
from zvault.config.schema import Config
from zvault.core.errors import HostUnreachable, NotFound
from zvault.core.names import DatasetName
from zvault.core.replication.snapshot_refusal import SnapshotFacts
from zvault.devices import presence
from zvault.ops.context import Context
from zvault.ops.diagnosis.config_check import list_config_warnings
from zvault.ops.state.pool_book import SeenPool
from zvault.system import mount


class Source:
    def __init__(self, *names: str, fails: Exception | None = None) -> None:
        self.found, self.fails = [DatasetName(name) for name in names], fails

    async def names(self, _: str) -> list[DatasetName]:
        if self.fails is not None:
            raise self.fails
        return self.found

    async def snapshot_facts(self, _: Sequence[str], *, below: bool) -> list[SnapshotFacts]:
        assert below
        return [SnapshotFacts(name, inconsistent="/half" in name, resumable=True) for name in self.found]


def world(folder: Path, source: Source, device: dict[str, Any] | None = None, **vault: Any) -> Context:
    where = with_source(context(folder=folder), source)
    devices = [device] if device is not None else []
    where.env.config = Config.model_validate(
        {
            "vault": {"cold": {"pool": "cold", "device": devices, **vault}},
            "backup": {"b": {"source": "tank", "vault": "cold", "exclude": ["tank/x/**"]}},
        }
    )
    return where


async def test_a_source_that_is_there_is_nothing_to_be_told_of(tmp_path: Path):
    assert await list_config_warnings(world(tmp_path, Source("tank", "tank/a"))) == []


async def test_what_cannot_be_snapshotted_is_told_unless_it_is_left_out(tmp_path: Path):
    names = ("tank", "tank/half", "tank/x/half", *(f"tank/half{number}" for number in range(4)))
    found = await list_config_warnings(world(tmp_path, Source(*names)))
    told = "backup.b.source: tank/half cannot be snapshotted, as it is half received"
    assert found[0].startswith(told)
    assert found[0].endswith("'zfs receive -A tank/half' destroys what has arrived")
    assert found[3:] == ["backup.b.source: 2 more datasets cannot be snapshotted"]
    where = world(tmp_path, Source(*names))
    backup = where.env.config.backup["b"]
    none = backup.snapshot.model_copy(update={"make": False})
    where.env.config.backup["b"] = backup.model_copy(update={"snapshot": none})
    assert await list_config_warnings(where) == [], "it makes none"


async def test_what_include_names_has_to_be_there(tmp_path: Path):
    where = world(tmp_path, Source("tank", "tank/home"))
    backup = where.env.config.backup["b"]
    for include, missing in (
        (["tank/home", "tank/home/**"], None),
        (["tank/home", "tank/mail", "tank/mail/**", "tank/vm/*"], "'tank/mail', 'tank/vm'"),
    ):
        where.env.config.backup["b"] = backup.model_copy(update={"include": include})
        found = await list_config_warnings(where)
        assert len(found) == (missing is not None)
        told = f"backup.b.include: there is no dataset {missing}, so every run is partial"
        assert all(one.startswith(told) for one in found)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            NotFound("there is no dataset 'tank'", "", "'zfs list -r tank'"),
            "there is no dataset 'tank', so every run fails until there is; 'zfs list -r tank'",
        ),
        (HostUnreachable("filer does not answer"), "whether it exists cannot be asked now: filer does not"),
    ],
)
async def test_a_source_that_is_not_there(tmp_path: Path, error: Exception, told: str):
    (found,) = await list_config_warnings(world(tmp_path, Source(fails=error)))
    assert found.startswith(f"backup.b.source: {told}")


async def test_names_that_are_too_long_unless_they_are_left_out(tmp_path: Path):
    long = ["tank/".ljust(220, letter) for letter in "abcde"]
    source = Source("tank", *long, "tank/x", "tank/x/".ljust(220, "l"))
    found = await list_config_warnings(world(tmp_path, source))
    assert [long[n] in text for n, text in enumerate(found[:3])] == [True] * 3
    assert "'exclude'" in found[0]
    assert found[3:] == ["backup.b.source: 2 more names are too long"]


async def test_a_file_that_is_not_there_is_missed_where_there_was_one(tmp_path: Path):
    device = {"nbd": f"nbdkit:file {tmp_path}/cold.img", "size": "1G"}
    new = world(tmp_path, Source("tank"), device, create=True)
    assert await list_config_warnings(new) == [], "the first run makes it"
    (found,) = await list_config_warnings(world(tmp_path, Source("tank"), device))
    assert "'zvaultctl vault create cold' makes it" in found
    new.records.pools.note(0xC01D, SeenPool("cold", "cold"))
    (found,) = await list_config_warnings(new)
    assert found.startswith(
        f"vault.cold.device[0]: there is no file {tmp_path}/cold.img, and vault cold had a pool"
    )
    assert not (tmp_path / "cold.img").exists()
    (tmp_path / "cold.img").write_text("something")
    assert await list_config_warnings(new) == []


async def test_what_is_not_mounted_or_does_not_answer(tmp_path: Path):
    device = {"nbd": f"nbdkit:file {tmp_path}/cold.img", "size": "1G", "requires_mount": str(tmp_path)}
    (found,) = await list_config_warnings(world(tmp_path, Source("tank"), device, create=True))
    assert found.startswith(f"vault.cold.device[0]: nothing is mounted on {tmp_path}")
    server = {"nbd": f"unix:{tmp_path}/none.sock"}
    (found,) = await list_config_warnings(world(tmp_path, Source("tank"), server))
    assert "cannot be reached" in found


async def test_a_journal_on_a_mount_that_may_be_missing_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = "/mnt/ssd/zvault"
    words = f"zvault:zv/cold size=10T keys=/etc/zvault/s3.keys journal={journal}"
    mounts, table = tmp_path / "mountinfo", tmp_path / "fstab"
    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 22 8:17 / /mnt/ssd rw - ext4 /dev/sdb1 rw\n")
    table.write_text("# none yet\n/dev/sda1 / ext4 errors=remount-ro 0 1\n")
    real_mount, real_start = mount.find_mount_point, mount.is_mounted_at_start
    monkeypatch.setattr(presence, "find_mount_point", lambda path: real_mount(path, mounts))
    monkeypatch.setattr(presence, "is_mounted_at_start", lambda point: real_start(point, table))
    monkeypatch.setattr(presence, "is_mount_point", lambda folder: mount.is_mount_point(folder, mounts))

    async def told(device: dict[str, object]) -> list[str]:
        found = await list_config_warnings(world(tmp_path, Source("tank"), device, create=True))
        return [one for one in found if "requires_mount" in one or "mounted on" in one]

    writeback = {"nbd": f"{words} mode=writeback"}
    (found,) = await told(writeback)
    assert found == (
        "vault.cold.device[0]: journal=/mnt/ssd/zvault is on what is mounted on /mnt/ssd, which may be missing when the"
        ' host starts: add requires_mount = "/mnt/ssd", so that nothing is begun without it'
    )
    assert await told({**writeback, "requires_mount": "/mnt/ssd"}) == []
    assert await told({"nbd": words}) == [], "a flush is answered by the bucket"
    table.write_text("/dev/sdb1 /mnt/ssd ext4 defaults 0 2\n")
    assert await told(writeback) == [], "the host does not start without it"
    table.write_text("/dev/sdb1 /mnt/ssd ext4 defaults,nofail 0 2\n")
    assert len(await told(writeback)) == 1
    # Both folders of a store, each on a disk of its own.
    cache = {"nbd": f"{words} mode=writeback cache=/mnt/nvme/c cache-size=1G"}
    (found,) = await told({**cache, "requires_mount": ["/mnt/ssd", "/mnt/nvme"]})
    assert found.startswith("vault.cold.device[0]: nothing is mounted on /mnt/nvme")
