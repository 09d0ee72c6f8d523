"""What is told of a vault's damage, and what to do about it."""

from __future__ import annotations

from zvault.api.events import Emit, WarningEvent
from zvault.config.schema import Vault
from zvault.core.errors import PoolDamaged
from zvault.core.integrity.damage import (
    METADATA_NAME,
    DamageKind,
    advise_on_damage,
    advise_on_leak,
    classify_damages,
    count_damaged_files,
    describe_damage_kinds,
)
from zvault.core.model import Tree
from zvault.ops.context import Context
from zvault.ops.state.pool_health import PoolCondition

WARNED_DAMAGES = 20
"""Damages told by name in a run's warnings; the vault's status has them all."""


def warn_of_damage(condition: PoolCondition, emit: Emit) -> None:
    """Warn of each damage by name, of the first ones where there are many."""
    damages = condition.damages
    for damage in damages[:WARNED_DAMAGES]:
        emit(WarningEvent(text=f"damaged: {damage}"))
    if len(damages) > WARNED_DAMAGES:
        emit(WarningEvent(text=f"and {len(damages) - WARNED_DAMAGES} more"))


GIVE_UP_HALF = "Where they come again, 'zfs receive -A' of it has the next run send it anew"
"""What to do about errors of what is half received that a whole scrub has met as well."""


def describe_excused(condition: PoolCondition) -> str:
    """The errors of what is half received, in a sentence."""
    errors = "1 error" if condition.excused == 1 else f"{condition.excused} errors"
    if not condition.half_received:
        return (
            f"ZFS has {errors} on its list since something was half received: no damage is known; the next whole scrub"
            " tells whether there is any"
        )
    return (
        f"ZFS has {errors} on its list while {', '.join(condition.half_received)} is half received, as an outage leaves"
        " it: no damage is known; the next run goes on with it, and then they are looked at again"
    )


async def find_leak(
    context: Context, vault: Vault, condition: PoolCondition, tree: Tree
) -> PoolDamaged | None:
    """The error for a vault in which nothing of what is there (``tree``) is damaged, but what was destroyed is, and

    cannot be freed for that.
    """
    there = {*tree.datasets, *tree.unlisted, METADATA_NAME}
    if not condition.errors or any((one.dataset or "") in there for one in condition.damages):
        return None
    freeing = await context.clients.zpool_of(vault).read_freeing(vault.pool)
    if not freeing:
        return None
    return PoolDamaged(
        f"vault '{vault.name}' has {condition.errors} errors in what was destroyed",
        *advise_on_leak(vault.pool, freeing),
    )


def make_damaged_error(vault: Vault, condition: PoolCondition) -> PoolDamaged:
    """The error that a vault's damage is."""
    kinds = classify_damages(damage.dataset for damage in condition.damages)
    advice = advise_on_damage(vault.name, kinds)
    if DamageKind.DATA not in kinds:
        return PoolDamaged(
            f"vault '{vault.name}' has errors, and no dataset or snapshot is known to be damaged",
            f"ZFS counts {condition.errors} errors{describe_damage_kinds(kinds)}",
            advice,
        )
    places = len({damage.place for damage in condition.damages})
    return PoolDamaged(
        f"vault '{vault.name}' is damaged",
        f"{count_damaged_files(condition.damages)} files in {places} snapshots and datasets; ZFS counts "
        f"{condition.errors} errors",
        advice,
    )
