"""A source and vaults with a history of snapshots, and what pruning shows and holds of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import world
from world import World, ctl, ok, sh, snapshots

HOME = "tank/home"
VAULTED = "cold/lab/tank/home"


class Small(World):
    """One filesystem, and vaults that this host has anyway: pruning is the same on any device."""

    min_age = "0s"

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        for pool in ("tank", "cold", "usb"):
            sh("truncate", "-s", "256M", str(world.DISK / f"{pool}.img"))
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", pool, str(world.DISK / f"{pool}.img"))
        sh("zfs", "create", "-o", "compression=off", HOME)

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"
timezone = "UTC"

[vault.cold]
pool = "cold"
up = "always"
min_age = "{self.min_age}"

[backup.tank]
source = "tank"
exclude = {self.exclude}
vault = "cold"
keep = {self.keep}
{self.backup_extra}
{self.extra}
"""

    def reload(self) -> None:
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture(name="tank")
def tank_for_test():
    it = Small(keep="{ }", exclude="[]")
    it.clean()
    it.source()
    yield it
    for snapshot in sh("zfs", "list", "-Ht", "snapshot", "-o", "name", check=False).splitlines():
        for line in sh("zfs", "holds", "-H", snapshot, check=False).splitlines():
            sh("zfs", "release", line.split("\t")[1], snapshot, check=False)
    it.clean()


def history(count: int, *, kib: int = 512) -> list[str]:
    """That many runs, each with a file written before and deleted after: so each snapshot holds something alone."""
    for _ in range(count):
        Path(f"/{HOME}/file").write_bytes(os.urandom(kib * 1024))
        ok("run", "-q", "tank")
    Path(f"/{HOME}/file").unlink()
    return snapshots(HOME)


def rows(*argv: str, code: int = 0) -> dict[tuple[str, str], dict]:
    done = ctl("prune", "tank", "-n", "-v", "-j", *argv)
    assert done.code == code, done.err
    return {(row["side"], row["snapshot"]): row for row in done.json()["prune"]}


def held_on_vault() -> dict[str, str]:
    """The snapnames that zvault holds on the vault, each with what ``holds`` says it is for."""
    names = [f"{VAULTED}@{one}" for one in snapshots(VAULTED)]
    tags = [line.split("\t")[:2] for line in sh("zfs", "holds", "-H", *names).splitlines()]
    found = {name.partition("@")[2] for name, tag in tags if tag == "zvault:keep"}
    rows = [one for one in ok("holds", "-j").json()["holds"] if one["dataset"] == VAULTED]
    told = {one["name"].partition("@")[2]: one for one in rows}
    assert set(told) == found
    assert {told[one]["state"] for one in found} == {"in use"}
    return {one: told[one]["reason"] for one in sorted(found)}


USB = """
[vault.usb]
pool = "usb"
up = "always"

[backup.usb]
source = "tank"
vault = "usb"
keep = { source = { last = 1 } }
"""


def kept() -> dict[tuple[str, str, str], str]:
    """The state of each hold and bookmark, by kind, snapshot or bookmark, and its pool's GUID."""
    found = [one for one in ok("holds", "-j").json()["holds"] if one["name"].startswith("tank")]
    return {(one["kind"], one["name"], one["vault_guid"]): one["state"] for one in found}


def pool_guids() -> list[str]:
    """The pools that zvault has seen."""
    return [path.name for path in Path("/var/lib/zvault/pools").iterdir()]


def pool_guid(pool: str) -> str:
    return f"{int(sh('zpool', 'get', '-Ho', 'value', 'guid', pool)):x}"
