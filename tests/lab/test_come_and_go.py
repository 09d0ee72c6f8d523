"""From another tool to zvault and back, nothing sent twice; a vault behind a vault, beside one, by disk, and back.

bzfs and zfs-autobackup are the real ones (syncoid is in test_adopt). zrepl and znapzend are no packages of Debian's nor
of PyPI's: of them these are stand-ins, which leave the names, holds, bookmarks and properties that zrepl 0.7.0 and
znapzend (after 0.23.6) left when they were run by hand, and send and prune as those did.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from other_tools import (
    SOURCE,
    TREE,
    Autobackup,
    Bzfs,
    Tool,
    Znapzend,
    Zrepl,
    configure,
    data_for_test,  # noqa: F401
    holds,
    pools_for_test,  # noqa: F401
)
from world import (
    DISK,
    ctl,
    get,
    noise,
    ok,
    release_all,
    sh,
    shell,
    snapshot_hashes,
    snapshots,
)

LAB = {"mem": "3G", "timeout": 900, "peers": True, "in_order": True}
MIB = 1 << 20
SMALL = 6 * MIB
"""Bytes: less than what one of the three datasets has at first."""


def sent(backup: str, *words: str) -> int:
    """Run it; how many bytes were sent."""
    done = ok("run", backup, *words, "-j").json()
    return int(done.get("run", done)["bytes"])


def write(name: str) -> None:
    noise(Path(f"/{SOURCE}/home/{name}"), 1)


def same(copy: str, source: str = SOURCE) -> None:
    """What the newest snapshot of each dataset holds is on both sides the same, and it is the same snapshot."""
    for path in TREE:
        newest = snapshots(copy + path)[-1]
        assert get(f"{copy}{path}@{newest}", "guid") == get(f"{source}{path}@{newest}", "guid")
        assert snapshot_hashes(f"{copy}{path}@{newest}") == snapshot_hashes(f"{source}{path}@{newest}")


TOOLS = {"bzfs": Bzfs, "zfs-autobackup": Autobackup, "zrepl-stand-in": Zrepl, "znapzend-stand-in": Znapzend}


def adopted(replica: str) -> str:
    """The configuration that 'adopt' gives, after the commands that it says come first; and a daemon with it."""
    for command in ctl("adopt", SOURCE, replica, "-j").json()["first"]:
        shell(command)
    said = ok("adopt", SOURCE, replica).out
    assert "conflict" not in said
    said += "keep = { source = { last = 1 }, vault = { last = 1 } }\n"
    configure(said)
    return said


@pytest.mark.parametrize("name", TOOLS)
def test_zvault_goes_on_from_another_tool_and_the_tool_from_zvault(data: None, name: str) -> None:
    tool: Tool = TOOLS[name]()
    tool.set_up()
    tool.run()
    theirs = snapshots(tool.replica + "/home")
    assert theirs[0].startswith(tool.prefix)
    write("new")
    said = adopted(tool.replica)
    assert sent("data") < SMALL, "what the other tool sent is sent again"
    assert snapshots(tool.replica + "/home")[: len(theirs)] == theirs
    assert snapshots(SOURCE + "/home")[: len(theirs)] == theirs
    same(tool.replica)
    # Theirs are pruned by nobody but themselves, whatever zvault keeps.
    write("newer")
    assert sent("data") < SMALL
    ok("prune", "data", "--yes")
    assert snapshots(tool.replica + "/home")[:-1] == theirs
    assert snapshots(SOURCE + "/home")[:-1] == theirs
    # Back again.
    sh("systemctl", "stop", "zvaultd")
    write("newest")
    before = snapshots(tool.replica + "/home")
    tool.run()
    assert snapshots(tool.replica + "/home")[: len(before)] == before
    assert snapshots(tool.replica + "/home")[-1].startswith(tool.prefix)
    same(tool.replica)
    # And once more to zvault: the tool's newest is the base now, and what it makes is sent too, as it was told.
    (also,) = [line for line in said.splitlines() if line.startswith("#also = ")]
    made = f"{theirs[0]}-more"
    sh("zfs", "snapshot", "-r", f"{SOURCE}@{made}")
    write("last")
    configure(said.replace(also, also.removeprefix("#")))
    assert sent("data") < SMALL
    assert made in snapshots(tool.replica + "/home")
    same(tool.replica)


# Behind a vault

COLD = """
[vault.cold]
pool = "cold"
[backup.data]
source = "tank/data"
vault = "cold"
into = "data/{path}"
"""


def test_a_vault_behind_a_vault(data: None) -> None:
    configure(
        COLD
        + """
