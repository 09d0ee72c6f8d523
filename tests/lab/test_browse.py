"""zvaultctl browse and diff on real pools: what they tell is what was done to the files, and nothing of it stays."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from browse_world import (
    DOCS,
    HOSTILE,
    Session,
    nothing_left,
    rows,
    tank_for_test,  # noqa: F401
)
from terminal import Screen
from world import (
    World,
    ctl,
    eventually,
    main_pid,
    ok,
    restarted,
    sh,
    shell,
    snapshots,
    status,
)

LAB = {"mem": "3G", "timeout": 900, "in_order": True}


def test_a_file_changes_over_both_sides(tank: World) -> None:
    found = rows("browse", "tank", str(DOCS / "thesis"), "-p", "-o", "state,size,source,vault,first,last")
    four = snapshots("cold/lab/tank/home")
    assert snapshots("tank/home") == four[2:]
    assert found == [
        ["changed", "7", "1", "1", four[3], four[3]],
        ["changed", "12", "1", "2", four[1], four[2]],
        ["there", "14", "0", "1", four[0], four[0]],
    ]
    (gone, first) = rows("browse", "tank", "-d", "tank/home", "docs/gone", "-p", "-o", "state,first,size")
    assert (gone, first) == (["vanished", four[1], "-"], ["there", four[0], "4"])
    (appeared, *_) = rows("browse", "tank", "-d", "cold/lab/tank/home", "docs/is here", "-o", "state,first")
    assert appeared == ["appeared", four[2]]
    only = rows("browse", "tank", str(DOCS / "thesis"), "--side", "source", "-o", "state,source,vault")
    assert only == [["changed", "1", "0"], ["there", "1", "0"]]
    nothing_left()


def test_a_folder_shows_all_names_and_no_name_reaches_the_terminal(tank: World) -> None:
    done = ctl("browse", "tank", str(DOCS))
    assert done.code == 0, done.err
    assert "\x1b" not in done.out + done.err
    assert "\x07" not in done.out + done.err
    names = {row[0]: row[1] for row in rows("browse", "tank", str(DOCS), "-o", "name,state")}
    assert names == {
        r"\x1b]0;owned\x07\n\xff \\name": "there",
        "gone": "vanished",
        "is here": "there",
        "link": "there",
        "moved": "vanished",
        "new folder": "there",
        "old folder": "vanished",
        "thesis": "there",
    }
    assert rows("browse", "tank", str(DOCS), "--itself", "-o", "state")[-1] == ["there"]


def test_the_command_that_is_told_restores_that_version(tank: World) -> None:
    document = ok("browse", "tank", str(DOCS), "-j").json()
    assert document["output_version"]["command"] == "zvaultctl browse"
    commands = {one["name"]: one["newest"]["restore"] for one in document["names"]}
    to = Path("/root/rescue")
    to.mkdir()
    for name in ("gone", r"\x1b]0;owned\x07\n\xff \\name"):
        sh("bash", "-c", commands[name].replace("FOLDER", str(to)))
    assert (to / "gone").read_text() == "gone"
    hostile = Path(os.fsdecode(bytes(to) + b"/" + HOSTILE))
    assert hostile.read_bytes() == b"\x1b[31mred\xff\nmore\ttext\x07\n"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/etc/passwd"], "is in no dataset of backup 'tank'"),
        (["/tank/home/../../etc/passwd"], "is in no dataset of backup 'tank'"),
        (["-d", "tank/home", "../../etc/passwd"], "leads out of it"),
        (["-d", "tank/home", ".zfs/snapshot/x"], "is no path in a snapshot"),
        (["/tank/home/docs/link/passwd"], "a symbolic link is on the way"),
        (["/tank/home/docs/nowhere"], "is in no snapshot of tank/home"),
        (["-d", "nopool/x", "a"], "is no dataset of backup 'tank'"),
        (["-d", "tank/vol", "a"], "it is a volume"),
    ],
)
def test_no_path_leads_out(tank: World, words: list[str], why: str) -> None:
    done = ctl("browse", "tank", *words)
    assert done.code == 2, f"{done.code}\n{done.out}{done.err}"
    assert why in " ".join(done.err.split())
    assert "root:" not in done.out + done.err
    nothing_left()


def test_of_an_encrypted_dataset_the_vault_s_side_is_told_not_to_be_read(tank: World) -> None:
    """The source has the key: its snapshots are read, and what the vault has of the same is counted."""
    done = ctl("browse", "tank", "/tank/secret/diary")
    assert done.code == 1
    assert "vault was not looked into" in done.err
    assert "its key is not loaded" in done.err
    found = rows("browse", "tank", "/tank/secret/diary", "-p", "-o", "size,source,vault", code=1)
    assert found == [["6", "2", "2"]]
    alone = ctl("browse", "tank", "/tank/secret/diary", "--side", "vault")
    assert alone.code == 2
    assert "its key is not loaded" in alone.err


def test_a_vault_that_is_down_is_brought_up_and_goes_down_again(tank: World) -> None:
    ok("vault", "down", "cold")
    done = ctl("browse", "tank", str(DOCS / "gone"))
    assert done.code == 0, done.err
    assert "vault cold is kept up while tank/home is looked into" in done.err
    assert "vanished" in done.out
    eventually("the vault is down again", lambda: status()["vaults"][0]["state"] == "down")
    ok("vault", "up", "cold")
    nothing_left()


def changes(old: str, new: str, *path: str) -> tuple[str, str, list[tuple[str, str, str | None]]]:
    done = ctl("diff", "tank", old, new, *path, "-j")
    assert done.code == 1, f"{done.code}\n{done.out}{done.err}"
    found = done.json()
    return (
        found["by"],
        found["why"],
        [(one["change"], one["path"], one["to"]) for one in found["changes"]],
    )


def test_zfs_diff_and_the_walk_tell_the_same(tank: World) -> None:
    four = snapshots("cold/lab/tank/home")
    by, why, told = changes(f"tank/home@{four[2]}", f"tank/home@{four[3]}")
    assert (by, why) == ("zfs diff", "")
    by, why, walked = changes(f"cold/lab/tank/home@{four[2]}", f"cold/lab/tank/home@{four[3]}")
    # Both snapshots are on the source as well, where ZFS tells it.
    assert (by, walked) == ("zfs diff", told)
    sh("zfs", "unmount", "tank/home")
    try:
        by, why, walked = changes(f"tank/home@{four[2]}", f"tank/home@{four[3]}")
        assert (by, "is not" in why) == ("walk", True), why
        assert walked == told
        _, _, backwards = changes(f"tank/home@{four[3]}", f"tank/home@{four[2]}")
        assert {one[1] for one in backwards} == {one[1] for one in told}
    finally:
        sh("zfs", "mount", "tank/home")
    assert ("modified", r"docs/\x1b]0;owned\x07\n\xff \\name", None) in told
    assert ("modified", "docs/thesis", None) in told


def test_what_was_renamed_created_and_removed_on_a_vault_and_from_side_to_side(tank: World) -> None:
    four = snapshots("cold/lab/tank/home")
    by, why, found = changes(f"tank/home@{four[0]}", f"tank/home@{four[2]}", "docs")
    assert by == "walk"
    assert [one for one in found if one[1] != "docs"] == [
        ("created", r"docs/\x1b]0;owned\x07\n\xff \\name", None),
        ("removed", "docs/gone", None),
        ("renamed", "docs/moved", "docs/is here"),
        ("renamed", "docs/old folder", "docs/new folder"),
        ("modified", "docs/thesis", None),
    ]
    sh("zfs", "snapshot", "tank/home@only-here")
    try:
        (DOCS / "later").touch()
        sh("zfs", "snapshot", "tank/home@later")
        by, why, found = changes(f"cold/lab/tank/home@{four[0]}", "tank/home@later", "/tank/home/docs")
        assert (by, why) == ("walk", "they are on different sides")
        assert ("renamed", "docs/old folder", "docs/new folder") in found
        assert ("created", "docs/later", None) in found
        _, _, there = changes("tank/home@later", "tank/home@only-here")
        assert ("removed", "docs/later", None) in there
    finally:
        (DOCS / "later").unlink()
        sh("zfs", "destroy", "tank/home@only-here,later")
    assert ctl("diff", "tank", f"tank/home@{four[0]}", f"tank/home@{four[0]}").code == 0
    nothing_left()


def test_the_lines_of_a_file(tank: World) -> None:
    four = [f"cold/lab/tank/home@{one}" for one in snapshots("cold/lab/tank/home")]
    done = ctl("diff", "tank", four[0], four[1], "docs/thesis")
    assert done.code == 1
    assert done.out.splitlines()[:2] == [f"--- {four[0]}: docs/thesis", f"+++ {four[1]}: docs/thesis"]
    assert done.out.splitlines()[3:] == [" one", "-two", "+2", " three"]
    same = ctl("diff", "tank", four[1], four[2], "docs/thesis")
    assert (same.code, same.out) == (0, "the content is the same\n")
    assert ctl("diff", "tank", four[2], four[3], "docs/thesis").out == "the content differs: it is no text\n"
    hostile = os.fsdecode(b"docs/" + HOSTILE)
    done = ctl("diff", "tank", four[2], four[3], hostile)
    assert "\x1b" not in done.out + done.err
    assert "+more   text\\x07" in done.out
    link = ctl("diff", "tank", four[0], four[1], "docs/link/passwd")
    assert (link.code, "symbolic link" in link.err) == (2, True)
    assert ctl("diff", "tank", four[0], four[1], "docs/nowhere").code == 2
    came = ctl("diff", "tank", four[1], four[2], hostile)
    assert came.out.startswith("--- /dev/null")


def test_what_cannot_be_compared(tank: World) -> None:
    home, secret = snapshots("cold/lab/tank/home"), snapshots("cold/lab/tank/secret")
    for words, why in (
        ([f"tank/home@{home[0]}", f"tank/my files@{home[0]}"], "they are of different datasets"),
        ([f"tank/home@{home[0]}", "tank/home"], "names no snapshot"),
        ([f"tank/home@{home[0]}", "tank/home@never"], "there is no tank/home@never"),
        ([f"tank/secret@{secret[0]}", f"tank/secret@{secret[1]}"], "its key is not loaded"),
    ):
        done = ctl("diff", "tank", *words)
        assert done.code == 2, f"{words}: {done.code}\n{done.out}{done.err}"
        assert why in " ".join(done.err.split())
    # The source has the key, and these two.
    assert ctl("diff", "tank", f"tank/secret@{secret[2]}", f"tank/secret@{secret[3]}").code == 0
    nothing_left()


@pytest.mark.parametrize("columns", [20, 80, 200])
def test_the_screen_walks_compares_and_restores(tank: World, columns: int) -> None:
    """By keys: into the folder, to a file, to what differs, and back; the first version comes back as it was."""
    ok("vault", "down", "cold")
    to = Path(f"/root/r{columns}")
    to.mkdir()
    screen = Screen(columns, "browse", "tank", str(DOCS))
    screen.await_(r"thesis")
    assert "\x07" not in screen.text
    assert "\x1b]" not in screen.text
    assert status()["vaults"][0]["users"] == ["look into tank/home"]
    screen.press("G\r")
    screen.await_(r"changed")
    screen.press("\x1b[B")
    screen.await_(r"changed")
    screen.press("\r")
    screen.await_(r"-two")
    screen.press("\x7f")
    screen.await_(r"there")
    screen.press("G")
    screen.await_(r"there")
    screen.press("r")
    screen.await_(r"restore into")
    screen.press(f"{to}\r")
    screen.await_("Enter goes back")
    screen.press("\r")
    screen.await_(r"changed")
    assert (to / "thesis").read_text() == "one\ntwo\nthree\n"
    assert screen.quit() == 0
    eventually("the vault is down again", lambda: status()["vaults"][0]["state"] == "down")
    ok("vault", "up", "cold")
    nothing_left()


def test_the_screen_says_what_cannot_be_looked_into(tank: World) -> None:
    screen = Screen(80, "browse", "tank", "/tank/secret")
    screen.await_("key is not loaded")
    screen.await_("diary")
    os.killpg(screen.process.pid, signal.SIGINT)
    assert screen.process.wait(240) == 0
    gone = Screen(80, "browse", "tank", "/etc")
    gone.await_("is in no dataset of backup")
    assert gone.process.wait(240) == 2
    nothing_left()


def test_nothing_is_pruned_while_somebody_looks(tank: World) -> None:
    session = Session("a" * 32)
    try:
        before = snapshots("tank/home")
        (vault,) = status()["vaults"]
        assert vault["users"] == ["look into tank/home"]
        shell("echo later >/tank/home/later")
        ok("run", "tank")
        assert snapshots("tank/home")[:2] == before
        found = session.asked("docs/thesis")["answer"]
        assert found["snapshots"] == 4
        assert "leads out of it" in session.asked("../x")["error"]["why"]
    finally:
        session.process.kill()
        session.process.wait()
    nothing_left()
    shell("echo last >/tank/home/later")
    ok("run", "tank")
    assert len(snapshots("tank/home")) == 2


def test_ctrl_c_at_any_moment_leaves_nothing(tank: World) -> None:
    for number in range(8):
        # A signal while the interpreter itself is still starting ends it in ways of its own.
        begun = (
            "import os, runpy; os.write(1, b'.'); runpy.run_path('/usr/bin/zvaultctl', run_name='__main__')"
        )
        process = subprocess.Popen(
            ["python3", "-P", "-c", begun, "browse", "tank", str(DOCS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        time.sleep(0.3 + 0.15 * number)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=240)
        assert process.returncode in (0, 130, -signal.SIGINT)
    nothing_left()


def test_after_a_crash_nothing_stays(tank: World) -> None:
    session = Session("b" * 32)
    before = main_pid()
    os.kill(before, signal.SIGKILL)
    restarted(before)
    session.process.wait(240)
    eventually("zvaultd answers", lambda: ctl("status").code != 2)
    nothing_left()
    assert "no such session" in session.asked("docs")["error"]["what"]
