"""The conditions of a backup."""

from __future__ import annotations

from zvault.core.health.verdict import HealthCondition

BACKUP_VERY_LATE = HealthCondition(
    "very-late",
    "backup",
    "critical",
    "late",
    "is far behind",
    "The lag is more than three times `max_lag`: that of one dataset, if that of another is not known.",
    "It does not catch up by itself. If the source is lost now, that much is lost with it.",
    "see why with 'zvaultctl history {name}', start a run with 'zvaultctl run {name}'",
    "ZvaultBackupVeryLate",
)
DIFFERS = HealthCondition(
    "differs",
    "backup",
    "critical",
    "differs",
    "is not what the source is",
    "The last verification of a level found a difference.",
    "The vault or the source is damaged, or was changed. The backup is not to be trusted until that is explained.",
    "see what differs with 'zvaultctl history {name}', and destroy nothing on the source",
    "ZvaultVerificationFailed",
)
EXPOSED = HealthCondition(
    "exposed",
    "backup",
    "critical",
    "exposed",
    "lies in the clear below what is encrypted",
    "A dataset of it lies on the vault without encryption, below one that is encrypted there; or did when the vault "
    "was seen last.",
    "Whoever has the vault's disks reads it. An earlier zvault, or another tool, received it so.",
    "make it anew as docs/how-to/encrypt-a-vault.md says: set aside what lies there in the clear, run 'zvaultctl run "
    "{name}', and destroy the old one once the new one is proven",
)
FAILED = HealthCondition(
    "failed",
    "backup",
    "warning",
    "failed",
    "failed when it ran last",
    "The last run that ended failed, with all its retries.",
    "Nothing, or not all, was backed up.",
    "see what failed with 'zvaultctl history {name}', then 'zvaultctl run {name}'",
    "ZvaultBackupFailed",
)
BACKUP_LATE = HealthCondition(
    "late",
    "backup",
    "warning",
    "late",
    "is late",
    "The lag of a dataset is more than `max_lag`; or the lag is not known, and the last run without fault began longer "
    "ago than that.",
    "If the source is lost now, more is lost than you said you can bear.",
    "start it with 'zvaultctl run {name}'; see 'zvaultctl history {name}'",
    "ZvaultBackupLate",
)
OVERDUE = HealthCondition(
    "overdue",
    "backup",
    "warning",
    "late",
    "missed two of its times",
    "Two times of its schedule have passed without a backup, and there is no `max_lag`, or it never ran. Not of a "
    "backup to a disk that is plugged in now and then.",
    "The runs do not begin, or do not succeed.",
    "start it with 'zvaultctl run {name}'; see 'zvaultctl history {name}'",
)
LAG_UNKNOWN_LONG = HealthCondition(
    "lag-unknown-long",
    "backup",
    "warning",
    "late",
    "has had an unknown lag for too long",
    "The lag has not been known for `max_lag`, or a day where there is none. Restarts of `zvaultd` begin that anew. "
    "Without `max_lag` not while the vault's disk is unplugged, once something was put on it.",
    "There may be no backup.",
    "start it with 'zvaultctl run {name}'",
    "ZvaultLagUnknown",
)
PARTIAL = HealthCondition(
    "partial",
    "backup",
    "warning",
    "partial",
    "left something out when it ran last",
    "The last run that ended did not do all it should.",
    "Some datasets were not backed up, or not all that is to go was pruned.",
    "see what is missing with 'zvaultctl history {name}', then 'zvaultctl run {name}'",
    "ZvaultBackupFailed",
)
NOT_SNAPSHOTTED = HealthCondition(
    "not-snapshotted",
    "backup",
    "warning",
    "partial",
    "got no snapshot of all when it was last due",
    "The last snapshot by `snapshot.schedule` or `snapshot.every` failed, or left datasets out.",
    "What was on those datasets then is in no snapshot, here or on the vault.",
    "'zvaultctl history {name}' says what is in the way of it",
)
INTERRUPTED = HealthCondition(
    "interrupted",
    "backup",
    "warning",
    "interrupted",
    "was interrupted when it ran last",
    "The last run was cut short: the daemon was stopped or died, or the host went down or to sleep.",
    "The next run resumes what was under way. Until then the backup is as old as the lag says.",
    "start it with 'zvaultctl run {name}'",
    "ZvaultBackupFailed",
)
CONFLICT = HealthCondition(
    "conflict",
    "backup",
    "warning",
    "conflict",
    "has datasets in conflict",
    "The last run left datasets out, because source and vault share no base, or the vault's copy was changed.",
    "These datasets are not backed up until you decide.",
    "'zvaultctl plan {name}' says what each of them needs",
    "ZvaultBackupFailed",
)
BASE_AT_RISK = HealthCondition(
    "base-at-risk",
    "backup",
    "warning",
    "at-risk",
    "has a base of which only a bookmark is left",
    "Of a dataset no snapshot on the source is on the vault, and only the bookmark of the base is left.",
    "If the bookmark goes too, all of that dataset has to be sent again.",
    "send the next snapshot now: 'zvaultctl run {name}'",
    "ZvaultBaseAtRisk",
)
HELD_BACK = HealthCondition(
    "held-back",
    "backup",
    "warning",
    "held-back",
    "has more to prune than prune_limit allows",
    "`prune_limit` held something back when it was pruned last.",
    "A shorter `keep` than before, or a wrong date, selects much at once.",
    "'zvaultctl prune {name} -n --over-limit' shows what is to go; if it is too much, make 'keep' longer",
    "ZvaultPruneHeldBack",
)
NOT_STARTED = HealthCondition(
    "not-started",
    "backup",
    "warning",
    "late",
    "is due and does not run",
    "A run was due more than 15 minutes ago, and none has begun.",
    "The daemon is up and does something else, or hangs.",
    "'journalctl -u zvaultd' says what it does; 'zvaultctl run {name}' starts it",
    "ZvaultRunOverdue",
)
PROOF_OVERDUE = HealthCondition(
    "proof-overdue",
    "backup",
    "warning",
    "unproven",
    "was not proven for too long",
    "A level of `verify` that has an interval last passed longer ago than that, a tenth of it, and an hour at least. "
    "Not while the vault's disk is unplugged.",
    "Nobody has looked whether the vault still has what the source had.",
    "'zvaultctl verify {name}' looks now",
    "ZvaultVerificationOverdue",
)
NEVER_PROVEN = HealthCondition(
    "never-proven",
    "backup",
    "warning",
    "unproven",
    "was never proven",
    "A level of `verify` that has an interval never passed, as long after the first proof of GUIDs. Not while the "
    "vault's disk is unplugged.",
    "Nobody has looked whether the vault has what the source has.",
    "'zvaultctl verify {name}' looks now",
    "ZvaultNeverVerified",
)
RESTORE_SLOW = HealthCondition(
    "restore-slow",
    "backup",
    "warning",
    "slow-restore",
    "takes too long to restore",
    "To restore all of it takes longer than `max_restore`, at the rate at which its vault was last read in earnest.",
    "If the source is lost, you are without it for longer than you said you can bear.",
    "'zvaultctl verify {name} --level drill' measures again; the runbook says what makes it faster",
    "ZvaultRestoreSlow",
)
UNKNOWN_LONG = HealthCondition(
    "backup-unknown-long",
    "backup",
    "warning",
    "unknown",
    "has not been known for too long",
    "Anything else about it has been unknown for `max_lag`, or a day where there is none.",
    "It may be well or not.",
    "start it with 'zvaultctl run {name}'",
)
NEW = HealthCondition(
    "new",
    "backup",
    "unknown",
    "new",
    "never ran",
    "No run of it is known, and nothing of it on the vault.",
    "There is no backup yet.",
    "start it with 'zvaultctl run {name}'",
)
FIRST_RUN = HealthCondition(
    "first-run",
    "backup",
    "unknown",
    "new",
    "runs for the first time",
    "Its first run is under way, and nothing of it is known to be on the vault yet.",
    "There is no whole backup yet.",
    "'zvaultctl follow {name}' shows how far it is",
)
LAG_UNKNOWN = HealthCondition(
    "lag-unknown",
    "backup",
    "unknown",
    "unknown",
    "has an unknown lag",
    "The lag of a dataset is not known: the vault has nothing of it, nobody could see what it has, or what it "
    "has is dated later than now. For a second or two also after a vault came up, or a dataset on either side was "
    "renamed, made anew or rolled back: until that was read.",
    "That dataset may have no backup.",
    "start it with 'zvaultctl run {name}', which sees what the vault has",
)
SNAPSHOTS_UNKNOWN = HealthCondition(
    "snapshots-unknown",
    "backup",
    "unknown",
    "unknown",
    "has snapshots of unknown age",
    "It makes snapshots only, and a dataset has none, nobody could see them, or the newest is dated later than now.",
    "What was lost on that dataset may not be there in a snapshot either.",
    "start it with 'zvaultctl run {name}', which sees what there is",
)
NOT_READ = HealthCondition(
    "lag-not-read",
    "backup",
    "unknown",
    "unknown",
    "cannot be looked at",
    "The source or the vault could not be listed when its lag was to be read. What is told is that of the last look.",
    "What is new on the source, or gone, is not known.",
    "see that the hosts of source and vault answer; 'zvaultctl plan {name}' looks again",
)
PROOF_UNKNOWN = HealthCondition(
    "proof-unknown",
    "backup",
    "unknown",
    "unproven",
    "has proofs of unknown age",
    "`verify` has an interval, and the proofs, which are on the vault, were never seen from this host, or are dated "
    "later than now.",
    "It is not known when the backup was last proven, if ever.",
    "'zvaultctl run {name}' or 'zvaultctl vault up' lets them be read",
)
RESTORE_UNKNOWN = HealthCondition(
    "restore-unknown",
    "backup",
    "unknown",
    "unknown",
    "takes nobody knows how long to restore",
    "There is a `max_restore`, and it is not known how much the backup holds, or how fast its vault is read: nothing "
    "of 64 MiB or more was read from it in earnest yet.",
    "It may take longer to restore than you said you can bear.",
    "'zvaultctl verify {name} --level drill' measures it",
)

BACKUP_CONDITIONS = (
    BACKUP_VERY_LATE,
    DIFFERS,
    EXPOSED,
    FAILED,
    BACKUP_LATE,
    OVERDUE,
    LAG_UNKNOWN_LONG,
    PARTIAL,
    NOT_SNAPSHOTTED,
    INTERRUPTED,
    CONFLICT,
    BASE_AT_RISK,
    HELD_BACK,
    NOT_STARTED,
    PROOF_OVERDUE,
    NEVER_PROVEN,
    RESTORE_SLOW,
    UNKNOWN_LONG,
    NEW,
    FIRST_RUN,
    LAG_UNKNOWN,
    SNAPSHOTS_UNKNOWN,
    NOT_READ,
    PROOF_UNKNOWN,
    RESTORE_UNKNOWN,
)
"""Worst first; of the same level, in the order in which they name the state."""
