"""Which buffer a stream gets within one host."""

import shutil

import pytest

from zvault.config.profile import Stream
from zvault.ops.route import Route
from zvault.system.process import PIPE_SIZE, HostRunner
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
