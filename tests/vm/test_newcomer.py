"""A newcomer installs zvault on a stock Debian, enables it, does the tutorial, and tries a profile."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from journal import find_denials, find_new_warnings, kill_on_denial, list_warnings
from machine import Machine
from stick import Switch, install
from tutorial import list_steps

DOCS = Path(__file__).parents[2] / "docs"
PARAMETERS = "/sys/module/zfs/parameters"
FILE = "/tank/home/thesis.pdf"


@pytest.fixture(scope="module")
def machine(make_machine: Switch) -> Machine:
    # What apt unpacks and compiles takes it a minute with KVM, and half an hour emulated on a busy host.
    it = make_machine("newcomer", os.environ.get("ZVAULT_VM_DISK", "disk"))
    it.start()
    return it


@pytest.fixture(scope="module")
def usual(machine: Machine) -> list[str]:
    """What this machine warns of before it has a zvault, ZFS being loaded."""
    machine.run("modprobe zfs; zpool list")
    return list_warnings(machine)


def test_zfs_is_the_kernels_own_build(machine: Machine, usual: list[str]) -> None:
    assert "installed" in machine.run("dkms status zfs")
    # Both lines: userland and module are of one version.
    userland, module = machine.run("zfs version").splitlines()
    assert module == userland.replace("zfs-", "zfs-kmod-", 1)


def test_apt_installs_it_with_all_that_it_needs(machine: Machine, usual: list[str]) -> None:
    told = install(machine)
    assert not re.search(r"^(E|W):", told, re.MULTILINE), told
    assert machine.run("systemctl is-enabled zvaultd", check=False) == "disabled"
    assert machine.run("systemctl is-active zvaultd", check=False) == "inactive"
    assert machine.run("dpkg -V zvault") == ""
    machine.run("man -w zvaultctl; man -w zvault.toml; getent group zvault")
    assert machine.run("systemd-analyze verify --man=no zvaultd.service") == ""


def test_the_tutorial_gives_the_file_back(machine: Machine) -> None:
    # From here on a system call that a unit denies kills who made it, and later tests look for that.
    kill_on_denial(machine)
    hashes = []
    for path, step in list_steps(DOCS / "tutorial.md"):
        if path:
            machine.put(path, step)
            continue
        done = machine.run(step, seconds=300, check="status" not in step)
        if step.startswith("sha256sum "):
            hashes.append(done.split()[0])
        if step.startswith("zfs list"):
            machine.eventually("test -e /dev/zvol/tank/vm")
    lost, found = hashes
    assert lost == found
    assert machine.run(f"sha256sum {FILE}").split()[0] == lost
    assert machine.run("zvaultctl status").startswith("all is well: 1 backup, 1 vault")


def test_it_is_enabled_and_comes_back_with_a_boot(machine: Machine, usual: list[str]) -> None:
    machine.run("systemctl enable zvaultd")
    new = find_new_warnings(machine, usual)
    machine.reboot()
    machine.eventually("systemctl is-active zvaultd")
    machine.eventually("zpool list tank")
    assert new == []


def test_a_profile_sets_parameters_and_queues_and_puts_them_back(machine: Machine) -> None:
    config = machine.run("cat /etc/zvault/zvault.toml")
    machine.put(
        "/etc/zvault/zvault.toml",
        config.replace('pool = "cold"\n', 'pool = "cold"\nprofile = "rbd-hdd"\n', 1) + "\n",
    )
    machine.run("zvaultctl check-config")
    machine.run("systemctl reload zvaultd")
    # Devices' files are listed by name and value; a profile's own say what is to be set.
    machine.run("modprobe nbd; sleep 2; udevadm settle")
    look = f"grep -H . {PARAMETERS}/zfs_* {PARAMETERS}/zio_* /sys/block/nbd0/queue/* 2>/dev/null || true"

    def read() -> dict[str, str]:
        lines = machine.run(look).splitlines()
        return dict(line.split(":", 1) for line in lines)

    before = read()
    machine.run("zvaultctl vault up cold", seconds=300)
    during = read()
    machine.run("zvaultctl vault down cold", seconds=300)
    after = read()
    queue = "/sys/block/nbd0/queue"
    assert during[f"{queue}/scheduler"].startswith("[none]")
    assert during[f"{queue}/max_sectors_kb"] == "32768"
    assert during[f"{PARAMETERS}/zfs_vdev_async_write_max_active"] == "8"
    assert during[f"{PARAMETERS}/zio_dva_throttle_enabled"] == "0"
    changed = {name for name in before if name.startswith(PARAMETERS) and during[name] != before[name]}
    assert len(changed) >= 5
    assert {name: after[name] for name in before if name.startswith(PARAMETERS)} == {
        name: value for name, value in before.items() if name.startswith(PARAMETERS)
    }
    assert {after.get(f"{queue}/{name}") for name in ("scheduler", "max_sectors_kb")} == {
        before.get(f"{queue}/{name}") for name in ("scheduler", "max_sectors_kb")
    }


def test_nothing_warned_that_nothing_caused(machine: Machine, usual: list[str]) -> None:
    assert find_new_warnings(machine, usual) == []
    assert find_denials(machine) == []
    assert machine.run("systemctl --failed --no-legend") == ""
    assert machine.find_crash() == ""
