"""``profile = "auto"`` on a model of slow disks: measured, worked out, tried out, kept; and nothing of it is left over.

The tests build on each other: one vault, made in the first, is measured again in the next.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import world
from libzfs_core import lzc_exists
from world import CONFIG, DISK, ctl, eventually, nothing_left, ok, sh

LAB = {"mem": "6G", "timeout": 1500, "in_order": True}

PARAMETERS = Path("/sys/module/zfs/parameters")
PLAIN = Path("/etc/zvault/profiles/plain.toml")
PLUGIN = Path(__file__).parent.parent / "bench" / "devices" / "slots.py"
SOCKET = DISK / "device.sock"
SLOTS, LATENCY, RATE = 4, 0.060, 30e6
"""Slow enough that what is tried out fits into the guest's memory, which is its disk; and so slow that it is the device
that counts, and not the guest's processor, which may be a slow one.
"""
SIZE = 100 << 30
"""Room is what a transaction group needs: see docs/explanation/tuning.md."""

LIMIT, DEPTH = "zfs_vdev_aggregation_limit_non_rotating", "zfs_vdev_async_write_max_active"
READ_AT_ONCE, SCRUBBED_AT_ONCE = "zfs_vdev_async_read_max_active", "zfs_vdev_scrub_max_active"
TOUCHED = (
    *(LIMIT, DEPTH, "zfs_vdev_async_write_min_active", "zio_dva_throttle_enabled", "zfs_dirty_data_max"),
    *(READ_AT_ONCE, SCRUBBED_AT_ONCE, "zfs_send_queue_length"),
)
MIB = 64
SCRATCH = "cold/zvault-scratch"


def now() -> dict[str, str]:
    return {name: (PARAMETERS / name).read_text().strip() for name in TOUCHED}


BEFORE = now()


def configure(profile: str) -> None:
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(
        f'[daemon]\nhost = "lab"\n[vault.cold]\npool = "cold"\nprofile = "{profile}"\n'
        f'[[vault.cold.device]]\nnbd = "unix:{SOCKET}"\n'
    )
    sh("systemctl", "restart", "zvaultd")


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """A server that takes so many requests at a time, each its latency and its bytes; and a stream to receive."""
    it = world.World()
    it.clean()
    world.make_tank("1G")
    world.noise(Path("/tank/noise"), MIB)
    sh("zfs", "snapshot", "tank@a")
    with (DISK / "stream").open("wb") as stream:
        subprocess.run(["zfs", "send", "tank@a"], stdout=stream, check=True)
    sh("zpool", "destroy", "tank")
    PLAIN.parent.mkdir(parents=True)
    PLAIN.write_text("")
    model = [f"size={SIZE}", f"slots={SLOTS}", f"latency={LATENCY}", f"rate={RATE}"]
    argv = ["nbdkit", "-f", "-t", "32", "-U", str(SOCKET), "python", str(PLUGIN)]
    server = subprocess.Popen([*argv, f"file={DISK}/device.img", *model])
    eventually("the device is served", SOCKET.exists, every=0.05)
    yield
    it.clean()
    server.terminate()
    server.wait()


def measured() -> dict[str, Any]:
    (vault,) = json.loads(ctl("tune", "show", "-j").out)["vaults"]
    return vault["measured"]


def wanted() -> dict[str, str]:
    """What the measurement chose, by parameter."""
    return {one["name"]: one["value"] for one in measured()["choices"]}


def tuned() -> None:
    """The parameters are as they were measured to be."""
    chosen = wanted()
    assert {name: value for name, value in now().items() if name in chosen} == {
        name: chosen[name] for name in TOUCHED if name in chosen
    }


def datasets() -> list[str]:
    return sh("zfs", "list", "-rHo", "name", "cold").split()


def seconds_to_receive() -> float:
    """Until the stream is in the pool, on the device."""
    sh("zpool", "sync", "cold")
    started = time.monotonic()
    with (DISK / "stream").open("rb") as stream:
        subprocess.run(
            ["zfs", "receive", "-u", "-o", "compression=off", "cold/data"], stdin=stream, check=True
        )
    sh("zpool", "sync", "cold")
    took = time.monotonic() - started
    sh("zfs", "destroy", "-r", "cold/data")
    return took


def test_killed_while_it_tries_settings_out_on_a_new_vault() -> None:
    """The device is measured before its pool is made; what was worked out is kept, and the scratch dataset goes."""
    configure("auto")
    making = subprocess.Popen(["zvaultctl", "vault", "create", "cold", "--yes"], stderr=subprocess.DEVNULL)
    there = f"{SCRATCH}/copy".encode()
    # It is there for some seconds at a time only.
    eventually("a receive is tried", lambda: lzc_exists(there), seconds=240, every=0.02)
    killed = world.main_pid()
    sh("systemctl", "kill", "-s", "KILL", "zvaultd")
    assert making.wait(120) == 2
    world.restarted(killed)
    eventually(
        "it has taken the vault down", lambda: "cold" not in sh("zpool", "list", "-Ho", "name"), seconds=240
    )
    eventually("it has put everything back", lambda: now() == BEFORE)
    nothing_left()
    found = measured()
    assert (found["way"], found["tries"]) == ("write", [])
    chosen = wanted()
    assert int(chosen[LIMIT]) >= 1 << 20
    # On a busy machine requests wait on their way to the server, and more of them at once gain something.
    # There are as many again as the device works on, which are on their way to it or back.
    assert 2 * (SLOTS - 1) <= int(chosen[DEPTH]) <= 2 * 3 * SLOTS
    deepest = max(point["depth"] for point in found["points"])
    assert deepest <= 8 * SLOTS, "it searches from below, and stops when it gains nothing"
    assert found["reading"]["points"], "what the writes left was read back"
    assert found["reading"]["sends"] == found["reading"]["scrubs"] == []
    ok("vault", "up", "cold")
    assert datasets() == ["cold"], "the scratch dataset is gone"
    tuned()
    ok("vault", "down", "cold")
    assert now() == BEFORE
    nothing_left()


def test_who_stops_waiting_stops_it() -> None:
    """Ctrl-C while the device is being measured."""
    before = measured()
    argv = ["zvaultctl", "tune", "measure", "cold"]
    measuring = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert measuring.stderr is not None
    said = iter(measuring.stderr.readline, "")
    assert any("measuring /dev/nbd0: reads of" in line for line in said)
    measuring.send_signal(signal.SIGINT)
    assert measuring.wait(120) == 130
    eventually("it has stopped", lambda: "fio" not in sh("ps", "-A", "-o", "comm="))
    eventually("the vault is down", lambda: "cold" not in sh("zpool", "list", "-Ho", "name"))
    eventually("nothing is left", lambda: now() == BEFORE)
    assert measured() == before
    nothing_left()


def check_reading(reading: dict[str, Any]) -> None:
    """Sends and scrubs were tried, and OpenZFS's defaults are no match there either."""
    for tries in (reading["sends"], reading["scrubs"]):
        rows = {row["what"]: row for row in tries}
        assert rows["OpenZFS's defaults"]["stopped"]
        (won,) = [row for row in tries if row["won"]]
        assert won["what"] != "OpenZFS's defaults"
        # What is read comes from the device, which can do no more than this.
        assert won["rate"] < 1.1 * SLOTS * RATE
    chosen = {one["name"]: int(one["value"]) for one in reading["choices"]}
    assert chosen[READ_AT_ONCE] > 3
    assert chosen[SCRUBBED_AT_ONCE] > 3


