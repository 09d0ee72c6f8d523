"""systemctl and journalctl for the units that device servers run in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from zvault.core.errors import DeviceGone, ToolFailed
from zvault.system.process.runner import ProcessResult, ProcessRunner
from zvault.system.system_bus import UnitState

UNIT_START_DEADLINE = 30.0
UNIT_STOP_DEADLINE = 60.0
"""Longer than a unit's TimeoutStopSec: systemd kills it before zvault gives up."""
UNIT_SHOW_DEADLINE = 10.0
JOURNAL_TAIL = 5
"""Lines."""

_PROPERTIES = ("Id", "LoadState", "ActiveState", "Result", "MainPID")


def parse_show(text: str) -> list[UnitState]:
    """The units in the output of ``systemctl show``, where blank lines part them."""
    states = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if "Id" in fields:
            states.append(
                UnitState(
                    unit=fields["Id"],
                    loaded=fields.get("LoadState") == "loaded",
                    active=fields.get("ActiveState", "inactive"),
                    result=fields.get("Result", ""),
                    main_pid=int(fields.get("MainPID") or 0),
                )
            )
    return states


AskBus = Callable[[Sequence[str]], Awaitable[dict[str, UnitState] | None]]


class SystemdUnits:
    """The service manager's units. ``ask_bus``: a quicker way to their states, where it answers (system_bus)."""

    def __init__(self, runner: ProcessRunner, ask_bus: AskBus | None = None) -> None:
        self.runner = runner
        self._ask_bus = ask_bus

    async def start(self, unit: str) -> None:
        """Start a unit; with Type=exec, until its program runs. Raises ToolFailed with systemd's words."""
        result = await self.runner.run(
            ["systemctl", "--quiet", "start", unit], deadline=UNIT_START_DEADLINE, check=False
        )
        if result.returncode != 0:
            raise _failed(f"the unit {unit} cannot be started", result, unit)

    async def stop(self, unit: str, deadline: float = UNIT_STOP_DEADLINE) -> None:
        """Stop a unit and forget that it failed. It need not run. ``deadline`` is longer than its TimeoutStopSec."""
        result = await self.runner.run(["systemctl", "--quiet", "stop", unit], deadline=deadline, check=False)
        state = await self.state(unit)
        if state.active == "failed":
            await self.runner.run(
                ["systemctl", "reset-failed", unit], deadline=UNIT_SHOW_DEADLINE, check=False
            )
        elif state.active != "inactive":
            raise _failed(f"the unit {unit} cannot be stopped", result, unit)

    async def state(self, unit: str) -> UnitState:
        """Ask systemd for the state of a unit."""
        return (await self.states([unit]))[unit]

    async def states(self, units: Sequence[str]) -> dict[str, UnitState]:
        """Ask systemd for the states of several units."""
        if not units:
            return {}
        if self._ask_bus is not None and (told := await self._ask_bus(units)) is not None:
            return {unit: told.get(unit, _nothing(unit)) for unit in units}
        result = await self.runner.run(
            ["systemctl", "show", f"--property={','.join(_PROPERTIES)}", "--", *units],
            deadline=UNIT_SHOW_DEADLINE,
        )
        found = {state.unit: state for state in parse_show(result.stdout)}
        return {unit: found.get(unit, _nothing(unit)) for unit in units}

    async def host_goes_down(self) -> bool:
        """True if the host is being shut down or rebooted: ``stopping``, see systemctl(1), is-system-running."""
        result = await self.runner.run(
            ["systemctl", "is-system-running"], deadline=UNIT_SHOW_DEADLINE, check=False
        )
        return result.stdout.strip() == "stopping"

    async def journal_tail(self, unit: str, *, since: float = 0.0) -> list[str]:
        """The last TAIL lines that a unit's processes printed after ``since``, oldest first.

        ``since`` is in seconds since the epoch. There are none where there is no journal.
        """
        # By unit and time: the identity of the start is lost for a process that ends before journald looks.
        find = [f"--since=@{since:.6f}", f"--lines={JOURNAL_TAIL}", f"_SYSTEMD_UNIT={unit}"]
        await self.runner.run(["journalctl", "--sync"], deadline=UNIT_SHOW_DEADLINE, check=False)
        result = await self.runner.run(
            ["journalctl", "--quiet", "--no-pager", "--output=cat", *find],
            deadline=UNIT_SHOW_DEADLINE,
            check=False,
        )
        return [line for line in result.stdout.splitlines() if line.strip()]


def _nothing(unit: str) -> UnitState:
    return UnitState(unit, loaded=False, active="inactive", result="", main_pid=0)


def make_inactive_error(reached: str, state: UnitState) -> DeviceGone:
    """The error for what is reached by a unit that is not active."""
    return DeviceGone(
        f"{state.unit} is {state.active if state.loaded else 'unknown to systemd'}, and {reached} is reached by it",
        "requires_unit says so; nothing was connected",
        f"'systemctl start {state.unit}'; the next try goes on with it"
        if state.loaded
        else "correct requires_unit: 'systemctl list-unit-files' shows what there is",
    )


def scope_argv(description: str, argv: Sequence[str]) -> list[str]:
    """Argv that runs a program in a scope of its own: what it leaves behind outlives zvaultd, and shutdown."""
    properties = ("DefaultDependencies=no", "IgnoreOnIsolate=yes", "SurviveFinalKillSignal=yes")
    words = [word for one in properties for word in ("-p", one)]
    head = ["systemd-run", "--scope", "--quiet", "--collect", "--slice=zvault.slice"]
    return [*head, f"--description={description}", *words, "--", *argv]


def _failed(what: str, result: ProcessResult, unit: str) -> ToolFailed:
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return ToolFailed(
        what, lines[0] if lines else "systemctl gave no reason", f"see 'systemctl status {unit}'"
    )
