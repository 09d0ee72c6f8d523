"""On a terminal: colour for trouble, a live bar, Ctrl-C that leaves the run alone."""

import os
import re
import select
import signal
import struct
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

from tests.unit.cli.api_documents import backup, event, run_events, status, trouble
from zvault.cli.progress import format_amount, format_remaining, shorten_name

ROOT = Path(__file__).parents[3]
# Only a terminal that controls its process turns Ctrl-C into SIGINT.
AS_CONTROLLED = """
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from zvault.cli.app import main
main()
"""
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """zvaultctl in a pseudo-terminal."""

    def __init__(self, *arguments: str, columns: int = 80, **environment: str) -> None:
        self.fd, far = os.openpty()
        ioctl(far, TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", AS_CONTROLLED, *arguments],
            cwd=ROOT,
            env={**plain, "TERM": "xterm", **environment},
            stdin=far,
            stdout=far,
            stderr=far,
            start_new_session=True,
        )
        os.close(far)
        self.text = ""

    def read_until(self, wanted: str | None = None, deadline: float = 60.0) -> str:
        """Read until the pattern ``wanted`` appears, or to the end; what was read, without escapes."""
        until = time.monotonic() + deadline
        while wanted is None or not re.search(wanted, self.plain):
            if not select.select([self.fd], [], [], max(0.0, until - time.monotonic()))[0]:
                raise TimeoutError(self.text)
            try:
                read = os.read(self.fd, 65536)
            except OSError:  # EIO: the other end has gone
                break
            if not read:
                break
            self.text += read.decode(errors="replace")
        return self.plain

    @property
    def plain(self) -> str:
        """What was read, without escapes."""
        return ESCAPE.sub("", self.text)

    def code(self) -> int:
        """The exit status."""
        self.read_until()
        os.close(self.fd)
        return self.process.wait(10)


@pytest.fixture(autouse=True)
def interruptible():
    """What a shell starts in the background ignores Ctrl-C, and so does all that it starts itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def troubled(daemon):
    error = trouble(why="the pool is full, " * 12 + "truly")
    daemon.documents["GET /v1/status"] = status(
        backup(), backup("mail", last_result="failed", last_error=error)
    )
    return daemon


def test_colour_is_for_trouble(troubled):
    terminal = Terminal("status")
    assert terminal.code() == 1
    text = terminal.text
    assert "\x1b[31mfailed\x1b[0m" in text
    assert "\x1b[31mok" not in text


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_refused(troubled, environment):
    terminal = Terminal("status", **environment)
    assert terminal.code() == 1
    assert "\x1b" not in terminal.text


@pytest.mark.parametrize("columns", [80, 120])
def test_sentences_wrap_at_the_terminals_width(troubled, columns):
    terminal = Terminal("status", columns=columns)
    assert terminal.code() == 1
    lines = terminal.plain.splitlines()
    start = next(i for i, line in enumerate(lines) if "why:" in line)
    assert lines[start + 1].startswith(" " * 16)
    assert max(len(line) for line in lines[start:]) <= columns


def test_what_is_wrong_with_a_configuration_wraps_between_words(tmp_path):
    file = tmp_path / "draft.toml"
    file.write_text('[backup.b]\nsource = "tank"\ntarget = "cold/backup"\n')
    terminal = Terminal("check-config", "--offline", str(file), columns=80)
    assert terminal.code() == 2
    lines = terminal.plain.splitlines()
    path = str(file)
    assert max(len(line) for line in lines if path not in line) <= 80
    told = [line for line in lines if not line.startswith(path)]
    assert [line for line in told if line.startswith("    ")], "what goes on is indented"
    assert "'into' the path in its pool" in " ".join(terminal.plain.split())


@pytest.fixture
def slow(daemon):
    """A run in the middle of its second transfer, which does not end."""
    daemon.documents["POST /v1/run/home"] = {"run": "42"}
    daemon.events["42"] = run_events()[:10]
    daemon.hang_events = True
    return daemon


def test_the_bar_shows_dataset_bytes_rate_and_time_left(slow):
    terminal = Terminal("run", "home")
    terminal.read_until(r"all of home .* 75% 1.50G of 2G +100M/s eta 5s")
    terminal.read_until(r"tank/home/a .* 50% 512M of 1G +100M/s eta 5s")
    assert "sent: tank/home  1G in 10s (100M/s)" in terminal.plain
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.code() == 130


def test_a_wide_terminal_shows_how_full_the_buffer_is(slow):
    terminal = Terminal("run", "home", columns=120)
    terminal.read_until(r"tank/home/a .* 50% 512M of 1G +100M/s buffer 3-97% eta 5s")
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.code() == 130


def test_ctrl_c_leaves_the_run_to_the_daemon(slow):
    terminal = Terminal("run", "home")
    terminal.read_until("75% 1.50G of 2G")
    os.write(terminal.fd, b"\x03")
    assert terminal.code() == 130
    assert "run 42 continues in the daemon" in terminal.text
    assert "zvaultctl follow home" in terminal.text
    assert "Traceback" not in terminal.text
    assert [asked for asked, _, _ in slow.asked] == ["POST /v1/run/home", "GET /v1/events"]


def test_the_bar_is_gone_when_the_run_ends(slow):
    slow.hang_events = False
    slow.events["42"] = run_events(middle=[event("warning", text="w" * 100)])
    terminal = Terminal("run", "home")
    assert terminal.code() == 0
    assert terminal.plain.splitlines()[-1] == "home ok: 2G in 20s (100M/s)"


@pytest.mark.parametrize("flags", [("-q",), ("-j", "-q")])
def test_no_bar_when_quiet(slow, flags):
    slow.hang_events = False
    slow.events["42"] = run_events()
    terminal = Terminal("run", "home", *flags)
    assert terminal.code() == 0
    assert "eta" not in terminal.plain


def test_a_long_name_keeps_its_end():
    assert shorten_name("tank/home", 12) == "tank/home"
    assert shorten_name("tank/home/alice/documents", 12) == "...documents"


def test_what_is_not_known_is_not_shown():
    assert format_amount(1 << 30, None) == "1G"
    assert format_amount(1 << 30, 2 << 30) == "1G of 2G"
    assert format_remaining(1, None, 5.0) == format_remaining(1, 2, 0.0) == format_remaining(3, 2, 5.0) == ""