@pytest.mark.timeout(900)
def test_measured_on_request_and_faster_than_by_default() -> None:
    done = ok("tune", "measure", "cold", timeout=600)
    print(done.err, done.out)
    assert "it holds a pool, and is not written to" in done.err
    found = measured()
    assert found["way"] == "read"
    rows = {row["what"]: row for row in found["tries"]}
    assert [row["what"] for row in found["tries"] if row["won"]] != ["OpenZFS's defaults"]
    assert rows["OpenZFS's defaults"]["stopped"], "they are no match"
    assert now() == BEFORE
    check_reading(found["reading"])
    nothing_left()
    ok("vault", "up", "cold")
    assert datasets() == ["cold"]
    assert "with 0 errors on" in sh("zpool", "status", "cold"), "its trials ended as a whole scrub"
    tuned()
    page = ok("tune", "show", "cold").out
    assert "cold: profile auto, measured on " in page
    (won,) = [row["what"] for row in found["tries"] if row["won"]]
    reasons = {
        "worked out": "Little's law",
        "half the depth": "was worked out, but this was faster",
        "twice the size, half the depth": "was worked out, but this was faster",
    }
    assert reasons.get(won, "which was faster than what was worked out") in page
    # The device decides how soon it can be at best; a machine that is busy meanwhile only adds to that.
    auto = min(seconds_to_receive() for _ in range(3))
    ok("vault", "down", "cold")
    assert now() == BEFORE
    configure("plain")
    ok("vault", "up", "cold")
    assert now() == BEFORE
    plain = seconds_to_receive()
    ok("vault", "down", "cold")
    print(f"{MIB} MiB: {auto:.1f} s, by default {plain:.1f} s")
    assert plain > 1.7 * auto
    nothing_left()


def test_what_was_measured_is_for_that_device_only() -> None:
    configure("auto")
    assert measured() is not None
    text = CONFIG.read_text()
    CONFIG.write_text(text.replace("device.sock", "another.sock"))
    sh("systemctl", "restart", "zvaultd")
    assert measured() is None
    CONFIG.write_text(text)
    sh("systemctl", "restart", "zvaultd")
    assert measured() is not None
