"""What is told to the service manager, over a real datagram socket."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from zvault.core.errors import ToolMissing
from zvault.system import sd_notify


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    pytest.importorskip("systemd.daemon", reason="python3-systemd is not installed")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(2)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield listener


def test_messages(manager: socket.socket):
    def heard() -> str:
        return manager.recv(4096).decode()

    sd_notify.notify_ready("3 backups")
    assert heard() == "READY=1\nSTATUS=3 backups"
    sd_notify.notify_ready()
    assert heard() == "READY=1"
    sd_notify.notify_status("sending\nREADY=1  tank/ä")
    assert heard() == "STATUS=sending READY=1 tank/ä"
    sd_notify.notify_stopping()
    assert heard() == "STOPPING=1"
    sd_notify.feed_watchdog()
    assert heard() == "WATCHDOG=1"
    before = time.monotonic_ns() // 1000
    sd_notify.notify_reloading()
    first, second = heard().splitlines()
    assert first == "RELOADING=1"
    assert before <= int(second.removeprefix("MONOTONIC_USEC=")) <= time.monotonic_ns() // 1000 + 1


def test_nothing_is_said_where_nobody_listens(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setitem(sys.modules, "systemd", None)
    for call in (
        sd_notify.notify_ready,
        sd_notify.notify_stopping,
        sd_notify.notify_reloading,
        sd_notify.feed_watchdog,
    ):
        call()


def test_a_missing_library_is_an_error_where_somebody_waits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere")
    monkeypatch.setitem(sys.modules, "systemd", None)
    monkeypatch.setitem(sys.modules, "systemd.daemon", None)
    with pytest.raises(ToolMissing, match="python3-systemd"):
        sd_notify.notify_ready()


@pytest.mark.parametrize(
    ("allowed", "pid", "interval"),
    [
        ("30000000", None, 15.0),
        ("30000000", "own", 15.0),
        ("30000000", "1", None),
        ("0", None, None),
        ("", None, None),
        (None, None, None),
        ("soon", None, None),
    ],
)
def test_watchdog_interval(
    allowed: str | None, pid: str | None, interval: float | None, monkeypatch: pytest.MonkeyPatch
):
    for name, value in (("WATCHDOG_USEC", allowed), ("WATCHDOG_PID", pid)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, str(os.getpid()) if value == "own" else value)
    assert sd_notify.read_watchdog_interval() == interval


def test_what_cannot_be_sent_now_is_told_and_the_next_word_goes(
    manager: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """The watchdog was fed no more after one moment without a free descriptor: systemd killed zvaultd."""
    with monkeypatch.context() as without:
        without.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
        for say in (
            sd_notify.feed_watchdog,
            sd_notify.notify_stopping,
            partial(sd_notify.notify_status, "sending"),
            partial(sd_notify.extend_start, 1.0),
            partial(sd_notify.allow_silence, 1.0),
        ):
            say()
        with pytest.raises(OSError, match="No such file"):
            sd_notify.notify_ready()
    assert [one.args[0] for one in caplog.records if isinstance(one.args, tuple)] == [
        "WATCHDOG",
        "STOPPING",
        "STATUS",
        "EXTEND_TIMEOUT_USEC",
        "WATCHDOG_USEC",
    ]
    sd_notify.feed_watchdog()
    assert manager.recv(4096) == b"WATCHDOG=1"
