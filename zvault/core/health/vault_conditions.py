"""The conditions of a vault."""

from __future__ import annotations

from zvault.core.health.verdict import HealthCondition

SEE_STATUS = "see 'zvaultctl vault status {name}'"

BRING_BACK = (
    "bring the storage back: zvault connects it again by itself; 'zvaultctl vault status {name}' says what"
    " it waits for"
)

REBOOT = (
    "reboot this host: nothing else removes a suspended pool that has multihost=on. Run no 'zpool clear {pool}'; it"
    " stops every zpool command of every pool. Then 'zpool set multihost=off {pool}'"
)

DEVICE_GONE = HealthCondition(
    "device-gone",
    "vault",
    "critical",
    "gone",
    "has lost a device below its pool",
    "The pool is imported, and a device of it does not answer.",
    "Whoever reads or writes the pool waits.",
    BRING_BACK,
    "ZvaultDeviceGone",
)
VAULT_GONE = HealthCondition(
    "gone",
    "vault",
    "critical",
    "gone",
    "cannot be reached",
    "The pool, a device or the host of the vault cannot be looked at, and the pool is not known to be imported.",
    "Nothing can be backed up or restored.",
    BRING_BACK,
)
JOURNAL_MISSING = HealthCondition(
    "journal-missing",
    "vault",
    "critical",
    "gone",
    "waits for the journal of its block store",
    "A block store with `mode=writeback` is not begun, because the journal that may hold writes which are not in the "
    "bucket yet is missing, is another one, or is an older copy.",
    "What was written last is in that journal alone. Nothing can be backed up or restored until it is back.",
    "mount its disk or bring its folder back: zvault goes on from it; if it is lost for good, 'zvaultctl blockstore"
    " give-up-journal {name}' shows what is lost with it",
)
POOL_UNWELL = HealthCondition(
    "pool-unwell",
    "vault",
    "critical",
    "",
    "has a pool that does not work",
    "The pool is suspended, faulted, unavailable, offline or removed.",
    "Nothing can be written, and whoever tries waits.",
    "bring its storage back: zvault goes on by itself within two minutes",
    "ZvaultPoolUnwell",
)
VAULT_DAMAGED = HealthCondition(
    "damaged",
    "vault",
    "critical",
    "damaged",
    "has damaged data",
    "ZFS has errors on its list for the pool, as last seen.",
    "Snapshots in it cannot be restored whole.",
    "'zvaultctl heal {name}' repairs what the source still has; destroy nothing there until then",
    "ZvaultDamageFound",
)
FOREIGN_DEVICE = HealthCondition(
    "foreign-device",
    "vault",
    "critical",
    "foreign",
    "needs a device that is not its own",
    "As last seen, the pool has a data, special, dedup or log device that the vault does not have in zvault.toml, as "
    "after `zpool add`. Mirrors of its own devices, caches and spares do not count.",
    "Without that device the pool cannot be imported. If it is a disk of this host, nothing can be restored when the "
    "host is lost.",
    "'zpool remove' of the device moves its data back, if the pool has room ('zpool status' shows it); if ZFS refuses"
    " that, back up into a new pool",
)
PUT_BACK = HealthCondition(
    "put-back",
    "vault",
    "critical",
    "older",
    "is older than it was",
    "When it came up, the pool's newest transaction group was older than the one that was on its devices when it was "
    "last seen: its store was put back to an older state, or another copy of it is there, or it lost what it had "
    "confirmed.",
    "What was backed up since is gone, unless the store as it was can be brought back. Until somebody decides, nothing "
    "is pruned on either side, and nothing is sent in full, rolled back or set aside; what the vault misses is sent "
    "where it has a base.",
    "bring back the store as it was, or 'zvaultctl vault accept-older {name}' to go on from what it has",
)
ALMOST_FULL = HealthCondition(
    "almost-full",
    "vault",
    "critical",
    "full",
    "is almost full",
    "Less than 5 % of the pool is free, as last seen since `zvaultd` started.",
    "Backups fail when that is gone, and become slow before that.",
    "grow its device, or keep less",
    "ZvaultPoolAlmostFull",
)
HALF_UP = HealthCondition(
    "half-up",
    "vault",
    "warning",
    "partial",
    "is half up",
    "Some devices are up and others are not, or its pool is being exported, as for a while on the way up or down.",
    "It can neither be used nor left.",
    SEE_STATUS,
)
DEGRADED = HealthCondition(
    "degraded",
    "vault",
    "warning",
    "DEGRADED",
    "has a degraded pool",
    "The pool is degraded.",
    "It works without one of its devices, or after errors. The next failure may be the last.",
    "see 'zpool status' of its pool: it names the device",
    "ZvaultPoolDegraded",
)
WAS_DEGRADED = HealthCondition(
    "was-degraded",
    "vault",
    "warning",
    "DEGRADED",
    "had a degraded pool",
    "The vault is down, and its pool was degraded when it was last seen since `zvaultd` started.",
    "It works without one of its devices, or after errors. The next failure may be the last.",
    "'zvaultctl vault up {name}', and see 'zpool status' of its pool: it names the device",
    "ZvaultPoolDegraded",
)
READ_ONLY = HealthCondition(
    "read-only",
    "vault",
    "warning",
    "read-only",
    "is read-only",
    "The pool is imported with `readonly=on`. zvault does that where a device takes no writes, or where the pool has a "
    "feature that this host's OpenZFS can only read.",
    "It can be restored from, but nothing can be backed up to it, pruned or scrubbed.",
    "'zvaultctl vault down {name}', then 'vault up {name}'; a pool without devices in zvault.toml: 'zpool export' and"
    " 'zpool import'",
)
RISKY_PROPERTIES = HealthCondition(
    "risky-properties",
    "vault",
    "warning",
    "at risk",
    "has a pool that an outage of its storage hurts more than it has to",
    "The pool is imported and has `failmode=panic`, or it has `multihost=on` and zvault brings its devices up.",
    "With `failmode=panic` an outage of the storage stops the whole host. With `multihost=on` ten seconds without a "
    "write suspend the pool, and OpenZFS cannot resume it: only a reboot of this host helps.",
    "'zpool set multihost=off' or 'zpool set failmode=continue' of its pool",
)
ERROR = HealthCondition(
    "error",
    "vault",
    "warning",
    "failed",
    "could not be brought up or taken down",
    "The last try to bring it up, take it down or make it failed, and none succeeded since.",
    "Its backups fail, or it keeps what it should release.",
    SEE_STATUS,
)
STORE_TROUBLE = HealthCondition(
    "store-trouble",
    "vault",
    "warning",
    "troubled",
    "has a block store in trouble",
    "The bucket does not answer or refuses, the journal's disk is full, another writer has the store, its server is "
    "silent, or something is left in the journal of a vault that is down (a writeback gap).",
    "What was written is not in the bucket yet; it is lost with the journal's disk.",
    SEE_STATUS,
    "ZvaultStoreFailing",
)
STALLED = HealthCondition(
    "stalled",
    "vault",
    "warning",
    "stalled",
    "stands still",
    "The kernel or OpenZFS said within the last 10 minutes that requests to its storage do not come back in time.",
    "Runs, and whoever uses the pool, wait.",
    "see that its storage works; 'zvaultctl doctor {name}' tells where it waits",
    "ZvaultStall",
)
SCRUB_OVERDUE = HealthCondition(
    "scrub-overdue",
    "vault",
    "warning",
    "unscrubbed",
    "was not scrubbed for too long",
    "A scrub has been due by age for a day at least, and for a tenth of that age, and none runs. Not while the vault's "
    "disk is unplugged.",
    "Damage may lie there unseen.",
    "'zvaultctl scrub {name}' begins one",
    "ZvaultScrubOverdue",
)
SCRUB_MISSED = HealthCondition(
    "scrub-missed",
    "vault",
    "warning",
    "unscrubbed",
    "has missed a scrub of its schedule",
    "The same of a scrub that is due by the clock, where `scrub` has no age.",
    "Damage may lie there unseen.",
    "'zvaultctl scrub {name}' begins one",
)
DRIFT = HealthCondition(
    "drift",
    "vault",
    "warning",
    "drifting",
    "is written to in a way that its profile is not for",
    "The writes of the last run into it drifted from what its profile is for.",
    "Backups go on, but slower than they could, or at a higher price.",
    "'zvaultctl doctor {name}', while one runs, tells what bounds it",
    "ZvaultWritesDrift",
)
JOURNAL_BACKLOG = HealthCondition(
    "backlog",
    "vault",
    "warning",
    "backlog",
    "has a journal that is full",
    "More than 90 % of a block store's journal has waited for the bucket for 10 minutes (a writeback gap).",
    "Backups are only as fast as the uploads. What waits is lost with the journal's disk.",
    "see that the bucket takes what is written, or give the journal more room",
    "ZvaultJournalFull",
)
FULL_SOON = HealthCondition(
    "full-soon",
    "vault",
    "warning",
    "full",
    "is full soon",
    "Less than 30 % of the pool is free, and at the pace of the last two days nothing will be within a week. A day of "
    "them must have been seen since `zvaultd` started.",
    "Backups fail when nothing is free, and become slow before that.",
    "grow its device, or keep less: 'zfs list -o space -r' of its pool shows what takes the room",
    "ZvaultPoolFullSoon",
)
VAULT_UNKNOWN_LONG = HealthCondition(
    "vault-unknown-long",
    "vault",
    "warning",
    "unknown",
    "has not been known for too long",
    "Something about it has been unknown for a day. Restarts of `zvaultd` begin that anew.",
    "It may be well or not.",
    "'zvaultctl vault up {name}' lets it be looked at",
)
HALF_RECEIVED_ERRORS = HealthCondition(
    "half-received-errors",
    "vault",
    "unknown",
    "unknown",
    "has errors in what is half received",
    "ZFS has errors on its list while a dataset is there of which a full stream has brought a part only, as after an "
    "outage in the middle of a first run.",
    "Most likely reads and writes had no answer then, and nothing is damaged. What has the errors cannot be asked: "
    "OpenZFS crashes the kernel over that question in this state.",
    "the next run of the backup brings it whole, or sends it anew where it is damaged, and zvault looks at the errors "
    "again; where no run does, 'zfs receive -A' of it gives it up. While anything is half received run neither 'zpool "
    "status -v' nor 'zpool scrub -e' there",
)
UNPROVEN = HealthCondition(
    "unproven",
    "vault",
    "unknown",
    "unproven",
    "may have lost what its storage had confirmed",
    "The pool went on after the NBD server of another host (`tcp:`) or another service (`unix:`) was lost below it, "
    "and no whole scrub that began later has ended.",
    "If that server's host lost power, writes that were not flushed are gone, and ZFS does not know: it repeats only "
    "those that had no answer. If only the network was away, nothing is lost.",
    "if that server's host lost power, 'zvaultctl scrub {name}': it reads all that is there, and what is damaged is"
    " named and healed from the source. Else it ends with the next scrub",
)
NEVER_SEEN = HealthCondition(
    "never-seen",
    "vault",
    "unknown",
    "unknown",
    "was never seen",
    "It is down, and no look at its pool is on record.",
    "Whether there is a pool, and whether it is whole, is not known.",
    "'zvaultctl vault up {name}' lets it be looked at, and so does the next run into it",
)

