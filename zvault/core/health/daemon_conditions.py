"""The conditions of the daemon and its host."""

from __future__ import annotations

from zvault.core.health.verdict import HealthCondition

KERNEL_CRASHED = HealthCondition(
    "kernel-crashed",
    "daemon",
    "critical",
    "crashed",
    "runs on a kernel that has crashed",
    "The kernel crashed (an Oops, or an assertion of OpenZFS) in a program that zvault started, or in OpenZFS itself, "
    "since the host was started.",
    "What the crashed process held stays locked: every command on that pool may wait for ever, and a shutdown too.",
    "start the host anew ('systemctl reboot'; where that hangs, by its power): what was synced is safe, and streams "
    "are resumed. Keep 'journalctl -k' and report it to OpenZFS",
)
CONFIG_REFUSED = HealthCondition(
    "config-refused",
    "daemon",
    "warning",
    "config",
    "has refused its new configuration",
    "The configuration was reloaded and has an error.",
    "The old one is in force; after a restart the daemon would not start at all.",
    "'zvaultctl check-config' names every error; then 'systemctl reload zvaultd'",
    "ZvaultConfigRefused",
)
CONFIG_CHANGED = HealthCondition(
    "config-changed",
    "daemon",
    "warning",
    "config",
    "does not have the configuration in force that is on disk",
    "The configuration on disk is another one than that in force, or cannot be used. It is looked at every 30 seconds.",
    "What you wrote does not count until a reload; with an error, the daemon would not start after a reboot.",
    "'zvaultctl check-config', then 'systemctl reload zvaultd'",
)
STATE_UNWRITABLE = HealthCondition(
    "state-unwritable",
    "daemon",
    "warning",
    "state",
    "cannot write its state",
    "Nothing can be written in the state directory.",
    "The history is in memory only, and what is seen of the vaults or owed after a crash is not kept: after a"
    " restart less is known.",
    "make room in the state directory, or mount it read-write",
    "ZvaultStateNotWritable",
)
STATE_SPACE = HealthCondition(
    "state-space",
    "daemon",
    "warning",
    "state",
    "has little room for its state",
    "Less than 16 MiB is free where the state directory is.",
    "Soon nothing can be written there.",
    "make room in the file system of the state directory",
)
CLOCK_BACK = HealthCondition(
    "clock-back",
    "daemon",
    "warning",
    "clock",
    "runs on a clock that was set back",
    "The clock was set back by more than 15 seconds while the daemon ran, and is not where it was; for a day at most.",
    "Snapshots get names of times that have been, lag looks smaller than it is, and proofs and scrubs look newer.",
    "see that the clock is right: 'timedatectl'",
)
METRICS_UNSERVED = HealthCondition(
    "metrics-unserved",
    "daemon",
    "warning",
    "metrics",
    "cannot serve its metrics",
    "The address of `metrics` cannot be listened on.",
    "Prometheus does not see this daemon, so no alert about its backups can fire.",
    "set 'metrics' in [daemon] to a free address",
    "ZvaultDown",
)
PAGE_UNSERVED = HealthCondition(
    "page-unserved",
    "daemon",
    "warning",
    "page",
    "cannot serve its page",
    "The address of `listen` in `[page]` cannot be listened on, or the page's password cannot be read.",
    "Who looks at the page sees nothing.",
    "set 'listen' in [page] to a free address, and see that the password is where 'password' says",
)
HOOK_FAILED = HealthCondition(
    "hook-failed",
    "daemon",
    "warning",
    "hooks",
    "could not run a hook that was owed",
    "A hook that a crash kept from running failed when it was run at the next start.",
    "What the hook stopped may still be stopped.",
    "see 'journalctl -u zvaultd', and do what the hook does",
)
NOT_OBSERVED = HealthCondition(
    "not-observed",
    "daemon",
    "warning",
    "blind",
    "cannot look at something it watches",
    "Looking at vaults, lags, proofs, stalls or the state failed for a reason nobody foresaw.",
    "What is told of it is as old as the last look.",
    "see 'journalctl -u zvaultd', and report it",
)
INHIBITOR_STUCK = HealthCondition(
    "inhibitor-stuck",
    "daemon",
    "warning",
    "inhibitor",
    "keeps the host awake for long",
    "An inhibitor of a vault has been held for more than a day.",
    "The host does not sleep when asked.",
    "see with 'zvaultctl status' what is written to the vault",
    "ZvaultInhibitorStuck",
)
STALLED_ELSEWHERE = HealthCondition(
    "stalled-elsewhere",
    "daemon",
    "warning",
    "stalled",
    "sees storage stand still",
    "The kernel or OpenZFS said within the last 10 minutes that something hangs, and nobody can tell of which vault.",
    "Runs may wait for it.",
    "see 'journalctl -k' for what hangs",
    "ZvaultStall",
)
NOT_TUNED = HealthCondition(
    "not-tuned",
    "daemon",
    "warning",
    "tuning",
    "could not set a module parameter",
    "A vault that is up wants a module parameter that was not set, or that somebody else changed.",
    "Backups go on, perhaps slower.",
    "see 'zvaultctl tune show'",
)
UNDELIVERED = HealthCondition(
    "undelivered",
    "daemon",
    "warning",
    "notify",
    "cannot deliver notifications",
    "A target of `[notify.NAME]` could not be told in three tries, and none succeeded since.",
    "You are not told there of what is wrong. What waits is tried again for three days.",
    "'zvaultctl notify' names the target and why; 'zvaultctl notify test' tries it",
)
OTHER_WARNING = HealthCondition(
    "other",
    "daemon",
    "warning",
    "warning",
    "has something to tell",
    "The daemon has a warning of another kind.",
    "It says so itself.",
    "see 'journalctl -u zvaultd'",
)
UNCHECKED = HealthCondition(
    "unchecked",
    "daemon",
    "unknown",
    "unknown",
    "has not looked at everything yet",
    "It started just now: the configuration on disk or the state directory was not looked at yet.",
    "They are looked at within seconds.",
    "wait for some seconds",
)

DAEMON_CONDITIONS = (
    KERNEL_CRASHED,
    CONFIG_REFUSED,
    CONFIG_CHANGED,
    STATE_UNWRITABLE,
    STATE_SPACE,
    CLOCK_BACK,
    METRICS_UNSERVED,
    PAGE_UNSERVED,
    HOOK_FAILED,
    NOT_OBSERVED,
    INHIBITOR_STUCK,
    STALLED_ELSEWHERE,
    NOT_TUNED,
    UNDELIVERED,
    OTHER_WARNING,
    UNCHECKED,
)
"""Worst first; of the same level, in the order in which they name the state."""
