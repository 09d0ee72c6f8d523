"""OpenZFS's module parameters, ``/sys/module/zfs/parameters``: read and written by child processes.

ops/tuning/set_parameters.py decides what is set, and restores it.

The kernel takes one lock for each access to a module's parameters, also to read one (kernel/params.c,
kernel_param_lock); some take locks of OpenZFS too. If one access hangs, all do. So the daemon never reads or writes
them itself.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.tuning.tuning import KernelParameter, TunedHost
from zvault.core.zfs_version import Version, parse_version
from zvault.system.process.runner import ProcessRunner

ZFS_MODULE = Path("/sys/module/zfs")
ZFS_KSTAT = Path("/proc/spl/kstat/zfs")
PARAMETER_DEADLINE = 10.0

_WRITE = """
while [ $# -ge 2 ]; do
    printf '%s\\n' "$2" >"$1" || failed=1
    shift 2
done
exit ${failed-0}
"""


async def read_tuned_host(
    runner: ProcessRunner, module: Path = ZFS_MODULE, *, only: Collection[str] | None = None
) -> TunedHost:
    """OpenZFS on this host, with all its parameters, or ``only`` these: there are 360, and each is a file to be read.

    Raises ToolFailed if it is not loaded, DeadlineExceeded if it hangs.
    """
    folder = module / "parameters"
    if not folder.is_dir():
        raise ToolFailed(
            "OpenZFS's module parameters cannot be read", f"there is no {folder}", "load it: 'modprobe zfs'"
        )
    # Parameters that cannot be read are no error: some only root may read, some nobody.
    files = [str(folder)] if only is None else [str(folder / name) for name in sorted(only)]
    text = ""
    if files:  # grep without any reads the folder it is in
        text = (
            await runner.run(["grep", "-srH", "", *files], deadline=PARAMETER_DEADLINE, check=False)
        ).stdout
    values = dict(line.removeprefix(f"{folder}/").split(":", 1) for line in text.splitlines())
    parameters = {
        name: KernelParameter(_chosen(value), _writable(folder / name)) for name, value in values.items()
    }
    return TunedHost(
        read_loaded_version(module), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), parameters
    )


def read_loaded_version(module: Path = ZFS_MODULE) -> Version:
    """The version of the loaded module. Raises OSError if there is none."""
    return parse_version((module / "version").read_text(encoding="ascii"))


async def read_parameters(names: Collection[str], runner: ProcessRunner) -> dict[str, str]:
    """Values of parameters on this host. Parameters that cannot be read, possibly all, are left out."""
    try:
        found = (await read_tuned_host(runner, only=names)).parameters
    except (ZvaultError, OSError):
        return {}
    return {name: found[name].value for name in names if name in found}


async def write_parameters(
    values: Mapping[str, str], runner: ProcessRunner, module: Path = ZFS_MODULE
) -> str:
    """Write parameters in this order. Values that the kernel refuses stay unchanged; returns its error messages."""
    words = [word for name, value in values.items() for word in (str(module / "parameters" / name), value)]
    done = await runner.run(["sh", "-c", _WRITE, "sh", *words], deadline=PARAMETER_DEADLINE, check=False)
    return "" if done.returncode == 0 else done.complaint()


def list_imported_pools(kstat: Path = ZFS_KSTAT) -> list[str]:
    """The names of all imported pools. Works while a pool hangs, because it queries no pool."""
    try:
        # Not by Path: zvaultd asks this every few seconds.
        with os.scandir(kstat) as entries:
            return sorted(one.name for one in entries if one.is_dir() and os.path.exists(f"{one.path}/state"))  # noqa: PTH110
    except OSError:
        return []


def _chosen(value: str) -> str:
    """The value in brackets of a list such as ``cycle [fastest] generic``."""
    chosen = re.search(r"\[(.+?)\]", value)
    return chosen[1] if chosen else value


def _writable(path: Path) -> bool:
    """True if root may write it: module_param() gives load-time parameters a mode without w."""
    try:
        return bool(path.stat().st_mode & stat.S_IWUSR)
    except OSError:
        return False
