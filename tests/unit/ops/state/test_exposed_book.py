"""What lies on a vault in the clear is known while that is down, and after a restart."""

from __future__ import annotations

from pathlib import Path

from zvault.ops.state.exposed_book import ExposedBook
from zvault.system.record_store import RecordStore

FOUND = {"usb/enc/home": "usb/enc"}


def test_it_outlives_zvaultd_until_a_look_takes_it_back(tmp_path: Path) -> None:
    ExposedBook(RecordStore(tmp_path)).note("home", "tank -> usb", FOUND)
    again = ExposedBook(RecordStore(tmp_path))
    assert again.last("home", "tank -> usb") == FOUND
    assert again.last("home", "tank -> cold") == {}
    assert again.last("other", "tank -> usb") == {}
    again.note("home", None, {})
    assert again.last("home", "tank -> usb") == FOUND, "nobody looked"
    again.note("home", "tank -> usb", {})
    assert ExposedBook(RecordStore(tmp_path)).last("home", "tank -> usb") == {}
    assert list(tmp_path.iterdir()) == []


def test_a_note_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("{")
    assert ExposedBook(RecordStore(tmp_path)).last("home", "tank -> usb") == {}
    RecordStore(tmp_path).put("home", {"way": 1, "datasets": []})
    assert ExposedBook(RecordStore(tmp_path)).last("home", "tank -> usb") == {}
