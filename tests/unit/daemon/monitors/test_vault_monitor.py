"""What the vault monitor tells while a vault cannot be looked at; when it repairs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.errors import Busy, DeviceGone
from zvault.core.policy.vault_life import VaultLife, VaultLifeFacts
from zvault.daemon.monitors import vault_monitor
from zvault.daemon.monitors.vault_monitor import LATE_LOOK_LIMIT, VaultMonitor
from zvault.ops.state.environment import WallClock
from zvault.system.process.kernel_waits import KERNEL_WAITS

WELL: dict[str, Any] = {
    "name": "cold",
    "pool": "cold",
    "state": "up",
    "health": "ONLINE",
    "devices": [],
    "hosts": [],
    "held_by": None,
    "away": False,
    "users": [],
    "pinned": False,
    "inhibitor": False,
    "inhibitor_since": None,
    "foreign": [],
    "past": [],
    "error": None,
    "scrub": None,
}


class Vault:
    """A vault whose looks give what the test says, or do not come back while ``hangs``."""

    name = "cold"
    moving = False
    changed = 0.0
    life = VaultLife.UP
    pinned = False
    awake = SimpleNamespace(held=False, since=None)
    context = SimpleNamespace(
        records=SimpleNamespace(
            conditions=SimpleNamespace(get=lambda name: None), undo=SimpleNamespace(names=lambda prefix: [])
        )
    )
    error: DeviceGone | None = None
    config = SimpleNamespace(pool="cold", host=None, hosts=[])
    lease = SimpleNamespace(exists=False)
    held_by = staticmethod(lambda: None)
    is_away = staticmethod(lambda: False)

    def __init__(self) -> None:
        self.users: dict[str, int] = {}
        self.document = WELL
        self.hangs = False
        self.looks = 0
        self.repaired = 0
        self.broken = False
        self.leaving: Busy | None = None
        self.facts = VaultLifeFacts()

    def on_its_way_out(self) -> Busy | None:
        return self.leaving

    async def repair(self, say: object) -> None:
        self.repaired += 1
        if self.broken:
            raise DeviceGone("it does not answer")


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Vault:
    it = Vault()

    async def look(vault: Vault) -> dict[str, Any]:
        vault.looks += 1
        while vault.hangs:
            await asyncio.sleep(0.01)
        return vault.document

    monkeypatch.setattr(vault_monitor, "make_vault_document", look)
    monkeypatch.setattr(
        vault_monitor, "make_unknown_document", lambda _: {**WELL, "state": "down", "health": None}
    )
    monkeypatch.setattr(vault_monitor, "FRESH_LOOK_PATIENCE", 0.05)
    return it


@pytest.fixture
def it(vault: Vault) -> VaultMonitor:
    vaults: Any = SimpleNamespace(all=lambda: [vault])
    return VaultMonitor(vaults)


async def test_a_look_that_hangs_keeps_nobody_waiting(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch
):
    assert await it.documents() == [WELL]
    vault.hangs = True
    async with asyncio.timeout(PATIENCE):
        assert await it.documents() == [WELL]
        monkeypatch.setattr(vault_monitor, "LATE_LOOK_LIMIT", 0.0)
        (told,) = await it.documents()
    assert told["state"] == "gone"
    assert "cannot be looked at" in told["error"]["what"]
    vault.leaving = Busy("the pool 'cold' is being exported", "", "only a reboot helps")
    (told,) = await it.documents()
    assert (told["state"], told["error"]["next"]) == ("gone", "only a reboot helps")
    assert vault.looks == 2, "no second look behind one that hangs"
    vault.hangs = False
    while await it.documents() != [WELL]:
        await asyncio.sleep(0.01)


class SetClock(WallClock):
    """Monotonic time as the test sets it."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


async def test_no_vault_is_gone_while_another_is_imported(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch
):
    assert await it.documents() == [WELL]
    monkeypatch.setattr(vault_monitor, "LATE_LOOK_LIMIT", 0.001)
    async with KERNEL_WAITS.enter(("zpool", "import", "-N", "other"), 1.0):
        vault.hangs = True
        for _ in range(3):
            await asyncio.sleep(0.01)
            (told,) = await it.documents()
            assert told["state"] == "up"
    await asyncio.sleep(0.01)
    (told,) = await it.documents()
    assert told["state"] == "gone"


