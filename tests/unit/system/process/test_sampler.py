"""The looks at processes and pipes, on real ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.core.diagnosis.observations import (
    measure_cpu_share,
    measure_idle_share,
    measure_pipe_fill,
    measure_span,
)
from zvault.system.process.runner import HostRunner
from zvault.system.process.sampler import _fill, sampler_argv

BUSY = "while True: pass"
STILL = ["sleep", str(FOR_EVER)]


def sampled(*pids: int, devices: tuple[str, ...] = ()) -> dict[str, Any]:
    argv = sampler_argv(0.6, dict.fromkeys(pids), devices)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for one in found:
        one.kill()
        one.wait()


async def test_a_full_pipe_and_an_empty_one(started: list[subprocess.Popen[bytes]]):
    yes = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    reader = subprocess.Popen(STILL, stdin=yes.stdout)
    silent = subprocess.Popen(STILL, stdout=subprocess.PIPE)
    hungry = subprocess.Popen(["cat"], stdin=silent.stdout, stdout=subprocess.DEVNULL)
    started += [yes, reader, silent, hungry]
    await eventually(lambda: _fill(f"/proc/{reader.pid}/fd/0") == 1)
    looks = sampled(reader.pid, hungry.pid)["looks"]
    assert (measure_pipe_fill(looks, str(reader.pid)) or 0) > 0.9
    assert measure_pipe_fill(looks, str(hungry.pid)) == 0
    assert hungry.poll() is None, "it is still fed by the same writer"


def test_a_look_keeps_no_pipe_open(started: list[subprocess.Popen[bytes]]):
    writer = subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE)
    reader = subprocess.Popen(STILL, stdin=writer.stdout)
    started += [writer, reader]
    assert writer.stdout is not None
    writer.stdout.close()
    sampled(reader.pid)
    reader.kill()
    assert writer.wait(timeout=PATIENCE) != 0, "it is told that nobody reads any more"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives rights up")
async def test_the_pipe_between_two_that_have_no_rights():
    stages = [["cat", "/dev/zero"], ["cat"], STILL]
    pipeline = await HostRunner().pipeline(stages, nobody={"cat"})
    try:
        inputs = pipeline.inputs()
        assert list(inputs) == [process.pid for process in pipeline.processes[1:]]
        await eventually(lambda: all(_fill(path) == 1 for path in inputs.values()))
        argv = sampler_argv(0.6, inputs, ())
        looks = json.loads((await HostRunner().run(argv)).stdout)["looks"]
        assert [(measure_pipe_fill(looks, str(pid)) or 0) > 0.9 for pid in inputs] == [True, True]
    finally:
        await pipeline.kill()
    await pipeline.wait()
    assert pipeline.inputs() == {}


def worked(pid: int) -> float:
    """Seconds of a processor that a process has had, as the scheduler counts them."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def test_who_works_and_who_does_not(started: list[subprocess.Popen[bytes]]):
    busy, still = (subprocess.Popen(argv) for argv in ([sys.executable, "-S", "-c", BUSY], STILL))
    started += [busy, still]
    before, began = worked(busy.pid), time.monotonic()
    found = sampled(busy.pid, still.pid)
    had, took = worked(busy.pid) - before, time.monotonic() - began
    looks, hz = found["looks"], found["hz"]
    assert measure_span(looks) >= 0.6
    # Among many programs that may be little: as much as the scheduler gave it, but for what it had before and after.
    seen = (measure_cpu_share(looks, hz, str(busy.pid)) or 0) * measure_span(looks)
    assert had - (took - measure_span(looks)) - 3 / hz < seen < had + 3 / hz
    assert (measure_cpu_share(looks, hz, str(still.pid)) or 0) < 0.1
    assert 0 <= (measure_idle_share(looks) or 0) <= 1


def test_what_is_not_there_is_left_out():
    (first, *_) = sampled(0, devices=("no-such-device",))["looks"]
    assert (first["cpu"], first["full"], first["disks"]) == ({}, {}, {})