keep = { source = { last = 1 }, vault = { last = 1 } }
[vault.attic]
pool = "attic"
[backup.again]
source = "cold/data"
vault = "attic"
into = "second/{path}"
snapshot = { make = false }
"""
    )
    sent("data")
    assert sent("again") > 20 * MIB
    for step in ("one", "two"):
        write(step)
        assert sent("data") < SMALL, "the second vault is in the way of the first"
        write(f"{step} more")
        sent("data")
        assert "makes no snapshot" in ok("plan", "again").out
        assert sent("again") < SMALL, "the first vault pruned what the second goes on from"
        same("attic/second", "cold/data")
    source = {get(f"{SOURCE}/home@{one}", "guid") for one in snapshots(SOURCE + "/home")}
    newest = snapshots("cold/data/home")[-1]
    assert get(f"cold/data/home@{newest}", "guid") in source, "none was made on the replica"
    assert len(snapshots("cold/data/home")) <= 2, "the newest, and what the second vault goes on from"


def test_a_vault_filled_here_goes_on_elsewhere(data: None) -> None:
    configure(COLD.replace('pool = "cold"', 'pool = "attic"'))
    sent("data")
    sh("systemctl", "stop", "zvaultd")
    sh("zpool", "export", "attic")
    # On its new host under another name; the datasets elsewhere, too.
    sh("zpool", "import", "-d", str(DISK), "attic", "faraway")
    try:
        sh("zfs", "create", "faraway/of-lab")
        sh("zfs", "rename", "faraway/data", "faraway/of-lab/data")
        configure(
            COLD.replace('pool = "cold"', 'pool = "faraway"').replace('"data/{path}"', '"of-lab/data/{path}"')
        )
        write("after")
        assert sent("data") < SMALL
        same("faraway/of-lab/data")
    finally:
        configure("")
        release_all("faraway")
        sh("zpool", "export", "faraway")
        sh("zpool", "import", "-d", str(DISK), "faraway", "attic")


BACK = """
[vault.source]
pool = "tank"
[backup.back]
source = "cold/data"
vault = "source"
into = "data/{path}"
snapshot = { make = false }
"""
AFTERWARDS = """
tag=zvault:$(printf %x "$(zpool get -Hpo value guid tank)")
zfs list -Hrt snapshot -o name tank/data | while read -r snap; do zfs release zvault:keep "$snap" 2>/dev/null; done
zfs list -Hrt snapshot -o name cold/data | while read -r snap; do zfs release "$tag" "$snap" 2>/dev/null; done
zfs list -Hrt filesystem -o name tank/data | while read -r name; do
    zfs inherit readonly "$name"
    zfs set canmount=on "$name"
