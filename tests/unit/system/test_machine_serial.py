"""Which machine it is, as its firmware says."""

from pathlib import Path

import pytest

from zvault.system.machine_serial import read_machine_serial


@pytest.mark.parametrize(
    ("text", "serial"),
    [
        ("4C4C4544-0051-4A10-8052-B7C04F4E4E32\n", "4c4c4544-0051-4a10-8052-b7c04f4e4e32"),
        ("00000000-0000-0000-0000-000000000000\n", None),
        ("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF\n", None),
        ("03000200-0400-0500-0006-000700080009\n", None),
        ("\n", None),
        ("é", None),
    ],
)
def test_a_serial_that_many_have_is_none(tmp_path: Path, text: str, serial: str | None) -> None:
    (tmp_path / "product_uuid").write_text(text, encoding="utf-8")
    assert read_machine_serial(tmp_path / "product_uuid") == serial


def test_a_machine_without_one(tmp_path: Path) -> None:
    assert read_machine_serial(tmp_path / "none") is None
