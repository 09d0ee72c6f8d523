"""The block store as a device's server: what is run for it, and what becomes of what it leaves."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.devices.nbd.blockstore_specs import (
    TEXT,
    slot_for_test,  # noqa: F401
    spec,
)
from zvault.config.device_specs.blockstore import parse_store_words
from zvault.config.tables.device import Device
from zvault.core import errors
from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import blockstore_server, guarded_server
from zvault.devices.nbd.source import NbdSource
from zvault.devices.nbd.target import UnixTarget, reach_target
from zvault.object_store import interface
from zvault.system.process.runner import HostRunner
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits


def test_its_argv_says_all_that_the_plugin_must_know(slot: DeviceSlot):
    argv = guarded_server.server_argv(slot, spec(TEXT))
    assert argv[:3] == ["nbdkit", "-f", f"--threads={blockstore_server.NBDKIT_THREADS}"]
    assert argv[argv.index("python") + 1] == str(blockstore_server.PLUGIN)
    assert blockstore_server.PLUGIN.is_file()
    assert f"status={slot.directory / 'cold-0.store/status'}" in argv
    assert "create=yes" not in argv
    words = argv[argv.index("python") + 2 :]
    told = parse_store_words(
        [word for word in words if not word.startswith(("status=", "create=", "seen=", "user="))]
    )
    assert (told.bucket, told.key, told.size, told.endpoint) == (
        "zv",
        "cold",
        10 << 40,
        "https://s3.example.org",
    )
    assert told.journal is not None, "there is always a journal"
    seen = "seen=/var/lib/zvault/blockstore"
    assert seen in words, "what this host knows of stores outlives their journals in memory"
    other = guarded_server.server_argv(slot, spec(TEXT.replace("/cold", "/hot")))
    users = {next(word for word in words if word.startswith("user=")) for words in (argv, other)}
    assert len(users) == 2, "each store's server is a user of its own"
    assert "create=yes" in guarded_server.server_argv(slot, spec(TEXT), create=True)


def test_one_that_only_reads_has_neither_journal_nor_status(tmp_path: Path):
    argv = blockstore_server.view_store_argv(tmp_path / "s", spec(TEXT))
    assert argv[:3] == ["nbdkit", "-f", "-r"]
    words = dict(word.split("=", 1) for word in argv[argv.index("python") + 2 :])
    assert words.pop("readonly") == "yes"
    assert set(words) == {"bucket", "key", "size", "endpoint", "region", "credential"}


def test_a_journal_in_memory_belongs_to_the_store_wherever_it_stands_in_the_vault(tmp_path: Path):
    def journal(text: str, index: int) -> str | None:
        argv = guarded_server.server_argv(DeviceSlot("cold", index, tmp_path), spec(text))
        return dict(word.partition("=")[::2] for word in argv).get("journal")

    first = journal("zvault:zv/cold size=1T", 0)
    assert first == journal("zvault:zv/cold uploads=8", 3)
    assert first != journal("zvault:zv/hot", 0)
    assert first != journal("zvault:zv/cold endpoint=https://h", 0)
    assert journal("zvault:zv/cold mode=writeback journal=/srv/j", 0) == "/srv/j"


async def test_its_unit_and_its_socket(slot: DeviceSlot):
    source = NbdSource(HostRunner(), SystemdUnits(HostRunner()))
    device = Device.model_validate({"nbd": TEXT})
    assert source.unit(slot, None, device) == "zvault-blockstore@cold-0.service"
    assert (
        source.unit(slot, {"kind": "blockstore", "serves": True}, None) == "zvault-blockstore@cold-0.service"
    )
    assert await reach_target(spec(TEXT), slot.server.socket) == UnixTarget(str(slot.server.socket))
    (step,) = source.making(slot, device, "")
    assert "make it in the bucket if it is not there" in step.what
    assert "create=yes" in step.argv


# What it says of itself


def say(slot: DeviceSlot, **words: Any) -> None:
    """As its server writes it."""
    file = blockstore_server.find_status_file(slot.server)
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(words))


WRITEBACK = {"mode": "writeback", "journal_used": 3 << 30}


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({"closed": False, "engine": WRITEBACK}, 3 << 30),
        ({"closed": True, "engine": WRITEBACK}, 0),
        ({"closed": False, "engine": {"mode": "strict", "journal_used": 4096}}, 0),
        ({"closed": False, "engine": {"mode": "writeback", "journal_used": 112}}, 0),
        ({"closed": False, "engine": None, "error": {"kind": "NotFound"}}, 0),
    ],
)
def test_what_is_not_in_the_bucket(slot: DeviceSlot, words: dict[str, Any], left: int):
    say(slot, **words)
    assert blockstore_server.count_unfinished(blockstore_server.read_server_status(slot.server)) == left


def test_nothing_said_is_nothing_known(slot: DeviceSlot):
    assert blockstore_server.read_server_status(slot.server) is None
    assert not blockstore_server.is_ready(slot.server)
    assert blockstore_server.count_unfinished(None) == 0
    say(slot)
    blockstore_server.find_status_file(slot.server).write_text("[1")
    assert blockstore_server.read_server_status(slot.server) is None


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("NotFound", NotFound),
        ("StoreDenied", Refused),
        ("StoreUnreachable", DeviceGone),
        ("Busy", Busy),
        ("X", ToolFailed),
    ],
)
def test_why_a_server_ended_is_its_own_word_before_the_guards(
    slot: DeviceSlot, kind: str, error: type[Exception]
):
    guarded_server.find_report_file(slot).write_text(
        json.dumps({"kind": "ToolFailed", "what": "the device's server died", "why": "", "next": ""})
    )
    say(slot, error={"kind": kind, "what": "no store", "why": "no bucket", "next": "make one"})
    found = guarded_server.read_last_words(slot)
    assert type(found) is error
    assert found is not None
    assert (found.what, found.why, found.next) == ("no store", "no bucket", "make one")
    say(slot, error=None)
    found = guarded_server.read_last_words(slot)
    assert found is not None
    assert found.what == "the device's server died"


def test_each_kind_of_error_that_a_server_names_is_one() -> None:
    """The names were compared with words: a class that got another name would have been told as any failed tool."""
    classes = {
        name for module in (errors, interface) for name, one in vars(module).items() if isinstance(one, type)
    }
    assert set(guarded_server._KINDS) <= classes


def test_what_it_says_is_seen_with_its_device(slot: DeviceSlot):
    source = NbdSource(HostRunner(), SystemdUnits(HostRunner()))
    say(slot, ready=True, engine=WRITEBACK)
    found = source.look(slot, None, None)
    assert found.told is not None
    assert found.told["engine"] == WRITEBACK
    unit = UnitState("zvault-blockstore@cold-0.service", True, "failed", "exit-code", 0)
    data = {"spec": TEXT, "connections": 1, "serves": True, "kind": "blockstore", "number": 999, "pid": 1}
    say(slot, error={"kind": "Refused", "what": "it ended", "why": "no room", "next": ""})
    lost = source.look(slot, data, unit)
    assert (lost.state, lost.detail) == ("gone", "it ended: no room")


# Stopping


@dataclass
class FakeUnits:
    """systemd, with one unit whose server says ``words`` when it ends."""

    slot: DeviceSlot
    words: dict[str, Any]
    running: bool = True
    deadlines: list[float] = field(default_factory=list)

    async def state(self, unit: str) -> UnitState:
        return UnitState(unit, True, "active" if self.running else "inactive", "success", 7 * self.running)

    async def stop(self, unit: str, deadline: float) -> None:
        assert unit == "zvault-blockstore@cold-0.service"
        self.deadlines.append(deadline)
        if self.running:
            say(self.slot, **self.words)
        self.running = False

    @property
    def units(self) -> SystemdUnits:
        return cast(SystemdUnits, self)


async def test_one_that_put_all_away_leaves_nothing(slot: DeviceSlot, tmp_path: Path):
    server = guarded_server.make_server(slot, spec(TEXT))
    journal = blockstore_server.find_memory_journal(server, spec(TEXT))
    journal.mkdir()
    (journal / "1").touch()
    units = FakeUnits(slot, {"closed": True, "engine": WRITEBACK, "journal": str(journal)})
    await blockstore_server.stop_store_server(server, units.units, pytest.fail)
    assert list(tmp_path.iterdir()) == []
    assert units.deadlines == [blockstore_server.STORE_STOP_DEADLINE]
    assert blockstore_server.STORE_STOP_DEADLINE > 11 * 60, "longer than the unit's TimeoutStopSec"


async def test_a_journal_of_the_users_is_never_removed(slot: DeviceSlot, tmp_path: Path):
    server, journal = guarded_server.make_server(slot, spec(TEXT)), tmp_path / "disk" / "journal"
    journal.mkdir(parents=True)
    await blockstore_server.stop_store_server(
        server, FakeUnits(slot, {"closed": True, "journal": str(journal)}).units, pytest.fail
    )
    assert journal.is_dir()


async def test_a_journal_in_memory_outlives_a_server_that_was_killed(slot: DeviceSlot):
    server = guarded_server.make_server(slot, spec(TEXT))
    journal = blockstore_server.find_memory_journal(server, spec(TEXT))
    journal.mkdir()
    engine = {"mode": "strict", "journal_used": 4096}
    units = FakeUnits(slot, {"closed": False, "engine": engine, "journal": str(journal)})
    await blockstore_server.stop_store_server(server, units.units, pytest.fail)
    assert journal.is_dir()


async def test_the_folder_of_a_server_that_never_began_is_removed_where_it_is_empty(slot: DeviceSlot):
    server = guarded_server.make_server(slot, spec(TEXT))
    journal = blockstore_server.find_memory_journal(server, spec(TEXT))
    words = {"closed": False, "engine": None, "journal": str(journal), "error": {"kind": "NotFound"}}
    journal.mkdir()
    (journal / "1").touch()
    await blockstore_server.stop_store_server(server, FakeUnits(slot, words).units, pytest.fail)
    assert journal.is_dir(), "an earlier server left something in it"
    (journal / "1").unlink()
    await blockstore_server.stop_store_server(server, FakeUnits(slot, words).units, pytest.fail)
    assert list(slot.directory.iterdir()) == []


async def test_what_is_left_in_the_journal_is_an_error_once_and_stays_known(slot: DeviceSlot):
    server, said = guarded_server.make_server(slot, spec(TEXT)), list[str]()
    units = FakeUnits(slot, {"closed": False, "engine": WRITEBACK, "error": {"why": "the store answers 503"}})
    with pytest.raises(
        DeviceGone, match="3G of cold-0 is not in the bucket: the store answers 503"
    ) as caught:
        await blockstore_server.stop_store_server(server, units.units, said.append)
    assert "bring the vault up" in caught.value.next
    assert said == []
    await blockstore_server.stop_store_server(server, units.units, said.append)
    assert "3G of cold-0 is not in the bucket, but in its journal" in said[0]
    assert blockstore_server.count_unfinished(blockstore_server.read_server_status(server)) == 3 << 30


@pytest.mark.parametrize("what", ["pipe", "link", "long"])
def test_whatever_a_server_puts_in_the_place_of_its_status_is_no_status(slot: DeviceSlot, what: str) -> None:
    server = guarded_server.make_server(slot, spec(TEXT))
    file = blockstore_server.find_status_file(server)
    file.parent.mkdir()
    if what == "pipe":
        os.mkfifo(file)
    elif what == "link":
        (slot.directory / "other").write_text('{"ready": true}')
        file.symlink_to(slot.directory / "other")
    else:
        file.write_text('{"ready": true, "x": "' + "y" * blockstore_server.LONGEST_STATUS + '"}')
    assert blockstore_server.read_server_status(server) is None


@pytest.mark.parametrize("at", ["1e999", "NaN", "1" + "0" * 400, "-1", '"now"', "null"])
def test_a_word_of_no_time_is_no_word(slot: DeviceSlot, at: str) -> None:
    server = guarded_server.make_server(slot, spec(TEXT))
    file = blockstore_server.find_status_file(server)
    file.parent.mkdir()
    file.write_text(f'{{"ready": true, "at": {at}}}')
    assert blockstore_server.read_server_status(server) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give folders away")
@pytest.mark.parametrize("whose", [2013265921, 2013265922])
def test_only_the_journal_of_a_servers_own_user_goes_with_it(slot: DeviceSlot, whose: int) -> None:
    server = guarded_server.make_server(slot, spec(TEXT))
    status, journal = blockstore_server.find_status_file(server), slot.directory / "journal-0123"
    status.parent.mkdir()
    journal.mkdir()
    status.write_text("{}")
    os.chown(status.parent, 2013265921, 2013265921)
    os.chown(journal, whose, whose)
    blockstore_server.forget_store_server(server, {"closed": True, "journal": str(journal)})
    assert journal.exists() == (whose != 2013265921)
    assert not status.parent.exists()
