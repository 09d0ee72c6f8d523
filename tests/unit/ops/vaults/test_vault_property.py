"""A vault whatever happens to it, in any order and at the same time, and wherever zvaultd is killed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.unit.examples import cases
from tests.unit.ops.vaults.vault_world import MOVING, Killed, World, played
from zvault.core.errors import ZvaultError
from zvault.core.policy.vault_life import WITHHELD_STATES, VaultEvent, VaultLife, may_happen
from zvault.core.transitions import IllegalTransition
from zvault.ops.vaults.vault_sleep import PausedScrub, prepare_for_sleep, resume_after_sleep

VERBS = ("up", "down", "use", "below", "create", "take over", "repair")
ups = st.sampled_from(["on-demand", "always"])
verbs = st.sampled_from(VERBS)


async def use(world: World) -> None:
    async with world.vault.use("run", world.said.append):
        await held(world)


async def held(world: World) -> None:
    """Use the vault, until zvaultd is killed or the block has done its work."""
    world.inside += 1
    try:
        for _ in range(3):
            await world.step()
    finally:
        world.inside -= 1


async def below(world: World) -> None:
    async with world.vault.below("heal", world.said.append):
        world.must(world.devices and not world.pool, "the pool is imported while something writes below it")
        for _ in range(3):
            await world.step()
            world.must(not world.pool, "imported while something writes below it")


async def repair(world: World) -> None:
    world.by_itself = True
    try:
        await world.vault.repair(world.said.append)
    finally:
        world.by_itself = False


async def make(world: World) -> None:
    """As provision/create_vault.py, but nothing is measured and nothing is tried out."""

    async def prepare(_: object) -> None:
        await world.step()

    async def finish(_: None) -> None:
        await world.step()
        world.must(world.pool, "not up while its settings are tried out")

    await world.vault.create(world.said.append, prepare, finish)


def act(world: World, verb: str) -> Coroutine[Any, Any, None]:
    vault, say = world.vault, world.said.append
    verbs: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "up": lambda: vault.up(say),
        "down": lambda: vault.down(say),
        "take over": lambda: vault.take_over(world.step, say),
        "use": lambda: use(world),
        "below": lambda: below(world),
        "create": lambda: make(world),
        "repair": lambda: repair(world),
    }
    return verbs[verb]()


class Lives(RuleBasedStateMachine):
    """Requests, users, sleeps, faults of the storage, other people, and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.loop = asyncio.new_event_loop()
        self.world = played(self.patch)
        self.stays: list[tuple[asyncio.Task[None], asyncio.Event]] = []

    def teardown(self) -> None:
        self.world.refuses = self.world.lost = False
        self.all_leave()
        self.loop.close()
        self.patch.undo()

    @initialize(up=ups)
    def begins(self, up: str) -> None:
        self.world.start(up)
        self.run(self.world.vault.adopt(self.world.said.append, needed=False))

    def run(self, *work: Coroutine[Any, Any, None]) -> None:
        """Do it all at the same time. What zvault tells of is no fault, and neither is a crash."""

        async def together() -> list[BaseException | None]:
            return await asyncio.gather(*work, return_exceptions=True)

        for error in self.loop.run_until_complete(together()):
            if error is not None and not isinstance(error, (ZvaultError, Killed)):
                raise error

    # Requests and users

    @rule(verb=verbs)
    def one(self, verb: str) -> None:
        self.run(act(self.world, verb))

    @rule(some=st.lists(verbs, min_size=2, max_size=4))
    def several(self, some: list[str]) -> None:
        self.run(*(act(self.world, verb) for verb in some if verb != "repair"))

    @rule()
    def somebody_begins_to_use_it(self) -> None:
        entered, leave = asyncio.Event(), asyncio.Event()
        world = self.world

        async def stay() -> None:
            try:
                async with world.vault.use("run", world.said.append):
                    world.inside += 1
                    entered.set()
                    await leave.wait()
                    world.inside -= 1
            except (ZvaultError, Killed):
                pass
            finally:
                entered.set()

        task = self.loop.create_task(stay())
        self.stays.append((task, leave))
        self.loop.run_until_complete(entered.wait())

    def all_leave(self) -> None:
        while self.stays:
            self.somebody_ends()

    @precondition(lambda self: self.stays)
    @rule()
    def somebody_ends(self) -> None:
        task, leave = self.stays.pop(0)
        leave.set()
        self.loop.run_until_complete(task)

    @rule(up=ups)
    def the_configuration_is_loaded_anew(self, up: str) -> None:
        self.world.configure(up)

    # The host sleeps

    @rule(meanwhile=st.lists(verbs, max_size=1), needed=st.booleans(), looks=st.booleans())
    def the_host_sleeps_and_wakes(self, meanwhile: list[str], needed: bool, looks: bool) -> None:
        world, vault, say = self.world, self.world.vault, self.world.said.append
        world.context.activity.awake.clear()
        self.run(self.lies_down())
        self.run(*(act(world, verb) for verb in meanwhile))
        comes_back = (
            vault.life is VaultLife.EXPORTED and vault.facts.to_be_up and world.well and not world.refuses
        )
        world.context.activity.awake.set()
        waking = resume_after_sleep(vault, PausedScrub(), say, needed=needed)
        self.run(*([repair(world)] if looks else []), waking)
        assert world.pool or not comes_back, "exported for the sleep, and not imported after it"

    async def lies_down(self) -> None:
        await prepare_for_sleep(self.world.vault, time.monotonic() + 60, self.world.said.append)

    # Storage and other people

    @rule(lost=st.booleans(), refuses=st.booleans())
    def the_storage_changes(self, lost: bool, refuses: bool) -> None:
        self.world.lost, self.world.refuses = lost, refuses

    @precondition(lambda self: self.world.pool and self.world.well and self.world.vault.life is VaultLife.UP)
    @rule()
    def somebody_exports_its_pool(self) -> None:
        self.world.pool, self.world.foreign = False, True

    @precondition(lambda self: not self.world.pool and self.world.well)
    @rule()
    def somebody_imports_its_pool(self) -> None:
        self.world.pool, self.world.foreign = True, False

    # Crashes

    @rule(verb=verbs, step=st.integers(0, 14), up=ups, needed=st.booleans(), reboot=st.booleans())
    def zvaultd_is_killed(self, verb: str, step: int, up: str, needed: bool, reboot: bool) -> None:
        self.world.steps = step
        self.run(act(self.world, verb))
        self.world.dead = True
        self.all_leave()
        self.the_lease_tells_the_truth()
        if reboot:
            self.world.devices = self.world.pool = self.world.foreign = False
            self.world.boot += 1
        left = self.world.leases.get("vault/cold")
        self.world.start(up)
        self.world.by_itself = bool(left and left["exported"] and not left["stale"])
        self.run(self.world.vault.adopt(self.world.said.append, needed=needed))
        self.world.by_itself = False
        unseen = (self.world.lost or self.world.refuses) and not (left and left["exported"])
        if unseen or verb == "down":
            # Its storage cannot be looked at, and nobody had noted that the pool was exported by hand: it may as well
            # have been on its way up. Or it was on its way down anyway.
            self.world.foreign = False
        self.was_adopted(left, up, needed=needed)

    def was_adopted(self, left: dict[str, Any] | None, up: str, *, needed: bool) -> None:
        world, vault = self.world, self.world.vault
        leased = left is not None and not left["stale"]
        if vault.error is not None or world.lost or world.refuses:
            return
        if up == "always" or (left is not None and leased and left["pinned"]):
            assert world.pool
        elif not (leased and needed):
            assert vault.life is VaultLife.DOWN

    # What holds all the time

    @invariant()
    def nothing_was_found_wrong_on_the_way(self) -> None:
        assert not self.world.faults

    @invariant()
    def the_lease_tells_the_truth(self) -> None:
        lease, vault = self.world.leases.get("vault/cold"), self.world.vault
        assert lease is not None or not (self.world.devices or self.world.pool)
        if lease is not None and not self.world.dead and vault.life is not VaultLife.UNKNOWN:
            assert lease["pinned"] == vault.pinned
            assert lease["exported"] == (vault.life is VaultLife.EXPORTED_BY_HAND)

    @invariant()
    def no_move_is_left_half_done(self) -> None:
        assert self.world.vault.life not in MOVING
        assert not self.world.vault.moving

    @invariant()
    def down_is_down(self) -> None:
        if self.world.vault.life in {VaultLife.DOWN, VaultLife.HELD_DOWN}:
            assert not self.world.devices
            assert not self.world.pool

    @invariant()
    def what_is_in_use_has_not_been_taken_down(self) -> None:
        life = self.world.vault.life
        if self.world.inside:
            # What a sleep exported below its users may not come up again: they find that out by themselves.
            assert life in {VaultLife.FAILED, VaultLife.LOST} or (
                life in {VaultLife.UP, VaultLife.EXPORTED} and self.world.devices
            )

    @precondition(lambda self: not self.stays)
    @rule()
    def left_alone_on_storage_that_is_well_it_is_as_it_is_to_be(self) -> None:
        self.world.lost = self.world.refuses = False
        before = self.world.vault.life
        foreign = self.world.foreign
        self.run(repair(self.world))
        vault = self.world.vault
        if not vault.facts.to_be_up:
            assert vault.error is None or not self.world.devices
        elif before in WITHHELD_STATES and not self.world.pool:
            assert vault.life is before
        elif foreign and may_happen(before, VaultEvent.FIND_EXPORTED) and not self.world.pool:
            assert vault.life is VaultLife.EXPORTED_BY_HAND
        else:
            assert self.world.pool


def test_an_event_that_the_table_does_not_have_is_refused(monkeypatch: pytest.MonkeyPatch):
    world = played(monkeypatch)
    with pytest.raises(IllegalTransition, match="'came up' happened to a vault that is unknown"):
        world.vault._fire(VaultEvent.CAME_UP)
    world.vault.users["run"] = 1
    with pytest.raises(IllegalTransition, match="while something uses it"):
        world.vault._fire(VaultEvent.TAKE_DOWN)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=cases(300), stateful_step_count=25, deadline=None)
