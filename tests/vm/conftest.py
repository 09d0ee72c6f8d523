"""Machines for the tests: each is a fresh Debian, on which a module installs zvault.

The tests of a module share a machine and come in order. ``make vm`` runs them; nothing else collects them.
"""

from __future__ import annotations

import datetime
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the modules beside this one, whatever pytest's import mode
sys.path.insert(0, str(HERE.parent / "lab"))

import cache  # noqa: E402
from machine import Machine, copy_log, has_kvm, overlay  # noqa: E402
from stick import Switch  # noqa: E402

LOGS = cache.PROJECT / "build" / "vm"
"""Where what each machine said is kept after the tests."""


@pytest.fixture(scope="session")
def disks() -> Iterator[Path]:
    """A folder for machines' disks, beside what they are overlays of: a disk grows to some GB."""
    place = cache.root() / "runs"
    place.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="vm-", dir=place) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def make_machine(disks: Path) -> Iterator[Switch]:
    """Make a machine of that name, switched off, with one of build-image's disks; at the end all are ended."""
    made: list[Machine] = []

    def make(name: str, disk: str = "ready") -> Machine:
        image = cache.vm_image()
        folder = disks / name
        folder.mkdir()
        own = overlay(folder / "disk.qcow2", image / f"{disk}.qcow2")
        made.append(Machine(folder, image, own, cache.vm_packages()))
        return made[-1]

    yield make
    for machine in made:
        machine.destroy()
        copy_log(machine, LOGS / machine.folder.name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the row for docs/reference/lab.md."""
    outcomes = {
        kind: len([one for one in terminalreporter.stats.get(kind, []) if one.when == "call"])
        for kind in ("passed", "failed")
    }
    image = cache.vm_image()
    if not any(outcomes.values()) or not (image / "versions").exists():
        return
    versions = dict(line.rsplit(" ", 1) for line in (image / "versions").read_text().splitlines())
    kernel = next(version for name, version in versions.items() if name.startswith("linux-image"))
    row = [
        datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        versions["Debian"],
        kernel,
        versions["zfs-dkms"],
        versions["systemd"],
        "KVM" if has_kvm(image / "vmlinuz") else "emulated",
        f"{outcomes['passed']} of {sum(outcomes.values())}",
    ]
    terminalreporter.write_line("for docs/reference/lab.md:")
    terminalreporter.write_line(f"| {' | '.join(row)} |")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Say how long each took: an emulated machine is slow, and who waits wants to see that it goes on."""
    if report.when == "call" and os.environ.get("ZVAULT_VM_TIMES"):
        print(f"\n{report.nodeid}: {report.duration:.0f} s", file=sys.__stderr__)
