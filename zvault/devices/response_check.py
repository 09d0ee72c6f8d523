"""Whether a block device answers, found out by reading from it: the one question here that may wait for the device."""

from __future__ import annotations

from zvault.core.errors import DeadlineExceeded, DeviceGone
from zvault.system.process.runner import ProcessRunner

DEVICE_ANSWER_DEADLINE = 10.0
"""Seconds. A pool lies on storage that takes less than one; what takes longer is no use to it now."""


async def check_response(path: str, runner: ProcessRunner) -> None:
    """Read a device's first block, past every cache of this host. Raises DeviceGone with what it says instead."""
    argv = ["dd", f"if={path}", "of=/dev/null", "bs=4096", "count=1", "iflag=direct", "status=none"]
    try:
        result = await runner.run(argv, deadline=DEVICE_ANSWER_DEADLINE, check=False)
    except DeadlineExceeded:
        why = f"a read from it did not end within {DEVICE_ANSWER_DEADLINE:g} s"
    else:
        if result.returncode == 0:
            return
        why = result.complaint()
    raise DeviceGone(f"{path} does not answer", why, "see its server, and the network between")
