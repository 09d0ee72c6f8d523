"""What a raw stream brought back inherits its key again; where that cannot be, it is told with the commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.ops.ops_world import dataset, sides, snap
from zvault.api.events import RunEvent
from zvault.core.errors import ToolFailed
from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.ops.replication.inherited_keys import inherit_keys_again
from zvault.ops.replication.listing import BothListings
from zvault.system.process.runner import ProcessResult

KID = DatasetName("cold/host/tank")
PARENT = "cold/host"


class Vault:
    """Both datasets, with passphrases of these salts; what cannot be changed ``fails``."""

    def __init__(self, salts: tuple[str, str], fails: bool = False, location: str = "prompt") -> None:
        self.salts, self.fails, self.location = salts, fails, location
        self.host: Any = self
        self.lzc = self
        self.inherited: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        rows = []
        for name, salt in zip((PARENT, KID), self.salts, strict=True):
            values = {
                "encryptionroot": name,
                "keyformat": "passphrase",
                "keylocation": self.location,
                "pbkdf2salt": salt,
                "pbkdf2iters": "350000",
                "keystatus": "available",
            }
            rows += [f"{name}\t{key}\t{value}\n" for key, value in values.items()]
        return ProcessResult(tuple(argv), 0, "".join(rows), "", 0.0)

    async def inherit_key(self, name: str) -> None:
        if self.fails:
            raise ToolFailed("cannot inherit", "no")
        self.inherited.append(name)


def seen(key_root: str, record: str = "key_root=1") -> BothListings:
    source = replace(dataset("tank", snap(1)), encrypted=True, key_root="tank", source_record=record)
    there: Dataset = replace(dataset(KID, snap(1, KID)), encrypted=True, key_root=key_root, guid=9)
    return sides(source, there)


async def mended(vault: Vault, before: BothListings, after: BothListings) -> list[tuple[str, str]]:
    told: list[tuple[str, str]] = []

    def emit(event: RunEvent) -> None:
        name, fields = split_event(event)
        told.append((name, fields["text"]))

    zfs: Any = SimpleNamespace(host=vault, lzc=vault)
    await inherit_keys_again(zfs, before, after, emit)
    return told


async def test_with_the_same_key_it_inherits_again() -> None:
    vault = Vault(("11", "11"))
    told = await mended(vault, seen(PARENT), seen(KID))
    assert vault.inherited == [KID]
    assert told == [("message", f"{KID} inherits the key of {PARENT} again")]


@pytest.mark.parametrize("vault", [Vault(("11", "12")), Vault(("11", "11"), fails=True)])
async def test_else_it_is_told_with_the_commands(vault: Vault) -> None:
    ((kind, text),) = await mended(vault, seen(PARENT), seen(KID))
    assert kind == "warning"
    assert f"'zfs load-key {KID}'; 'zfs change-key -i {KID}'" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (seen(KID), seen(KID)),
        (seen(PARENT), seen(PARENT)),
        (seen(PARENT, ""), seen(KID, "")),
        (seen(PARENT, "key_root=0"), seen(KID, "key_root=0")),
    ],
)
async def test_nothing_else_is_touched(before: BothListings, after: BothListings) -> None:
    vault = Vault(("11", "11"))
    assert await mended(vault, before, after) == []
    assert vault.inherited == []
