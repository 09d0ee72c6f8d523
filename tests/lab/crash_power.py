"""What a guest whose power is to be cut does: put right what the last cut left, see that it is, and run into the next.

Its pools lie on ``crash_disk`` disks, whose caches a cut empties. Of the host's own files nothing survives, so each
boot begins with the configuration alone: no history, no leases. ``/share`` keeps what the tests know.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import crash_at
import crash_world
import world
from crash_world import api, bases, points, run_now
from world import World, eventually, sh

KNOWN = Path("/share/known.json")
"""The hashes of the files of snapshots that both sides had, by GUID."""

TRACE = Path("/share/trace")
"""The boundaries of a run that changes something of everything."""

DISK = "/src/tests/lab/crash_disk.py"
SOURCE = "/dev/nbd9"


class Mains(World):
    """A source and a vault on disks with volatile caches."""

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
create = true
[[vault.cold.device]]
nbd = "nbdkit:python {DISK} file=/dev/ubdb"

[backup.tank]
source = "tank"
vault = "cold"
keep = {self.keep}
{self.backup_extra}
"""

    def start(self) -> None:
        """As the other tests do, but with crash points."""
        crash_world.drop_in()
        super().start()


def connect(file: str, device: str) -> None:
    """Bring a disk with a volatile cache up."""
    server = Path("/run") / f"{Path(device).name}.sock"
    subprocess.run(["nbdkit", "-U", str(server), "python", DISK, f"file={file}"], check=True)
    eventually("the disk", server.exists)
    # udev still looks at devices that the kernel just made, and keeps them busy.
    client = ["nbd-client", "-unix", str(server), device]
    eventually("a connection", lambda: "Connected" in sh(*client, check=False))


def disks_forget() -> None:
    """What all of this stands on: a disk has not kept what was not flushed, and has kept what was."""
    file, device, count = Path("/run/scratch.img"), Path("/dev/nbd8"), 256
    sh("truncate", "-s", "1M", str(file))
    connect(str(file), str(device))
    sh("dd", "if=/dev/urandom", f"of={device}", "bs=4k", f"count={count}", "oflag=direct")

    def kept() -> int:
        here, there = device.read_bytes(), file.read_bytes()
        return sum(here[at : at + 4096] == there[at : at + 4096] for at in range(0, count * 4096, 4096))

    unflushed = kept()
    with device.open("rb") as disk:
        os.fsync(disk.fileno())
    print(f"of {count} blocks the disk had kept {unflushed} before the flush, {kept()} after it")
    assert 0 < unflushed < count
    assert kept() == count
    sh("nbd-client", "-d", str(device))


def change() -> None:
    """Something for the next run: a big file that takes a while to send, and a dataset that goes in full."""
    if "tank/new" in points("tank"):
        crash_world.forget("tank/new")
    sh("zfs", "create", "tank/new")
    world.noise(Path("/tank/new/file"), 1)
    world.noise(Path("/tank/big/noise"), 10)
    world.noise(Path("/tank/home/noise"), 1)
    sh("zpool", "sync", "tank")


def remember() -> None:
    """Note what both sides have, to be compared after the cut."""
    known = {}
    for name, one in points("tank").items():
        for guid, snapname in one.snapshots.items():
            known[guid] = world.snapshot_hashes(f"{name}@{snapname}")
    KNOWN.write_text(json.dumps(known))
    sh("sync", "-f", "/share")


def unharmed() -> int:
    """Every snapshot that was there before the cut and still is holds the files it held, on whichever side."""
    known, seen = json.loads(KNOWN.read_text()), 0
    for root in ("tank", "cold/lab/tank"):
        for name, one in points(root).items():
            for guid, snapname in one.snapshots.items():
                if guid in known:
                    assert world.snapshot_hashes(f"{name}@{snapname}") == known[guid], f"{name}@{snapname}"
                    seen += 1
    return seen


def begin(mains: Mains) -> None:
    """The first boot: make it all."""
    disks_forget()
    sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=off", "tank", SOURCE)
    sh("zfs", "create", "tank/home")
    sh("zfs", "create", "tank/big")
    mains.start()
    assert api("POST", "/v1/vaults/cold/up")
    for number in range(4):
        world.fill(Path("/tank/home"), number, count=3, size=20_000)
        run_now()
        time.sleep(1)
    change()
    assert api("POST", "/v1/vaults/cold/down")
    (crash_at.FOLDER / "trace").unlink()
    run_now()
    TRACE.write_bytes((crash_at.FOLDER / "trace").read_bytes())


def recover(mains: Mains) -> None:
    """Every later boot: what survived is whole, the bases are, and the next run puts all right."""
    # Not forced, for it is the same host; and zvault, too, has to do without.
    sh("zpool", "import", "-d", SOURCE, "tank")
    mains.start()
    assert api("POST", "/v1/vaults/cold/up")
    kept, seen = bases(), unharmed()
    print("bases:", kept, "snapshots unharmed:", seen)
    assert {"tank", "tank/home", "tank/big"} <= kept.keys()
    assert seen >= 2 * 3
    print(run_now())
    print(world.journal())


def cut(mains: Mains, pattern: str, after: float) -> None:
    """Run into a power cut at the first boundary that matches, or so many seconds after it."""
    point = next(line for line in TRACE.read_text().splitlines() if re.search(pattern, line))
    assert api("POST", "/v1/vaults/cold/up")
    bases()
    change()
    assert api("POST", "/v1/vaults/cold/down")
    world.nothing_left()
    if "big" in pattern:
        # It takes 10 s on any machine, and a transaction group 5 s: then some of it has been written, and not all.
        mains.backup_extra = 'limit = "1M"'
        mains.configure()
        sh("systemctl", "reload", "zvaultd")
    print(f"the power goes at {point!r} + {after:g} s", flush=True)
    crash_at.arm(point, how="power", after=after)
    api("POST", "/v1/run/tank")
    eventually("the power to go", lambda: False, seconds=240)


def main() -> None:
    """One boot: with a regular expression on the trace for the next cut, and how long after that point it comes."""
    mains = Mains()
    crash_at.FOLDER.mkdir(exist_ok=True)
    connect("/dev/ubda", SOURCE)
    if KNOWN.exists():
        recover(mains)
    else:
        begin(mains)
    assert api("POST", "/v1/vaults/cold/up")
    crash_world.bases_advanced()
    crash_world.same_files()
    for pool in ("tank", "cold"):
        sh("zpool", "scrub", "-w", pool)
        assert "errors: No known data errors" in sh("zpool", "status", pool)
    remember()
    assert api("POST", "/v1/vaults/cold/down")
    world.nothing_left()
    if len(sys.argv) > 1:
        cut(mains, sys.argv[1], float(sys.argv[2]))


if __name__ == "__main__":
    main()
