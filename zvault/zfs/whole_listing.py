"""Listings that are whole or none: ``zfs`` may leave out a part, and end as if it had told all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessResult, ToolRunner

CUT_SHORT = "cannot iterate filesystems"
"""What zfs says where what it opens next cannot be opened, as a damaged one (zfs_do_list_ioctl in libzfs_iter.c,
2.1 to 2.4). What comes after it in the same dataset is left out, and the command ends with 0 all the same (zfs_callback
in cmd/zfs/zfs_iter.c): taken for all there is, that would make datasets and snapshots look gone."""


class PartialListing(ToolFailed):
    """A listing told of a part only. What the rest is may be found out: see Zfs.tree_around_damage."""


async def list_whole(host: ToolRunner, argv: Sequence[str], deadline: float) -> ProcessResult:
    """What a command tells of all that is below something. Cut short, it failed, whatever it ended with."""
    result = await host.run(argv, deadline=deadline, check=False)
    return replace(result, returncode=result.returncode or 1) if CUT_SHORT in result.stderr else result
