"""The throttle as a real process between real pipes."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.unit.patience import PATIENCE
from zvault.system.process.throttle import QUANTUM, count_unread_bytes, parse_bytes_let_pass, throttle_argv


@pytest.fixture
def leave() -> Iterator[tuple[int, int]]:
    pipe = os.pipe()
    yield pipe
    for descriptor in pipe:
        try:
            os.close(descriptor)
        except OSError:
            continue


def start(leave: tuple[int, int]) -> subprocess.Popen[bytes]:
    argv = throttle_argv(f"/proc/{os.getpid()}/fd/{leave[0]}")
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe)


def test_what_passes_is_what_came_and_no_more_than_leave_was_given_for(leave: tuple[int, int]) -> None:
    throttle = start(leave)
    assert throttle.stdin
    assert throttle.stdout
    data = os.urandom(5 * QUANTUM + 77)
    os.write(leave[1], b"..")
    throttle.stdin.write(data)
    throttle.stdin.close()
    assert throttle.stdout.read(2 * QUANTUM) == data[: 2 * QUANTUM]
    time.sleep(0.3)
    assert count_unread_bytes(throttle.stdout.fileno()) == 0
    os.write(leave[1], b"........")
    assert throttle.stdout.read() == data[2 * QUANTUM :]
    assert throttle.wait(PATIENCE) == 0


def test_leave_that_it_cannot_use_is_left_to_others(leave: tuple[int, int]) -> None:
    throttle = start(leave)
    os.write(leave[1], b"." * 50)
    assert throttle.stdin
    assert throttle.stdout
    throttle.stdin.write(b"x" * QUANTUM)
    throttle.stdin.flush()
    throttle.stdout.read(QUANTUM)
    time.sleep(0.2)
    assert count_unread_bytes(leave[0]) == 49
    throttle.kill()
    throttle.communicate()


def test_two_share_what_there_is(leave: tuple[int, int]) -> None:
    both = [start(leave) for _ in range(2)]
    for one in both:
        assert one.stdin
        one.stdin.write(b"x" * QUANTUM)
        one.stdin.flush()
    os.write(leave[1], b"..")
    for one in both:
        assert one.stdout
        assert len(one.stdout.read(QUANTUM)) == QUANTUM
        one.kill()
        one.communicate()


def test_it_says_so_while_it_waits_for_leave(leave: tuple[int, int]) -> None:
    throttle = start(leave)
    assert throttle.stdin
    assert throttle.stderr
    throttle.stdin.write(b"x")
    throttle.stdin.flush()
    assert parse_bytes_let_pass(throttle.stderr.readline().decode().strip()) == 0
    throttle.kill()
    throttle.communicate()


def test_it_ends_with_its_reader_and_with_whoever_gives_leave(leave: tuple[int, int]) -> None:
    orphan, alone = start(leave), start(leave)
    os.write(leave[1], b"..")
    for one in (orphan, alone):
        assert one.stdin
        assert one.stdout
        one.stdin.write(b"x" * QUANTUM)
        one.stdin.flush()
        one.stdout.read(QUANTUM)
    assert alone.stdin
    assert alone.stdout
    alone.stdout.close()
    os.write(leave[1], b".")
    alone.stdin.write(b"x")
    alone.stdin.close()
    assert alone.wait(PATIENCE) == -13
    os.close(leave[0])
    os.close(leave[1])
    _, said = orphan.communicate(b"x", timeout=PATIENCE)
    assert orphan.returncode == 1
    assert b"zvaultd is gone" in said


def test_a_reader_that_goes_once_it_has_everything_is_no_trouble(leave: tuple[int, int]) -> None:
    throttle = start(leave)
    assert throttle.stdin
    assert throttle.stdout
    os.write(leave[1], b"..")
    throttle.stdin.write(b"x")
    throttle.stdin.flush()
    assert throttle.stdout.read(1) == b"x"
    throttle.stdout.close()
    throttle.stdin.close()
    assert throttle.wait(PATIENCE) == 0, (
        "zfs receive ends with its stream's last record, before its pipe does"
    )


def test_it_starts_without_the_packages_of_the_site() -> None:
    done = subprocess.run(
        [*throttle_argv("/nowhere")], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert (done.returncode, "No such file" in done.stderr) == (1, True)
    assert throttle_argv("x")[0] == sys.executable


def test_what_it_says_is_known_from_what_others_say() -> None:
    assert parse_bytes_let_pass("throttle: 123") == 123
    assert parse_bytes_let_pass("throttle: zvaultd is gone, nobody gives leave") is None
    assert parse_bytes_let_pass("123") is None
