"""Notes of what is tuned, where they are read: what cannot be read is told, never zero."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.schema import Config
from zvault.ops.tuning.measurements import load_vault_profile
from zvault.ops.tuning.set_parameters import (
    HOST,
    TUNING_LEASE_PREFIX,
    count_held_parameters,
    list_tuning_complaints,
    pause_txgs,
    reconcile_tuning,
    record_wanted_parameters,
    restore_parameters,
    restore_reading_parameters,
    set_reading_parameters,
)
from zvault.ops.tuning.tuning_report import make_tuning_document
from zvault.system.record_store import RecordStore
from zvault.zfs.pool import module_parameters

HELD = {"held": {"a": {"before": "1", "ours": ["2"]}}, "troubles": {"b": "b is not set"}}


@pytest.fixture
def leases(tmp_path: Path) -> RecordStore:
    store = RecordStore(tmp_path, boot_id="this")
    store.put(TUNING_LEASE_PREFIX + "cold", {"module": {"a": "2", "b": "3"}, "rotational": []})
    store.put(HOST, HELD)
    return store


def test_what_is_held_for_a_vault_and_what_is_not(leases: RecordStore):
    assert (count_held_parameters(leases, "cold"), count_held_parameters(leases, "warm")) == (1, 0)
    assert list_tuning_complaints(leases) == ["b is not set; 'zvaultctl tune show' explains it"]


def test_another_boots_notes_tell_of_nothing(leases: RecordStore):
    later = RecordStore(leases.directory, boot_id="another")
    assert (count_held_parameters(later, "cold"), list_tuning_complaints(later)) == (0, [])


def test_a_note_that_cannot_be_read_is_told_and_not_zero(leases: RecordStore):
    (leases.directory / HOST).write_text("{")
    assert count_held_parameters(leases, "cold") is None
    (said,) = list_tuning_complaints(leases)
    assert "cannot be read" in said


READS, WRITES = "zfs_vdev_async_read_max_active", "zfs_vdev_async_write_max_active"
PROFILE = f"[module]\n{WRITES} = {{writes}}\n[reading]\n{READS} = {{reads}}\n"


class Host:
    """A kernel's parameters as files, and two vaults of it that are up or down, read or not."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kernel = folder / "kernel"
        (self.kernel / "parameters").mkdir(parents=True)
        (self.kernel / "version").write_text("2.3.9-1\n")
        for name, value in ((READS, "3"), (WRITES, "10")):
            (self.kernel / "parameters" / name).write_text(f"{value}\n")
        self.context = context(folder=folder)
        profiles = folder / "profiles"
        profiles.mkdir()
        for name, writes, reads in (("slow", 8, 8), ("fast", 32, 64)):
            (profiles / f"{name}.toml").write_text(PROFILE.format(writes=writes, reads=reads))
        config = {"vault": {name: {"pool": name, "profile": name} for name in ("slow", "fast")}}
        self.context.env.reconfigure(Config.model_validate(config))
        self.said: list[str] = []
        for function in (module_parameters.read_tuned_host, module_parameters.write_parameters):
            monkeypatch.setattr(module_parameters, function.__name__, partial(function, module=self.kernel))

    def now(self) -> tuple[int, int]:
        """Reads and writes at once, as the kernel has them."""
        there = self.kernel / "parameters"
        return int((there / READS).read_text()), int((there / WRITES).read_text())

    async def do(self, what: str, name: str) -> None:
        vault = self.context.env.vault(name)
        match what:
            case "up":
                module = load_vault_profile(self.context, vault).module
                await record_wanted_parameters(self.context, vault, module, ["/dev/none"], self.said.append)
            case "read":
                await set_reading_parameters(self.context, vault, self.said.append)
            case "unread":
                await restore_reading_parameters(self.context, vault, self.said.append)
            case "down":
                await restore_parameters(self.context, vault, self.said.append)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


async def test_transaction_groups_are_put_off_only_while_a_pool_is_revived(host: Host):
    parameter = host.kernel / "parameters" / "zfs_txg_timeout"
    parameter.write_text("5\n")
    vault = host.context.env.vault("slow")
    async with pause_txgs(host.context, vault, host.said.append):
        assert int(parameter.read_text()) > 24 * 3600
        async with pause_txgs(host.context, host.context.env.vault("fast"), host.said.append):
            await host.do("up", "slow")
        assert int(parameter.read_text()) > 24 * 3600, "another one was quicker"
    assert parameter.read_text() == "5\n"
    with pytest.raises(KeyboardInterrupt):
        async with pause_txgs(host.context, vault, host.said.append):
            raise KeyboardInterrupt
    assert parameter.read_text() == "5\n"


async def test_a_killed_daemon_does_not_leave_transaction_groups_put_off(host: Host):
    parameter = host.kernel / "parameters" / "zfs_txg_timeout"
    parameter.write_text("5\n")
    revival = pause_txgs(host.context, host.context.env.vault("slow"), host.said.append)
    await revival.__aenter__()
    assert parameter.read_text() != "5\n"
    await reconcile_tuning(host.context, host.said.append)  # by the daemon that is started next
    assert parameter.read_text() == "5\n"


async def test_parameters_for_reading_hold_only_while_a_vault_is_read(host: Host):
    for what, name, now in (
        ("up", "slow", (3, 8)),
        ("read", "slow", (8, 8)),
        ("up", "fast", (8, 8)),
        ("read", "fast", (64, 8)),
        ("unread", "fast", (8, 8)),
        ("unread", "slow", (3, 8)),
        ("read", "slow", (8, 8)),
        ("down", "slow", (3, 32)),
        ("down", "fast", (3, 10)),
    ):
        await host.do(what, name)
        assert (what, name, host.now()) == (what, name, now)
    assert host.context.records.undo.names("tuning/") == []


async def test_a_daemon_that_was_killed_while_a_vault_was_read_puts_back_what_reads_had(host: Host):
    await host.do("up", "slow")
    await host.do("read", "slow")
    host.context.records.undo.put("vault/slow", {})
    assert count_held_parameters(host.context.records.undo, "slow") == 2
    await reconcile_tuning(host.context, host.said.append)
    assert host.now() == (3, 8)
    assert count_held_parameters(host.context.records.undo, "slow") == 1


async def test_what_somebody_else_set_while_a_vault_was_read_stays(host: Host):
    await host.do("up", "slow")
    await host.do("read", "slow")
    (host.kernel / "parameters" / READS).write_text("5\n")
    await host.do("unread", "slow")
    assert host.now() == (5, 8)
    assert f"{READS} stays at 5: somebody else changed it after zvault had set it" in host.said


async def test_tune_show_tells_what_is_for_reading(host: Host):
    await host.do("up", "slow")
    rows = {one["name"]: one for one in (await make_tuning_document(host.context))["parameters"]}
    assert (rows[WRITES]["state"], rows[READS]["state"]) == ("set", "when read")
    assert rows[READS]["wanted"] == {"slow": "8", "fast": "64"}
    await host.do("read", "slow")
    rows = {one["name"]: one for one in (await make_tuning_document(host.context))["parameters"]}
    assert (rows[READS]["state"], rows[READS]["now"], rows[READS]["before"]) == ("set", "8", "3")
