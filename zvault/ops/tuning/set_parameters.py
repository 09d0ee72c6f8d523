"""Module parameters with undo records: set while a vault that wants them is up, restored when the last one goes down.

There are four kinds of records (``system/record_store.py``): one for each vault that is up, with the parameters it
wants; one for each that is read, and one for each whose pool is being revived, with those it wants besides; and one for
the host, with each parameter's original value and the value that zvault set. They are written before a parameter
changes. Parameters belong to the running kernel, so records from another boot are void.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field

from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.leased_values import LeasedValue, ValueMoves, list_leases_after, plan_value_moves
from zvault.core.tuning.tuning import (
    AGGREGATION_LIMITS,
    ParameterDecision,
    TunedHost,
    TuningRequest,
    decide_parameters,
)
from zvault.devices.request_queue import is_rotational
from zvault.devices.stack import SayProgress
from zvault.ops.context import Context
from zvault.ops.tuning.measurements import (
    AUTO,
    destroy_scratch_dataset,
    list_parameter_reasons,
    load_vault_profile,
    read_outcome,
)
from zvault.system.process.runner import ProcessRunner
from zvault.system.record_store import RecordStore
from zvault.system.tasks import finish_work
from zvault.zfs.pool import module_parameters
from zvault.zfs.pool.vdev_properties import read_property, set_property

TUNING_LEASE_PREFIX = "tuning/vault/"
TUNING_READING_PREFIX = "tuning/reading/"
TUNING_REVIVAL_PREFIX = "tuning/revival/"
HOST = "tuning/host"

ASSUMED_VDEV_PROPERTIES = {"scheduler": "on"}
"""Vdev properties whose value an OpenZFS without them has anyway: up to 2.4 requests always go through its queue."""

SHOW = "'zvaultctl tune show' explains it"


NO_TXG_BY_TIME = "2592000"
"""Seconds of zfs_txg_timeout, more than any pool was ever suspended: 30 days."""


@dataclass
class TuningNote:
    """The host's lease: leased values by parameter, and what could not be set, in words."""

    held: dict[str, LeasedValue] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


async def set_vault_parameters(
    context: Context, vault: Vault, devices: Collection[str], say: SayProgress, *, new: bool = False
) -> None:
    """Set the parameters of a vault that has come up; ``devices`` are those that zvault brought up for it.

    For a ``new`` vault there is no hint to measure it, because that has just been done. Errors are reported and shown,
    never raised: a vault without tuning is slow but works.
    """
    if vault.host is not None:
        return
    try:
        if await destroy_scratch_dataset(context, vault):
            say("destroyed the scratch dataset that a killed measurement left")
        state = await context.clients.zpool.state(vault.pool)
        profile = load_vault_profile(context, vault, None if state is None else state.guid)
        if (
            vault.profile == AUTO
            and not (new or profile.module)
            and read_outcome(context.records, vault) is None
        ):
            say(f"its devices were not measured yet: 'zvaultctl tune measure {vault.name}' measures them")
        await record_wanted_parameters(context, vault, profile.module, devices, say)
        await _set_vdev_properties(context.env.runner, vault.pool, profile.vdev, say)
    except (ZvaultError, OSError) as error:
        say(f"continuing without tuning: {error}")


async def record_wanted_parameters(
    context: Context, vault: Vault, module: Mapping[str, str], devices: Collection[str], say: SayProgress
) -> None:
    """Record the parameters that a vault that is up wants, or none, and set them; ``devices`` as in
    ``set_vault_parameters``.
    """
    if not module:
        await restore_parameters(context, vault, say)
        return
    below = devices or await context.clients.zpool.devices(vault.pool)
    lease = {
        "module": dict(module),
        "rotational": sorted(_rotational(below)),
        "reasons": list_parameter_reasons(context, vault, module),
    }
    context.records.undo.put(TUNING_LEASE_PREFIX + vault.name, lease)
    await _apply(context, say)


async def set_reading_parameters(context: Context, vault: Vault, say: SayProgress) -> None:
    """Set what a vault that is up wants besides while it is read; errors as in ``set_vault_parameters``."""
    if vault.host is not None:
        return
    try:
        reading = load_vault_profile(context, vault).reading
        if reading:
            by_rotation = reading.keys() & set(AGGREGATION_LIMITS.values())
            below = await context.clients.zpool.devices(vault.pool) if by_rotation else ()
            lease = {
                "module": dict(reading),
                "rotational": sorted(_rotational(below)),
                "reasons": list_parameter_reasons(context, vault, reading),
            }
            context.records.undo.put(TUNING_READING_PREFIX + vault.name, lease)
            await _apply(context, say)
    except (ZvaultError, OSError) as error:
        say(f"continuing without tuning of reads: {error}")


