"""In a guest: sends reports of tests to the host as they come, with the logs of failures."""

import json
import os
import subprocess
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

JOURNAL_LINES = 200
KERNEL_LINES = 100
# Appended line by line. Absent when somebody runs pytest in a guest by hand.
CHANNEL = os.environ.get("ZVAULT_LAB_REPORTS")
PEER = Path("/run/lab/peer")
# The lab's own way into the second guest, which no test breaks: one connection, for a login costs more than most
# of what it is for.
PEER_SSH = (
    f"ssh -p 2222 -i {PEER}/key -o BatchMode=yes -o ConnectTimeout=15 -o LogLevel=ERROR"
    " -o ControlMaster=auto -o ControlPersist=yes -o ControlPath=/run/lab-peer.ssh"
    " -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@peer"
).split()
_began = {"wall": time.time(), "uptime": time.monotonic()}
_sender: list[pytest.Config] = []
RECORDED = Path("/dev/shm/zvault-branches/test")
"""Where a run is recorded (branch_recorder.py): touched as each test begins."""
BACKWARDS = "ZVAULT_LAB_BACKWARDS"
"""Set to run the last test first."""


def send(message: dict[str, Any]) -> None:
    """Let the host see a message now: it writes what it caches only when told."""
    if CHANNEL:
        with Path(CHANNEL).open("a") as file:
            file.write(json.dumps(message) + "\n")
            file.flush()
            os.fsync(file.fileno())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Turn the tests round where that is asked for: one that goes on from another then comes before it."""
    if os.environ.get(BACKWARDS):
        items.reverse()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Say which tests there are: the host knows no parameters."""
    _sender.append(session.config)
    send({"collected": [item.nodeid for item in session.items]})


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Say what could not be collected."""
    if report.outcome != "passed":
        longrepr = report.longrepr
        if isinstance(longrepr, tuple):
            longrepr = longrepr[2]
        send({"uncollected": {"nodeid": report.nodeid, "outcome": report.outcome, "text": str(longrepr)}})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Send a test's report."""
    config = _sender[0]
    send({"report": config.hook.pytest_report_to_serializable(config=config, report=report)})


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol() -> None:
    """Note when the test began."""
    _began.update(wall=time.time(), uptime=time.monotonic())
    if RECORDED.parent.exists():
        RECORDED.touch()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the journal and the kernel said meanwhile."""
    report = yield
    if report.failed:
        for source, text in (
            ("journal", journal()),
            ("kernel", kernel()),
            ("peer's journal", peer_journal()),
        ):
            if text:
                report.sections.append((f"The {source} since the test began", text))
    return report


def said(*argv: str) -> str:
    """What a program prints, or why it did not."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return done.stdout or done.stderr


def journal() -> str:
    """The journal's end."""
    since = f"--since=@{_began['wall']:.6f}"
    return said("journalctl", "--no-pager", "-q", "-o", "short-precise", "-n", str(JOURNAL_LINES), since)


def peer_journal() -> str:
    """The end of the second guest's journal, if there is one."""
    if not PEER.exists():
        return ""
    since = f"--since=@{_began['wall']:.0f}"
    lines = str(JOURNAL_LINES // 2)
    return said(*PEER_SSH, "journalctl", "--no-pager", "-q", "-o", "short-precise", "-n", lines, since)


def kernel() -> str:
    """The kernel's messages; their times are seconds since boot."""
    lines = []
    for line in said("dmesg").splitlines():
        stamp = line.partition("]")[0].lstrip("[ ")
        if not stamp.replace(".", "", 1).isdigit() or float(stamp) >= _began["uptime"] - 0.1:
            lines.append(line)
    return "\n".join(lines[-KERNEL_LINES:])
