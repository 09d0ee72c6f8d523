"""Hosts, pools and datasets get other names, vaults go back: nothing is sent again, and nothing old is told as new."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest
import world
from planner_world import Small, alike, make, plan, run, said, write
from world import DISK, ctl, eventually, named_at, ok, sh, snapshots

LAB = {"mem": "2G", "timeout": 600}

DATA = "tank/data"
USB = """
[vault.usb]
pool = "usb"
up = "always"
[backup.usb]
source = "tank/data"
vault = "usb"
snapshot = { prefix = "usb" }
"""


class Moved(Small):
    """The pair, with the names that may change; the source keeps nothing but its newest snapshot."""

    host: str = "filer1"
    root: str = DATA

    def config_text(self) -> str:
        text = super().config_text() + self.extra
        return text.replace('host = "lab"', f'host = "{self.host}"').replace(
            'source = "tank"', f'source = "{self.root}"'
        )

    def restart(self, **changes: str) -> None:
        for key, value in changes.items():
            setattr(self, key, value)
        self.configure()
        sh("systemctl", "restart", "zvaultd")


@pytest.fixture
def tank() -> Iterator[Moved]:
    it = Moved(
        keep="{ source = { last = 1 }, vault = { last = 9 } }",
        exclude="[]",
        backup_extra='prune_limit = "100%"\nretries = 0',
    )
    it.clean()
    it.source()
    sh("zfs", "create", DATA)
    make(f"{DATA}/home", kib=4000)
    it.start()
    run()
    yield it
    it.clean()


def export(pool: str = "cold") -> None:
    """The daemon looks at it now and then, and it is busy meanwhile."""
    eventually(f"{pool} to be exported", lambda: _exported(pool))


def _exported(pool: str) -> bool:
    sh("zpool", "export", pool, check=False)
    return pool not in world.pools()


def bring_back(pool: str = "cold") -> None:
    sh("zpool", "import", "-d", str(DISK), pool)


def backup() -> dict[str, Any]:
    """What the status says of the backup at this moment."""
    return world.status()["backups"][0]


def is_honest(newest: str) -> bool:
    """Whether no lag is told that is shorter than the age of what the vault has."""
    lag = backup()["lag_seconds"]
    return lag is None or lag >= time.time() - named_at(newest) - 1.5


def small() -> str:
    """A run that has little to send; what it told."""
    _, sent = run()
    assert sent < 1 << 20, "nothing is sent again"
    return said()


def test_a_host_that_is_renamed_takes_its_backup_along(tank: Moved) -> None:
    write(f"{DATA}/home", "more")
    tank.restart(host="filer2")
    assert plan()[DATA]["changes"] == [f"rename cold/filer1/{DATA} to cold/filer2/{DATA}: it follows {DATA}"]
    assert "rename cold/filer1" in small()
    alike(f"{DATA}/home", f"cold/filer2/{DATA}/home")
    tank.restart(host="filer1")
    assert "rename cold/filer2" in small()
    alike(f"{DATA}/home", f"cold/filer1/{DATA}/home")
    assert {one["state"] for one in ok("holds", "-j").json()["holds"]} == {"in use"}


def test_a_pool_that_is_renamed_takes_its_backup_along(tank: Moved) -> None:
    sh("systemctl", "stop", "zvaultd")
    export("tank")
    sh("zpool", "import", "-d", str(DISK), "tank", "pond")
    tank.restart(root="pond/data")
    assert "rename cold/filer1/tank/data to cold/filer1/pond/data" in small()
    assert snapshots("cold/filer1/pond/data/home")[-1] == snapshots("pond/data/home")[-1]


def test_what_was_moved_by_send_is_not_sent_again_without_a_word(tank: Moved) -> None:
    newest = snapshots(DATA)[-1]
    world.shell(f"zfs send -R {DATA}@{newest} | zfs receive -u tank/moved")
    tank.restart(root="tank/moved")
    _, sent = run(code=1)
    assert sent == 0
    advice = plan()["tank/moved/home"]["next"]
    assert advice.startswith(f"'zfs rename -p cold/filer1/{DATA} cold/filer1/tank/moved' on the vault")
    sh(*advice.split("'")[1].split())
    small()
    assert snapshots("cold/filer1/tank/moved/home")[-1] == snapshots("tank/moved/home")[-1]


def test_a_vault_that_went_back_is_told_at_once_for_good_and_goes_on(tank: Moved) -> None:
    first = snapshots(DATA)[-1]
    export()
    shutil.copy(DISK / "cold.img", DISK / "older")
    bring_back()
    write(f"{DATA}/home", "more")
    time.sleep(3)
    small()
    assert snapshots(DATA) != [first], "the source has nothing but bookmarks of then"
    export()
    shutil.copy(DISK / "older", DISK / "cold.img")
    bring_back()
    assert is_honest(first), backup()
    eventually("the lag to be read", lambda: backup()["lag_seconds"] is not None or backup()["pending"])
    assert is_honest(first), backup()
    eventually(
        "the bookmarks to be corrected",
        lambda: "zvault." in sh("zfs", "list", "-Ho", "name", "-t", "bookmark", f"{DATA}/home"),
    )
    export()
    assert "not known: it is down" in ctl("list", "-t", "gone").err
    sh("systemctl", "restart", "zvaultd")
    assert is_honest(first), backup()
    rows = json.loads(ok("list", "-j").out)["datasets"]
    assert all(row["lag_seconds"] is None and row["pending"] for row in rows), rows
    bring_back()
    small()
    alike(f"{DATA}/home", f"cold/filer1/{DATA}/home")


def test_a_source_that_was_made_anew_while_the_vault_is_down_is_told_at_once(tank: Moved) -> None:
    export()
    eventually("a reading of the vault that is down", lambda: backup()["lag_seconds"] is not None)
    sh("zfs", "rename", f"{DATA}/home", "tank/away")
    sh("zfs", "create", f"{DATA}/home")
    assert backup()["lag_seconds"] is None
    assert backup()["verdict"]["level"] != "ok"
    sh("zfs", "destroy", f"{DATA}/home")
    sh("zfs", "rename", "tank/away", f"{DATA}/home")
    eventually("all is as it was", lambda: backup()["lag_seconds"] is not None)
    bring_back()


def test_nothing_is_backed_up_into_a_copy_of_another_vaults_pool(tank: Moved) -> None:
    export()
    (DISK / "copies").mkdir()
    shutil.copy(DISK / "cold.img", DISK / "copies" / "usb.img")
    sh("zpool", "import", "-d", str(DISK / "copies"), "cold", "usb")
    tank.restart(extra=USB)
    refused = ctl("run", "usb")
    assert refused.code != 0
    assert "zpool reguid usb" in refused.out + refused.err
    sh("zpool", "reguid", "usb")
    write(f"{DATA}/home", "more")
    ok("run", "usb")
    assert json.loads(ctl("history", "-j", "-l", "1").out)["runs"][0]["bytes"] < 1 << 20
