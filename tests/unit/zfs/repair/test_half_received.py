"""What is half received in a pool, told whole or not at all: the kernel is asked for names where nothing is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.zfs.repair.half_received import list_half_received


@pytest.mark.parametrize("said", ["", "cannot iterate filesystems: I/O error\n"])
async def test_a_listing_that_zfs_cuts_short_does_not_tell_that_nothing_is_half_received(said: str) -> None:
    async def run(argv: list[str], **_: Any) -> ProcessResult:
        return ProcessResult(
            tuple(argv), 0, "cold\tinconsistent\t0\ncold\treceive_resume_token\t-\n", said, 0.1
        )

    host = cast(Any, SimpleNamespace(run=run))
    if said:
        with pytest.raises(ToolFailed, match="cannot be listed whole"):
            await list_half_received(host, "cold")
    else:
        assert await list_half_received(host, "cold") == []