async def test_a_look_is_late_from_when_it_began_not_from_when_the_last_came_back(
    it: VaultMonitor, vault: Vault
):
    """A vault that is down is looked at every 30 s: each look that took a second was told as critical."""
    it.clock = clock = SetClock()
    vault.document = DOWN
    await it.documents()
    vault.hangs = True
    clock.now += 35.0
    assert (await it.documents())[0]["state"] == "down"
    clock.now += LATE_LOOK_LIMIT - 1.0
    states = [(await it.documents())[0]["state"]]
    while clock.now < 1035.0 + 3 * LATE_LOOK_LIMIT:
        clock.now += 1.0
        states.append((await it.documents())[0]["state"])
    assert states[0] == "down"
    assert states[-1] == "gone"
    assert "has not answered for" in (await it.documents())[0]["error"]["why"]


async def test_a_host_that_stood_still_has_lost_no_vault(it: VaultMonitor, vault: Vault):
    it.clock = clock = SetClock()
    await it.documents()
    vault.hangs = True
    await it.documents()
    clock.now += 3600.0
    assert await it.documents() == [WELL]


GONE: dict[str, Any] = {
    **WELL,
    "state": "gone",
    "health": None,
    "devices": [{"name": "cold-0", "state": "gone"}],
}


async def test_a_look_that_began_before_it_went_down_in_good_order_finds_no_device_lost(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch
):
    """Its devices are disconnected last, and by then its pool is exported."""
    documents = [GONE, DOWN]

    async def look(vault: Vault) -> dict[str, Any]:
        found = documents.pop(0)
        if found is GONE:
            move(vault)
        return found

    monkeypatch.setattr(vault_monitor, "make_vault_document", look)
    assert await it.documents() == [DOWN]
    assert documents == []


@pytest.mark.parametrize(
    ("document", "state"), [(GONE, "partial"), ({**GONE, "health": "SUSPENDED"}, "gone")]
)
async def test_on_the_way_down_only_what_lies_below_an_imported_pool_is_lost(
    it: VaultMonitor, vault: Vault, document: dict[str, Any], state: str
):
    vault.document, vault.moving = document, True
    assert (await it.documents())[0]["state"] == state
    vault.moving, vault.changed = False, 0.0
    assert (await it.documents())[0]["state"] == "gone", "once it is still what is seen is so"


PARTIAL: dict[str, Any] = {**WELL, "state": "partial", "health": None}


@pytest.mark.parametrize("ends", [VaultLife.UP, VaultLife.DOWN, VaultLife.HELD_DOWN])
async def test_a_host_that_stands_still_after_a_move_tells_nothing_that_was_seen_in_it(
    it: VaultMonitor, vault: Vault, ends: VaultLife
):
    """A look in the move saw it half up, and the next one is late."""
    vault.document, vault.moving = PARTIAL, True
    assert await it.documents() == [PARTIAL]
    vault.moving, vault.changed, vault.life, vault.hangs = False, time.monotonic(), ends, True
    (told,) = await it.documents()
    assert (told["state"], told["health"]) == ("up" if ends is VaultLife.UP else "down", None)


@pytest.mark.parametrize("moves", ["ends", "fails"])
async def test_a_look_that_began_in_a_move_and_ends_after_it_is_taken_again(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch, moves: str
):
    """It saw the devices as they were before and the pool as it is after."""
    documents = [PARTIAL, DOWN]
    vault.moving = True

    async def look(vault: Vault) -> dict[str, Any]:
        was, vault.moving = vault.moving, False
        if was and moves == "ends":
            vault.changed = time.monotonic()
        return documents.pop(0)

    monkeypatch.setattr(vault_monitor, "make_vault_document", look)
    assert await it.documents() == [DOWN]


async def test_a_host_out_of_reach_is_gone_whatever_is_done(it: VaultMonitor, vault: Vault):
    vault.document, vault.moving = {**GONE, "devices": []}, True
    assert (await it.documents())[0]["state"] == "gone"


async def test_what_was_seen_before_it_came_up_is_not_told_after(it: VaultMonitor, vault: Vault):
    vault.document = {**WELL, "state": "down"}
    assert await it.documents() == [vault.document]
    vault.document, vault.changed, vault.hangs = WELL, time.monotonic(), True
    asyncio.get_running_loop().call_later(0.3, setattr, vault, "hangs", False)
    assert await it.documents() == [WELL]


