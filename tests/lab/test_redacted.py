"""What was received redacted on the source is backed up and restored as it is, and both say that blocks are missing."""

from __future__ import annotations

from pathlib import Path

from planner_world import (
    Small,
    guid,
    make,
    run,
    said,
    tank_for_test,  # noqa: F401
    write,
)
from world import ctl, get, ok, sh, snapshots, status

LAB = {"mem": "3G", "timeout": 600}

RED = "tank/red"


def make_redacted() -> None:
    """``tank/red`` is ``tank/whole`` without what one clone of it has not got."""
    make("tank/whole")
    Path("/tank/whole/secret").write_bytes(b"nobody shall know " * 60_000)
    sh("zfs", "snapshot", "tank/whole@all")
    sh("zfs", "clone", "tank/whole@all", "tank/public")
    Path("/tank/public/secret").unlink()
    sh("zfs", "snapshot", "tank/public@shown")
    sh("zfs", "redact", "tank/whole@all", "book", "tank/public@shown")
    sh("sh", "-c", f"zfs send --redact book tank/whole@all | zfs receive {RED}")
    assert get(RED, "redact_snaps") not in {"-", ""}


def test_what_is_redacted_is_backed_up_and_restored_and_said_to_lack_blocks(tank: Small) -> None:
    make_redacted()
    tank.start()
    run()
    assert (
        f"received redacted on the source, so that blocks are missing there and in the backup: {RED}"
        in said()
    )
    write("tank/whole", "more")
    _, sent = run()
    assert sent < 1 << 20
    newest = snapshots(RED)[-1]
    assert get(f"cold/lab/{RED}@{newest}", "guid") == guid(f"{RED}@{newest}")
    assert {one["name"]: one["verdict"]["level"] for one in status()["backups"]} == {"tank": "ok"}

    done = ctl("restore", "tank", RED, "tank/back")
    assert "tank/back is redacted, as its source was: blocks of it are missing" in done.out + done.err
    assert get(f"tank/back@{newest}", "guid") == guid(f"{RED}@{newest}")
    # A stream of what is redacted does not say so (2.3.9): ZFS shows the copies as whole, and zeros for what they lack.
    # So it is zvault's own record that tells.
    for copy in (f"cold/lab/{RED}", "tank/back"):
        assert get(copy, "redact_snaps") == "-"
    lacking, secret = Path("/tank/back/secret").read_bytes(), Path("/tank/whole/secret").read_bytes()
    assert len(lacking) == len(secret)
    assert set(lacking) == {0}
    ok("restore", "tank", "tank/whole", "tank/whole-back")
    assert Path("/tank/whole-back/secret").read_bytes() == secret
