"""Does tests/lab/run pass on what a command says and does, and leave nothing behind?"""

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

LAB = {"where": "host"}
RUN = str(Path(__file__).parent / "run")
BARE = (RUN, "--init=none", "--timeout=300", "--mem=1G")
LONG = 3600
"""Seconds that a run may wait for a CPU: other tests' guests have them for long."""


def run(*argv: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(argv, capture_output=True, timeout=LONG, **more)


def children(parent: int) -> list[int]:
    """A process's descendants: the guest's kernel and its many helpers."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            child = int(stat.parent.name)
            found += [child, *children(child)]
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def all_end(pids: list[int]) -> bool:
    deadline = time.monotonic() + 60
    while left := [pid for pid in pids if alive(pid)]:
        if time.monotonic() > deadline:
            print("left:", left)
            return False
        time.sleep(0.05)
    return True


def start(share: Path, *command: str) -> subprocess.Popen[bytes]:
    """A run whose command has begun."""
    process = subprocess.Popen(
        [
            *BARE,
            f"--share={share}",
            "--",
            "sh",
            "-c",
            f"touch /share/on; sync -f /share; {' '.join(command)}",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + LONG
    while not (share / "on").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("init", ["systemd", "none"])
def test_status_and_both_outputs(init: str):
    done = run(RUN, f"--init={init}", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    # On a busy machine it says before that it waits for a CPU.
    said = [line for line in done.stderr.splitlines() if not line.startswith(b"tests/lab/run: waiting")]
    assert (done.returncode, done.stdout, said) == (7, b"out\n", [b"err"])


def test_megabytes_byte_for_byte():
    wanted = bytes(range(256)) * 16384
    program = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 16384)"
    done = run(*BARE, "--", "python3", "-c", program)
    assert (done.returncode, len(done.stdout)) == (0, len(wanted))
    assert hashlib.sha256(done.stdout).digest() == hashlib.sha256(wanted).digest()


def test_a_slow_reader_gets_all(tmp_path: Path):
    process = start(tmp_path, "seq 1 200000")
    assert process.stdout
    got = b""
    while data := process.stdout.read1(100_000):
        got += data
        time.sleep(0.05)
    assert (process.wait(), got.split()) == (0, [b"%d" % number for number in range(1, 200001)])


def test_no_terminal_and_a_quoted_environment():
    done = run(
        *BARE, "--env", "A=b 'c' $d", "--", "sh", "-c", 'test -t 1 || printf \'%s|%s\' "$A" "$1"', "x", "y  z"
    )
    assert done.stdout == b"b 'c' $d|y  z"


def test_a_terminal_when_asked():
    done = run(*BARE, "--tty", "--", "sh", "-c", "test -t 1 && echo yes; exit 3")
    assert (done.returncode, done.stdout) == (3, b"yes\r\n")


def test_what_the_command_leaves_running_does_not_keep_it():
    assert run(*BARE, "--", "sh", "-c", "sleep 1000 & echo done").stdout == b"done\n"


def test_a_command_that_kills_its_whole_process_group_ends_at_once():
    assert run(RUN, "--", "sh", "-c", "kill -9 0").returncode == 128 + signal.SIGKILL


def test_share_is_the_hosts_folder(tmp_path: Path):
    (tmp_path / "in").write_text("to the guest")
    run(*BARE, f"--share={tmp_path}", "--", "cp", "/share/in", "/share/out")
    assert (tmp_path / "out").read_text() == "to the guest"


def test_a_disk_survives_a_power_cut(tmp_path: Path):
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(1 << 30)
    base = (*BARE, f"--disk={disk}", f"--share={tmp_path}", "--", "sh", "-ec")
    # Ending without an export is a power cut: the guest is killed as soon as its command ends.
    first = run(*base, "zpool create cut /dev/ubda && echo kept >/cut/file && zpool sync cut")
    assert first.returncode == 0, first.stderr
    second = run(
        *base,
        "zpool import -f -d /dev/ubda cut && cat /cut/file && zpool scrub -w cut && zpool status -x cut",
    )
    assert (second.returncode, second.stdout) == (0, b"kept\npool 'cut' is healthy\n"), second.stderr


def test_timeout_is_124_and_says_so():
    done = run(*BARE, "--timeout=5", "--", "sleep", "1000")
    assert done.returncode == 124
    assert b"no end after 5 s" in done.stderr


def test_a_panic_is_told():
    done = run(*BARE, "--", "sh", "-c", "echo c >/proc/sysrq-trigger")
    assert done.returncode == 125
    assert b"the guest died" in done.stderr
    assert b"sysrq triggered crash" in done.stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores Ctrl-C, and so does all that it starts itself."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_outlives_a_killed_run(tmp_path: Path, number: signal.Signals):
    process = start(tmp_path, "sh -c 'while :; do :; done' & sleep 1000")
    started = children(process.pid)
    assert len(started) > 3
    os.kill(process.pid, number)
    process.communicate(timeout=120)
    assert process.returncode in (128 + number, -number)
    assert all_end(started)
