"""Which buffer a stream gets within one host."""

import shutil

import pytest

from zvault.config.profile import Stream
from zvault.ops.stream.route import Route
from zvault.system.process.runner import PIPE_SIZE, HostRunner
from zvault.zfs.host import LocalHost
from zvault.zfs.stream import Flags

FLAGS = Flags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)


@pytest.mark.parametrize(
    ("size", "programs"),
    [
        (PIPE_SIZE, ["send", "receive"]),
        (PIPE_SIZE + 1, ["send", "mbuffer", "receive"]),
        (None, ["send", "mbuffer", "receive"]),
    ],
)
async def test_what_fits_into_a_pipe_needs_no_other_buffer(
    monkeypatch: pytest.MonkeyPatch, size: int | None, programs: list[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    here = LocalHost(HostRunner())
    stages = await Route(here, here, Stream(), 60.0).stages(["send"], ["receive"], FLAGS, size)
    assert [argv[0] for argv in stages] == programs


@pytest.mark.parametrize("size", [PIPE_SIZE + 1, None])
async def test_a_pool_that_answers_at_once_needs_none_at_all(
    monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    here = LocalHost(HostRunner())
    route = Route(here, here, Stream(direct=True), 60.0)
    stages = await route.stages(["send"], ["receive"], FLAGS, size)
    assert stages == [["send"], ["receive"]]
    assert await route.lacking(FLAGS) == []
    assert "mbuffer is not installed" in (await Route(here, here, Stream(), 60.0).lacking(FLAGS))[0]
