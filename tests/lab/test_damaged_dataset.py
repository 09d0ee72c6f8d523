"""A dataset that cannot be opened, on either side: the others are listed, snapshotted and sent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from world import DISK, World, ctl, eventually, let_root_in_by_ssh, make_tank, ok, sh, shell, snapshots
from wounds import LABELS, smash, start_of

LAB = {"in_order": True}

NAMES = ["a", "a/below", "b", "b/below", *(f"e{number}" for number in range(8))]
DAMAGED = "b"
WELL = [name for name in NAMES if not name.startswith(DAMAGED)]


class Tree(World):
    """A world whose source has small datasets, enough for some to come behind the damaged one in ZFS's own order."""

    def source(self) -> None:
        """None of them is mounted: what is mounted stays in the kernel's memory, whatever lies on the disk."""
        make_tank("1G")
        for name in NAMES:
            sh("zfs", "create", "-o", "canmount=noauto", f"tank/{name}")


def objset_copies(dataset: str, search: str, start: int = 0) -> list[tuple[int, int]]:
    """Where the copies of the block lie that a dataset begins with, on its pool's one device, which zdb finds at
    ``search`` and which begins at ``start``.
    """

    def look() -> list[str]:
        told = sh("zdb", "-e", "-p", search, "-dddd", dataset, "0", check=False)
        found = re.search(r"rootbp (.*?)\[L0 DMU objset\]", told)
        return re.findall(r"DVA\[\d\]=<0:([0-9a-f]+):[0-9a-f]+>", found[1]) if found else []

    return [(start + LABELS + int(offset, 16), 0) for offset in eventually("zdb's words", look)]


@pytest.fixture(scope="module")
def tree() -> Tree:
    # An import looks through what was written last, and of each dataset at its first block.
    Path("/sys/module/zfs/parameters/spa_load_verify_metadata").write_text("0")
    Path("/sys/module/zfs/parameters/zfs_vdev_min_auto_ashift").write_text("12")
    it = Tree(keep="{ source = { last = 2 }, vault = { last = 3 } }", delay="", vault_extra="create = true")
    it.clean()
    it.source()
    it.start()
    for _ in range(3):
        ok("run", "tank")
    return it


@pytest.fixture(scope="module")
def wounded(tree: Tree) -> Tree:
    """A dataset of the source cannot be opened."""
    sh("systemctl", "stop", "zvaultd")
    sh("zpool", "export", "tank")
    smash(DISK / "tank.img", *objset_copies(f"tank/{DAMAGED}", str(DISK)))
    sh("zpool", "import", "-d", str(DISK), "tank")
    cut = sh("zfs", "list", "-Hr", "-o", "name", "tank").splitlines()
    assert f"tank/{DAMAGED}" not in cut
    assert len(cut) < 1 + len(WELL), "zfs list leaves out what comes behind it, too"
    tree.start()
    return tree


def has_newest(name: str) -> bool:
    return snapshots(f"cold/lab/tank/{name}")[-1] == snapshots(f"tank/{name}")[-1]


def checked_run(named: str) -> None:
    """A run that sends all that is well, names the one that is not, and touches nothing that there is of it."""
    ok("vault", "up", "cold")
    own = {name: snapshots(name) for name in kept_of_it()}
    done = ctl("run", "tank")
    assert done.code == 1
    assert "partial" in done.out + done.err
    assert re.search(
        rf"{named}( on the vault)? cannot be listed \((I/O|Input/output) error\)", done.out + done.err
    )
    assert all(has_newest(name) for name in WELL)
    assert {name: snapshots(name) for name in kept_of_it()} == own
    ok("vault", "down", "cold")


def kept_of_it() -> list[str]:
    """What can be listed of the damaged dataset and of what lies below it, on both sides."""
    names = [f"{side}/{name}" for side in ("tank", "cold/lab/tank") for name in ("b", "b/below")]
    return [name for name in names if sh("zfs", "list", "-H", name, check=False)]


def test_a_dataset_of_the_source_that_cannot_be_opened_stops_no_other(wounded: Tree) -> None:
    for _ in range(2):
        checked_run(f"tank/{DAMAGED}")
    ok("vault", "up", "cold")
    told = ctl("plan", "tank")
    ok("vault", "down", "cold")
    assert told.code == 1
    assert f"tank/{DAMAGED} cannot be listed" in " ".join(told.out.split())
    assert "set aside" not in told.out


def test_over_ssh_it_stops_no_other_either(wounded: Tree) -> None:
    """The same backup, whose source is another host's now, and whose place on the vault is the same."""
    here, wounded.source_name = wounded.source_name, "ssh://root@localhost/tank"
    wounded.backup_extra = 'into = "lab/{dataset}"'
    with let_root_in_by_ssh():
        wounded.configure()
        sh("systemctl", "reload", "zvaultd")
        checked_run(f"tank/{DAMAGED}")
        wounded.source_name, wounded.backup_extra = here, ""
        wounded.configure()
        sh("systemctl", "reload", "zvaultd")


