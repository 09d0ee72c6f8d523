"""What goes wrong with a device stack: servers that do not begin, hang or die, and zvaultd killed at any moment."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
from device_stacks import (
    DEVICES,
    LEASES,
    QUEUE,
    Moment,
    becomes,
    clean_before_and_after,  # noqa: F401
    cleared,
    connected,
    file_spec,
    image,
    killed,
    nbd_module,  # noqa: F401
    only_state,
    quiet,
)
from device_stacks import patient_stack_of as stack_of
from world import eventually
from world import shell as sh

from zvault.config.profile import QueueSettings
from zvault.core.errors import Busy, DeviceGone, ToolFailed, ToolMissing
from zvault.devices import request_queue
from zvault.devices.nbd import sockets, target
from zvault.system.record_store import RecordStore


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("nbdkit:nosuch x=1", 'nbdkit has no plugin "nosuch"'),
        ("nbdkit:file {file} filter=delay filter=nosuch", 'nbdkit has no filter "nosuch"'),
    ],
)
async def test_what_nbdkit_lacks_is_told_before_anything_starts(tmp_path: Path, spec: str, what: str):
    file = tmp_path / "never.img"
    stack = stack_of(file_spec(file), spec.format(file=file))
    with pytest.raises(ToolMissing) as caught:
        await stack.up(quiet)
    assert caught.value.what == what
    assert "install" in caught.value.next
    cleared()
    assert not file.exists()


@pytest.mark.parametrize("tool", ["nbdkit", "nbd-client"])
async def test_a_missing_tool(tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch):
    names = {"nbdkit", "nbd-client", "systemctl", "sh", "modprobe"} - {tool}
    for name in names:
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match=f"{tool} is not installed"):
        await stack_of(file_spec(tmp_path / "never.img"), size="64M").up(quiet)
    monkeypatch.undo()
    assert not (tmp_path / "never.img").exists()


async def test_a_server_that_does_not_come_up_is_explained_and_cleared(tmp_path: Path):
    with pytest.raises(ToolFailed) as caught:
        await stack_of(file_spec(image(tmp_path / "a"), "filter=delay rdelay=soon")).up(quiet)
    assert 'could not parse delay or sleep: "soon"' in caught.value.why
    with pytest.raises(ToolFailed, match="No such file") as caught:
        await stack_of(file_spec(tmp_path / "no" / "such")).up(quiet)
    with pytest.raises(ToolFailed, match="cannot be made"):
        await stack_of(file_spec(tmp_path / "no" / "such"), size="1G").up(quiet)
    cleared()


async def test_what_came_up_first_is_taken_down_when_the_second_fails(tmp_path: Path):
    with pytest.raises(DeviceGone) as caught:
        await stack_of(file_spec(image(tmp_path / "a")), f"unix:{tmp_path}/nobody").up(quiet)
    assert "cannot be reached" in caught.value.what
    assert "No such file" in caught.value.why
    with pytest.raises(DeviceGone, match="Connect call failed"):
        await stack_of(file_spec(image(tmp_path / "a")), "tcp:127.0.0.1:10999").up(quiet)
    cleared()


async def test_a_dead_server_is_seen_and_cleared(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="64M")
    await stack.up(quiet)
    sh("systemctl kill -s KILL zvault-device@cold-0")
    state = await becomes(stack, "gone", "zvault-device@cold-0.service is failed (signal)")
    assert state.path == "/dev/nbd0"
    await stack.down(quiet)
    cleared()

    await stack.up(quiet)
    sh("systemctl kill -s KILL zvault-device@cold-0")
    await becomes(stack, "gone", "is failed")
    said: list[str] = []
    (device,) = await stack.up(said.append)
    assert any("clearing away" in line and "died" in line for line in said)
    sh(f"dd if={device.path} of=/dev/null bs=4096 count=1 iflag=direct")
    await stack.down(quiet)


async def test_a_server_that_hangs_hangs_nobody_else(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="64M")
    (device,) = await stack.up(quiet)
    sh("systemctl kill -s STOP zvault-device@cold-0")
    reader = subprocess.Popen(
        ["dd", f"if={device.path}", "of=/dev/null", "bs=4096", "count=1", "skip=99", "iflag=direct"]
    )
    waiting = Path(f"/sys/block/{Path(device.path).name}/inflight")
    eventually("a read that waits", lambda: any(map(int, waiting.read_text().split())), every=0.05)
    await stack.probe()
    assert reader.poll() is None, "the device itself would not answer before its timeout"
    # nbd-client's -timeout: the request fails, where without one it would stay for ever.
    assert reader.wait(240) != 0
    began = time.monotonic()
    await stack.down(quiet)
    print(f"down of a hung server in {time.monotonic() - began:.1f} s")


async def test_a_server_that_accepts_and_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target, "REACH_DEADLINE", 1.0)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        with pytest.raises(DeviceGone, match="did not answer within 1 s"):
            await stack_of(f"unix:{tmp_path}/mute").up(quiet)


async def test_a_server_that_speaks_something_else(tmp_path: Path):
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-lab\r\n")

    listener = await asyncio.start_server(greet, "127.0.0.1", 10902)
    async with listener:
        with pytest.raises(DeviceGone, match="is no NBD server"):
            await stack_of("tcp:127.0.0.1:10902").up(quiet)


async def test_a_lease_of_another_boot_means_nothing(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="64M")
    RecordStore(LEASES, boot_id="another").put(
        "device/cold/0", {"spec": "x", "connections": 1, "serves": True, "number": 0, "pid": 1}
    )
    assert (await only_state(stack)).state == "down"
    await stack.down(quiet)
    cleared()


async def test_a_server_without_a_record(tmp_path: Path):
    """As when the leases were deleted: what nobody uses is cleared, what somebody uses is refused."""
    stack = stack_of(file_spec(tmp_path / "a"), size="64M")
    await stack.up(quiet)
    RecordStore(LEASES).drop("device/cold/0")
    state = await only_state(stack)
    assert state.state == "partial"
    assert "no record" in state.detail
    for call in (stack.up, stack.down):
        with pytest.raises(Busy, match="serves somebody"):
            await call(quiet)
    sh("nbd-client -d /dev/nbd0")
    its = str(DEVICES / "cold-0.sock")
    eventually("its server serves nobody", lambda: not sockets.list_unix_links(its))
    await stack.up(quiet)
    await stack.down(quiet)


@pytest.mark.parametrize("before", [True, False], ids=["between", "during"])
@pytest.mark.parametrize("verb", ["up", "down"])
def test_killed_at_any_moment(tmp_path: Path, verb: str, before: bool):
    """After every step, and with every tool on its way, the next start adopts or clears what is there."""
    settings = QueueSettings(scheduler="none", read_ahead_kb=64)
    stack = stack_of(file_spec(tmp_path / "a"), size="64M", settings=settings)
    queues = {
        index: {name: request_queue.read_queue_setting(f"nbd{index}", name) for name in request_queue.ORDER}
        for index in range(4)
    }
    seen = []
    for nth in range(1, 100):
        if verb == "down":
            asyncio.run(stack.up(quiet))
        if not killed(stack, verb, Moment(nth, before=before)):
            break
        state = asyncio.run(only_state(stack))
        seen.append(state.state)
        if nth % 2:
            (device,) = asyncio.run(stack.up(quiet))
            sh(f"dd if={device.path} of=/dev/null bs=4096 count=1 iflag=direct")
            assert len(connected()) == 1
        asyncio.run(stack.down(quiet))
        cleared(f"nothing is left after a kill at step {nth}, where it was {state}")
    asyncio.run(stack.down(quiet))
    print(f"killed in {verb} at {len(seen)} moments, found", seen)
    assert len(seen) > 5
    assert queues == {
        index: {name: request_queue.read_queue_setting(f"nbd{index}", name) for name in request_queue.ORDER}
        for index in range(4)
    }


async def test_a_suspended_pool_resumes_on_a_new_server(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="256M")
    (device,) = await stack.up(quiet)
    sh(f"zpool create -o ashift=12 -o cachefile=none -O mountpoint={tmp_path}/pool zvt {device.path}")
    sh("systemctl kill -s KILL zvault-device@cold-0")
    writer = subprocess.Popen(
        ["dd", "if=/dev/urandom", f"of={tmp_path}/pool/file", "bs=1M", "count=20", "conv=fsync"]
    )
    eventually("suspension", lambda: "SUSPENDED" in sh("zpool list -Ho health zvt"))
    for call in (stack.up, stack.down):
        with pytest.raises(Busy, match="zpool clear"):
            await call(quiet)
    await becomes(stack, "gone")

    sh("zpool clear zvt", check=False)  # fails, but releases the dead device
    assert (await stack.up(quiet))[0] == device
    sh("zpool clear zvt")
    assert writer.wait(240) == 0
    sh("zpool scrub -w zvt")
    assert "errors: No known data errors" in sh("zpool status zvt")
    sh("zpool destroy zvt")
    await stack.down(quiet)


async def test_cancelled_at_any_moment(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="64M", settings=QUEUE)
    for step in range(10):
        task = asyncio.ensure_future(stack.up(quiet))
        await asyncio.sleep(step * 0.07)
        task.cancel()
        done = await asyncio.gather(task, return_exceptions=True)
        if isinstance(done[0], asyncio.CancelledError):
            cleared()
        await stack.down(quiet)


async def test_servers_outlive_a_shutdown_and_are_hard_to_kill():
    shown = sh(
        "systemctl show zvault-device@x -p Conflicts,Restart,SurviveFinalKillSignal,OOMScoreAdjust,Slice"
    )
    assert "Conflicts=\n" in shown + "\n"
    assert "Restart=no" in shown
    assert "SurviveFinalKillSignal=yes" in shown
    assert "OOMScoreAdjust=-900" in shown
    assert "Slice=zvault.slice" in shown
    assert not re.search("shutdown", sh("systemctl show zvault.slice -p Conflicts"))
    assert os.path.exists("/lib/systemd/system/zvault-device@.service")  # noqa: PTH110