VAULT_CONDITIONS = (
    DEVICE_GONE,
    VAULT_GONE,
    JOURNAL_MISSING,
    POOL_UNWELL,
    VAULT_DAMAGED,
    FOREIGN_DEVICE,
    PUT_BACK,
    ALMOST_FULL,
    HALF_UP,
    DEGRADED,
    WAS_DEGRADED,
    READ_ONLY,
    RISKY_PROPERTIES,
    ERROR,
    STORE_TROUBLE,
    STALLED,
    SCRUB_OVERDUE,
    SCRUB_MISSED,
    DRIFT,
    JOURNAL_BACKLOG,
    FULL_SOON,
    VAULT_UNKNOWN_LONG,
    HALF_RECEIVED_ERRORS,
    UNPROVEN,
    NEVER_SEEN,
)
"""Worst first; of the same level, in the order in which they name the state."""

CONTENT_CONDITIONS = (
    VAULT_DAMAGED,
    FOREIGN_DEVICE,
    PUT_BACK,
    ALMOST_FULL,
    WAS_DEGRADED,
    RISKY_PROPERTIES,
    STALLED,
    SCRUB_OVERDUE,
    SCRUB_MISSED,
    DRIFT,
    JOURNAL_BACKLOG,
    FULL_SOON,
    VAULT_UNKNOWN_LONG,
    HALF_RECEIVED_ERRORS,
    UNPROVEN,
    NEVER_SEEN,
)
"""What does not say that bringing the vault up, or taking it down, went wrong."""
