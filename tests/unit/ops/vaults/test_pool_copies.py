"""Two vaults whose pools have one GUID: the second is told, and no run goes there."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.core.errors import Refused
from zvault.ops.context import Context
from zvault.ops.state.pool_book import SeenPool
from zvault.ops.vaults.pool_copies import find_original, refuse_copy

GUID = 0xC01D


def world(folder: Path, **vaults: dict[str, Any]) -> Context:
    where = context(folder=folder)
    tables = {"cold": {"pool": "cold"}, **vaults}
    config = {
        "daemon": {"timezone": "UTC"},
        "vault": tables,
        "backup": {"b": {"source": "tank", "vault": "cold"}},
    }
    where.env.config = type(where.env.config).model_validate(config)
    return where


def note(where: Context, vault: str) -> None:
    where.records.pools.note(GUID, SeenPool.of(where.env.vault(vault)))


def test_the_copy_of_another_vaults_pool_is_refused_until_that_one_begins_anew(tmp_path: Path) -> None:
    where = world(tmp_path, usb={"pool": "usb"})
    for name in ("cold", "usb"):
        assert find_original(where, where.env.vault(name), GUID) is None, "nobody has had it yet"
    note(where, "cold")
    assert find_original(where, where.env.vault("cold"), GUID) is None
    assert find_original(where, where.env.vault("usb"), GUID) == "cold"
    with pytest.raises(Refused, match="nothing is backed up into vault 'usb'") as refused:
        refuse_copy(where, where.env.vault("usb"), GUID)
    assert "zpool reguid usb" in refused.value.next
    where.records.pools.give_up(GUID, SeenPool("cold", "cold"))
    refuse_copy(where, where.env.vault("usb"), GUID)


def test_a_vault_that_was_renamed_or_configured_twice_has_no_copy(tmp_path: Path) -> None:
    where = world(tmp_path, old={"pool": "moved"})
    note(where, "old")
    where.env.config = world(tmp_path, new={"pool": "moved"}).env.config
    assert find_original(where, where.env.vault("new"), GUID) is None
    where.env.config = world(tmp_path, old={"pool": "moved"}, new={"pool": "moved"}).env.config
    assert find_original(where, where.env.vault("new"), GUID) is None
    device = {"nbd": "nbdkit:file /x", "size": "1G"}
    where.env.config = world(
        tmp_path, old={"pool": "moved"}, new={"pool": "moved", "device": [device]}
    ).env.config
    assert find_original(where, where.env.vault("new"), GUID) == "old"
