"""Every condition that a judgement of health knows: docs/reference/health.md is made from this table."""

from __future__ import annotations

from zvault.core.health.backup_conditions import BACKUP_CONDITIONS
from zvault.core.health.daemon_conditions import DAEMON_CONDITIONS
from zvault.core.health.vault_conditions import VAULT_CONDITIONS
from zvault.core.health.verdict import HealthCondition, SubjectKind

CONDITIONS: dict[SubjectKind, tuple[HealthCondition, ...]] = {
    "backup": BACKUP_CONDITIONS,
    "vault": VAULT_CONDITIONS,
    "daemon": DAEMON_CONDITIONS,
}
"""By the kind of their subject, worst first."""
