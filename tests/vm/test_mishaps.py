"""A stock Debian in the middle of a run: its disk's server dies, its daemon, its power; it goes down, or to sleep."""

from __future__ import annotations

import time

import backup
import pytest
from journal import find_denials, kill_on_denial
from machine import Machine
from stick import Switch, install

SOON = 90.0
"""Seconds that a shutdown may take: systemd waits that long for what does not end."""


@pytest.fixture(scope="module")
def machine(make_machine: Switch) -> Machine:
    it = make_machine("mishaps")
    it.start()
    install(it)
    it.run("systemctl enable zvaultd")
    kill_on_denial(it)
    backup.make_source(it)
    return it


@pytest.fixture(autouse=True)
def no_crash(machine: Machine) -> object:
    """Whatever a test does, the kernel has nothing to complain of, and no system call was denied."""
    yield
    assert machine.find_crash() == ""
    assert find_denials(machine) == []


def test_the_server_is_killed_in_the_first_full_receive(machine: Machine) -> None:
    """Whoever asks OpenZFS for names of damage then crashes the kernel."""
    boot = backup.read_boot(machine)
    run = backup.begin_run(machine, 40)
    machine.run("pkill -KILL nbdkit")
    backup.configure(machine, backup.FAST)
    ended = backup.wait_for_idle(machine)
    assert ended["id"] == run
    for look in ("status", "vault status cold", "vault up cold", "status", "scrub cold", "vault down cold"):
        machine.run(f"zvaultctl {look}", seconds=300, check=False)
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)
    assert backup.read_boot(machine) == boot


def test_the_daemon_is_killed(machine: Machine) -> None:
    backup.begin_run(machine, 40)
    before = machine.run("systemctl show -P MainPID zvaultd")
    machine.run("systemctl kill -s KILL zvaultd")
    machine.eventually(
        f"systemctl is-active -q zvaultd && [ $(systemctl show -P MainPID zvaultd) != {before} ]"
    )
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)


def test_the_power_is_cut(machine: Machine) -> None:
    backup.begin_run(machine, 40)
    machine.power_cut()
    machine.start()
    machine.eventually("systemctl is-active -q zvaultd")
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)


@pytest.mark.parametrize("how", ["reboot", "shutdown"])
def test_it_goes_down_in_good_order(machine: Machine, how: str) -> None:
    run = backup.begin_run(machine, 40)
    if how == "reboot":
        took = machine.reboot()
    else:
        took = machine.shut_down()
        machine.start()
    assert took < SOON * machine.patience
    said = machine.run("journalctl -q -b -1 -o cat -u zvaultd")
    assert "exported pool cold" in said.rpartition(run)[2], said
    machine.eventually("systemctl is-active -q zvaultd")
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)


def test_it_sleeps_and_wakes_but_not_while_the_vault_is_written(machine: Machine) -> None:
    backup.begin_run(machine, 40)
    refused = machine.run("systemctl suspend", check=False)
    assert refused.status != 0, "it would sleep in the middle of a run"
    assert "inhibit" in refused.lower()
    assert backup.finish(machine)["result"] == "ok"
    machine.eventually("! systemd-inhibit --list --no-legend --mode=block | grep -q zvault")
    boot = backup.read_boot(machine)
    machine.run("systemctl suspend")
    machine.wait_event("SUSPEND", 60)
    time.sleep(5)
    machine.wake()
    machine.eventually("journalctl -b -u zvaultd -o cat | grep 'the host is awake again'")
    assert backup.read_boot(machine) == boot
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)