def test_a_source_root_that_cannot_be_opened_stops_nothing_below_it(wounded: Tree) -> None:
    """A root that is not the pool's own: the same place on the vault, and a backup of no more than that root."""
    here, wounded.source_name = wounded.source_name, f"tank/{DAMAGED}"
    wounded.backup_extra = 'into = "lab/{dataset}"'
    wounded.configure()
    sh("systemctl", "reload", "zvaultd")
    ok("vault", "up", "cold")
    before, own = snapshots("tank/b/below"), snapshots("cold/lab/tank/b")
    done = ctl("run", "tank")
    assert (done.code, "partial" in done.out + done.err) == (1, True)
    assert re.search(r"tank/b cannot be listed \((I/O|Input/output) error\)", done.out + done.err)
    assert snapshots("tank/b/below")[-1] not in before
    assert has_newest("b/below")
    assert snapshots("cold/lab/tank/b") == own
    wounded.source_name, wounded.backup_extra = here, ""
    wounded.configure()
    sh("systemctl", "reload", "zvaultd")


def test_whoever_else_lists_the_source_names_it_and_looks_at_the_rest(wounded: Tree) -> None:
    ok("vault", "up", "cold")
    for words, other in (
        (("check-config",), ""),
        (("list", "tank"), "tank/e7"),
        (("explain", "tank/b"), "selected: unknown"),
        (("holds",), "tank/e7@"),
        (("adopt", "tank", "cold/lab/tank", "--name", "adopted"), "tank/e7 into"),
        (("fit", "tank"), "tank/e7"),
    ):
        told = ctl(*words)
        text = " ".join((told.out + told.err).split())
        assert re.search(r"tank/b cannot be listed \((I/O|Input/output) error\)", text), (words, text)
        assert other in text, (words, text)
    ok("vault", "down", "cold")


def damage_vault(wounded: Tree, dataset: str) -> None:
    """A dataset of the vault cannot be opened any more; the vault is up."""
    ok("vault", "up", "cold")
    device = re.findall(r"(/\S+)", sh("zpool", "list", "-vHPL", "-o", "name", "cold"))[0]
    copies = objset_copies(dataset, device, start_of(device))
    ok("vault", "down", "cold")
    smash(wounded.image, *copies)
    ok("vault", "up", "cold")


def test_a_dataset_of_the_vault_that_cannot_be_opened_stops_no_other(wounded: Tree) -> None:
    """Another one than on the source, whose damage stays: both are named."""
    on_vault = "cold/lab/tank/e4"
    damage_vault(wounded, on_vault)
    assert on_vault not in sh("zfs", "list", "-Hr", "-o", "name", "cold").splitlines()
    own = {name: snapshots(name) for name in ("tank/e4", *kept_of_it())}
    marks = sh("zfs", "list", "-H", "-t", "bookmark", "-o", "name", "tank/e4")
    held = sh("zfs", "holds", "-H", *(f"tank/e4@{name}" for name in own["tank/e4"]))
    for _ in range(2):
        done = ctl("run", "tank")
        assert done.code == 1
        assert re.search(rf"{on_vault} on the vault cannot be listed", done.out + done.err)
        assert all(has_newest(name) for name in WELL if name != "e4")
    assert {name: snapshots(name)[: len(own[name])] for name in own} == own, "nothing of it is pruned"
    assert sh("zfs", "list", "-H", "-t", "bookmark", "-o", "name", "tank/e4") == marks
    assert sh("zfs", "holds", "-H", *(f"tank/e4@{name}" for name in own["tank/e4"])) == held


def test_heal_names_the_dataset_and_does_not_call_the_vault_well(wounded: Tree) -> None:
    done = ctl("heal", "cold")
    assert done.code == 1
    told = "not healed: cold/lab/tank/e4:<0x0>: the dataset itself cannot be opened"
    assert told in " ".join((done.out + done.err).split())
    assert "cold/lab/tank/e4:<0x0>" in ctl("vault", "status", "cold").out
    for change in (
        "destroy -r cold/lab/tank/e4",
        "rename -u cold/lab/tank/e4 cold/e4",
        "rename -u cold/lab/tank cold/t",
    ):
        assert shell(f"zfs {change} 2>&1 || echo refused", check=False).endswith("refused"), (
            "so no advice is to do it"
        )


def run_without(named: str) -> None:
    """A run that names a root which cannot be opened, and sends what is well below it."""
    done = ctl("run", "tank")
    assert (done.code, "partial" in done.out + done.err) == (1, True)
    assert re.search(rf"(?m)\b{named} cannot be listed", " ".join((done.out + done.err).split()))
    assert all(has_newest(name) for name in WELL if name != "e4")


def test_a_place_on_the_vault_that_cannot_be_opened_stops_nothing_below_it(wounded: Tree) -> None:
    damage_vault(wounded, "cold/lab/tank")
    assert sh("zfs", "list", "-Hr", "-o", "name", "cold/lab/tank", check=False) == ""
    own = snapshots("tank")
    for _ in range(2):
        run_without("cold/lab/tank on the vault")
    assert snapshots("tank")[: len(own)] == own, "nothing of it is pruned"
