"""What a machine's journal has that it should not have."""

from __future__ import annotations

import re

from machine import Machine

NUMBERS = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{8,}\b|\d+(\.\d+)?")
DENIED = re.compile(
    # Not systemd's own list of what it can do, which has +SECCOMP.
    r"SIGSYS|status=31/|seccomp|type=1326|apparmor=.DENIED|Operation not permitted"
)

CAUSED = re.compile(
    # qemu's button, the tests' own mounts of the stick, and a console that is logged in to.
    r"^(login|kernel: EXT4-fs \(vdb\)|systemd-logind: Power key)"
    # The nbd module says so at this level whenever a device is disconnected in good order.
    r"|^kernel: block nbd\d+: shutting down sockets$"
)
"""Warnings with a cause that is none of zvault's."""
SLOW = re.compile(
    r"^kernel: (clocksource|hrtimer|tsc|perf|workqueue|sched|rcu|NOHZ|audit|kauditd)"
    # Ten seconds without an answer is what zvault calls a hang, and five of logind's.
    r"|the kernel has not answered for \d+ s|systemd-logind cannot be asked .* did not answer within"
)
"""Warnings of a machine that is a hundred times too slow, as an emulated one is on a busy host."""


def list_warnings(machine: Machine, *matches: str) -> list[str]:
    """Every line of this boot's journal of warning or worse, as "program: text"; ``matches`` as for journalctl."""
    machine.run("journalctl --sync")
    command = "journalctl -q -b -p warning -o short-monotonic --no-hostname --no-pager"
    lines = machine.run(" ".join([command, *matches])).splitlines()
    return [re.sub(r"^\[ *[\d.]+\] (\S+?)(\[\d+\])?: ", r"\1: ", line) for line in lines]


def find_new_warnings(machine: Machine, usual: list[str]) -> list[str]:
    """Those of them that the machine does not say without zvault; numbers in them do not count."""
    known = {NUMBERS.sub("N", line) for line in usual}
    return [
        line
        for line in list_warnings(machine)
        if NUMBERS.sub("N", line) not in known
        and not CAUSED.search(line)
        and (machine.kvm or not SLOW.search(line))
    ]


def find_denials(machine: Machine) -> list[str]:
    """Lines of every boot's journal that tell of a denied system call, a process killed for one, or of AppArmor."""
    machine.run("journalctl --sync")
    lines = machine.run("journalctl -q -o cat --no-pager", seconds=300).splitlines()
    return [line for line in lines if DENIED.search(line)]


def kill_on_denial(machine: Machine) -> None:
    """Have the kernel kill whatever of zvault's makes a system call that its unit denies, and log it.

    As the units are, such a call fails with EPERM, and nobody is told.
    """
    units = machine.run(
        "cd /usr/lib/systemd/system; grep -l '^SystemCallErrorNumber' zvault*.service"
    ).split()
    assert "zvaultd.service" in units
    for unit in units:
        machine.put(f"/etc/systemd/system/{unit}.d/kill.conf", "[Service]\nSystemCallErrorNumber=kill\n")
    machine.run("systemctl daemon-reload")
