"""A source whose files change from snapshot to snapshot, a vault, and what browsing leaves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import (
    World,
    ctl,
    eventually,
    ok,
    sh,
    snapshots,
)

HOSTILE = b"\x1b]0;owned\x07\n\xff \\name"
"""A name that would set a terminal's title, with a newline, a byte that is no UTF-8, and a backslash."""
DOCS = Path("/tank/home/docs")


@pytest.fixture(name="tank", scope="module")
def tank_for_test() -> Iterator[World]:
    """Four runs of a dataset: what each of them saw is in the names. The source keeps the last two snapshots."""
    it = World(
        keep="{ source = { last = 2 }, vault = { last = 10 } }",
        backup_extra='prune_limit = "100%"',
    )
    it.clean()
    it.source()
    key = Path("/root/browse.key")
    key.write_text("correct horse")
    encrypted = ["-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{key}"]
    sh("zfs", "create", *encrypted, "tank/secret")
    it.start()
    ok("vault", "up", "cold")
    for change in (_first, _second, _third, _fourth):
        change()
        ok("run", "tank")
    yield it
    it.clean()


def _first() -> None:
    (DOCS / "old folder").mkdir(parents=True)
    (DOCS / "old folder" / "inside").write_text("inside")
    (DOCS / "thesis").write_text("one\ntwo\nthree\n")
    (DOCS / "gone").write_text("gone")
    (DOCS / "moved").write_text("moved")
    (DOCS / "link").symlink_to("/etc")
    Path("/tank/secret/diary").write_text("first\n")


def _second() -> None:
    (DOCS / "thesis").write_text("one\n2\nthree\n")
    (DOCS / "gone").unlink()
    Path("/tank/secret/diary").write_text("second\n")


def _third() -> None:
    (DOCS / "moved").rename(DOCS / "is here")
    (DOCS / "old folder").rename(DOCS / "new folder")
    Path(os.fsdecode(bytes(DOCS) + b"/" + HOSTILE)).write_bytes(b"\x1b[31mred\xff\n")
    Path("/tank/secret/diary").write_text("third\n")


def _fourth() -> None:
    (DOCS / "thesis").write_bytes(b"\0binary")
    with Path(os.fsdecode(bytes(DOCS) + b"/" + HOSTILE)).open("ab") as file:
        file.write(b"more\ttext\x07\n")


def rows(*argv: str, code: int = 0) -> list[list[str]]:
    done = ctl(*argv, "-H")
    assert done.code == code, f"{argv}: {done.code}\n{done.out}{done.err}"
    return [line.split("\t") for line in done.out.splitlines()]


def left() -> list[str]:
    """What a look may leave: mounts, holds, and what is written down of either."""
    found = [line for line in Path("/proc/mounts").read_text().splitlines() if "/look" in line]
    for place in ("/run/zvault/lease/look", "/var/lib/zvault/mount-holds/look"):
        found += [str(file) for file in Path(place).glob("*")]
    up = "cold" in sh("zpool", "list", "-Ho", "name").split()
    for dataset in ("tank/home", "tank/secret", *["cold/lab/tank/home"] * up):
        names = [f"{dataset}@{one}" for one in snapshots(dataset)]
        lines = sh("zfs", "holds", "-H", *names).splitlines()
        found += [line for line in lines if "zvault:mount" in line]
    return found


def nothing_left() -> None:
    eventually(lambda: f"nothing is left: {left()}", lambda: not left())


class Session:
    """A client that keeps a dataset open, as the screen of browse does."""

    def __init__(self, name: str) -> None:
        body = {"backup": "tank", "dataset": "tank/home", "path": "", "session": name}
        self.process = subprocess.Popen(
            [*CURL, "-N", "-d", json.dumps(body), f"{API}/browse/session"], stdout=subprocess.PIPE, text=True
        )
        self.name = name
        # The vault's come last.
        held = "cold/lab/tank/home@"
        eventually(
            "the snapshots are held",
            lambda: any(one.startswith(held) and "zvault:mount" in one for one in left()),
        )

    def asked(self, path: str) -> dict[str, Any]:
        body = {"backup": "tank", "dataset": "tank/home", "path": path, "session": self.name}
        return json.loads(sh(*CURL, "-d", json.dumps(body), f"{API}/browse").splitlines()[-1])


API = "http://zvaultd/v1"
CURL = ["curl", "-sS", "--unix-socket", "/run/zvault/zvaultd.sock"]