async def test_a_look_that_began_before_it_came_up_is_begun_anew(it: VaultMonitor, vault: Vault):
    vault.document = {**WELL, "state": "down"}
    await it.documents()
    vault.hangs = True
    await it.documents()
    assert vault.looks == 2
    vault.document, vault.changed, vault.hangs = WELL, time.monotonic(), False
    assert await it.documents() == [WELL]
    assert vault.looks == 3


async def test_what_zvault_does_with_a_vault_is_told_though_a_look_is_late(it: VaultMonitor, vault: Vault):
    await it.documents()
    vault.hangs, vault.users, vault.error = True, {"tank": 1}, DeviceGone("its server died")
    (told,) = await it.documents()
    assert told == {**WELL, "users": ["tank"], "error": vault.error.as_dict()}


class StoodClock(WallClock):
    """A clock that stands until it is put on."""

    at = 1000.0

    def monotonic(self) -> float:
        return self.at


async def test_a_vault_is_not_repaired_again_before_the_pause_is_over(it: VaultMonitor, vault: Vault):
    clock = it.clock = StoodClock()
    vault.broken = True

    async def repaired_by(seconds: float) -> int:
        clock.at += seconds
        for _ in range(3):
            await it.watch()
            await asyncio.sleep(0)
        return vault.repaired

    assert await repaired_by(0.0) == 1
    for number, pause in enumerate((5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 120.0), 1):
        assert await repaired_by(pause - 1.0) == number, "not before the pause is over"
        assert await repaired_by(1.0) == number + 1
    vault.broken = False
    await repaired_by(120.0)
    vault.broken, vault.repaired = True, 0
    assert await repaired_by(0.0) == 1
    assert await repaired_by(4.0) == 1
    assert await repaired_by(1.0) == 2, "after one that did not fail they begin anew"


DOWN: dict[str, Any] = {**WELL, "state": "down", "health": None}


async def test_a_vault_that_is_down_is_looked_at_less_often_by_itself(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vault_monitor, "list_imported_pools", lambda: ["tank"])
    vault.document, vault.changed = DOWN, time.monotonic()
    for _ in range(3):
        assert await it.watch() == [DOWN]
        await asyncio.sleep(0)
    assert (vault.looks, vault.repaired) == (1, 1), "nothing of it could be taken down"
    vault.facts = VaultLifeFacts(always=True)
    await it.watch()
    await asyncio.sleep(0)
    assert (vault.looks, vault.repaired) == (1, 2), "it is brought up as soon as that can be"
    await it.documents()
    assert vault.looks == 2, "whoever asks is told what is there now"
    monkeypatch.setattr(vault_monitor, "DOWN_VAULT_INTERVAL", 0.0)
    await it.watch()
    assert vault.looks == 3


def move(vault: Vault) -> None:
    vault.changed = time.monotonic()


def find_fault(vault: Vault) -> None:
    vault.error = DeviceGone("it is gone")


def configure_anew(vault: Vault) -> None:
    vault.config = SimpleNamespace(pool="cold", host=None, hosts=[])


@pytest.mark.parametrize(
    "what",
    [
        move,
        find_fault,
        configure_anew,
        lambda vault: setattr(vault, "moving", True),
        lambda vault: setattr(vault, "lease", SimpleNamespace(exists=True)),
        lambda vault: vault.users.update(run=1),
    ],
)
async def test_a_vault_with_which_something_was_done_is_looked_at(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch, what: Callable[[Vault], object]
):
    monkeypatch.setattr(vault_monitor, "list_imported_pools", list)
    vault.document = DOWN
    await it.watch()
    what(vault)
    await it.watch()
    assert vault.looks == 2


async def test_a_pool_that_somebody_else_imported_is_seen_by_the_next_look(
    it: VaultMonitor, vault: Vault, monkeypatch: pytest.MonkeyPatch
):
    pools: list[str] = []
    monkeypatch.setattr(vault_monitor, "list_imported_pools", lambda: pools)
    vault.document = DOWN
    await it.watch()
    pools.append("cold")
    vault.document = WELL
    assert await it.watch() == [WELL]
