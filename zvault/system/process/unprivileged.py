"""Programs without root's rights: started so, or giving them up themselves.

For whatever reads bytes that another host wrote, or only moves them. It imports nothing but the standard library: the
programs that give up their rights are run by their path.
"""

from __future__ import annotations

import itertools
import os
import resource
import secrets
from collections.abc import Sequence

NOBODY_ID = 65534
"""The user and the group without rights. There is no need for them to have a name."""

UNUSED_GROUPS = range(60706, 61184)
"""Groups that belong to nobody ("Unused" in systemd's UIDS-GIDS): each program that is started gets one of its own."""

UNPRIVILEGED_MEMORY = 512 << 20
"""Bytes of address space of a program that gave up its rights: the largest header of a stream fits, as it is read."""

_groups = itertools.cycle(UNUSED_GROUPS)


def unprivileged_argv(argv: Sequence[str]) -> list[str]:
    """A program as user nobody, without capabilities, who can gain none; as it is where this process is not root.

    Other processes of the same user cannot trace it nor reach its pipes: for that the kernel wants the same group
    too (ptrace(2), PTRACE_MODE_READ).
    """
    if os.geteuid() != 0:
        return list(argv)
    user = [f"--reuid={NOBODY_ID}", f"--regid={next(_groups)}", "--clear-groups"]
    return ["setpriv", *user, "--inh-caps=-all", "--no-new-privs", "--", *argv]


def read_everything_argv(argv: Sequence[str]) -> list[str]:
    """The same, but with one capability: it may read every file and folder."""
    if os.geteuid() != 0:
        return list(argv)
    caps = ["--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"]
    user = [f"--reuid={NOBODY_ID}", f"--regid={next(_groups)}", "--clear-groups"]
    return ["setpriv", *user, *caps, "--no-new-privs", "--", *argv]


def become_nobody(files: int) -> None:
    """Go on as user nobody in a group of its own, for a program that needs the network: raises OSError.

    It may read what every user may. ``files`` are the descriptors that it may have.
    """
    if os.geteuid() == 0:
        group = secrets.choice(UNUSED_GROUPS)
        os.chdir("/")
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(NOBODY_ID, NOBODY_ID, NOBODY_ID)
    _bound(files, resource.RLIMIT_FSIZE)


def give_up_rights(files: int = 3) -> None:
    """Keep nothing but the open files: no file to open, no program to start, little memory. Raises OSError.

    ``files`` are the descriptors that it may have.
    """
    if os.geteuid() == 0:
        # There is nothing in it but numbers: no file to read, no program to run.
        os.chroot("/proc/self/fdinfo")
        os.chdir("/")
        os.setgroups([])
        os.setresgid(NOBODY_ID, NOBODY_ID, NOBODY_ID)
        os.setresuid(NOBODY_ID, NOBODY_ID, NOBODY_ID)
    _bound(files, resource.RLIMIT_NPROC)


def _bound(files: int, nothing_of: int) -> None:
    """So many open files, little memory, no core dump, and nothing of what one more of the kernel's limits is for."""
    for limit, most in (
        (resource.RLIMIT_NOFILE, files),
        (nothing_of, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, UNPRIVILEGED_MEMORY),
    ):
        resource.setrlimit(limit, (most, most))
