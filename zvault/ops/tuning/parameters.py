"""Module parameters as leases: set while a vault that wants them is up, and put back when the last one goes down.

Two kinds of notes are kept (``system/lease.py``): what each vault that is up wants, and, for the host, what every
parameter was before and what zvault made of it. Both are written before a parameter is. Parameters are those of the
running kernel, so notes from another boot tell of nothing any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field

from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.leased_values import LeasedValue, Moves, after, moves
from zvault.core.tuning.tuning import Host, ParameterDecision, TuningRequest, decide
from zvault.devices.queue import rotational
from zvault.devices.stack import Say
from zvault.ops.context import Context
from zvault.ops.tuning.measurements import AUTO, outcome, profile_of, reasons_of, sweep
from zvault.system.process.runner import Runner
from zvault.system.state_files import LeaseStore
from zvault.zfs.pool import module_parameters
from zvault.zfs.pool.vdev_properties import read_property, set_property

VAULTS = "tuning/vault/"
HOST = "tuning/host"

ALWAYS = {"scheduler": "on"}
"""Vdev properties that an OpenZFS without them behaves as if it had: up to 2.4 requests always go through its queue."""

SHOW = "'zvaultctl tune show' explains it"


@dataclass
class TuningNote:
    """What is written down for the host: what is held by parameter, and what could not be done, in words."""

    held: dict[str, LeasedValue] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)


async def tuned(
    context: Context, vault: Vault, devices: Collection[str], say: Say, *, new: bool = False
) -> None:
    """Set what a vault that has come up wants; ``devices`` are those zvault brought up for it.

    Nobody is told to measure those of a ``new`` one: that has just been done. Whatever goes wrong is said and shown,
    never raised: a vault that is not tuned is slow, and still a vault.
    """
    if vault.host is not None:
        return
    try:
        if await sweep(context, vault):
            say("destroyed the scratch dataset that a measurement left when it was killed")
        state = await context.clients.zpool.state(vault.pool)
        profile = profile_of(context, vault, None if state is None else state.guid)
        if vault.profile == AUTO and not (new or profile.module) and outcome(context.records, vault) is None:
            say(f"nothing is known of its devices yet: 'zvaultctl tune measure {vault.name}' measures them")
        await wanted(context, vault, profile.module, devices, say)
        await _set_vdev_properties(context.env.runner, vault.pool, profile.vdev, say)
    except (ZvaultError, OSError) as error:
        say(f"going on without tuning: {error}")


async def wanted(
    context: Context, vault: Vault, module: Mapping[str, str], devices: Collection[str], say: Say
) -> None:
    """Write down that a vault that is up wants these parameters, or none, and make it so; ``devices`` as ``tuned``."""
    if not module:
        await untuned(context, vault, say)
        return
    below = devices or await context.clients.zpool.devices(vault.pool)
    lease = {
        "module": dict(module),
        "rotational": sorted(_rotational(below)),
        "reasons": reasons_of(context.records, vault, module),
    }
    context.records.leases.put(VAULTS + vault.name, lease)
    await _settle(context, say)


async def untuned(context: Context, vault: Vault, say: Say) -> None:
    """Put back what only this vault wanted, now that it is down; see ``tuned`` for what goes wrong."""
    try:
        if context.records.leases.get(VAULTS + vault.name) is not None:
            context.records.leases.drop(VAULTS + vault.name)
            await _settle(context, say)
    except (ZvaultError, OSError) as error:
        say(f"module parameters could not be put back: {error}")


async def reconcile_tuning(context: Context, say: Say) -> None:
    """After a start, when vaults are adopted: put back what those left that are down; forget another boot's notes."""
    try:
        up = {name.removeprefix("vault/") for name in context.records.leases.names("vault/")}
        for name in context.records.leases.names(VAULTS):
            lease = context.records.leases.get(name)
            if lease is not None and (lease["stale"] or name.removeprefix(VAULTS) not in up):
                context.records.leases.drop(name)
        if context.records.leases.get(HOST) is not None:
            await _settle(context, say)
    except (ZvaultError, OSError, KeyError, TypeError, AttributeError, ValueError) as error:
        say(f"module parameters could not be put back: {error}")


def held_by(leases: LeaseStore, vault: str) -> int | None:
    """How many parameters are set for a vault at this moment; None where the notes cannot be read."""
    try:
        lease = leases.get(VAULTS + vault)
        if lease is None or lease["stale"]:
            return 0
        return len(lease["module"].keys() & read_note(leases).held.keys())
    except (ZvaultError, KeyError, TypeError, AttributeError, ValueError):
        return None


def complaints(leases: LeaseStore) -> list[str]:
    """What could not be set though a vault that is up wants it."""
    try:
        return [f"{text}; {SHOW}" for _, text in sorted(read_note(leases).troubles.items())]
    except (ZvaultError, KeyError, TypeError, AttributeError, ValueError) as error:
        return [str(error)]