async def restore_reading_parameters(context: Context, vault: Vault, say: SayProgress) -> None:
    """Restore the parameters that a vault wanted for reading, now that nobody reads it; errors as before."""
    await _restore(context, [TUNING_READING_PREFIX + vault.name], say)


@asynccontextmanager
async def pause_txgs(context: Context, vault: Vault, say: SayProgress) -> AsyncIterator[None]:
    """Have OpenZFS begin no transaction group of any pool within the block because it is time for one.

    Once it is time for one in a suspended pool, txg_sync turns round and round and holds a lock (txg_sync_thread in
    txg.c). It reads zfs_txg_timeout each time round, so it waits again. Errors as in ``set_vault_parameters``.
    """
    name = TUNING_REVIVAL_PREFIX + vault.name
    try:
        wanted = {"module": {"zfs_txg_timeout": NO_TXG_BY_TIME}, "rotational": [], "reasons": {}}
        context.records.undo.put(name, wanted)
        await _apply(context, say)
    except (ZvaultError, OSError) as error:
        say(f"continuing with transaction groups: {error}")
    try:
        yield
    finally:
        await finish_work(_restore(context, [name], say))


async def restore_parameters(context: Context, vault: Vault, say: SayProgress) -> None:
    """Restore the parameters that only this vault wanted, now that it is down; errors as in
    ``set_vault_parameters``.
    """
    await _restore(context, [prefix + vault.name for prefix in _PREFIXES], say)


async def _restore(context: Context, names: Collection[str], say: SayProgress) -> None:
    """Drop these leases, and set the parameters that are wanted without them."""
    try:
        held = [name for name in names if context.records.undo.get(name) is not None]
        for name in held:
            context.records.undo.drop(name)
        if held:
            await _apply(context, say)
    except (ZvaultError, OSError) as error:
        say(f"module parameters could not be put back: {error}")


