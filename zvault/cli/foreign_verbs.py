"""Verbs that zvaultctl has not got, each with the one that does it.

Whoever types "log" or "backup tank" after zvaultctl knows what he wants, and click says only that there is no such
command.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

FOREIGN_VERBS = {
    ("backup", "start", "send", "sync", "replicate", "push", "pull", "now", "trigger"): (
        "'zvaultctl run BACKUP' runs a backup now"
    ),
    ("snapshot", "snap"): "each run makes a snapshot; 'zvaultctl run BACKUP' runs a backup now",
    ("dry-run", "dryrun", "preview", "simulate"): "'zvaultctl plan BACKUP' shows what a run would do",
    ("snapshots", "datasets", "backups", "ls"): (
        "'zvaultctl list' shows datasets, 'zvaultctl list -t snapshot' their snapshots"
    ),
    (
        "info",
        "show",
        "state",
        "health",
        "ps",
        "jobs",
    ): "'zvaultctl status' shows how every backup and vault is",
    ("log", "logs", "journal", "runs", "events"): (
        "'zvaultctl history' shows past runs, 'journalctl -u zvaultd' what zvaultd said"
    ),
    (
        "tail",
        "watch",
        "progress",
        "monitor",
    ): "'zvaultctl top' shows live what runs, and 'zvaultctl follow BACKUP' one run",
    ("stop", "cancel", "abort", "kill"): (
        "'systemctl stop zvaultd' interrupts what runs, and its next start repeats that; a single run cannot be stopped"
    ),
    ("reload", "restart"): "'systemctl reload zvaultd' has the daemon read its configuration again",
    ("config", "configcheck", "configtest", "check", "validate", "test"): (
        "'zvaultctl check-config' checks the configuration, 'zvaultctl verify BACKUP' a backup"
    ),
    ("init", "setup", "create", "add", "new"): (
        "vaults and backups are tables of /etc/zvault/zvault.toml, and 'zvaultctl check-config' checks them;"
        " a vault with create = true gets its pool in its first run"
    ),
    ("up", "down", "import", "export", "attach", "detach", "vaults", "pool"): (
        "'zvaultctl vault up VAULT' and 'zvaultctl vault down VAULT' do that, 'zvaultctl vault' says what else there is"
    ),
    ("recover", "extract", "get", "copy", "download", "rollback"): (
        "'zvaultctl restore BACKUP DATASET TO' restores a dataset, and with --file files into a folder"
    ),
    ("search", "locate"): "'zvaultctl find BACKUP PATTERN' finds files in a vault",
    ("umount", "unmount"): "Ctrl-C ends 'zvaultctl mount', and takes the mount away",
    ("destroy", "delete", "remove", "forget", "expire", "clean", "gc"): (
        "what 'keep' does not want is pruned; 'zvaultctl prune BACKUP -n' shows it. To remove a backup or a vault,"
        " remove its table from the configuration"
    ),
    ("compare", "checksum"): "'zvaultctl verify BACKUP' compares a vault with its source",
    ("version",): "the option -V prints the version",
    ("help",): "the option -h lists the verbs, and after a verb says what it takes",
}
"""By the words for it: a sentence that says what does it."""

_BY_WORD = {word: sentence for words, sentence in FOREIGN_VERBS.items() for word in words}


def explain_unknown_verb(word: str, verbs: Iterable[str]) -> str:
    """Say what does what a word means that is none of the ``verbs``, or which of them it may be; "" for other words."""
    if sentence := _BY_WORD.get(word.lower().replace("_", "-")):
        return sentence
    return find_near_verb(word, verbs)


def find_near_verb(word: str, verbs: Iterable[str]) -> str:
    """Ask whether the nearest of the ``verbs`` is meant; "" where none is near."""
    near = get_close_matches(word, list(verbs), n=1)
    return f"did you mean '{near[0]}'?" if near else ""