async def _set_vdev_properties(runner: Runner, pool: str, wanted: Mapping[str, str], say: Say) -> None:
    """Set what the profile wants of each device of a vault's pool. It is the pool's own, so nothing goes back."""
    for name, value in wanted.items():
        found = await read_property(runner, pool, name)
        if found is None and ALWAYS.get(name) != value:
            say(f"this OpenZFS has no vdev property {name}, so it is not set")
        for vdev in [vdev for vdev, has in (found or {}).items() if has != value]:
            await set_property(runner, pool, vdev, name, value)
            say(f"{name} of {vdev} set to {value}")


# Reading the notes


def _rotational(devices: Collection[str]) -> set[bool]:
    """What devices say of whether they rotate, those that say it."""
    return {says for says in map(rotational, devices) if says is not None}


def tuning_requests(leases: LeaseStore) -> list[TuningRequest]:
    """What the vaults that are up want."""
    found = {name: leases.get(name) for name in leases.names(VAULTS)}
    return [
        TuningRequest(
            name.removeprefix(VAULTS),
            lease["module"],
            frozenset(lease["rotational"]),
            lease.get("reasons", {}),  # none by a daemon of a version before
        )
        for name, lease in found.items()
        if lease is not None and not lease["stale"]
    ]


def read_note(leases: LeaseStore) -> TuningNote:
    """What is written down for this host, in this boot."""
    lease = leases.get(HOST)
    if lease is None or lease["stale"]:
        return TuningNote()
    held = {name: LeasedValue(one["before"], tuple(one["ours"])) for name, one in lease["held"].items()}
    return TuningNote(held, lease["troubles"])


def _keep(leases: LeaseStore, note: TuningNote) -> None:
    if note.held or note.troubles:
        leases.put(HOST, asdict(note))
    else:
        leases.drop(HOST)


# Making it so


async def _settle(context: Context, say: Say) -> None:
    """Bring the host to what all vaults that are up want together, from whatever is there."""
    async with context.records.leases.lock("tuning"):
        leases = context.records.leases
        before = read_note(leases)
        host = await module_parameters.look(context.env.runner)
        verdicts = decide(tuning_requests(leases), host)
        target = {one.name: one.value for one in verdicts if one.value is not None}
        now = _values(host)
        todo = moves(target, before.held, now)
        _keep(leases, TuningNote(dict(todo.during), before.troubles))
        refused = await module_parameters.write(todo.write, context.env.runner) if todo.write else ""
        made = _values(await module_parameters.look(context.env.runner)) if todo.write else now
        troubles = _troubles(verdicts, target, made, before.held, todo, refused)
        note = TuningNote(after(todo, target, made), troubles)
        _keep(leases, note)
    _tell(say, todo, target, made, now, note)
    _tell_others(context, say, before, note)


def _values(host: Host) -> dict[str, str]:
    return {name: one.value for name, one in host.parameters.items()}


def _troubles(
    verdicts: Collection[ParameterDecision],
    target: Mapping[str, str],
    made: Mapping[str, str],
    held: Mapping[str, LeasedValue],
    todo: Moves,
    refused: str,
) -> dict[str, str]:
    """What is wanted and is not so, by parameter."""
    found = {one.name: f"{one.name} is not set: {one.why}" for one in verdicts if one.trouble}
    for name, wanted in target.items():
        if made[name] == wanted:
            continue
        if name in todo.others:
            found[name] = (
                f"{name} is {made[name]}: somebody else set that after zvault had made it {held[name].ours[-1]}"
            )
        else:
            found[name] = f"{name} is {made[name]} and not {wanted}: the kernel did not take it ({refused})"
    return found


def _tell(
    say: Say,
    todo: Moves,
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
        say(f"module parameters of OpenZFS put back: {', '.join(back)}")
    for name, value in todo.others.items():
        if name not in target:
            say(f"{name} is left at {value}: somebody else set that while zvault had it set")
    for text in note.troubles.values():
        say(text)


def _tell_others(context: Context, say: Say, before: TuningNote, note: TuningNote) -> None:
    """Say once, when the first vault sets something, whom it holds for besides."""
    pools = other_pools(context)
    if note.held and not before.held and pools:
        say(f"module parameters hold for every pool of this host, also for {', '.join(pools)}")


def other_pools(context: Context) -> list[str]:
    """The pools of this host for which no vault's parameters are meant."""
    vaults = context.env.config.vault
    requests = tuning_requests(context.records.leases)
    ours = {vaults[request.vault].pool for request in requests if request.vault in vaults}
    return [pool for pool in module_parameters.imported_pools() if pool not in ours]
