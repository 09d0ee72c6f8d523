"""Which buffer a stream gets within one host, and which streams go through the gate."""

import shutil
from pathlib import Path

import pytest

from zvault.config.profile import StreamTable
from zvault.core.address import Address
from zvault.ops.stream.route import StreamRoute, turn_stream_back
from zvault.system.process.pipeline import STAGE_PIPE_SIZE
from zvault.system.process.runner import HostRunner
from zvault.zfs.gate.check import OrderedSnapshot, StreamOrder
from zvault.zfs.gate.process import is_gate
from zvault.zfs.host import LocalHost, SshHost
from zvault.zfs.stream_argv import SendFlags

FLAGS = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)


@pytest.mark.parametrize(
    ("size", "programs"),
    [
        (STAGE_PIPE_SIZE, ["send", "receive"]),
        (STAGE_PIPE_SIZE + 1, ["send", "mbuffer", "receive"]),
        (None, ["send", "mbuffer", "receive"]),
    ],
)
async def test_what_fits_into_a_pipe_needs_no_other_buffer(
    monkeypatch: pytest.MonkeyPatch, size: int | None, programs: list[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    here = LocalHost(HostRunner())
    stages = await StreamRoute(here, here, StreamTable(), 60.0).stages(["send"], ["receive"], FLAGS, size)
    assert [argv[0] for argv in stages] == programs


@pytest.mark.parametrize("size", [STAGE_PIPE_SIZE + 1, None])
async def test_a_pool_that_answers_at_once_needs_none_at_all(
    monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    here = LocalHost(HostRunner())
    route = StreamRoute(here, here, StreamTable(direct=True), 60.0)
    stages = await route.stages(["send"], ["receive"], FLAGS, size)
    assert stages == [["send"], ["receive"]]
    assert await route.lacking(FLAGS) == []
    assert (
        "mbuffer is not installed" in (await StreamRoute(here, here, StreamTable(), 60.0).lacking(FLAGS))[0]
    )


async def test_out_of_a_vault_the_buffer_is_as_large_and_passes_on_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    here, stream = LocalHost(HostRunner()), StreamTable.model_validate({"buffer": "256M", "start": 50})
    there = await StreamRoute(here, here, stream, 60.0).stages(["send"], ["receive"], FLAGS, None)
    back = await StreamRoute(here, here, turn_stream_back(stream), 60.0).stages(
        ["send"], ["receive"], FLAGS, None
    )
    assert there[1] == ["mbuffer", "-s", "1048576", "-m", "262144k", "-P", "50"]
    assert back[1] == ["mbuffer", "-s", "1048576", "-m", "262144k"]


ORDER = StreamOrder("tank/a", 2, 0, (OrderedSnapshot(1, "s"),))


@pytest.mark.parametrize(
    ("far", "receive", "gates"),
    [
        ((True, False), [], 1),
        ((True, True), [], 1),
        ((False, False), [], 0),
        ((False, True), [], 0),
        ((False, False), ["-F"], 1),
        ((False, True), ["-F"], 1),
    ],
)
async def test_what_another_host_sends_goes_through_the_gate_and_what_goes_over_something(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, far: tuple[bool, bool], receive: list[str], gates: int
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)

    async def tools(_: SshHost) -> frozenset[str]:
        return frozenset({"zstd"})

    monkeypatch.setattr(SshHost, "tools", tools)
    runner = HostRunner()
    ends = [SshHost(runner, Address("peer", "root"), tmp_path) if one else LocalHost(runner) for one in far]
    route = StreamRoute(ends[0], ends[1], StreamTable(), 60.0, "zstd")
    made = await route.stages(["zfs", "send"], ["zfs", "receive", *receive, "v"], FLAGS, 1 << 30, order=ORDER)
    assert sum(map(is_gate, made)) == gates
