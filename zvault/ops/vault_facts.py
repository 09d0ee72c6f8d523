"""A vault's health from its document and what is on record of it; and a verdict as the API sends it."""

from __future__ import annotations

from zvault.api.health import HealthDocument
from zvault.api.vaults import DeviceDocument, JudgedVault, VaultDocument
from zvault.core.health.vault import VaultHealthFacts
from zvault.core.health.verdict import HealthVerdict
from zvault.core.integrity.damage import classify_damages
from zvault.core.policy.scrub import ScrubPolicy
from zvault.devices.device_state import READ_ONLY
from zvault.ops.context import Context
from zvault.ops.removable_disk import is_disk_out_of_care
from zvault.ops.state.costs import list_uncounted
from zvault.ops.state.older_vault import find_older_vault
from zvault.ops.state.pool_health import PoolCondition


def make_vault_facts(context: Context, vault: VaultDocument) -> VaultHealthFacts:
    """The facts that are in a vault's document and in the records; nothing is asked of the pool."""
    seen = context.records.conditions.get(vault["name"])
    policy = _policy(context, vault["name"])
    age, due = _scrub(context, policy, seen)
    scrub = vault["scrub"]
    config = context.env.config.vault.get(vault["name"])
    return VaultHealthFacts(
        name=vault["name"],
        pool=vault["pool"],
        state=vault["state"],
        pool_state=vault["health"],
        readonly=vault["readonly"],
        locked=tuple(one["path"] or one["name"] for one in vault["devices"] if one["detail"] == READ_ONLY),
        multihost=bool(vault["multihost"]),
        panics=vault["failmode"] == "panic",
        foreign=tuple(vault["foreign"]),
        doubted_for=None
        if seen is None or seen.doubted is None
        else max(0.0, context.env.clock.time() - seen.doubted),
        older=find_older_vault(context.env, context.records, vault["name"]),
        networked=bool(config is not None and config.device),
        error=vault["error"],
        lost=tuple(
            f"{one['name']} is gone: {one['detail']}" for one in vault["devices"] if one["state"] == "gone"
        ),
        troubles=tuple(f"{one['name']}: {why}" for one in vault["devices"] if (why := _store_trouble(one))),
        looked=scrub is not None,
        errors=scrub["errors"] if scrub is not None else 0,
        damage_kinds=classify_damages(one["dataset"] for one in scrub["damages"]) if scrub else frozenset(),
        unexplained=scrub["unexplained"] if scrub is not None else 0,
        half_received=tuple(scrub["half_received"]) if scrub is not None else (),
        scrub_age=age,
        # A disk that is in the cupboard can be scrubbed once it is plugged in, and is then.
        scrub_due=None
        if vault["away"] or (config is not None and is_disk_out_of_care(context, config))
        else due,
        scrub_by_age=policy.every is not None,
        scrubbing=scrub is not None and scrub["state"] == "scanning",
        scrub_why=_kept_by(vault),
        free=vault["free"],
        size=vault["size"],
    )


def _policy(context: Context, name: str) -> ScrubPolicy:
    config = context.env.config.vault.get(name)
    return config.scrubs() if config is not None else ScrubPolicy()


def _scrub(
    context: Context, policy: ScrubPolicy, seen: PoolCondition | None
) -> tuple[float | None, float | None]:
    """Seconds since the last scrub, and after how many one was due; None where that is not known, or never."""
    env = context.env
    if seen is None or seen.since is None:
        return None, None
    due = policy.due(seen.since, env.zone) - seen.since if policy else None
    return max(0.0, env.clock.time() - seen.since), due


def _kept_by(vault: VaultDocument) -> str:
    scrub = vault["scrub"]
    if scrub is None:
        return ""
    return "scrubs are put off by hand" if scrub["held"] else scrub["pausing"]


def _store_trouble(device: DeviceDocument) -> str | None:
    return device["store"]["trouble"] if device["store"] is not None else None


def make_health_document(verdict: HealthVerdict) -> HealthDocument:
    """A verdict as the API sends it."""
    return {
        "level": verdict.level,
        "state": verdict.word,
        "findings": [
            {
                "condition": one.condition.key,
                "level": one.condition.level,
                "state": one.word,
                "what": one.condition.says,
                "why": one.why,
                "next": one.next,
            }
            for one in verdict.findings
        ],
    }


def make_judged_vault(context: Context, vault: VaultDocument, verdict: HealthVerdict) -> JudgedVault:
    """A vault's document with its verdict, and what it costs."""
    return {
        **vault,
        "verdict": make_health_document(verdict),
        "cost": context.records.costs.document(context.env, vault["name"]),
        "uncounted": list_uncounted(context.env, vault),
    }