async def reconcile_tuning(context: Context, say: SayProgress) -> None:
    """After a start, once vaults are adopted: restore values of vaults that are down; drop leases of other boots.

    Whoever read or revived a vault ended with the daemon before, so none is read or revived now.
    """
    try:
        for prefix in _PASSING:
            for name in context.records.undo.names(prefix):
                context.records.undo.drop(name)
        up = {name.removeprefix("vault/") for name in context.records.undo.names("vault/")}
        for name in context.records.undo.names(TUNING_LEASE_PREFIX):
            lease = context.records.undo.get(name)
            if lease is not None and (lease["stale"] or name.removeprefix(TUNING_LEASE_PREFIX) not in up):
                context.records.undo.drop(name)
        if context.records.undo.get(HOST) is not None:
            await _apply(context, say)
    except (ZvaultError, OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        say(f"module parameters could not be put back: {error}")


def count_held_parameters(leases: RecordStore, vault: str) -> int | None:
    """The number of parameters that are set for a vault now; None if the leases cannot be read."""
    try:
        wanted = [one.module.keys() for one in list_tuning_requests(leases) if one.vault == vault]
        return len(wanted[0] & read_note(leases).held.keys()) if wanted else 0
    except (ZvaultError, KeyError, TypeError, AttributeError, ValueError):
        return None


def list_tuning_complaints(leases: RecordStore) -> list[str]:
    """The parameters that a vault that is up wants and that could not be set, in words."""
    try:
        return [f"{text}; {SHOW}" for _, text in sorted(read_note(leases).troubles.items())]
    except (ZvaultError, KeyError, TypeError, AttributeError, ValueError) as error:
        return [str(error)]


async def _set_vdev_properties(
    runner: ProcessRunner, pool: str, wanted: Mapping[str, str], say: SayProgress
) -> None:
    """Set the profile's vdev properties on a vault's pool. They belong to the pool, so they are never restored."""
    for name, value in wanted.items():
        found = await read_property(runner, pool, name)
        if found is None and ASSUMED_VDEV_PROPERTIES.get(name) != value:
            say(f"this OpenZFS has no vdev property {name}, so it is not set")
        for vdev in [vdev for vdev, has in (found or {}).items() if has != value]:
            await set_property(runner, pool, vdev, name, value)
            say(f"{name} of {vdev} set to {value}")


# Reading the leases

_PASSING = (TUNING_READING_PREFIX, TUNING_REVIVAL_PREFIX)
"""Leases of what ends with the daemon at the latest."""

_PREFIXES = (TUNING_LEASE_PREFIX, *_PASSING)


def _rotational(devices: Collection[str]) -> set[bool]:
    """Whether the devices are rotational, for those that report it."""
    return {says for says in map(is_rotational, devices) if says is not None}


def list_tuning_requests(leases: RecordStore) -> list[TuningRequest]:
    """Read what the vaults that are up want, with what those that are read or revived want besides."""
    found: dict[str, TuningRequest] = {}
    for prefix in _PREFIXES:
        for name in leases.names(prefix):
            lease = leases.get(name)
            if lease is not None and not lease["stale"]:
                vault = name.removeprefix(prefix)
                before = found.get(vault, TuningRequest(vault, {}))
                found[vault] = TuningRequest(
                    vault,
                    {**before.module, **lease["module"]},
                    before.rotational | frozenset(lease["rotational"]),
                    {**before.reasons, **lease.get("reasons", {})},  # missing in leases of older versions
                )
    return list(found.values())


def read_note(leases: RecordStore) -> TuningNote:
    """The host's lease of this boot."""
    lease = leases.get(HOST)
    if lease is None or lease["stale"]:
        return TuningNote()
    held = {name: LeasedValue(one["before"], tuple(one["ours"])) for name, one in lease["held"].items()}
    return TuningNote(held, lease["troubles"])


def _keep(leases: RecordStore, note: TuningNote) -> None:
    if note.held or note.troubles:
        leases.put(HOST, asdict(note))
    else:
        leases.drop(HOST)


# Setting parameters


async def _apply(context: Context, say: SayProgress) -> None:
    """Set the parameters that the vaults that are up want, whatever the host's values are now."""
    async with context.records.undo.lock("tuning"):
        leases = context.records.undo
        before = read_note(leases)
        host = await module_parameters.read_tuned_host(context.env.runner)
        verdicts = decide_parameters(list_tuning_requests(leases), host)
        target = {one.name: one.value for one in verdicts if one.value is not None}
        now = _values(host)
        todo = plan_value_moves(target, before.held, now)
        _keep(leases, TuningNote(dict(todo.during), before.troubles))
        refused = (
            await module_parameters.write_parameters(todo.write, context.env.runner) if todo.write else ""
        )
        ours = {*target, *todo.during, *todo.write}
        made = (
            _values(await module_parameters.read_tuned_host(context.env.runner, only=ours))
            if todo.write
            else now
        )
        troubles = _troubles(verdicts, target, made, before.held, todo, refused)
        note = TuningNote(list_leases_after(todo, target, made), troubles)
        _keep(leases, note)
    _tell(say, todo, target, made, now, note)
    _tell_others(context, say, before, note)


def _values(host: TunedHost) -> dict[str, str]:
    return {name: one.value for name, one in host.parameters.items()}


def _troubles(
    verdicts: Collection[ParameterDecision],
    target: Mapping[str, str],
    made: Mapping[str, str],
    held: Mapping[str, LeasedValue],
    todo: ValueMoves,
    refused: str,
) -> dict[str, str]:
    """The parameters that do not have the wanted value, and why."""
    found = {one.name: f"{one.name} is not set: {one.why}" for one in verdicts if one.trouble}
    for name, wanted in target.items():
        if made[name] == wanted:
            continue
        if name in todo.others:
            found[name] = (
                f"{name} is {made[name]}: somebody else set it after zvault had set {held[name].ours[-1]}"
            )
        else:
            found[name] = f"{name} is {made[name]} and not {wanted}: the kernel refused it ({refused})"
    return found


def _tell(
    say: SayProgress,
    todo: ValueMoves,
    target: Mapping[str, str],
    made: Mapping[str, str],
    was: Mapping[str, str],
    note: TuningNote,
) -> None:
    done = [f"{name} {was[name]} to {made[name]}" for name in todo.write if name in target]
    back = [f"{name} to {made[name]}" for name in todo.write if name not in target]
    if done:
        say(f"module parameters of OpenZFS set: {', '.join(done)}")
    if back:
        say(f"module parameters of OpenZFS restored: {', '.join(back)}")
    for name, value in todo.others.items():
        if name not in target:
            say(f"{name} stays at {value}: somebody else changed it after zvault had set it")
    for text in note.troubles.values():
        say(text)


def _tell_others(context: Context, say: SayProgress, before: TuningNote, note: TuningNote) -> None:
    """Say once, when the first vault sets parameters, which other pools they affect."""
    pools = list_other_pools(context)
    if note.held and not before.held and pools:
        say(f"module parameters apply to every pool of this host, also to {', '.join(pools)}")


def list_other_pools(context: Context) -> list[str]:
    """The pools of this host that belong to no tuned vault."""
    vaults = context.env.config.vault
    requests = list_tuning_requests(context.records.undo)
    ours = {vaults[request.vault].pool for request in requests if request.vault in vaults}
    return [pool for pool in module_parameters.list_imported_pools() if pool not in ours]
