"""What is done between the announcement of a sleep or a shutdown and the event, and after it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import eventually
from zvault.core.errors import DeviceGone, ToolMissing
from zvault.daemon.monitors import sleep_monitor
from zvault.daemon.monitors.sleep_monitor import LONG_INHIBITION, SleepMonitor
from zvault.ops.state.activity import Activity
from zvault.ops.vaults.vault_sleep import PausedScrub
from zvault.system.logind import InhibitorLock, SleepAnnouncement


def alone(name: str) -> Any:
    """A vault that no other host shares."""
    config, awake = SimpleNamespace(hosts=[]), SimpleNamespace(since=None)
    facts = SimpleNamespace(to_be_up=False)
    return SimpleNamespace(name=name, error=None, config=config, awake=awake, facts=facts)


ASLEEP, AWAKE = SleepAnnouncement("sleep", True), SleepAnnouncement("sleep", False)
DOWN, CALLED_OFF = SleepAnnouncement("shutdown", True), SleepAnnouncement("shutdown", False)


class Host:
    """logind, runs and vaults: what is asked of them, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.heard: asyncio.Queue[SleepAnnouncement | None] = asyncio.Queue()
        self.problem: Exception | None = None
        self.now = 1e9
        self.context: Any = SimpleNamespace(
            activity=Activity(),
            env=SimpleNamespace(
                clock=SimpleNamespace(time=lambda: self.now),
                config=SimpleNamespace(backup={"home": None}),
                backup=lambda _: SimpleNamespace(vault="cold"),
            ),
        )
        self.vault, self.spare = alone("cold"), alone("spare")
        self.current: dict[str, object] = {}

    @asynccontextmanager
    async def hear_announcements(self) -> AsyncIterator[asyncio.Queue[SleepAnnouncement | None]]:
        if self.problem is not None:
            raise self.problem
        self.log.append("listens")
        yield self.heard

    @asynccontextmanager
    async def hold_inhibitor(self, *, why: str, what: str, mode: str) -> AsyncIterator[InhibitorLock]:
        self.log.append(f"{mode} {what}")
        yield InhibitorLock(held=True)
        self.log.append("lets it sleep")

    async def put_down(self, why: str, within: float) -> set[str]:
        assert within < sleep_monitor.USUAL_DELAY - sleep_monitor.DELAY_RESERVE < 5
        assert not self.context.activity.awake.is_set()
        self.log.append(f"puts down: {why}")
        return {"home"}

    def reopen(self) -> None:
        self.log.append("reopens")

    async def prepare_shutdown(self, context: Any, runs: object, vaults: object) -> set[str]:
        context.activity.going_down = True
        self.log.append("takes all down")
        return {"home"}

    async def prepare_for_sleep(self, vault: Any, until: float, say: object) -> PausedScrub:
        self.log.append(f"{vault.name} lies down")
        return PausedScrub(scrub=vault.name == "spare")

    async def resume_after_sleep(self, vault: Any, rest: PausedScrub, say: object, *, needed: bool) -> None:
        then = " for a run" if needed else " and goes on with its scrub" if rest.scrub else ""
        self.log.append(f"{vault.name} gets up{then}")
        if vault.name == "cold":
            raise DeviceGone("it did not come back")


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    it = Host()
    for name in (
        "hear_announcements",
        "hold_inhibitor",
        "prepare_for_sleep",
        "resume_after_sleep",
        "prepare_shutdown",
    ):
        monkeypatch.setattr(sleep_monitor, name, getattr(it, name))

    async def delay() -> float:
        raise ToolMissing("logind does not answer", "", "")

    monkeypatch.setattr(sleep_monitor, "read_longest_delay", delay)
    monkeypatch.setattr(sleep_monitor, "LOGIND_RETRY_PAUSE", 0.01)
    return it


@pytest.fixture
async def it(host: Host) -> AsyncIterator[SleepMonitor]:
    vaults: Any = SimpleNamespace(all=lambda: [host.vault, host.spare])
    one = SleepMonitor(
        host.context, vaults, host, lambda stopped: host.log.append(f"starts {sorted(stopped)}")
    )  # type: ignore[arg-type]
    task = asyncio.create_task(one.watch())
    yield one
    task.cancel()


async def settle() -> None:
    for _ in range(30):
        await asyncio.sleep(0)


async def test_everything_is_put_down_before_and_taken_up_after(host: Host, it: SleepMonitor):
    host.heard.put_nowait(ASLEEP)
    await settle()
    assert host.log == [
        "listens",
        "delay sleep:shutdown",
        "puts down: the host goes to sleep",
        "cold lies down",
        "spare lies down",
        "lets it sleep",
    ]
    assert not host.context.activity.awake.is_set()
    host.log.clear()
    host.heard.put_nowait(AWAKE)
    await settle()
    assert host.log == [
        "reopens",
        "cold gets up for a run",
        "spare gets up and goes on with its scrub",
        "starts ['home']",
        "delay sleep:shutdown",
    ]
    assert host.context.activity.awake.is_set()
    assert isinstance(host.vault.error, DeviceGone)


