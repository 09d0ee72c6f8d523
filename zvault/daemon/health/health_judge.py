"""The daemon's verdicts, and what they need to be remembered: since when something is unknown, what was seen last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from zvault.api.vaults import VaultDocument
from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.core.health.space import FreeSpaceSample, add_free_sample, has_enough_samples, predict_full
from zvault.core.health.vault import JOURNAL_FULL, VaultHealthFacts, judge_vault
from zvault.core.health.verdict import HealthVerdict
from zvault.ops.context import Context
from zvault.ops.vault_facts import make_vault_facts


class LastSeenPool(NamedTuple):
    """A pool when it was last imported; bytes, None where not known."""

    degraded: bool
    free: int | None
    size: int | None


@dataclass
class HealthJudge:
    """Judges backups and vaults. What it remembers ends with the daemon, and is dated by the boot time."""

    context: Context
    _unknown: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, LastSeenPool] = field(default_factory=dict)
    _full: dict[str, float] = field(default_factory=dict)
    _space: dict[str, tuple[FreeSpaceSample, ...]] = field(default_factory=dict)

    def backup(self, facts: BackupFacts, way: str) -> HealthVerdict:
        """A backup's verdict. ``way``: what it takes and where it puts it; another one is another backup."""
        unknown_for = self._unknown_for(f"backup {facts.name} {way}", judge_backup(facts))
        return judge_backup(facts, unknown_for)

    def vault(self, vault: VaultDocument, stalls: Mapping[str, tuple[str, ...]]) -> HealthVerdict:
        """A vault's verdict, from its document and what is remembered. ``stalls``: by vault, in words."""
        facts = self._vault_facts(vault, stalls)
        return judge_vault(facts, self._unknown_for(f"vault {facts.name}", judge_vault(facts)))

    def knows_pace(self, vault: str) -> bool:
        """True if a vault was seen for long enough to tell when it will be full."""
        return has_enough_samples(self._space.get(vault, ()))

    def full_in(self, vault: str) -> float | None:
        """Seconds until nothing of a vault is free, at the pace of the last days; None where they tell of none."""
        return predict_full(self._space.get(vault, ()), self.context.env.clock.boottime())

    def _vault_facts(self, vault: VaultDocument, stalls: Mapping[str, tuple[str, ...]]) -> VaultHealthFacts:
        name = vault["name"]
        if vault["health"] is not None:
            self._seen[name] = LastSeenPool(vault["health"] == "DEGRADED", vault["free"], vault["size"])
            if vault["free"] is not None:
                new = FreeSpaceSample(self.context.env.clock.boottime(), vault["free"])
                self._space[name] = add_free_sample(self._space.get(name, ()), new)
        facts = replace(
            make_vault_facts(self.context, vault),
            stalls=stalls.get(name, ()),
            drift=self.context.activity.writes.drifts.get(name, ""),
            full_in=self.full_in(name),
            journal_full_for=self._since(self._full, name, holds=is_journal_full(vault)),
        )
        seen = self._seen.get(name)
        if vault["state"] == "down" and seen is not None:
            facts = replace(facts, was_degraded=seen.degraded, free=seen.free, size=seen.size)
        return facts

    def _unknown_for(self, subject: str, verdict: HealthVerdict) -> float:
        return self._since(self._unknown, subject, holds=verdict.open)

    def _since(self, known: dict[str, float], key: str, *, holds: bool) -> float:
        """Seconds for which something has held, as far as this daemon has seen."""
        if not holds:
            known.pop(key, None)
            return 0.0
        now = self.context.env.clock.boottime()  # which nobody sets
        return now - known.setdefault(key, now)


def is_journal_full(vault: VaultDocument) -> bool:
    """True if the journal of a block store that is served is full: it waits for the bucket."""
    return vault["state"] != "down" and any(
        (store := device["store"]) is not None
        and store.get("journal_used", 0) > JOURNAL_FULL * store.get("journal_capacity", float("inf"))
        for device in vault["devices"]
    )