done
"""
"""Also in docs/how-to/fail-back.md."""


def test_what_is_newer_on_the_vault_comes_back_to_a_source_that_fell_behind(data: None) -> None:
    configure(COLD)
    sent("data")
    old = snapshots(SOURCE + "/home")[-1]
    write("later")
    sent("data")
    newest = snapshots(SOURCE + "/home")[-1]
    mine = holds(SOURCE, "cold/data")
    # The source comes from an older copy of its disk.
    release_all(SOURCE)
    for path in TREE:
        sh("zfs", "rollback", "-r", f"{SOURCE}{path}@{old}")
    said = ctl("plan", "data")
    assert said.code == 1
    assert f"cold/data/home has {newest}, newer than the base {old} and unknown to the source" in said.out
    # Nothing of the vault is given up by a run that comes before anybody has looked.
    sh("systemctl", "stop", "zvaultd")
    configure(BACK)
    assert f"incremental @{old} -> @{newest}" in ok("plan", "back").out
    assert sent("back") < SMALL
    assert snapshots(SOURCE + "/home")[-1] == newest
    same(SOURCE, "cold/data")
    # And on as before.
    configure(COLD)
    shell(AFTERWARDS)
    sh("zfs", "unmount", SOURCE)
    sh("zfs", "mount", "-a")
    write("after")
    assert {get(SOURCE + path, "canmount") for path in TREE} == {"on"}
    assert sent("data") < SMALL
    assert len(snapshots("cold/data/home")) == 3
    same("cold/data")
    assert holds(SOURCE, "cold/data") == mine
    assert {one["state"] for one in ok("holds", "-j").json()["holds"]} == {"in use"}


def test_what_was_written_to_a_source_that_fell_behind_is_in_the_way(data: None) -> None:
    """Nothing of the user's is rolled back for it."""
    configure(COLD)
    sent("data")
    old = snapshots(SOURCE + "/home")[-1]
    write("later")
    sent("data")
    release_all(SOURCE)
    for path in TREE:
        sh("zfs", "rollback", "-r", f"{SOURCE}{path}@{old}")
    write("of the user")
    configure(BACK)
    done = ctl("run", "back")
    assert done.code == 1
    assert "tank/data/home" in done.out
    assert Path(f"/{SOURCE}/home/of the user").stat().st_size == MIB
    assert snapshots(SOURCE + "/home")[-1] == old


# Into several vaults. Those above had a vault 'cold' on the pool attic, which zvaultd remembers of it.

SEVERAL = """
[vault.near]
pool = "cold"
[vault.far]
pool = "attic"
[backup.data]
source = "tank/data"
into = "data/{path}"
retries = 0
keep = { source = { last = 1 }, vault = { last = 9 } }
"""
MADE = re.compile(r"snapshot: @(\S+) of 3 datasets")


def ran_into_both(code: int) -> str:
    """A run into both vaults, which makes one snapshot; its name."""
    done = ctl("run", "data")
    assert done.code == code, done
    (made,) = MADE.findall(done.out)
    return str(made)


def test_a_backup_gets_a_second_vault_which_is_away_at_first(data: None) -> None:
    """One snapshot a run for both, nothing is sent to the first again, and none waits for the other."""
    configure(SEVERAL + 'vault = "near"\n')
    assert sent("data") > 20 * MIB
    sh("zpool", "export", "attic")
    try:
        configure(SEVERAL + 'vaults = ["near", "far"]\n')
        write("one")
        made = [ran_into_both(1)]
        same("cold/data")
        assert snapshots("cold/data/home")[-1] == made[0]
    finally:
        sh("zpool", "import", "-d", str(DISK), "attic")
    for name in ("two", "three"):
        write(name)
        made.append(ran_into_both(0))
        same("cold/data")
        same("attic/data")
        assert {snapshots(f"{vault}/data/home")[-1] for vault in ("cold", "attic")} == {made[-1]}
    for vault in ("cold", "attic"):
        assert set(made) <= set(snapshots(f"{vault}/data/home")), (
            "what was made while it was away is there too"
        )
    runs = ok("history", "data", "-j").json()["runs"]
    incremental = [one for one in runs if one["result"] == "ok" and one["bytes"] < SMALL]
    assert sorted(one["backup"] for one in incremental) == ["data@far", *["data@near"] * 3]
    assert len(snapshots(SOURCE + "/home")) == 1, "the base of both is one"
    found = ok("find", "data", "three")
    assert " is taken, its newest state is " in found.err
    assert "three" in ok("find", "data", "three", "--vault", "far").out
