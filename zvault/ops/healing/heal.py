"""Heal a vault: have whoever still has a damaged snapshot send what is in it again, put the damaged blocks' bytes in
their places, and tell what stays damaged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from zvault.api.events import Emit, HealedEvent, HealResult, MessageEvent, ProgressMade, WarningEvent
from zvault.config.schema import Vault
from zvault.core.errors import PoolDamaged, Refused, ToolFailed, ZvaultError
from zvault.core.integrity.damage import (
    DamageKind,
    HealTarget,
    advise_on_damage,
    classify_damages,
    count_damaged_files,
    list_damages,
)
from zvault.core.integrity.healing import (
    Copies,
    HealingStream,
    UnhealedDamage,
    explain_unhealed,
    list_resend_commands,
    select_healing_streams,
)
from zvault.core.model import Tree
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.lineage import ASIDE_INFIX
from zvault.core.units import format_duration, format_size
from zvault.ops.context import Context
from zvault.ops.healing.block_repair import UNCONFIRMED, BlockRepair, make_scratch_folder
from zvault.ops.healing.copy_holders import CopyHolders, IntactCopy
from zvault.ops.healing.scrub import SCRUB_INTERVAL, ScrubObstacle
from zvault.ops.healing.vault_damage import (
    GIVE_UP_HALF,
    describe_excused,
    find_leak,
    make_damaged_error,
    warn_of_damage,
)
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.state.partial_tree import list_existing_around_damage
from zvault.ops.state.pool_health import make_damage_document
from zvault.ops.stream.run_stream import StreamProgress, run_stream
from zvault.ops.vaults.examine_pool import examine_pool
from zvault.ops.vaults.name_damage import name_damage, note_damage
from zvault.ops.vaults.vault import OpenVault, Vaults
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.repair.block_writer import pick_argv
from zvault.zfs.repair.damage_name_guard import NamesForbidden
from zvault.zfs.repair.damage_names import heal_send_argv
from zvault.zfs.stream_orders import make_heal_order

UNOPENED = "the dataset itself cannot be opened, and no healing mends that: back up what belongs there to another vault"
"""Why nothing of a dataset is healed that ZFS cannot list."""


@dataclass(frozen=True, slots=True)
class HealingResult:
    """The end of a healing: the damaged files before it, and those that stay damaged."""

    found: int
    left: tuple[UnhealedDamage, ...] = ()

    @property
    def result(self) -> HealResult:
        """``healed``, ``partial`` or ``failed``."""
        rest = count_damaged_files([one.wound for one in self.left])
        return "healed" if not rest else "partial" if rest < self.found else "failed"


@dataclass
class VaultHealing:
    """One healing of a vault, by ``name``: it may take long, so the configuration in force is looked up each time.

    ``obstacle`` tells what it waits for between two streams. ``trusts_hosts``: a person said that no other host that
    sends blocks makes them up.
    """

    context: Context
    vaults: Vaults
    name: str
    obstacle: ScrubObstacle
    emit: Emit
    outcome: RunOutcome
    trusts_hosts: bool = False
    _failures: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._holders = CopyHolders(
            self.context, self.vaults, self.name, self._say, lambda text: self.emit(WarningEvent(text=text))
        )

    async def run(self) -> HealingResult:
        """Heal what can be healed; tells the rest, file by file."""
        self._refuse_unless_ours()
        began = time.monotonic()
        with make_scratch_folder(self.context.env.paths.state / "heal" / self.name) as folder:
            repair = BlockRepair(self.context, self.vaults[self.name], self._say, folder)
            before, tree, copies = await self._gather(repair)
            if not before:
                return HealingResult(0)
            repair.explain_unconfirmed()
            await repair.put(self._user)
        left = [wound for wound in before if wound not in repair.sound]
        await self._note(left)
        done = HealingResult(
            count_damaged_files(before),
            tuple(explain_unhealed(left, tree.datasets, copies, self._failures, repair.why)),
        )
        unconfirmed = any(one.why == UNCONFIRMED for one in done.left)
        self._report(done, time.monotonic() - began, self._advice(left, tree, unconfirmed=unconfirmed))
        return done

    @property
    def _config(self) -> Vault:
        """The vault's table in the configuration."""
        return self.context.env.vault(self.name)

    @property
    def _user(self) -> str:
        return f"heal {self.name}"

    def _say(self, text: str) -> None:
        self.emit(MessageEvent(text=text))

    def _refuse_unless_ours(self) -> None:
        config = self._config
        if not config.device or config.host is not None:
            where = (
                f"its pool is on {config.host}"
                if config.host is not None
                else "it has no device in zvault.toml"
            )
            raise Refused(
                f"vault '{self.name}' is not healed from here",
                f"{where}; blocks are put in their places while the pool is exported, which zvault does with its own",
                "docs/how-to/heal.md tells what can be done by hand",
            )

    async def _gather(self, repair: BlockRepair) -> tuple[list[HealTarget], Tree, Copies]:
        """What is damaged, who has it; and whatever of it they send is in the folder then."""
        async with AsyncExitStack() as held:
            vault = await held.enter_async_context(
                self.vaults[self.name].use(self._user, self._say, writes=False, reads=True, create=False)
            )
            wounds = await name_damage(self.context, self._config)
            known = self.context.records.conditions.get(self.name)
            tree = await list_existing_around_damage(vault.zfs, vault.pool)
            if (
                known is not None
                and (leak := await find_leak(self.context, self._config, known, tree)) is not None
            ):
                raise leak
            if not wounds and known is not None and known.excused:
                raise Refused(
                    f"nothing of vault '{self.name}' is healed now",
                    describe_excused(known),
                    f"{GIVE_UP_HALF}; heal again once nothing is half received",
                )
            if known is not None:
                warn_of_damage(known, self.emit)
                if known.errors and DamageKind.DATA not in classify_damages(one.dataset for one in wounds):
                    raise make_damaged_error(self._config, known)
            if not wounds:
                self._say(f"nothing is known to be damaged in {vault.pool}")
                return wounds, tree, {}
            await repair.find(vault, tree, wounds)
            repair.why |= {
                wound: f"{UNOPENED} ({tree.unlisted[DatasetName(wound.dataset)]})"
                for wound in wounds
                if wound.dataset in tree.unlisted
            }
            if not repair.missing():
                return wounds, tree, {}
            copies = await self._holders.find(vault, tree, wounds, held)
            tried: list[HealingStream] = []
            while cures := select_healing_streams(repair.missing(), tree.datasets, copies, tried):
                tried.append(cures[0])
                await self._until_free()
                await self._bring(vault, cures[0], repair)
        return wounds, tree, copies

    async def _until_free(self) -> None:
        told = False
        while (why := self.obstacle()) is not None:
            if not told:
                self._say(f"waiting: {why}")
            told = True
            await asyncio.sleep(SCRUB_INTERVAL)

    async def _bring(self, vault: OpenVault, cure: HealingStream, repair: BlockRepair) -> None:
        """Have one stream searched for what is damaged. What it fails with is kept: others may do."""
        dataset, before = cure.target.dataset, len(repair.missing())
        place = self._holders.places[cure.copy]
        flags = place.flags
        if repair.ask(dataset) and not flags.raw:
            flags = replace(flags, compressed=True)
        stall = self._config.stall
        route = self.context.clients.route(place.zfs, vault.zfs, vault.profile.stream, stall)
        size = await self._size(place, cure)
        told = "" if size is None else f", at most {format_size(size)}"
        self._say(f"{dataset}: {cure.reason}{told}")
        address = place.zfs.host.address
        host = None if self.trusts_hosts or address is None else address.host
        argv = heal_send_argv(cure, flags), pick_argv(repair.folder.path, host)
        order = make_heal_order(SnapshotName(cure.snapshot), cure.target.guid, flags)
        try:
            done = await run_stream(
                self.context.env.runner,
                await route.stages(*argv, flags, size, order=order),
                total=size,
                report=lambda progress: self._progress(cure, progress, size),
                trouble=vault.trouble,
                stall=route.stall,
            )
        except ZvaultError as error:
            # It is cut off once all is found; else it says why it was.
            if any(wound.dataset == dataset for wound in repair.missing()):
                self._failures[dataset] = f"the stream broke off: {error.why or error.what}"
                self._say(f"the stream of {cure.snapshot} broke off: {error.why or error.what}")
        else:
            self.outcome.bytes += done.bytes
        self.outcome.sent += 1
        self._say(f"found {before - len(repair.missing())} of {before} blocks in it")

    async def _size(self, place: IntactCopy, cure: HealingStream) -> int | None:
        try:
            return await place.zfs.lzc.send_space(cure.snapshot, cure.base, place.flags.lzc())
        except ZvaultError:
            return None

    async def _note(self, left: list[HealTarget]) -> None:
        """Have ZFS look again at what it has on its log, where all of that is well: an error scrub (zpool-scrub(8), -e)
        strikes out also what is still damaged, in old snapshots, and so there is none as long as anything is.
        """
        note_damage(self.context.records.conditions, self._config, list_damages(left, ()), left)
        async with self.vaults[self.name].use(self._user, self._say, create=False) as vault:
            half: Sequence[str] = () if left else await self._strike_off(vault)
            await examine_pool(self.context, self.name)
        note_damage(self.context.records.conditions, self._config, list_damages(left, ()), left, half)

    async def _strike_off(self, vault: OpenVault) -> Sequence[str]:
        """Have ZFS look again at what is on its log; what is half received, where that forbids it."""
        try:
            async with self.context.clients.damage_names.permit_names(vault.zfs.host, vault.pool) as permit:
                await Scrubber(vault.zfs.host).error_scrub(permit)
        except NamesForbidden as forbidden:
            self._say(f"what is healed stays on ZFS's error list until the next scrub: {forbidden.why}")
            return forbidden.datasets or (vault.pool,)
        except ToolFailed as error:
            # OpenZFS 2.1, and pools without head_errlog, can never do that: what was healed is healed all the same.
            self._say(f"what is healed stays on ZFS's error list until the next scrub: {error}")
            return (vault.pool,)
        return ()

    def _progress(self, cure: HealingStream, progress: StreamProgress, size: int | None) -> None:
        self.emit(
            ProgressMade(
                dataset=cure.target.dataset,
                bytes=progress.done,
                total=size,
                rate=progress.rate(),
                buffer=progress.marks.range(),
                run_bytes=progress.done,
                run_total=size,
            )
        )

    def _advice(self, left: list[HealTarget], tree: Tree, *, unconfirmed: bool) -> str:
        """What can be done about what stays damaged."""
        kinds = classify_damages(wound.dataset for wound in left)
        if kinds and DamageKind.DATA not in kinds:
            return advise_on_damage(self.name, kinds)
        aside = f"{ASIDE_INFIX}{self.context.env.clock.now().strftime('%Y%m%dT%H%M%SZ')}"
        renames = list_resend_commands(left, tree.datasets, aside)
        if unconfirmed:
            return (
                f"'zvaultctl heal {self.name} --trust-hosts' takes them, if you trust the hosts that send them"
                " (docs/how-to/heal.md#blocks-from-another-host)"
            )
        commands = "; ".join(f"'{one}'" for one in renames)
        return (
            f"{commands}: the next run sends it in full then (to another name it is followed, damage and all);"
            " docs/how-to/heal.md tells more"
            if renames
            else "docs/how-to/heal.md tells what can be done about each"
        )

    def _report(self, done: HealingResult, seconds: float, advice: str) -> None:
        rest = count_damaged_files([one.wound for one in done.left])
        self.outcome.datasets = done.found
        self._say(f"healed {done.found - rest} of {done.found} files in {format_duration(seconds)}")
        for one in done.left:
            word = "lost" if one.lost else "not healed"
            for damage in list_damages([one.wound], ()):
                self.emit(WarningEvent(text=f"{word}: {damage}: {one.why}"))
        self.emit(
            HealedEvent(
                vault=self.name,
                result=done.result,
                found=done.found,
                healed=done.found - rest,
                left=[
                    {**make_damage_document(damage), "why": one.why, "lost": one.lost}
                    for one in done.left
                    for damage in list_damages([one.wound], ())
                ],
            )
        )
        if done.left:
            self.outcome.result = "partial" if rest < done.found else "failed"
            self.outcome.blame(
                PoolDamaged(
                    f"{rest} of {done.found} damaged files could not be healed",
                    "; ".join(dict.fromkeys(one.why for one in done.left)),
                    advice,
                )
            )
