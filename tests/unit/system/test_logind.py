"""A logind that cannot be asked, on a real socket; and who is believed to be it, on a bus that is made up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from dbus_fast import DBusError, Message, MessageType

from zvault.core.errors import ToolMissing
from zvault.system import logind
from zvault.system.logind import SleepAnnouncement


async def test_a_bus_that_does_not_answer_is_told_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stock Debian, emulated and busy, took longer as it booted; what was told was "TimeoutError"."""
    gone = asyncio.Event()

    async def stay_silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_unix_server(stay_silent, str(tmp_path / "bus"))
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    monkeypatch.setattr(logind, "LOGIND_DEADLINE", 0.1)
    try:
        with pytest.raises(ToolMissing, match=r"did not answer within 0\.1 s"):
            async with logind.hear_announcements():
                pass
    finally:
        gone.set()
        server.close()


async def test_an_address_that_is_none_is_told_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "nonsense")
    with pytest.raises(ToolMissing, match="did not contain a transport"):
        async with logind.hear_announcements():
            pass


class MadeUpBus:
    """A bus on which the test says who is logind, and who sends which signal to the one connection."""

    owner = ":1.5"

    def __init__(self, **_: object) -> None:
        self._stream = None
        self._ended = asyncio.Event()
        self.hear: Callable[[Message], None] = lambda _: None
        made.append(self)

    def add_message_handler(self, hear: Callable[[Message], None]) -> None:
        self.hear = hear

    async def connect(self) -> None: ...

    async def call(self, question: Message) -> Message:
        if question.member == "Inhibit":
            return Message(message_type=MessageType.METHOD_RETURN, reply_serial=1, signature="h", body=[0])
        if question.member != "GetNameOwner":
            return Message(message_type=MessageType.METHOD_RETURN, reply_serial=1)
        if not self.owner:
            raise DBusError("org.freedesktop.DBus.Error.NameHasNoOwner", "nobody has it")
        return Message(
            message_type=MessageType.METHOD_RETURN, reply_serial=1, signature="s", body=[self.owner]
        )

    def disconnect(self) -> None:
        self._ended.set()

    async def wait_for_disconnect(self) -> None:
        await self._ended.wait()

    def announce(self, sender: str, member: str = "PrepareForShutdown", *, coming: bool = True) -> None:
        self.hear(_signal(sender, logind.MANAGER, member, "b", [coming]))

    def change_owner(self, sender: str, owner: str, name: str = logind.LOGIN1) -> None:
        interface = "org.freedesktop.DBus"
        self.hear(_signal(sender, interface, "NameOwnerChanged", "sss", [name, "", owner]))


made: list[MadeUpBus] = []


def _signal(sender: str, interface: str, member: str, signature: str, body: list[object]) -> Message:
    kind = MessageType.SIGNAL
    found = Message(
        message_type=kind, path="/any", interface=interface, member=member, signature=signature, body=body
    )
    found.sender = sender
    return found


@pytest.mark.parametrize("owner", [":1.5", ""], ids=["there", "started later"])
async def test_only_logind_is_heard_whoever_else_sends_the_same(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each user of a host may send a signal to a connection whose number can be guessed: all runs were stopped."""
    monkeypatch.setattr(logind, "MessageBus", MadeUpBus)
    monkeypatch.setattr(MadeUpBus, "owner", owner)
    async with logind.hear_announcements() as heard:
        bus = made.pop()
        bus.announce(":1.66")
        bus.change_owner(":1.66", ":1.66")
        bus.announce(":1.66")
        bus.change_owner("org.freedesktop.DBus", ":1.66", "org.example.other")
        bus.announce(":1.66")
        bus.announce("")
        assert heard.empty()
        if not owner:
            bus.change_owner("org.freedesktop.DBus", ":1.5")
        bus.announce(":1.5", "PrepareForSleep")
        assert heard.get_nowait() == SleepAnnouncement("sleep", coming=True)
        bus.change_owner("org.freedesktop.DBus", "")
        bus.change_owner("org.freedesktop.DBus", ":1.7")
        bus.announce(":1.5")
        bus.announce(":1.7", coming=False)
        assert heard.get_nowait() == SleepAnnouncement("shutdown", coming=False)
        assert heard.empty()


async def test_an_answer_without_its_lock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel leaves out the descriptor where this process has no room for one: the run that asked failed."""
    monkeypatch.setattr(logind, "MessageBus", MadeUpBus)
    async with logind.hold_inhibitor(why="a run") as lock:
        assert not lock.held
        assert "no lock came with its answer" in str(lock.problem)
