"""The system's ssh: its argv, the shell commands that it carries to another host, and what its complaints mean. Pure.

Whatever root's ssh_config(5) says of a host holds here too: keys, aliases, jump hosts, ciphers.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from zvault.core.address import Address
from zvault.core.errors import HostUnreachable, Refused, ZvaultError

OWN_FAILURE = 255
"""The exit status by which ssh tells that it failed itself (ssh(1)); any other is the remote command's."""

LONGEST_COMMAND = 100_000
"""Characters of a command that ssh is given. sshd runs it as one argument of a shell, and Linux takes 128 KiB in
one (MAX_ARG_STRLEN); what is longer goes through the shell's standard input."""

PERSIST = 600
"""Seconds an idle connection is kept for the next command."""

CONNECT_TIMEOUT = 15
"""Seconds to wait for a host that does not answer."""

ALIVE_EVERY = 15
ALIVE_TRIES = 3
"""A host that has not answered for 45 s, asked every 15, is gone."""

_OPTIONS = (
    "BatchMode=yes",
    f"ConnectTimeout={CONNECT_TIMEOUT}",
    f"ServerAliveInterval={ALIVE_EVERY}",
    f"ServerAliveCountMax={ALIVE_TRIES}",
    "ClearAllForwardings=yes",
)

# Whoever logs in without being root often lacks the sbin folders, where zfs is.
_PREFACE = 'PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin" LC_ALL=C.UTF-8; export PATH LC_ALL; '


def ssh_argv(address: Address, control: Path | None, command: str) -> list[str]:
    """``ssh`` for one command. ``control`` is the socket of a connection to share, made if need be; None: its own."""
    shared = (
        ("ControlMaster=auto", f"ControlPath={control}", f"ControlPersist={PERSIST}")
        if control is not None
        else ("ControlPath=none",)
    )
    options = [word for option in (*_OPTIONS, *shared) for word in ("-o", option)]
    return ["ssh", "-T", "-x", "-a", *options, *_where(address), command]


def forward_argv(address: Address, local: Path, remote: Path) -> list[str]:
    """``ssh`` that leads connections to the socket ``local`` on to the socket ``remote`` over there, until it ends.

    It has a connection of its own: what is set up on a shared one stays for whoever uses that next.
    """
    wanted = [word for word in _OPTIONS if word != "ClearAllForwardings=yes"]
    wanted += ["ControlPath=none", "ExitOnForwardFailure=yes", "StreamLocalBindMask=0177"]
    options = [word for option in wanted for word in ("-o", option)]
    return ["ssh", "-N", "-T", "-x", "-a", *options, "-L", f"{local}:{remote}", *_where(address)]


def stop_argv(address: Address, control: Path) -> list[str]:
    """``ssh`` that ends a shared connection once the commands on it have; the next command makes another."""
    return ["ssh", "-O", "stop", "-o", f"ControlPath={control}", *_where(address)]


def _where(address: Address) -> list[str]:
    user = ["-l", address.user] if address.user else []
    port = ["-p", str(address.port)] if address.port else []
    return [*user, *port, "--", address.host]


def find_ssh_address(command: Sequence[str]) -> Address | None:
    """Return the address that an ``ssh_argv`` of this module goes to; None for any other program."""
    if command[0] != "ssh" or "--" not in command:
        return None
    end = command.index("--")
    options = dict(pairwise(command[: end + 1]))
    port = options.get("-p")
    return Address(command[end + 1], options.get("-l", ""), int(port) if port else None)


def make_shell_command(script: str) -> str:
    """The command that runs a script in a POSIX shell, whatever the user's own is.

    In csh, the login shell of root on FreeBSD before 14 and at some providers, a line cannot end within quotes
    ("Unmatched"), and "!" repeats a command within them too ("Event not found"). So what is quoted has neither.
    """
    if "\n" in script or "!" in script:
        written = script.replace("\\", r"\\").replace("\n", r"\n").replace("!", r"\041")
        script = f'eval "$(printf %b {shlex.quote(written)})"'
    return f"exec sh -c {shlex.quote(_PREFACE + script)}"


def make_shell_input(script: str) -> tuple[str, bytes]:
    """The same for a script of any length: the command, and its standard input."""
    return "exec sh", f"{_PREFACE}{{\n{script}\n}} </dev/null\n".encode()


def exec_script(command: Sequence[str]) -> str:
    """A script of one command, which takes the shell's place."""
    return f"exec {shlex.join(command)}"


def join_all_script(commands: Sequence[Sequence[str]]) -> str:
    """A script that runs every command, and fails if one of them does."""
    lines = [f"{shlex.join(command)} || failed=1" for command in commands]
    return "\n".join(["failed=0", *lines, "exit $failed"])


def pipe_script(commands: Sequence[Sequence[str]]) -> str:
    """A script that joins commands by pipes and fails with the one that failed first.

    POSIX shells have no pipefail: each command tells its status on a descriptor of its own as it ends.
    """
    if len(commands) == 1:
        return exec_script(commands[0])
    parts = [f"{{ {shlex.join(command)} 3>&- 4>&-; echo $? >&3; }}" for command in commands[:-1]]
    last = f"{{ {shlex.join(commands[-1])} >&4 3>&- 4>&-; echo $? >&3; }}"
    pipe = " | ".join([*parts, last])
    return f'exec 4>&1; for code in $({{ {pipe}; }} 3>&1); do [ "$code" = 0 ] || exit "$code"; done'


def _user(address: Address) -> str:
    return f"{address.user}@" if address.user else ""


_CHANGED = "REMOTE HOST IDENTIFICATION HAS CHANGED"
_LOST = (
    "not responding",
    "client_loop:",
    "Broken pipe",
    "closed by remote host",
    "Connection reset",
    "Shared connection to",
    "mux_client",
)


def make_ssh_error(address: Address, said: str) -> ZvaultError:
    """Make the error for ssh's exit status 255, by its words on standard error."""
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    login = f"'ssh {f'-p {address.port} ' if address.port else ''}{_user(address)}{address.host}'"
    if _CHANGED in said:
        known = f"[{address.host}]:{address.port}" if address.port else address.host
        return Refused(
            f"{address} shows another host key than before",
            "either it was installed anew, or somebody stands between",
            f"compare the keys; if it is right, as root: 'ssh-keygen -R {known}', then {login} once",
        )
    if "Host key verification failed" in said:
        return Refused(
            f"the host key of {address} is not known",
            last,
            f"as root: {login} once, and compare the fingerprint that it shows",
        )
    if "Permission denied" in said:
        why = next(line for line in lines if "Permission denied" in line)
        return Refused(
            f"{address} does not let root of this host in",
            why,
            f"put root's public key into the other's authorized_keys ('ssh-copy-id'); try {login}",
        )
    if not last:
        # So it ends, say, on a shared connection that was given up: whoever opened that has the words.
        return HostUnreachable(
            f"lost the link to {address}", "ssh ended without a word", "see the network, then run it again"
        )
    if any(sign in said for sign in _LOST) and "kex_exchange" not in said:
        return HostUnreachable(f"lost the link to {address}", last, "see the network, then run it again")
    return HostUnreachable(f"cannot reach {address}", last, f"see the network; as root {login} must work")
