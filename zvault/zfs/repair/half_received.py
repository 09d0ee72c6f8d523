"""The datasets that were received in full, and only in part so far. argv of ``zfs get`` for them.

A first receive makes its dataset at once and marks it (``inconsistent``) until its stream has ended. One that goes over
a placeholder (``-F``) does so in a hidden dataset, ``%recv``: of that only the resume token tells, by starting from
nothing. What is half received of an increment is no such dataset: it is a clone of one that is whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from zvault.core.errors import NotFound, ToolFailed
from zvault.core.names import DatasetName
from zvault.system.process.runner import ToolRunner
from zvault.zfs.gate.resume_token import BadToken, decode_token
from zvault.zfs.list_command import ZFS_LIST_DEADLINE, make_list_error
from zvault.zfs.whole_listing import list_whole


def half_received_argv(names: Sequence[str], *, recursive: bool) -> list[str]:
    """The command that tells what is half received among datasets, or also below them."""
    depth = ["-r"] if recursive else []
    columns = ["-o", "name,property,value", "inconsistent,receive_resume_token"]
    return ["zfs", "get", "-Hp", *depth, "-t", "filesystem,volume", *columns, *names]


def parse_half_received(text: str) -> list[DatasetName]:
    """The datasets of which ``zfs get`` says that a full stream has reached them in part. Raises ValueError."""
    found: dict[DatasetName, None] = {}
    for line in text.splitlines():
        name, key, value = line.split("\t")
        if (key == "inconsistent" and value != "0") or (
            key == "receive_resume_token" and value != "-" and starts_from_nothing(value)
        ):
            found[DatasetName(name)] = None
    return list(found)


def starts_from_nothing(token: str) -> bool:
    """True if a resume token is of a full stream. One that cannot be read may be."""
    try:
        return decode_token(token).from_guid == 0
    except BadToken:
        return True


async def list_half_received(host: ToolRunner, pool: str) -> list[DatasetName]:
    """The full half-received datasets of a pool. Raises ToolFailed where that cannot be told: then there may be any."""
    result = await list_whole(host, half_received_argv([pool], recursive=True), ZFS_LIST_DEADLINE)
    if result.returncode != 0:
        raise make_list_error(pool, result)
    return _understood(pool, result.stdout)


async def select_half_received(host: ToolRunner, names: Sequence[str]) -> list[DatasetName]:
    """Those of some datasets that are still half received; one that is gone is not. Raises ToolFailed."""
    found: list[DatasetName] = []
    for name in names:
        result = await host.run(
            half_received_argv([name], recursive=False), deadline=ZFS_LIST_DEADLINE, check=False
        )
        if result.returncode == 0:
            found += _understood(name, result.stdout)
        elif not isinstance(failure := make_list_error(name, result), NotFound):
            raise failure
    return found


def _understood(what: str, text: str) -> list[DatasetName]:
    try:
        return parse_half_received(text)
    except ValueError as error:
        raise ToolFailed(f"it cannot be told what is half received in '{what}'", str(error)) from None
