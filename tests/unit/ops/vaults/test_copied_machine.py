"""A disk that was copied to a second machine: it does not import what the first may have imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.schema import Vault
from zvault.core.errors import Refused
from zvault.ops.state.records import Records
from zvault.ops.vaults import copied_machine
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.copied_machine import (
    MachineBook,
    describe_other_machine,
    has_lock,
    refuse_pool_of_clone,
)
from zvault.system.process.runner import ProcessResult
from zvault.system.record_store import RecordStore

HOSTID = 0xBADCAFE
LABEL = """    version: 5000
    name: 'cold'
    state: {state}
    pool_guid: 7
    hostid: {hostid}
    hostname: 'h'
"""


class Labels:
    """A device with a label, as zdb(8) prints it."""

    def __init__(self, state: int = 0, hostid: int = HOSTID) -> None:
        self.text = LABEL.format(state=state, hostid=hostid)

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        return ProcessResult(tuple(argv), 0, self.text, "", 0.0)


def make_book(folder: Path, serial: str | None = "first", hostid: int = HOSTID) -> MachineBook:
    return MachineBook(RecordStore(folder / "machines", boot_id="b"), lambda: serial, lambda: hostid)


def make_vault(**device: Any) -> Vault:
    return context(vault={"pool": "cold", "device": [device]} if device else {"pool": "cold"}).env.vault(
        "cold"
    )


PLAIN = make_vault(nbd="tcp:nas:10809/cold")


async def refused(book: MachineBook, labels: Labels, vault: Vault = PLAIN) -> str | None:
    try:
        await refuse_pool_of_clone(book, vault, ["/dev/nbd0"], labels)  # type: ignore[arg-type]
    except Refused as error:
        return f"{error.what}: {error.why}. {error.next}"
    return None


async def test_a_clone_imports_nothing_that_was_not_exported(tmp_path: Path) -> None:
    make_book(tmp_path).note("cold")
    second = make_book(tmp_path, "second")
    told = await refused(second, Labels())
    assert told is not None
    assert "last up on another machine (UUID first) with the same hostid badcafe" in told
    assert "zgenhostid -f" in told
    assert "zvaultctl vault take cold" in told
    assert await refused(second, Labels(state=1)) is None, "nobody has what was exported"
    assert await refused(second, Labels(hostid=1)) is None, "that ZFS refuses by itself"


@pytest.mark.parametrize(
    ("serial", "hostid"),
    [("first", HOSTID), (None, HOSTID), ("second", 1)],
    ids=["same", "unknown", "own hostid"],
)
async def test_who_is_no_clone_imports_it(tmp_path: Path, serial: str | None, hostid: int) -> None:
    make_book(tmp_path).note("cold")
    assert await refused(make_book(tmp_path, serial, hostid), Labels(hostid=hostid)) is None


async def test_one_that_never_had_the_vault_up_is_not_known_to_be_one(tmp_path: Path) -> None:
    make_book(tmp_path, None).note("cold")
    assert await refused(make_book(tmp_path, "second"), Labels()) is None


@pytest.mark.parametrize(
    ("device", "locked"),
    [
        ({"nbd": "zvault:bucket/cold size=1G"}, True),
        ({"nbd": "zvault:bucket/cold size=1G", "exclusive": False}, False),
        ({"rbd": "rbd/cold", "size": "1G"}, True),
        ({"rbd": "rbd/cold", "size": "1G", "exclusive": False}, False),
        ({"nbd": "tcp:nas:10809/cold"}, False),
    ],
)
async def test_where_the_storage_keeps_a_second_host_out_it_does(
    tmp_path: Path, device: dict[str, Any], locked: bool
) -> None:
    vault = make_vault(**device)
    assert has_lock(vault) is locked
    make_book(tmp_path).note("cold")
    assert (await refused(make_book(tmp_path, "second"), Labels(), vault) is None) is locked


async def test_what_is_taken_over_is_imported_and_what_is_not_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The import itself, of a vault whose assembly is real up to zpool(8)."""
    where = context(folder=tmp_path, vault={"pool": "cold", "device": [{"nbd": "tcp:nas:10809/cold"}]})
    monkeypatch.setattr(copied_machine, "read_machine_serial", lambda: "second")
    make_book(tmp_path).note("cold")
    monkeypatch.setattr(MachineBook, "find_other", lambda *_: "first")
    monkeypatch.setattr(where.env, "runner", Labels(hostid=copied_machine.read_hostid()))
    imported: list[bool] = []

    async def note_import(_: object, paths: Sequence[str], say: object) -> bool:
        imported.append(True)
        return True

    monkeypatch.setattr(VaultAssembly, "_import_as_far_as_possible", note_import)
    stack: Any = None
    mine = VaultAssembly(where, "cold", where.env.vault("cold"))
    with pytest.raises(Refused, match="a copy of"):
        await mine._import(stack, ["/dev/nbd0"], lambda _: None)
    assert imported == []
    taken = VaultAssembly(where, "cold", where.env.vault("cold"), fenced=True)
    assert await taken._import(stack, ["/dev/nbd0"], lambda _: None)
    assert imported == [True]


def test_it_is_told_that_the_disk_was_moved_or_copied(tmp_path: Path) -> None:
    book, second = make_book(tmp_path), make_book(tmp_path, "second")
    assert book.find_other("cold") is None
    book.note("cold")
    assert book.find_other("cold") is None
    assert second.find_other("cold") == "first"
    assert "moved, or copied" in describe_other_machine("cold", "first")
    second.note("cold")
    assert second.find_other("cold") is None, "by now it is at work here"
    assert Records.at(context(folder=tmp_path).env.paths).machines.directory.name == "machines"
