"""Which host a pool belongs to: this host's hostid, and ``zpool import``'s messages about another host.

ZFS writes the hostid and host name into a pool's label, and marks the pool as exported on export. Without that mark,
``zpool import`` refuses a pool that another host used last, unless forced. This is a note and not a lock: it does not
stop two hosts that import an exported pool at the same moment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from zvault.core.errors import Busy, Refused, ZvaultError
from zvault.system.process.runner import ToolRunner
from zvault.zfs.pool.label import LABEL_DEADLINE, label_argv, parse_label_host

HOSTID = Path("/etc/hostid")
SPL_HOSTID = Path("/sys/module/spl/parameters/spl_hostid")

# zpool_main.c, do_import; seen with OpenZFS 2.3.9.
_LAST = re.compile(r"Last accessed by (.*?) ?\(hostid=([0-9a-f]+)\) at (.+)")
_ACTIVE = re.compile(r"pool is imported on (.*?) ?\(hostid: 0x([0-9a-f]+)\)")


def read_hostid(file: Path = HOSTID, parameter: Path = SPL_HOSTID) -> int:
    """This host's hostid as ZFS in the kernel uses it (spl(4), spl_hostid): the module's parameter, else the file.

    0 if it has none: ZFS then cannot tell its pools from another host's.
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


def make_foreign_host_error(pool: str, said: str) -> ZvaultError | None:
    """The error if ``zpool import`` failed because of another host; None if it failed for another reason."""
    if "multihost property on" in said and "hostid is not set" in said:
        return Refused(
            f"the pool '{pool}' has multihost=on, and this host has no hostid",
            f"{HOSTID} is missing or zero",
            "create one with 'zgenhostid'",
        )
    if (active := _ACTIVE.search(said)) is not None:
        return Busy(
            f"the pool '{pool}' is in use on {_host(active[1], active[2])}",
            "it is imported there with multihost=on and writes to the device now",
            "export it there, or fence that host off the device; a forced import fails while that host writes",
        )
    if "in use from another system" not in said and "last accessed by another system" not in said:
        return None
    last = _LAST.search(said)
    who = f"{_host(last[1], last[2])}, since {last[3].strip()} at least" if last else "another host"
    return Refused(
        f"the pool '{pool}' may be in use on another host",
        f"it was last used by {who}, and not exported there",
        f"export it there ('zpool export {pool}'); if that host is gone, 'zvaultctl vault take' takes the vault over",
    )


async def refuse_if_had_since(pool: str, devices: Sequence[str], runner: ToolRunner) -> None:
    """Raise Refused if the labels show that another host used a pool that is suspended here.

    ``zpool clear`` does not check this: it would write this host's data in memory over the other host's changes.
    Labels that cannot be read or name no host are ignored.
    """
    mine = read_hostid()
    for device in devices:
        result = await runner.run(label_argv(device), deadline=LABEL_DEADLINE, check=False)
        if mine and (other := parse_label_host(result.stdout)) is not None and other[1] != mine:
            raise Refused(
                f"another host used the pool '{pool}' meanwhile",
                f"{device} was last used by {_host(other[0], f'{other[1]:x}')}; this host's pool has data in memory"
                " that no longer matches the device",
                "the suspended pool cannot be resumed: reboot this host, then bring the vault up",
            )


def _host(name: str, number: str) -> str:
    known = "without a hostid" if int(number, 16) == 0 else f"hostid {number}"
    return f"{name or 'a host without a name'} ({known})"
