"""The keys above a backup's root are read once for each root, and by what zvault has on record of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zvault.core.model import Dataset
from zvault.core.names import DatasetName
from zvault.core.replication.vault_encryption import KeysAbove
from zvault.system.process.runner import ProcessResult
from zvault.zfs.vault_keys import VaultKeyReader

ROOT = DatasetName("usb/enc/of/home")
ROWS = {"usb": "-", "usb/enc": "usb/enc"}
MISSING = "cannot open 'usb/enc/of': dataset does not exist\n"


class Host:
    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.record = "none"

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.asked.append(argv)
        names = [name for name in argv if name in ROWS]
        if "encryptionroot" in argv:
            out = "".join(f"{name}\tencryptionroot\t{ROWS[name]}\n" for name in names)
            return ProcessResult(tuple(argv), 1, out, MISSING, 0.0)
        if "keystatus" in argv:
            return ProcessResult(tuple(argv), 0, "usb/enc\tkeystatus\tunavailable\n", "", 0.0)
        return ProcessResult(
            tuple(argv), 0, f"usb/enc\torg.zvault:source-properties\t{self.record}\n", "", 0.0
        )


async def test_what_lies_above_is_read_again_only_for_another_root() -> None:
    host: Any = Host()
    reader = VaultKeyReader(host)
    found = await reader.above(ROOT, None)
    assert found == KeysAbove({"usb": "", "usb/enc": "usb/enc"})
    asked = len(host.asked)
    there = Dataset(ROOT, 7, "filesystem")
    assert await reader.above(ROOT, there) == await reader.above(ROOT, there) == found
    assert len(host.asked) == 2 * asked, "nothing was kept without a root, and all is with one"
    # A run of another backup puts on record that what is above is a raw copy.
    host.record = "key_root=0"
    reader.forget()
    assert (await reader.above(ROOT, there)).copies == {"usb/enc"}
    host.record = "key_root=1"
    assert (await reader.above(ROOT, Dataset(ROOT, 8, "filesystem"))).copies == {"usb/enc"}
    assert await reader.loaded(["usb/enc"]) == set()


async def test_a_root_that_does_not_tell_has_no_key_loaded() -> None:
    class Damaged(Host):
        async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
            return ProcessResult(tuple(argv), 1, "", "cannot open 'usb/enc': I/O error\n", 0.0)

    host: Any = Damaged()
    assert await VaultKeyReader(host).loaded(["usb/enc"]) == set()
