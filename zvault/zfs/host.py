"""Where ZFS is: on this host, or on another that ssh reaches. Both run a tool to its end and say what they have."""

from __future__ import annotations

import asyncio
import contextlib
import math
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from zvault.core.address import Address
from zvault.core.errors import (
    DeadlineExceeded,
    HostUnreachable,
    Refused,
    ToolFailed,
    ToolMissing,
    ZvaultError,
)
from zvault.core.refusals import find_cure
from zvault.system import ssh
from zvault.system.process.kernel_waits import ALL_POOLS, find_examined_pool
from zvault.system.process.runner import ProcessResult, ProcessRunner, ToolRunner
from zvault.zfs.stream_stages import HELPERS, StreamEnd

TOOLS_LAST = 3600.0
"""Seconds after which a host is asked again what it has."""

SESSIONS = 8
"""Commands at once on one connection: sshd lets 10 in (MaxSessions in sshd_config(5))."""

PROBE_DEADLINE = 60.0
"""Seconds to connect to a host and ask what it has."""

LARGE = 64 << 20
"""Bytes from which on a stream gets a connection of its own: one ssh encrypts on one CPU."""

LOOK_AGAIN = 10.0
"""Seconds that are thought to pass without a helper being installed here: many small streams begin in them."""

PROCESS_STATES_ARGV = ["ps", "-A", "-o", "stat=", "-o", "args="]
"""Every process with its state: D is one that sleeps in the kernel."""

THIS_HOST = "this host"


class ZfsHost(ToolRunner, Protocol):
    """A host with ZFS on it. ``run`` raises HostUnreachable or Refused where ssh or sudo lets nothing be run."""

    @property
    def address(self) -> Address | None:
        """The address by which ssh reaches it; None is this host."""
        ...

    async def end(self, size: int | None = None) -> StreamEnd:
        """This host as an end of a stream of about ``size`` bytes (zfs/stream_argv.py)."""
        ...

    async def close(self) -> None:
        """End the connections to the host."""
        ...


class LocalHost:
    """The host that zvault runs on."""

    address: Address | None = None

    def __init__(self, runner: ProcessRunner) -> None:
        self.run = runner.run
        self._tools: frozenset[str] = frozenset()
        self._looked = -math.inf

    async def end(self, size: int | None = None) -> StreamEnd:
        """See ZfsHost.end."""
        if time.monotonic() - self._looked > LOOK_AGAIN:
            self._tools = frozenset(name for name in HELPERS if shutil.which(name) is not None)
            self._looked = time.monotonic()
        return StreamEnd(THIS_HOST, self._tools)

    async def close(self) -> None:
        """Do nothing: there are no connections to this host."""


