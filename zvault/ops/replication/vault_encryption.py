"""Tells how datasets lie on their vault, and refuses before its first byte what could not be encrypted there.

What is decided of them is in core/replication/vault_encryption.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.vault_encryption import (
    EncryptionOnVault,
    VaultKeys,
    decide_encryptions,
    find_exposed,
    refuse_locked_source,
)
from zvault.ops.replication.listing import BothListings
from zvault.zfs.client import Zfs


def expect_encryptions(sides: BothListings, plans: Sequence[TransferPlan]) -> dict[str, EncryptionOnVault]:
    """Foresee how each planned dataset lies on the vault, or will, by the source's name; its keys are taken to be
    loaded.
    """
    return decide_encryptions(_keys_of(sides), sides.pairing, plans, lambda _: True)


def list_exposed(sides: BothListings) -> dict[str, str]:
    """See ``find_exposed``: of both sides as they were listed."""
    return find_exposed(_keys_of(sides), sides.pairing, sides.apart)


def _keys_of(sides: BothListings) -> VaultKeys:
    return VaultKeys(sides.vault, sides.keys_above)


async def refuse_unencrypted(
    source: Zfs, vault: Zfs, sides: BothListings, plans: Sequence[TransferPlan]
) -> Sequence[TransferPlan]:
    """The plans, with a conflict for each that would store in the clear what belongs encrypted, or needs a key that
    is not loaded. The vault is asked for keys that something has to be encrypted with, and for no others; the source
    for those of what is sent decrypted.
    """
    plans = await _refuse_locked_sources(source, sides, plans)
    needed: dict[str, None] = {}
    refused = await sides.compute(_refuse, sides, plans, lambda key: needed.setdefault(key) is None)
    if needed:
        loaded = await vault.loaded_keys(list(needed))
        refused = await sides.compute(_refuse, sides, plans, loaded.__contains__)
    return refused


async def _refuse_locked_sources(
    source: Zfs, sides: BothListings, plans: Sequence[TransferPlan]
) -> Sequence[TransferPlan]:
    roots = {
        plan.dataset: one.key_root
        for plan in plans
        if plan.steps and (one := sides.source.datasets[plan.dataset]).is_sent_decrypted
    }
    if not roots:
        return plans
    loaded = await source.loaded_keys(sorted(set(roots.values())))
    locked = {name: refuse_locked_source(name, root) for name, root in roots.items() if root not in loaded}
    return [_refused(plan, locked.get(plan.dataset)) for plan in plans]


def _refuse(
    sides: BothListings, plans: Sequence[TransferPlan], is_loaded: Callable[[str], bool]
) -> Sequence[TransferPlan]:
    moving = {plan.dataset for plan in plans if plan.steps}
    if not moving:
        return plans
    made = decide_encryptions(_keys_of(sides), sides.pairing, plans, is_loaded)
    if not any(made[name].refusal for name in moving if name in made):
        return plans
    return [_refused(plan, made.get(plan.dataset)) for plan in plans]


def _refused(plan: TransferPlan, made: EncryptionOnVault | None) -> TransferPlan:
    if made is None or not made.refusal or not plan.steps:
        return plan
    return replace(
        plan,
        action=TransferAction.CONFLICT,
        reason=made.refusal,
        next=made.advice,
        steps=(),
        changes=(),
        after=(),
    )