async def test_an_error_nobody_foresaw_keeps_neither_runs_nor_the_next_sleep_waiting(
    host: Host, it: SleepMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resume_after_sleep(vault: Any, *_: object, **__: object) -> None:
        host.log.append(f"{vault.name} gets up")
        if vault.name == "cold":
            raise RuntimeError("nobody foresaw it")

    monkeypatch.setattr(sleep_monitor, "resume_after_sleep", resume_after_sleep)
    host.heard.put_nowait(ASLEEP)
    await settle()
    host.log.clear()
    host.heard.put_nowait(AWAKE)
    await settle()
    assert host.log == ["reopens", "cold gets up", "spare gets up", "starts ['home']", "delay sleep:shutdown"]
    assert "nobody foresaw it" in str(host.vault.error)


@pytest.mark.parametrize("what", ["prepare_for_sleep", "prepare_shutdown"])
async def test_an_error_nobody_foresaw_on_the_way_down_has_everything_taken_up_all_the_same(
    host: Host, it: SleepMonitor, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Nothing was heard any more, and no run began until zvaultd was started anew."""

    async def fails(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(sleep_monitor, what, fails)
    monkeypatch.setattr(sleep_monitor, "call_off_shutdown", lambda _, runner: host.log.append("calls it off"))
    sleeps = what == "prepare_for_sleep"
    for event in (ASLEEP, AWAKE) if sleeps else (DOWN, CALLED_OFF):
        host.heard.put_nowait(event)
    await settle()
    assert ("reopens" if sleeps else "calls it off") in host.log
    assert host.context.activity.awake.is_set()
    assert host.log.count("delay sleep:shutdown") == 2, "it hears of the next one"


@pytest.mark.parametrize(("hangs", "starts"), [("spare", ["starts ['home']"]), ("cold", ["starts []"])])
async def test_a_vault_that_does_not_get_up_keeps_no_run_on_another_waiting(
    host: Host, it: SleepMonitor, monkeypatch: pytest.MonkeyPatch, hangs: str, starts: list[str]
) -> None:
    comes = asyncio.Event()

    async def resume_after_sleep(vault: Any, *_: object, **__: object) -> None:
        if vault.name == hangs:
            await comes.wait()

    monkeypatch.setattr(sleep_monitor, "resume_after_sleep", resume_after_sleep)
    monkeypatch.setattr(sleep_monitor, "PROMPT", 0.05)
    host.heard.put_nowait(ASLEEP)
    await eventually(lambda: "lets it sleep" in host.log)
    host.log.clear()
    host.heard.put_nowait(AWAKE)
    await eventually(lambda: "delay sleep:shutdown" in host.log)
    assert host.log == ["reopens", *starts, "delay sleep:shutdown"]
    host.log.clear()
    comes.set()
    await eventually(lambda: bool(host.log))
    assert host.log == (["starts ['home']"] if hangs == "cold" else ["starts []"])


async def test_who_is_not_told_any_more_wakes_up_and_asks_again(host: Host, it: SleepMonitor):
    host.heard.put_nowait(ASLEEP)
    await settle()
    host.heard.put_nowait(None)
    await eventually(lambda: host.context.activity.awake.is_set() and host.log[-1] == "delay sleep:shutdown")
    assert host.log[-2:] == ["listens", "delay sleep:shutdown"]


@pytest.mark.parametrize(
    "error", [ToolMissing("there is no logind", "", "start it"), KeyError("nobody foresaw")]
)
async def test_without_logind_it_is_asked_again(host: Host, it: SleepMonitor, error: Exception):
    await settle()
    host.problem = error
    host.heard.put_nowait(None)
    await eventually(lambda: it.problem is not None)
    assert str(error) in str(it.problem)
    host.problem = None
    await eventually(lambda: it.problem is None)


async def test_an_inhibitor_that_is_held_for_days_is_told(host: Host, it: SleepMonitor):
    host.vault.awake.since = host.now - LONG_INHIBITION + 1
    assert it.warnings() == {}
    host.now += 2 * 86400
    (told,) = it.warnings().values()
    assert "vault cold has kept the host awake for" in told


async def test_a_shutdown_is_put_off_until_all_is_down_and_nothing_starts_after_it(
    host: Host, it: SleepMonitor
) -> None:
    host.heard.put_nowait(DOWN)
    await settle()
    assert host.log == ["listens", "delay sleep:shutdown", "takes all down", "lets it sleep"]
    # What tells of something else is no end of it.
    host.heard.put_nowait(AWAKE)
    host.heard.put_nowait(DOWN)
    await settle()
    assert host.context.activity.going_down
    assert host.log[-1] == "lets it sleep"


async def test_where_a_shutdown_is_called_off_vaults_that_were_up_are_again_and_runs_go_on(
    host: Host, it: SleepMonitor
) -> None:
    async def up(_: object) -> None:
        host.log.append("spare is brought up")

    host.spare.facts.to_be_up, host.spare.up = True, up
    host.heard.put_nowait(DOWN)
    await settle()
    host.log.clear()
    host.heard.put_nowait(CALLED_OFF)
    await settle()
    assert not host.context.activity.going_down
    assert host.log == ["reopens", "spare is brought up", "starts ['home']", "delay sleep:shutdown"]


@pytest.mark.parametrize("announced", [ASLEEP, DOWN])
async def test_an_end_that_nobody_tells_of_keeps_no_backup_from_running(
    host: Host, it: SleepMonitor, monkeypatch: pytest.MonkeyPatch, announced: SleepAnnouncement
) -> None:
    monkeypatch.setattr(sleep_monitor, "END_OVERDUE", 0.05)
    host.heard.put_nowait(announced)
    await eventually(lambda: "reopens" in host.log and host.log[-1] == "delay sleep:shutdown")
    assert "starts ['home']" in host.log


async def test_a_bus_that_ends_with_the_host_starts_nothing_before_zvaultd_ends(
    host: Host, it: SleepMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep_monitor, "LOGIND_RETRY_PAUSE", 3600.0)
    host.heard.put_nowait(DOWN)
    host.heard.put_nowait(None)
    await settle()
    assert host.context.activity.going_down
    assert "reopens" not in host.log
