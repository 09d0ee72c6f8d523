"""Starts scrubs that are due, reads their results and the damage, and heals what the configuration lets it heal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zvault.api.vaults import VaultDocument
from zvault.config.schema import Vault
from zvault.core.errors import Busy, Refused, ZvaultError
from zvault.core.integrity.damage import DamagedFile, DamageKind, classify_damages
from zvault.core.policy.automatic_repairs import RECHECK_ERRORS
from zvault.core.policy.backoff import iterate_delays
from zvault.core.policy.scrub import VaultTraffic, find_scrub_obstacle, find_scrub_reason
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.jobs.vault_jobs import HealJob, ScrubJob
from zvault.daemon.journald import log, make_vault_logger
from zvault.daemon.scheduler import BackupScheduler
from zvault.ops.context import Context
from zvault.ops.healing.scrub import hold_scrubs
from zvault.ops.healing.vault_damage import WARNED_DAMAGES, describe_excused
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vaults.examine_pool import examine_pool, recheck_excused
from zvault.ops.vaults.name_damage import name_new_damage
from zvault.ops.vaults.vault import Vaults
from zvault.zfs.pool.scrub import Scrubber

FIRST_SCRUB_PAUSE, LONGEST_SCRUB_PAUSE = 60.0, 3600.0
"""Seconds after which a scrub that failed is tried again; they double."""

DOWN_DECISION_INTERVAL = 30.0
"""Seconds between two decisions about a vault that is down, if nothing was due and nothing new is known of it."""


@dataclass
class VaultScrub:
    """The scrub of one vault: a look at it, and when a scrub may be tried next (monotonic seconds).

    ``tried`` is the damage that a healing is at or has left, ``errors`` how many errors that were: the same is not
    tried again without being asked, anything else is.
    ``begun`` is when the scrub began that zvault ran last, by the pool's word; ``waits`` why damage is not healed by
    itself, as last told. ``rests_until``: nothing is due until then (monotonic seconds), by what ``rests_by`` has.
    ``recheck_due`` is when errors of what was half received may be rechecked next (monotonic seconds).
    """

    look: asyncio.Task[None] | None = None
    rests_until: float = 0.0
    rests_by: tuple[PoolCondition | None, Vault | None] = (None, None)
    recheck_due: float = 0.0
    recheck_pauses: Iterator[float] = field(default_factory=RECHECK_ERRORS.pace.iterate_waits)
    due: float = 0.0
    pauses: Iterator[float] = field(
        default_factory=lambda: iterate_delays(FIRST_SCRUB_PAUSE, LONGEST_SCRUB_PAUSE)
    )
    tried: frozenset[DamagedFile] = frozenset()
    errors: int = 0
    begun: float | None = None
    told: str = ""
    waits: str = ""


@dataclass
class ScrubHealScheduler:
    """One for all vaults."""

    context: Context
    vaults: Vaults
    runs: BackupRuns
    scheduler: BackupScheduler
    _cares: dict[str, VaultScrub] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._since = self.context.env.clock.time()

    def care(self, documents: Sequence[VaultDocument]) -> None:
        """Look at the vaults that are up, and begin what is due. Never waits: each vault has a task of its own."""
        for document in documents:
            care = self._cares.setdefault(document["name"], VaultScrub())
            if document["state"] == "down" and self._rests(document["name"], care):
                continue
            if care.look is None or care.look.done():
                care.look = asyncio.create_task(self._care(document, care), name=f"care {document['name']}")

    async def _care(self, document: VaultDocument, care: VaultScrub) -> None:
        name = document["name"]
        try:
            up = document["state"] == "up" and document["health"] in {"ONLINE", "DEGRADED"}
            if up and not self.vaults[name].moving:
                await self._seen(name, await examine_pool(self.context, name), care)
            # One that is read-only can be neither scrubbed nor healed; its verdict says so.
            if document["state"] in {"up", "down"} and not document["readonly"]:
                await self._decide(self.context.env.vault(name), care, up=up)
        except ZvaultError as error:
            if str(error) != care.told:
                log.warning("vault %s: %s", name, error, extra={"VAULT": name})
            care.told = str(error)
        except Exception:
            log.exception("taking care of vault %s failed", name)

    def _rests(self, name: str, care: VaultScrub) -> bool:
        """True if nothing was due of a vault that is down, not long ago, by what is known and configured still."""
        known = self.context.records.conditions.get(name), self.context.env.config.vault.get(name)
        return self.context.env.clock.monotonic() < care.rests_until and all(
            one is other for one, other in zip(known, care.rests_by, strict=True)
        )

    async def _seen(self, name: str, found: PoolCondition, care: VaultScrub) -> None:
        """Name damage that is new, and see what became of errors that were no damage while they were half received."""
        if self._work(name) is not None or not found.errors:
            return
        if await name_new_damage(self.context, self.context.env.vault(name)):
            say, known = make_vault_logger(name), self.context.records.conditions.get(name)
            for one in known.damages[:WARNED_DAMAGES] if known is not None else ():
                say(f"damaged: {one}")
            if known is not None and known.excused:
                say(describe_excused(known))
        elif found.excused and self.context.env.clock.monotonic() >= care.recheck_due:
            care.recheck_due = self.context.env.clock.monotonic() + next(care.recheck_pauses)
            if await recheck_excused(self.context, name):
                make_vault_logger(name)(
                    "what was half received is whole or gone: ZFS has read what was on its error list again"
                )
            else:
                care.recheck_due = self.context.env.clock.monotonic() + DOWN_DECISION_INTERVAL

    async def _decide(self, vault: Vault, care: VaultScrub, *, up: bool) -> None:
        name, care.rests_until = vault.name, 0.0
        found, keeper = self.context.records.conditions.get(name), self.vaults[name]
        if (
            found is None
            or self._work(name) is not None
            or self.runs.runner.closed is not None
            or keeper.withheld
            or keeper.is_away()
            or name in self.context.activity.measured
        ):
            return
        if not found.errors:
            care.tried, care.errors, care.waits = frozenset(), 0, ""
        env = self.context.env
        why = find_scrub_reason(vault.scrubs(), found.scan, found.since, env.clock.time(), env.zone)
        if found.held and found.scan.state != "scanning":
            why = None
        if why is None and not (up or found.errors or found.damages):
            care.rests_until, care.rests_by = env.clock.monotonic() + DOWN_DECISION_INTERVAL, (found, vault)
            return
        obstacle = self.obstacle(name)
        if why is not None and obstacle is not None:
            if up and found.scan.state == "scanning":
                # Left by a crash, or somebody else's: a pool goes on with it as soon as it is imported.
                await Scrubber(self.context.clients.vault_zfs(vault).host).pause(keeper.config.pool)
            self.context.records.conditions.pausing(name, obstacle if found.scan.open else "")
        elif self._to_heal(vault, found, care):
            self._healed(name, care)
            self.heal(name)
        elif (
            why is not None
            and self.context.env.clock.monotonic() >= care.due
            and not self._somebodys(found, care)
        ):
            care.due = self.context.env.clock.monotonic() + next(care.pauses)
            make_vault_logger(name)(f"a scrub is due: {why}")
            self.scrub(name, by_hand=False)

    def _somebodys(self, found: PoolCondition, care: VaultScrub) -> bool:
        """True if a scrub that goes was begun by somebody else under this daemon's eyes: then he waits for its end."""
        scan = found.scan
        seen = scan.state == "scanning" and scan.started is not None and scan.started >= self._since
        return seen and scan.started != care.begun

    def _to_heal(self, vault: Vault, found: PoolCondition, care: VaultScrub) -> bool:
        """True if there is damage that is to be healed without being asked, and was not tried yet.

        Says once why it is not, where it might be.
        """
        new = found.errors > care.errors or not care.tried.issuperset(found.damages)
        kinds = classify_damages(one.dataset for one in found.damages)
        if not new or DamageKind.DATA not in kinds or vault.heal != "auto":
            return False
        why = self._keeps_from_healing(vault)
        if why and why != care.waits:
            make_vault_logger(vault.name)(f"the damage is not healed by itself: {why}")
        care.waits = why
        return not why

    def _healed(self, name: str, care: VaultScrub) -> None:
        """Note what is damaged as a healing begins, and what is left of it as it ends.

        A look at the pool comes every now and then: none may have come while it was sound.
        """
        known = self.context.records.conditions.get(name)
        if known is not None:
            care.tried, care.errors = frozenset(known.damages), known.errors

    def _keeps_from_healing(self, vault: Vault) -> str:
        """Why damage is not healed by itself now, in words; empty where nothing is in the way."""
        busy = self.find_busy(vault.name)
        return f"{busy}; it waits for that" if busy is not None else ""

    def obstacle(self, name: str, *, by_hand: bool = False) -> str | None:
        """Why no scrub of the vault may run at this moment, or None."""
        if self.context.activity.asleep:
            return "the host is about to sleep"
        now, zone = self.context.env.clock.time(), self.context.env.zone
        return find_scrub_obstacle(
            self.context.env.vault(name).scrubs(), self._traffic(name), now, zone, by_hand=by_hand
        )

    def _traffic(self, name: str) -> VaultTraffic:
        backups = [one for one, config in self.context.env.config.backup.items() if config.vault == name]
        running = {f"backup {one}" for one in backups if self.runs.runner.is_at_work(one)}
        running |= {user for user in self.vaults[name].users if user != f"scrub {name}"}
        # Also while it waits for the vault to be free.
        running |= {f"heal {name}"} if self.runs.runner.find_run(name, "heal") is not None else set()
        due = [(when, one) for one in backups if (when := self._next(one)) is not None]
        when, first = min(due, default=(None, ""))
        return VaultTraffic(sorted(running), when, first)

    def _next(self, backup: str) -> float | None:
        """When a backup begins next: as scheduled, or to try again what failed.

        It may be due at once while that is not known yet.
        """
        run = self.runs.runner.running(backup)
        due = self.scheduler.next_run(backup)
        if due is None and self.scheduler.asks(backup):
            due = self.context.env.clock.time()
        times = [due, run.waiting if run is not None else None]
        return min((when for when in times if when is not None), default=None)

    def _work(self, name: str) -> ActiveRun | None:
        """The run that scrubs or heals a vault at this moment."""
        return self.runs.runner.find_run(name, "scrub", "heal")

    def scrub(self, name: str, *, by_hand: bool = True) -> str:
        """Start a scrub, or go on with one; its run's id. Raises NotFound, Busy, Refused as a run's start does.

        Who asks for one while one runs by itself is given that, and no window binds it any more.
        """
        if by_hand and (now := self._work(name)) is not None and now.trigger == "scrub":
            self._asked.add(name)
            return now.id
        self._free(name)

        runner = self.runs.runner
        run = runner.start(ScrubJob(self.context, self.vaults, runner, self, name))
        if by_hand:
            self._asked.add(name)
        return run

    # What a scrub or a healing under way goes by

    def find_scrub_pause(self, vault: str) -> str | None:
        """Why a scrub of the vault may not run at this moment, in words; None where it may."""
        return self.obstacle(vault, by_hand=vault in self._asked)

    def is_scrub_wanted(self, vault: str, found: PoolCondition) -> bool:
        """True if somebody asked for it, or it is still due."""
        return vault in self._asked or self._still_due(vault, found)

    def find_busy(self, vault: str) -> str | None:
        """What a healing waits for between two streams: backups of the same vault."""
        running = [user for user in self._traffic(vault).running if user.startswith("backup ")]
        return f"{running[0]} runs" if running else None

    def note_scrubbed(self, vault: str, *, failed: bool) -> None:
        """A scrub has ended: nobody asks for it any more. After one that did not fail the pauses begin anew."""
        self._asked.discard(vault)
        care, known = self._cares.setdefault(vault, VaultScrub()), self.context.records.conditions.get(vault)
        care.begun = known.scan.started if known is not None else None
        if not failed:
            care.pauses = iterate_delays(FIRST_SCRUB_PAUSE, LONGEST_SCRUB_PAUSE)

    def note_healed(self, vault: str) -> None:
        """A healing has ended: what is damaged still is not tried again by itself."""
        self._healed(vault, self._cares.setdefault(vault, VaultScrub()))

    def _still_due(self, name: str, found: PoolCondition) -> bool:
        now = self.context.env.clock.time()
        return (
            find_scrub_reason(
                self.context.env.vault(name).scrubs(), found.scan, found.since, now, self.context.env.zone
            )
            is not None
        )

    async def hold(self, name: str, *, stop: bool) -> PoolCondition:
        """Pause a vault's scrub until it is wanted again, or stop it."""
        return await hold_scrubs(self.context, self.vaults, name, stop=stop)

    def heal(self, name: str, *, trusts_hosts: bool = False) -> str:
        """Start to heal a vault; the run's id. ``trusts_hosts`` as Healing has it. Raises NotFound, Busy, Refused."""
        self._free(name, but="scrub")
        if self.context.env.vault(name).heal == "off":
            raise Refused(
                f"vault '{name}' is not healed",
                'its configuration says heal = "off"',
                'set heal = "by-hand", or "auto" (docs/how-to/heal.md)',
            )

        return self.runs.runner.start(HealJob(self.context, self.vaults, self, name, trusts_hosts))

    def _free(self, name: str, but: str = "") -> None:
        """Raises NotFound, and Busy where the vault is being scrubbed or healed."""
        self.context.env.vault(name)
        if (run := self._work(name)) is not None and run.trigger != but:
            what = "healed" if run.trigger == "heal" else "scrubbed"
            raise Busy(
                f"vault '{name}' is already being {what}",
                f"run {run.id} does it",
                f"'zvaultctl follow {run.id}' shows it",
            )

    def close(self) -> None:
        """End what is under way; what hangs in the kernel is left there."""
        for care in self._cares.values():
            if care.look is not None:
                care.look.cancel()
