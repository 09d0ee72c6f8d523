"""A device that another layer of this host has taken: it is named, and ZFS is not asked what it cannot open."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.core.errors import Busy
from zvault.devices import presence
from zvault.system import device_users
from zvault.system.device_users import list_device_layers


@pytest.fixture(name="block")
def block_with_two_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/sys/class/block of a host: a multipath has taken nbd0 and a RAID nbd1; nobody has nbd2."""
    (tmp_path / "nbd0" / "holders" / "dm-3" / "dm").mkdir(parents=True)
    (tmp_path / "nbd0" / "holders" / "dm-3" / "dm" / "name").write_text("mpatha\n")
    (tmp_path / "nbd1" / "holders" / "md127").mkdir(parents=True)
    (tmp_path / "nbd2" / "holders").mkdir(parents=True)
    monkeypatch.setattr(
        presence, "list_device_layers", lambda name: device_users.list_device_layers(name, tmp_path)
    )
    return tmp_path


def test_what_lies_on_a_device_is_named(block: Path) -> None:
    assert list_device_layers("nbd0", block) == ["mpatha"]
    assert list_device_layers("nbd1", block) == ["md127"]
    assert list_device_layers("nbd2", block) == list_device_layers("nbd9", block) == []


@pytest.mark.usefixtures("block")
def test_a_taken_device_is_refused_with_who_has_it() -> None:
    with pytest.raises(Busy, match=r"pool cold cannot be imported: mpatha lies on /dev/nbd0") as refused:
        presence.refuse_taken_devices("cold", ["/dev/nbd2", "/dev/nbd0"])
    assert "'dmsetup remove'" in refused.value.next
    presence.refuse_taken_devices("cold", ["/dev/nbd2"])
