"""The hook for Proxmox VE, beside stand-ins of ``qm``, ``pvesm``, ``zfs`` and systemd: no Proxmox VE was asked."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import zvault.data

HOOK = Path(zvault.data.__file__).parent / "hooks" / "proxmox-freeze"

QM = """#!/bin/sh
# Guests are files in guests/: "running" or "stopped", frozen ones beside them in frozen/; slow/ and broken/ misbehave.
cd "$STAND_IN"
echo "qm $*" >>log
case "$1" in
list)
    echo "      VMID NAME                 STATUS     MEM(MB)    BOOTDISK(GB) PID"
    for it in guests/*; do
        id=${it#guests/}
        echo "       $id guest$id               $(cat $it)    2048              32.00 1234"
    done ;;
config) cat configs/$2 ;;
guest)
    [ ! -e slow/$3 ] || [ "$4" = fsfreeze-thaw ] || sleep 30
    [ ! -e broken/$3 ] || { echo "QEMU guest agent is not running" >&2; exit 255; }
    case "$4" in
    fsfreeze-freeze) touch frozen/$3; echo 2 ;;
    fsfreeze-thaw) rm -f frozen/$3; echo 2 ;;
    esac ;;
esac
"""
PVESM = '#!/bin/sh\necho "/dev/zvol/rpool/data/${2#local-zfs:}"\n'
LOGGED = '#!/bin/sh\necho "$(basename $0) $*" >>"$STAND_IN/log"\n[ ! -e "$STAND_IN/no-$(basename $0)" ]\n'


@dataclass
class Host:
    """A host with some guests."""

    root: Path

    def guest(self, id: int, *, agent: str = "1", state: str = "running", disk: str = "") -> None:
        (self.root / "guests" / str(id)).write_text(state)
        disk = disk or f"local-zfs:vm-{id}-disk-0,size=32G"
        (self.root / "configs" / str(id)).write_text(
            f"agent: {agent}\nboot: order=scsi0;ide2\nide2: none,media=cdrom\nname: guest{id}\nscsi0: {disk}\n"
            "scsihw: virtio-scsi-single\n"
        )

    def is_(self, what: str, *ids: int) -> None:
        for id in ids:
            (self.root / what / str(id)).touch()

    def hook(self, *argv: str, source: str = "rpool/data") -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "STAND_IN": str(self.root),
            "ZVAULT_SOURCE": source,
        }
        return subprocess.run(
            [sys.executable, HOOK, *argv], env=environment, capture_output=True, text=True, timeout=60
        )

    @property
    def frozen(self) -> set[int]:
        return {int(path.name) for path in (self.root / "frozen").iterdir()}

    @property
    def log(self) -> list[str]:
        return (self.root / "log").read_text().splitlines()


@pytest.fixture
def host(tmp_path: Path) -> Host:
    for name in ("bin", "guests", "configs", "frozen", "slow", "broken"):
        (tmp_path / name).mkdir()
    scripts = {"qm": QM, "pvesm": PVESM, "systemd-run": LOGGED, "systemctl": LOGGED}
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return Host(tmp_path)


def test_the_guests_of_the_source_that_run_and_have_an_agent(host: Host) -> None:
    host.guest(100, agent="enabled=1,fstrim_cloned_disks=1")
    host.guest(101)
    host.guest(102, agent="0")
    host.guest(103, state="stopped")
    host.guest(104, disk="/dev/zvol/other/vm-104-disk-0,size=1G")
    done = host.hook("freeze")
    assert (done.returncode, done.stderr) == (0, "")
    assert host.frozen == {100, 101}
    assert "guest 102 (guest102) has no agent: the snapshot has its disks as after a power cut" in done.stdout
    assert "frozen: 100 (guest100), 101 (guest101)" in done.stdout
    done = host.hook("thaw")
    assert (done.returncode, host.frozen) == (0, set())


def test_a_timer_thaws_whatever_becomes_of_who_froze(host: Host) -> None:
    host.guest(100)
    host.hook("freeze", "--at-most", "45")
    (timer,) = (line for line in host.log if line.startswith("systemd-run"))
    assert "--on-active 45" in timer
    assert timer.endswith(f"{HOOK.resolve()} thaw --source rpool/data")
    assert host.log.index(timer) < host.log.index("qm guest cmd 100 fsfreeze-freeze")
    host.hook("thaw")
    assert host.log[-1] == "systemctl stop zvault-thaw-rpool_data.timer"
    # What the timer starts.
    host.hook("freeze")
    assert host.hook(*timer.partition(str(HOOK.resolve()))[2].split(), source="").returncode == 0
    assert host.frozen == set()


def test_without_that_timer_nothing_is_frozen(host: Host) -> None:
    host.guest(100)
    (host.root / "no-systemd-run").touch()
    done = host.hook("freeze")
    assert (done.returncode, host.frozen) == (1, set())
    assert "systemd-run" in done.stderr


@pytest.mark.parametrize("how", ["slow", "broken"])
def test_where_one_cannot_be_frozen_none_is_left_frozen(host: Host, how: str) -> None:
    for id in (100, 101, 102):
        host.guest(id)
    host.is_(how, 101)
    done = host.hook("freeze", "--each", "1")
    assert done.returncode == 1
    assert "guest 101 (guest101)" in done.stderr
    assert host.frozen == set()
    # It may have answered too late, and freeze yet.
    began = next(index for index, line in enumerate(host.log) if line.startswith("systemd-run"))
    assert not any(line.startswith("systemctl stop") for line in host.log[began:])


def test_one_that_does_not_thaw_is_told_and_the_timer_stays(host: Host) -> None:
    host.guest(100)
    host.guest(101)
    host.hook("freeze")
    before = len(host.log)
    host.is_("broken", 101)
    done = host.hook("thaw")
    assert done.returncode == 1
    assert "guest 101 (guest101)" in done.stderr
    assert host.frozen == {101}
    assert not any(line.startswith("systemctl stop") for line in host.log[before:])


def test_no_guest_there_is_nothing_to_do(host: Host) -> None:
    host.guest(100)
    done = host.hook("freeze", source="rpool/dat")
    assert (done.returncode, done.stdout, done.stderr, host.frozen) == (0, "", "", set())


def test_without_proxmox_it_says_so(host: Host) -> None:
    (host.root / "bin" / "qm").unlink()
    done = host.hook("freeze")
    assert done.returncode == 1
    assert done.stderr == "qm cannot be started: No such file or directory\n"


def test_by_hand_without_a_dataset(host: Host) -> None:
    done = host.hook("thaw", source="")
    assert done.returncode == 2
    assert "--source" in done.stderr
