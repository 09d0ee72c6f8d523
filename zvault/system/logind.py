"""logind's inhibitor locks, over D-Bus (org.freedesktop.login1(5)).

A lock is a file descriptor: it ends when the descriptor is closed, be it by the death of its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any

from dbus_fast import BusType, DBusError, Message, MessageType
from dbus_fast.aio import MessageBus

from zvault.core.errors import ToolMissing, ZvaultError
from zvault.core.policy.sleep import InhibitEvent, InhibitMode
from zvault.system.system_bus import PROPERTIES_INTERFACE, call_bus, close_bus

LOGIN1 = "org.freedesktop.login1"
MANAGER = f"{LOGIN1}.Manager"

BUS = "org.freedesktop.DBus"
"""The bus itself: its name, and its interface."""

OWNER_CHANGED, NO_OWNER = "NameOwnerChanged", f"{BUS}.Error.NameHasNoOwner"

LOGIND_DEADLINE = 5.0
"""Seconds for one conversation with logind."""

WHO = "zvault"

MODE_BEFORE_257: dict[InhibitMode, InhibitMode] = {"block-weak": "block"}
"""What a systemd before 257 calls a mode that it does not know. There ``block`` let root pass; 257 gave that a name of
its own, and made ``block`` refuse root as well.
"""

UNKNOWN_MODE = "org.freedesktop.DBus.Error.InvalidArgs"
"""How logind answers a mode that it does not know."""

ANNOUNCEMENTS: dict[str, InhibitEvent] = {"PrepareForSleep": "sleep", "PrepareForShutdown": "shutdown"}
"""logind's signals by which it announces an event (True), and tells that it is over or was called off (False)."""

_ending: set[asyncio.Future[Message]] = set()
"""Conversations nobody waits for any more, until they have closed what they got; the loop would forget them."""


@dataclass(slots=True)
class InhibitorLock:
    """A lock while it is held. Where none could be had, ``problem`` says why, and work goes on without it."""

    held: bool = False
    problem: ZvaultError | None = None


@dataclass(frozen=True, slots=True)
class SleepAnnouncement:
    """The host is about to sleep or to shut down (``coming``), or is awake again, or the shutdown was called off."""

    event: InhibitEvent
    coming: bool


@contextlib.asynccontextmanager
async def hold_inhibitor(
    *,
    why: str,
    what: str = "sleep",
    mode: InhibitMode = "block",
    deadline: float = LOGIND_DEADLINE,
) -> AsyncIterator[InhibitorLock]:
    """Hold an inhibitor lock. Never fails: look at ``held`` and ``problem`` of what it yields.

    ``what`` are events with colons between them. A logind before 257 is asked for what it has in the place of a mode.
    """
    lock, fd = InhibitorLock(), -1
    try:
        try:
            reply = await _inhibit(what, why, mode, deadline)
            fd = reply.unix_fds[reply.body[0]]
            lock.held = True
        except ZvaultError as error:
            lock.problem = error
        except IndexError:  # the kernel leaves out a descriptor for which this process has no room
            lock.problem = _no_logind("no lock came with its answer")
        yield lock
    finally:
        lock.held = False
        if fd >= 0:
            os.close(fd)


async def read_longest_delay() -> float:
    """Seconds a lock of mode ``delay`` puts a sleep off: InhibitDelayMaxSec of logind.conf(5). Raises ZvaultError."""
    reply = await _call(
        "Get", "ss", [MANAGER, "InhibitDelayMaxUSec"], LOGIND_DEADLINE, interface=PROPERTIES_INTERFACE
    )
    return float(reply.body[0].value) / 1e6