class SshHost:
    """Another host. Its commands share one connection, its small streams a second one, large ones have their own."""

    def __init__(
        self,
        runner: ProcessRunner,
        address: Address,
        sockets: Path,
        *,
        sudo: Callable[[], bool] = lambda: False,
    ) -> None:
        self.runner = runner
        self.address: Address | None = address
        self._address = address
        self._sudo = sudo
        self._commands, self._streams = sockets / "c-%C", sockets / "s-%C"
        self._sockets = sockets
        self._sessions = asyncio.Semaphore(SESSIONS)
        self._asking = asyncio.Lock()
        self._tools: frozenset[str] | None = None
        self._asked = 0.0
        self._unanswered: dict[str, float] = {}
        """Pools that a look asked for and had no answer, and since when (seconds since the epoch)."""
        self._going: Counter[str] = Counter()
        """Looks that are waited for, as ps tells them."""

    async def tools(self) -> frozenset[str]:
        """The helpers that it has. Asked once an hour, and after a link was lost: the first command of a connection."""
        async with self._asking:
            if self._tools is None or time.monotonic() - self._asked > TOOLS_LAST:
                self._tools = await self._ask()
                self._asked = time.monotonic()
            return self._tools

    async def _ask(self) -> frozenset[str]:
        await asyncio.to_thread(self._sockets.mkdir, mode=0o700, parents=True, exist_ok=True)
        look = f"for tool in {' '.join(HELPERS)}; do command -v $tool >/dev/null && echo has $tool; done; "
        result = await self._call(
            ["zfs", "version"], look + ssh.exec_script(self._dressed(["zfs", "version"])), PROBE_DEADLINE
        )
        words = [line.split() for line in result.stdout.splitlines()]
        return frozenset(line[1] for line in words if line[:1] == ["has"])

    def _dressed(self, command: Sequence[str]) -> list[str]:
        """A command as it is run there."""
        as_root = self._sudo() and command[0] in {"zfs", "zpool"}
        return ["sudo", "-n", *command] if as_root else list(command)

    async def run(
        self,
        argv: Sequence[str],
        *,
        deadline: float = 60.0,
        stdin: bytes | None = None,
        check: bool = True,
    ) -> ProcessResult:
        """See ZfsHost.run. It takes no standard input along."""
        return await self._run(argv, ssh.exec_script(self._dressed(argv)), deadline, check)

    async def run_all(self, commands: Sequence[Sequence[str]], *, deadline: float) -> ProcessResult:
        """Run all of several commands, in one go; fails when one of them does."""
        return await self._run(
            commands[0], ssh.join_all_script([self._dressed(one) for one in commands]), deadline, False
        )

    async def _run(self, argv: Sequence[str], script: str, deadline: float, check: bool) -> ProcessResult:
        await self.tools()
        pool = find_examined_pool(argv)
        if pool is not None and pool in self._unanswered:
            await self._refuse_behind(pool)
        look = " ".join(argv)
        self._going[look] += 1
        try:
            result = await self._call(argv, script, deadline)
        except (DeadlineExceeded, asyncio.CancelledError):
            if pool is not None:
                self._unanswered.setdefault(pool, time.time())
            raise
        finally:
            self._going[look] -= 1
            if not self._going[look]:
                del self._going[look]
        if check and result.returncode != 0:
            said = result.complaint()
            raise ToolFailed(f"{result.tool} failed on {self.address}", said, find_cure(said))
        return result

    async def _refuse_behind(self, pool: str) -> None:
        """Raise DeadlineExceeded while an earlier look at a pool still waits in that host's kernel.

        No connection that ends takes such a process with it, so each further look would leave another one there. A host
        whose ``ps`` tells nothing is asked as before.
        """
        began = self._unanswered[pool]
        told = await self._call(["ps"], ssh.exec_script(PROCESS_STATES_ARGV), PROBE_DEADLINE)
        # A listing reads, asleep in the kernel more often than not: what has its time still shows nothing.
        going = self._going.copy()
        for line in told.stdout.splitlines():
            state, _, command = line.strip().partition(" ")
            looked_at = find_examined_pool(command.split())
            if state.startswith("D") and looked_at in {pool, ALL_POOLS}:
                going[command.strip()] -= 1
                if going[command.strip()] >= 0:
                    continue
                since = time.strftime("%H:%M", time.localtime(began))
                raise DeadlineExceeded(
                    f"'{pool}' on {self.address} is not asked: its kernel has not answered since {since}",
                    f"'{command.strip()}' still waits in it, and cannot be ended",
                    "see the storage of that pool, and the kernel's log there; it may need a reboot",
                )
        self._unanswered.pop(pool, None)  # another look may have found the same meanwhile

    async def _call(self, argv: Sequence[str], script: str, deadline: float) -> ProcessResult:
        command, given = ssh.make_shell_command(script), None
        if len(command) > ssh.LONGEST_COMMAND:
            command, given = ssh.make_shell_input(script)
        try:
            async with self._sessions:
                result = await self.runner.run(
                    ssh.ssh_argv(self._address, self._commands, command),
                    deadline=deadline,
                    stdin=given,
                    check=False,
                )
            self._refuse(argv, result)
        except (HostUnreachable, DeadlineExceeded):
            await self._start_over()
            raise
        return replace(result, argv=tuple(argv))

    def _refuse(self, argv: Sequence[str], result: ProcessResult) -> None:
        """Raise for what kept a command from being run at all."""
        if result.returncode == ssh.OWN_FAILURE:
            raise ssh.make_ssh_error(self._address, result.stderr)
        if self._sudo() and (line := _line(result.stderr, "sudo:")):
            raise Refused(
                f"sudo on {self.address} does not let '{argv[0]}' be run",
                line,
                "allow it there without a password: see 'sudo' in zvault's how-to on ssh",
            )
        if result.returncode == 127 and "not found" in result.stderr:
            raise ToolMissing(
                f"{argv[0]} is not installed on {self.address}",
                result.complaint(),
                f"install OpenZFS there, or see to it that its user finds {argv[0]} on PATH",
            )

    async def _start_over(self) -> None:
        """After trouble: the next command makes a new connection, and asks anew what is there."""
        self._tools = None
        with contextlib.suppress(ZvaultError):
            await self.runner.run(ssh.stop_argv(self._address, self._commands), deadline=5.0, check=False)

    async def end(self, size: int | None = None) -> StreamEnd:
        """See ZfsHost.end."""
        tools = await self.tools()
        control = self._streams if size is not None and size < LARGE else None

        def stage(commands: Sequence[Sequence[str]]) -> list[str]:
            script = ssh.pipe_script([self._dressed(command) for command in commands])
            return ssh.ssh_argv(self._address, control, ssh.make_shell_command(script))

        return StreamEnd(self._address.host, tools, stage)

    async def close(self) -> None:
        """See ZfsHost.close."""
        if self._tools is None:
            return
        for control in (self._commands, self._streams):
            with contextlib.suppress(ZvaultError):
                await self.runner.run(ssh.stop_argv(self._address, control), deadline=5.0, check=False)


def _line(text: str, start: str) -> str:
    return next((line for line in text.splitlines() if line.startswith(start)), "")
