"""Which host a pool belongs to: this host's own id, and what ``zpool import`` says of another's.

ZFS writes the id and name of its host into a pool's label, and marks it as exported when it is exported. A pool without
that mark that another host used last is not imported unforced. It is a note, no lock: two hosts that import an
exported pool at the same moment are not kept apart by it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from zvault.core.errors import Busy, Refused, ZvaultError
from zvault.system.process.runner import ToolRunner
from zvault.zfs.pool.label import LABEL_DEADLINE, label_command, label_host

HOSTID = Path("/etc/hostid")
SPL_HOSTID = Path("/sys/module/spl/parameters/spl_hostid")

# zpool_main.c, do_import; seen with OpenZFS 2.3.9.
_LAST = re.compile(r"Last accessed by (.*?) ?\(hostid=([0-9a-f]+)\) at (.+)")
_ACTIVE = re.compile(r"pool is imported on (.*?) ?\(hostid: 0x([0-9a-f]+)\)")


def hostid(file: Path = HOSTID, parameter: Path = SPL_HOSTID) -> int:
    """This host's id as the kernel's ZFS has it (spl(4), spl_hostid): of the module's parameter, else of the file.

    0 where it has none: then every pool looks as if nobody in particular had used it.
    """
    try:
        if given := int(parameter.read_text()):
            return given & 0xFFFFFFFF
    except (OSError, ValueError):
        pass
    try:
        return int.from_bytes(file.read_bytes()[:4], "little")
    except OSError:
        return 0


def refusal(pool: str, said: str) -> ZvaultError | None:
    """The error in ``zpool import``'s words where another host is the reason; None where it is not."""
    if "multihost property on" in said and "hostid is not set" in said:
        return Refused(
            f"the pool '{pool}' has multihost=on, and this host has no hostid",
            f"{HOSTID} is missing or zero",
            "make one: 'zgenhostid'",
        )
    if (active := _ACTIVE.search(said)) is not None:
        return Busy(
            f"the pool '{pool}' is in use on {_host(active[1], active[2])}",
            "it is imported there with multihost=on, and writes to the device at this moment",
            "export it there, or shut that host out of the device; it cannot be forced while it writes",
        )
    if "in use from another system" not in said and "last accessed by another system" not in said:
        return None
    last = _LAST.search(said)
    who = f"{_host(last[1], last[2])}, since {last[3].strip()} at least" if last else "another host"
    return Refused(
        f"the pool '{pool}' may be in use on another host",
        f"it was used last by {who}, and never exported there",
        f"export it there ('zpool export {pool}'); if that host is gone, 'zvaultctl vault take' takes the vault over",
    )


async def refuse_if_had_since(pool: str, devices: Sequence[str], runner: ToolRunner) -> None:
    """Raise Refused when another host has had a pool that is suspended here, by the labels on its devices.

    ``zpool clear`` does not look: it would write what this host has in memory over what the other did since. Labels
    that cannot be read or that name no host tell nothing.
    """
    mine = hostid()
    for device in devices:
        result = await runner.run(label_command(device), deadline=LABEL_DEADLINE, check=False)
        if mine and (other := label_host(result.stdout)) is not None and other[1] != mine:
            raise Refused(
                f"the pool '{pool}' was another host's meanwhile",
                f"{device} was used last by {_host(other[0], f'{other[1]:x}')}, and what this host's pool has in memory"
                " no longer fits what is there",
                "the suspended pool can only be given up: reboot this host, then bring the vault up",
            )


def _host(name: str, number: str) -> str:
    known = "without a hostid" if int(number, 16) == 0 else f"hostid {number}"
    return f"{name or 'a host without a name'} ({known})"