@contextlib.asynccontextmanager
async def hear_announcements() -> AsyncIterator[asyncio.Queue[SleepAnnouncement | None]]:
    """Hear what logind announces, in its order; None: nobody announces anything any more.

    Raises ZvaultError where logind cannot be heard.
    """
    heard: asyncio.Queue[SleepAnnouncement | None] = asyncio.Queue()
    owner: str | None = None  # not known yet

    def hear(message: Message) -> None:
        nonlocal owner
        if message.message_type is not MessageType.SIGNAL:
            return
        # Whatever is listened to, every user of the host may send a signal to this very connection. What the bus says
        # of the sender is true.
        if message.sender == BUS and message.member == OWNER_CHANGED and message.body[0] == LOGIN1:
            owner = str(message.body[2])
        elif owner and message.sender == owner and (event := ANNOUNCEMENTS.get(message.member or "")):
            heard.put_nowait(SleepAnnouncement(event, bool(message.body[0])))

    try:
        bus = MessageBus(bus_type=BusType.SYSTEM)
    except ValueError as error:  # DBUS_SYSTEM_BUS_ADDRESS is no address
        raise _no_logind(str(error)) from error
    bus.add_message_handler(hear)
    try:
        try:
            async with asyncio.timeout(LOGIND_DEADLINE):
                await bus.connect()
                await call_bus(bus, _listen(BUS, BUS, OWNER_CHANGED, f",arg0='{LOGIN1}'"))
                found = await _find_owner(bus)
                if owner is None:
                    owner = found
                for signal in ANNOUNCEMENTS:
                    await call_bus(bus, _listen(LOGIN1, MANAGER, signal))
        except TimeoutError as error:
            raise _no_logind(f"it did not answer within {LOGIND_DEADLINE:g} s") from error
        except (DBusError, OSError, EOFError, ValueError) as error:
            raise _no_logind(str(error) or type(error).__name__) from error
        ended = asyncio.ensure_future(bus.wait_for_disconnect())  # type: ignore[no-untyped-call]
        ended.add_done_callback(lambda _: heard.put_nowait(None))
        yield heard
    finally:
        await close_bus(bus)


def _listen(sender: str, interface: str, member: str, more: str = "") -> Message:
    rule = f"type='signal',sender='{sender}',interface='{interface}',member='{member}'{more}"
    return _ask_bus("AddMatch", rule)


async def _find_owner(bus: MessageBus) -> str:
    """The connection that is logind's; "" where there is none now."""
    try:
        return str((await call_bus(bus, _ask_bus("GetNameOwner", LOGIN1))).body[0])
    except DBusError as error:
        if error.type != NO_OWNER:
            raise
        return ""


def _ask_bus(member: str, word: str) -> Message:
    return Message(
        destination=BUS,
        path="/org/freedesktop/DBus",
        interface=BUS,
        member=member,
        signature="s",
        body=[word],
    )


async def _inhibit(what: str, why: str, mode: InhibitMode, deadline: float) -> Message:
    try:
        return await _call("Inhibit", "ssss", [what, WHO, why, mode], deadline)
    except ZvaultError as error:
        cause, older = error.__cause__, MODE_BEFORE_257.get(mode)
        if older is None or not isinstance(cause, DBusError) or cause.type != UNKNOWN_MODE:
            raise
    return await _call("Inhibit", "ssss", [what, WHO, why, older], deadline)


async def _call(
    member: str, signature: str, body: list[Any], deadline: float, *, interface: str = MANAGER
) -> Message:
    task = asyncio.ensure_future(_converse(member, signature, body, interface))
    try:
        done, _ = await asyncio.wait({task}, timeout=deadline)
        if not done:
            raise _no_logind(f"it did not answer within {deadline:g} s")
        return task.result()
    except (DBusError, OSError, EOFError, ValueError) as error:
        # ValueError: an address in DBUS_SYSTEM_BUS_ADDRESS that dbus-fast cannot read is one, too.
        raise _no_logind(str(error) or type(error).__name__) from error
    except asyncio.CancelledError:
        if task.done():
            _close_lock(task)
        raise
    finally:
        if not task.done():
            _ending.add(task)
            task.add_done_callback(_close_lock)
            task.cancel()


def _close_lock(task: asyncio.Future[Message]) -> None:
    """Close what came with an answer nobody waits for any more: open, it would hold its lock for ever."""
    _ending.discard(task)
    if not task.cancelled() and task.exception() is None:
        _close(task.result().unix_fds)


async def _converse(member: str, signature: str, body: list[Any], interface: str) -> Message:
    bus = MessageBus(bus_type=BusType.SYSTEM, negotiate_unix_fd=True)
    received: list[int] = []
    # Seen as they arrive: an answer that comes while the connection is being given up reaches nobody else.
    bus.add_message_handler(lambda message: received.extend(message.unix_fds))
    try:
        try:
            await bus.connect()
            reply = await call_bus(
                bus,
                Message(
                    destination=LOGIN1,
                    path="/org/freedesktop/login1",
                    interface=interface,
                    member=member,
                    signature=signature,
                    body=body,
                ),
            )
        finally:
            await close_bus(bus)
    except BaseException:
        _close(received)
        raise
    _close(fd for fd in received if fd not in reply.unix_fds)
    return reply


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        os.close(fd)


def _no_logind(why: str) -> ZvaultError:
    return ToolMissing(
        "systemd-logind cannot be asked to keep the host awake",
        why,
        "start it with 'systemctl start systemd-logind'; until then the host may go to sleep at any time",
    )
