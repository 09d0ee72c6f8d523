"""Whatever step of a run one dataset refuses, with whatever errno: all others are backed up, it is named, and nothing
of it is lost. The refusal comes from the call into the kernel, so everything above that is real.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import world
from world import CONFIG, World, ctl, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 2500}

NAMES = ["tank", "tank/a", "tank/bad", "tank/bad/below", "tank/c", "tank/e"]
BAD = "tank/bad"
SHIM = Path("/run/refusing_ioctl.so")
ORDERS, REFUSED = Path("/run/refuse"), Path("/run/refused")
DROP_IN = Path("/run/systemd/system/zvaultd.service.d/refuse.conf")

CODES = (
    *(errno.EPERM, errno.EIO, errno.ENXIO, errno.EBUSY, errno.EINVAL, errno.ENOSPC, errno.EROFS),
    *(errno.EBADE, errno.EOVERFLOW, errno.EOPNOTSUPP, errno.EDQUOT, errno.ECANCELED, 1023),
)
"""Some that OpenZFS gives a meaning (EBADE is its ECKSUM), some that it never gives, and one that nobody knows. Not
those that say that something is there, or gone: they are believed."""


@dataclass(frozen=True)
class Step:
    """A call into the kernel (sys/fs/zfs.h), and the dataset of which it is refused. ``partial``: what is sent is short
    of something then; else it is a warning.
    """

    call: int
    dataset: str = BAD
    partial: bool = True


STEPS = {
    "snapshot": Step(0x5A23),
    "hold": Step(0x5A30),
    "bookmark": Step(0x5A43),
    "send": Step(0x5A40),
    "receive": Step(0x5A46, f"cold/{BAD}"),
    "rename": Step(0x5A1A, f"cold/{BAD}"),
    "set": Step(0x5A16, f"cold/{BAD}", partial=False),
    "release": Step(0x5A31),
    "destroy": Step(0x5A3B, partial=False),
    "destroy on the vault": Step(0x5A3B, f"cold/{BAD}", partial=False),
    "hold on the vault": Step(0x5A30, f"cold/{BAD}", partial=False),
}
CODES_OF_A_STEP = 2


def configure(number: int = 0) -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(f"""
[vault.cold]
pool = "cold"
up = "always"

[backup.tank]
source = "tank"
into = "{{dataset}}"
vault = "cold"
retries = 0
prune_limit = "100%"
keep = {{ source = {{ last = 2 }}, vault = {{ last = 3 }} }}
receive = {{ set = {{ "org.example:number" = "{number}" }} }}
""")


@pytest.fixture(scope="module")
def tank() -> Iterator[World]:
    """Two pools on files, a backup of one into the other by hand, and a daemon whose calls into ZFS can be refused."""
    it = World()
    it.clean()
    source = Path(__file__).with_name("refusing_ioctl.c")
    sh("gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(SHIM), str(source))
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    DROP_IN.write_text(f"[Service]\nEnvironment=LD_PRELOAD={SHIM}\n")
    sh("systemctl", "daemon-reload")
    for name in ("tank", "cold"):
        world.DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", "600M", str(world.DISK / f"{name}.img"))
        sh("zpool", "create", "-O", f"mountpoint=/{name}", name, str(world.DISK / f"{name}.img"))
    for name in NAMES[1:]:
        sh("zfs", "create", name)
    configure()
    sh("systemctl", "start", "zvaultd")
    for _ in range(4):
        write()
        ok("run", "tank")
    yield it
    ORDERS.unlink(missing_ok=True)
    it.clean()
    DROP_IN.unlink()
    sh("systemctl", "daemon-reload")


def write() -> None:
    """Something new everywhere."""
    for name in sh("zfs", "list", "-Hro", "name", "tank").split():
        Path("/", name, "file").write_bytes(os.urandom(20_000))


def has_newest(name: str) -> bool:
    return snapshots(f"cold/{name}")[-1] == snapshots(name)[-1]


@pytest.mark.parametrize("what", STEPS)
def test_whatever_one_dataset_refuses_all_others_are_backed_up(tank: World, what: str) -> None:
    step, chance = STEPS[what], random.Random(what)
    for code in chance.sample(CODES, CODES_OF_A_STEP):
        case = f"{what}: {errno.errorcode.get(code, code)}"
        if what == "rename":
            sh("zfs", "rename", BAD, "tank/worse")
        if what == "set":
            configure(chance.randrange(1, 1 << 30))
            sh("systemctl", "reload", "zvaultd")
        write()
        before = snapshots(f"cold/{BAD}")
        ORDERS.write_text(f"{step.call:x} {code} {step.dataset}\n")
        done = ctl("run", "tank")
        ORDERS.unlink()
        print(f"--- {case}\n{done.out}{done.err}")
        assert REFUSED.exists(), f"{case}: nothing was refused"
        REFUSED.unlink()
        assert done.code == 1 or not step.partial, case
        assert BAD in done.err or "tank/worse" in done.err, f"{case}: it is not named"
        for name in NAMES:
            assert name.startswith(BAD) or has_newest(name), f"{case}: {name}"
        assert before[-1] in snapshots(f"cold/{BAD}"), f"{case}: the base is there"
        ok("run", "tank")
        bad = "tank/worse" if what == "rename" else BAD
        for name in (bad, f"{bad}/below"):
            assert has_newest(name), f"{case}, lifted: {name}"
        assert before[-1] in snapshots(f"cold/{bad}"), f"{case}, lifted: nothing was sent anew"
        if what == "rename":
            sh("zfs", "rename", "tank/worse", BAD)
            ok("run", "tank")
