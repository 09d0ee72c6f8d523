"""OpenZFS's module parameters, ``/sys/module/zfs/parameters``: read and written by child processes.

The kernel takes one lock for each access to a module's parameters (kernel/params.c, kernel_param_lock), also to
read one; some take others of OpenZFS's besides. Where one hangs, all do: so nothing here is read or written by the
daemon itself.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from zvault.core.errors import ToolFailed, ZvaultError
from zvault.core.tuning.parameters import parse_version
from zvault.core.tuning.tuning import Host, Parameter
from zvault.system.process.runner import Runner

MODULE = Path("/sys/module/zfs")
KSTAT = Path("/proc/spl/kstat/zfs")
DEADLINE = 10.0

_WRITE = """
while [ $# -ge 2 ]; do
    printf '%s\\n' "$2" >"$1" || failed=1
    shift 2
done
exit ${failed-0}
"""


async def look(runner: Runner, module: Path = MODULE) -> Host:
    """OpenZFS as this host has it. Raises ToolFailed where it is not loaded, DeadlineExceeded where it hangs."""
    folder = module / "parameters"
    if not folder.is_dir():
        raise ToolFailed(
            "OpenZFS's module parameters cannot be read", f"there is no {folder}", "load it: 'modprobe zfs'"
        )
    # One that only root may read, or nobody, is no error.
    found = await runner.run(["grep", "-srH", "", str(folder)], deadline=DEADLINE, check=False)
    values = dict(line.removeprefix(f"{folder}/").split(":", 1) for line in found.stdout.splitlines())
    parameters = {name: Parameter(_chosen(value), _writable(folder / name)) for name, value in values.items()}
    version = parse_version((module / "version").read_text(encoding="ascii"))
    return Host(version, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), parameters)


async def known(names: Collection[str], runner: Runner) -> dict[str, str]:
    """What some parameters are on this host; those that cannot be told, all if need be, are left out."""
    try:
        found = (await look(runner)).parameters
    except (ZvaultError, OSError):
        return {}
    return {name: found[name].value for name in names if name in found}


async def write(values: Mapping[str, str], runner: Runner, module: Path = MODULE) -> str:
    """Write parameters, in this order; what the kernel refuses stays as it was, and its words are returned."""
    words = [word for name, value in values.items() for word in (str(module / "parameters" / name), value)]
    done = await runner.run(["sh", "-c", _WRITE, "sh", *words], deadline=DEADLINE, check=False)
    return "" if done.returncode == 0 else done.complaint()


def imported_pools(kstat: Path = KSTAT) -> list[str]:
    """The names of all imported pools; asks none of them, so it answers also while one hangs."""
    try:
        return sorted(entry.name for entry in kstat.iterdir() if (entry / "state").exists())
    except OSError:
        return []


def _chosen(value: str) -> str:
    """Of a list such as ``cycle [fastest] generic`` the one in brackets."""
    chosen = re.search(r"\[(.+?)\]", value)
    return chosen[1] if chosen else value


def _writable(path: Path) -> bool:
    """Whether root may write it: a mode without w is what module_param() gives to load-time parameters."""
    try:
        return bool(path.stat().st_mode & stat.S_IWUSR)
    except OSError:
        return False
