"""Words of other tools' configurations, each with what zvault calls it. Pure.

Whoever comes from sanoid, zrepl, zfs-autobackup, znapzend, bzfs or TrueNAS writes what he knows. The nearest key by its
letters is then a wrong lead (``prefix`` is not ``prune``), so these words are looked up before it is guessed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ForeignWord:
    """Words of one meaning in other tools: a sentence that says how zvault has it, and an example of it.

    The example is TOML as it stands in a ``[backup.NAME]``, or with a table's header of its own.
    """

    words: tuple[str, ...]
    sentence: str
    example: str


_KEEP = "keep = { source = { last = 3 }, vault = { hourly = 48, daily = 30 } }"

FOREIGN_WORDS = (
    ForeignWord(
        ("recursive", "recursion", "process_children_only", "children", "depth", "skip_parent", "skip_children"),
        "a backup takes its source with all below it; 'exclude' leaves some out",
        'exclude = ["tank/scratch/**"]',
    ),
    ForeignWord(
        ("exclude_datasets", "exclude_dataset", "exclude_paths", "skip", "ignore", "excludes"),
        "patterns of full names, of what is left out, are in 'exclude'",
        'exclude = ["tank/scratch", "tank/scratch/**"]',
    ),
    ForeignWord(
        (
            *("filesystems", "filesystem", "datasets", "dataset", "src", "source_dataset", "source_datasets"),
            *("sources", "root", "path"),
        ),
        "the dataset to back up, with all below it, is 'source'; 'include' and 'exclude' choose among what is below it",
        'source = "tank"',
    ),
    ForeignWord(
        ("target", "targets", "dst", "dest", "destination", "target_dataset", "root_fs", "sink", "receiver"),
        "the place that a backup goes to is a vault, which has a table of its own, and 'into' the path in its pool",
        'into = "{host}/{dataset}"',
    ),
    ForeignWord(
        ("dst_a", "pools"),
        "each target is a vault with a table of its own, and a backup may have several in 'vaults'",
        'vault = "cold"',
    ),
    ForeignWord(
        ("host", "hostname", "remote", "connect", "address", "user", "username", "port", "ssh_config"),
        "the host is part of the source; how to reach it is said in root's ssh_config(5)",
        'source = "ssh://root@filer1:22/tank"',
    ),
    ForeignWord(
        (
            *("sshkey", "ssh_key", "identity_file", "sshport", "sshoption", "ssh_options", "sshcipher"),
            *("ssh_credentials", "transport"),
        ),
        "root's ~/.ssh/config has the keys and options by which other hosts are reached, 'source' has the address",
        'source = "ssh://root@filer1/tank"',
    ),
    ForeignWord(
        ("interval", "period", "frequency", "run_every", "snapshot_interval"),
        "the time from run to run is 'every'",
        'every = "15m"',
    ),
    ForeignWord(
        (
            *("cron", "crontab", "timer", "on_calendar", "oncalendar", "begin", "snapshotting", "autosnapshot"),
            *("at", "time", "start_time", "minute", "hour", "day_of_week"),
        ),
        "when it runs is 'schedule': a word, or the five fields of cron",
        'schedule = "30 2 * * *"',
    ),
    ForeignWord(
        ("enabled", "enable", "disabled", "auto", "active", "manual"),
        "a backup with neither 'schedule' nor 'every' runs by hand only; to switch one off, leave both out",
        'schedule = "daily"',
    ),
    ForeignWord(
        ("autosnap", "take_snapshots", "no_snapshot", "no_sync_snap", "make_snapshot"),
        "each run makes a snapshot, unless snapshot.make is false",
        "snapshot = { make = false }",
    ),
    ForeignWord(
        ("prefix", "snapshot_prefix", "snap_prefix", "label", "identifier"),
        "what the names of snapshots begin with is snapshot.prefix",
        'snapshot = { prefix = "zvault" }',
    ),
    ForeignWord(
        ("tsformat", "timestamp_format", "date_format", "snapshot_format", "naming_schema", "name_format"),
        "the rest of the snapshots' names, after the prefix, is snapshot.form",
        'snapshot = { form = "-%Y%m%d-%H%M%S" }',
    ),
    ForeignWord(
        (
            *("include_snaps", "exclude_snaps", "snapshot_filter", "snapshot_regex", "name_regex"),
            *("also_include_naming_schema", "other_snapshots"),
        ),
        "snapshots that zvault did not make are sent if their names are in 'also'",
        'also = ["autosnap_*"]',
    ),
    ForeignWord(
        (
            *("frequently", "hourly", "daily", "weekly", "monthly", "yearly", "last", "within"),
            *("keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly", "keep_within"),
        ),
        "how many are kept is said for each side, the source and the vault, in 'keep'",
        _KEEP,
    ),
    ForeignWord(
        (
            *("retention", "retention_policy", "lifetime", "lifetime_value", "lifetime_unit", "pruning", "expire"),
            *("ttl", "thinner", "hours", "days"),
        ),
        "what is kept is said for each side, the source and the vault, in 'keep'",
        _KEEP,
    ),
    ForeignWord(
        ("keep_sender", "keep_source", "src_plan", "src_snapshot_plan", "keep_local", "source_keep"),
        "what the source keeps is keep.source",
        "keep = { source = { last = 3, hourly = 24 } }",
    ),
    ForeignWord(
        ("keep_receiver", "keep_target", "dst_plan", "keep_remote", "target_keep"),
        "what the vault keeps is keep.vault",
        "keep = { vault = { hourly = 48, daily = 30, monthly = 12 } }",
    ),
    ForeignWord(
        ("frequent", "minutely", "quarter_hourly", "frequent_period"),
        "quarters of an hour are 'frequently' in keep, and periods of any other length are keys there, too",
        'keep = { source = { frequently = 8, "5m" = 12 } }',
    ),
    ForeignWord(
        ("grid", "regex", "last_n", "not_replicated"),
        "zvault has no grids: it keeps the newest of so many hours, days, weeks, months, years and other periods",
        'keep = { vault = { within = "1h", hourly = 24, "3d" = 10 } }',
    ),
    ForeignWord(
        (
            *("autoprune", "prune_source", "prune_target", "destroy_missing", "force_prune", "delete"),
            *("delete_target_snapshots", "prune_defer"),
        ),
        "each run prunes what no rule of 'keep' wants; without rules nothing goes",
        _KEEP,
    ),
    ForeignWord(
        ("use_template", "templates", "inherit", "extends"),
        "keys of several backups stand in [defaults], or in a [template.NAME] that a backup names",
        'template = "servers"\n[template.servers]\nschedule = "hourly"',
    ),
    ForeignWord(
        ("bwlimit", "bandwidth_limit", "bandwidth", "rate_limit", "source_bwlimit", "target_bwlimit", "speed_limit"),
        "bytes a second, of all its streams together, are 'limit'",
        'limit = "80M"',
    ),
    ForeignWord(
        ("mbuffer", "mbuffer_size", "buffer_size", "target_buffer"),
        "zvault has its buffers as the vault's profile says; another host's is in its own table",
        '[host.filer1]\nbuffer = "32M"',
    ),
    ForeignWord(
        ("compress", "compression", "zfs_compressed", "stream_compression"),
        "streams of another host are compressed as its own table says",
        '[host.filer1]\ncompression = "zstd"',
    ),
    ForeignWord(
        ("sendoptions", "send_options", "replication", "encrypted", "raw_send", "large_block", "embed"),
        "the flags of zfs send are in 'send'; what is encrypted is always sent raw, other datasets can be refused",
        'send = { large_blocks = true, encrypted = "required" }',
    ),
    ForeignWord(
        ("recvoptions", "recv_options", "override", "set_properties", "filter_properties", "preserve_properties"),
        "properties on the vault are in 'receive'",
        'receive = { set = { redundant_metadata = "most" } }',
    ),
    ForeignWord(
        (
            *("pre_snapshot_script", "post_snapshot_script", "pre_snapshot", "post_snapshot"),
            *("pre_znap_cmd", "post_znap_cmd", "before", "after", "pre_script", "post_script"),
        ),
        "programs to run before and after the snapshot are hooks, each an array of words",
        'snapshot = { hooks = { before = [["sh", "-c", "sync"]] } }',
    ),
    ForeignWord(
        ("min_change", "allow_empty", "only_changed", "skip_empty"),
        "datasets without changes are left out with snapshot.skip_unchanged",
        "snapshot = { skip_unchanged = true }",
    ),
    ForeignWord(
        ("force", "force_delete", "rollback", "destroy_incompatible"),
        "what to do with a dataset of the vault that was changed is 'on_conflict'",
        'on_conflict = "rollback"',
    ),
    ForeignWord(
        ("monitor", "warn", "crit", "max_age", "alert_after"),
        "how late the newest backed-up snapshot may be is 'max_lag'",
        'max_lag = "3h"',
    ),
    ForeignWord(
        ("mail", "mailto", "mail_to", "email", "notify", "notify_email", "webhook", "mail_error_summary_to"),
        "who hears of failures, of any backup, is in a table of its own",
        '[notify.admin]\nmail = ["root"]',
    ),
)  # fmt: skip
"""By meaning; a word is in lower case, with ``_`` for ``-``, and stands in one entry only."""

FOREIGN_FAMILIES = (
    (r"dst_\w+_plan", "dst_plan"),
    (r"dst_\w+_p(re|st)cmd", "pre_znap_cmd"),
    (r"dst_\w+", "dst_a"),
    (r"(frequently|hourly|daily|weekly|monthly|yearly)_(warn|crit)", "monitor"),
)
"""Words that other tools form (znapzend's targets have names of the user's, sanoid has a limit for each period): the
pattern of a whole word, and the word of :data:`FOREIGN_WORDS` that means the same. The first that fits counts.
"""

FOREIGN_VAULT_WORDS = (
    ForeignWord(
        ("path", "dataset", "root_fs", "target", "directory", "folder", "filesystem", "mountpoint"),
        "a vault is a pool; where in it a backup goes is its key 'into'",
        '[backup.tank]\nsource = "tank"\nvault = "cold"\ninto = "{host}/{dataset}"',
    ),
    ForeignWord(
        (
            *("file", "image", "disk", "disks", "vdev", "vdevs", "block_device", "ceph", "bucket"),
            *("s3", "endpoint", "url", "storage", "type"),
        ),
        "what the pool lies on is said in its devices; a pool on disks of this host needs none",
        '[[vault.cold.device]]\nnbd = "nbdkit:file /srv/cold.img"\nsize = "1T"',
    ),
    ForeignWord(
        ("key", "keyfile", "key_file", "keylocation", "password", "passphrase", "encrypted", "encrypt"),
        "the key of an encrypted vault is in 'encryption'",
        'encryption = { key = "/etc/zvault/cold.key" }\n[[vault.cold.device]]\nnbd = "tcp:nas:10809/cold"',
    ),
    ForeignWord(
        ("ssh", "user", "username", "port", "hostname", "remote", "address", "connect"),
        "a pool on another host has its address in 'host'",
        'host = "ssh://root@attic.example.org"',
    ),
    ForeignWord(
        (
            "retention",
            "lifetime",
            "hourly",
            "daily",
            "weekly",
            "monthly",
            "yearly",
            "keep_target",
            "keep_receiver",
        ),
        "what a vault keeps is said in each backup, by keep.vault",
        '[backup.tank]\nsource = "tank"\nvault = "cold"\nkeep = { vault = { hourly = 48, daily = 30 } }',
    ),
)
"""Keys of a vault, as others call them, by meaning; the example is of its table, or has a table's header of its own."""

FOREIGN_TABLES = (
    ForeignWord(
        (
            "target",
            "targets",
            "dst",
            "destination",
            "destinations",
            "repository",
            "pool",
            "pools",
            "remote",
            "storage",
            "sink",
        ),
        "the place that backups go to is a vault: its pool, and its devices or host",
        '[vault.cold]\npool = "cold"',
    ),
    ForeignWord(
        ("source", "sources", "src", "dataset", "datasets", "filesystems", "tasks", "replication"),
        "what is backed up, to where and when, is a backup",
        '[backup.tank]\nsource = "tank"\nvault = "cold"',
    ),
    ForeignWord(
        (
            "snapshot",
            "snapshots",
            "snapshotting",
            "retention",
            "keep",
            "prune",
            "pruning",
            "schedule",
            "send",
            "receive",
            "verify",
        ),
        "this is said of each backup, or of all in [defaults]",
        '[defaults]\nschedule = "hourly"',
    ),
    ForeignWord(
        ("default", "common"),
        "keys of all backups stand in [defaults]",
        '[defaults]\nschedule = "hourly"',
    ),
    ForeignWord(
        ("templates", "profile", "profiles"),
        "keys of several backups stand in a [template.NAME], which a backup names",
        '[template.servers]\nschedule = "hourly"',
    ),
    ForeignWord(
        ("mail", "email", "smtp", "notification", "notifications", "alert", "alerts"),
        "who hears of failures has a table of its own",
        '[notify.admin]\nmail = ["root"]',
    ),
    ForeignWord(
        ("general", "settings", "options", "main", "config", "server", "zvault", "zvaultd"),
        "what concerns zvaultd and no backup or vault alone is in [daemon]",
        '[daemon]\nhost = "filer1"',
    ),
)
"""Tables at the top of a file, as others call them, by meaning; the example is a table of zvault's."""

_BY_WORD = {word: entry for entry in FOREIGN_WORDS for word in entry.words}
_BY_VAULT_WORD = {word: entry for entry in FOREIGN_VAULT_WORDS for word in entry.words}
_BY_TABLE = {word: entry for entry in FOREIGN_TABLES for word in entry.words}
_FAMILIES = tuple((re.compile(pattern), _BY_WORD[word]) for pattern, word in FOREIGN_FAMILIES)

_PAGE = "docs/how-to/come-from-elsewhere.md says which setting corresponds to which"

_OTHER_FILES = {
    "a sanoid.conf": re.compile(
        r"^\s*\[(?:template_[^\]\n]*|[^\]\n\"']*/[^\]\n\"']*)\]\s*$(?=[\s\S]*^\s*(?:use_template|autosnap|autoprune|"
        r"recursive|hourly|daily)\s*=)",
        re.MULTILINE,
    ),
    "a zrepl.yml": re.compile(r"^(?:jobs|global)\s*:\s*$", re.MULTILINE),
    "a plan of znapzend": re.compile(r"^\s*(?:src_plan|dst_\w+_plan)\s*=\s*[^\"'\s]", re.MULTILINE),
}


def explain_foreign_key(path: Sequence[str | int]) -> str:
    """What zvault calls a word of another tool that stands at ``path``, with an example; "" for any other word.

    Of a backup, and of a vault by words of its own: other tables hold other things, and there these would lead astray.
    """
    if path[0] == "vault" and len(path) == 3:
        return _explain_vault_word(str(path[2]).lower().replace("-", "_"))
    word = str(path[-1]).lower().replace("-", "_")
    entry = _BY_WORD.get(word) or next((one for family, one in _FAMILIES if family.fullmatch(word)), None)
    inner = str(path[2]) if len(path) > 3 else ""
    if entry is None or path[0] != "backup" or len(path) < 3 or inner not in {"", "keep", "snapshot"}:
        return ""
    if inner == "keep" and not entry.example.startswith("keep"):
        return ""
    return f"{entry.sentence}; for example {'; '.join(entry.example.splitlines())}"


def _explain_vault_word(word: str) -> str:
    entry = _BY_VAULT_WORD.get(word)
    return f"{entry.sentence}; for example {'; '.join(entry.example.splitlines())}" if entry else ""


def explain_foreign_table(name: str) -> str:
    """What a table at the top of another tool's file is here; "" for any other name."""
    if entry := _BY_TABLE.get(name.lower().replace("-", "_")):
        return f"{entry.sentence}; for example {'; '.join(entry.example.splitlines())}"
    if "/" in name:
        return (
            f"what is a section for a dataset in sanoid.conf is a [backup.NAME] with source ="
            f' "{name}" here; {_PAGE}'
        )
    if name.startswith("template_"):
        return f"a template of sanoid's is a [template.NAME] here, with keys as a backup has them; {_PAGE}"
    if name in {"jobs", "job", "global"}:
        return f"what is a job of zrepl's is a [backup.NAME] here; {_PAGE}"
    return ""


def recognize_other_file(text: str) -> str:
    """What a file is that is no TOML: another tool's configuration, and what to do; "" where it is none known."""
    found = next((tool for tool, pattern in _OTHER_FILES.items() if pattern.search(text)), "")
    return (
        f"is {found}, which zvault does not read: 'zvaultctl adopt SOURCE REPLICA' writes its tables, and {_PAGE}"
        if found
        else ""
    )


_GRID = re.compile(r"\d+x\d+\s*\w+|\d+\w+=>\d+\w+|(?:\d+,)?\d+[smhdwy]\d+[smhdwy]")
_ADDRESS = re.compile(r"[\w.-]+@[\w.-]+:[\w./-]+")


def explain_foreign_grid(value: object) -> str:
    """How a grid or plan of another tool is written here, in place of a table; "" for any other value."""
    if isinstance(value, str) and _GRID.search(value):
        return f"zvault has no grids, it counts periods for each side: {_KEEP}"
    return ""


def explain_foreign_address(value: object) -> str:
    """How ``user@host:path`` is written here; "" for any other value."""
    if not isinstance(value, str) or not _ADDRESS.fullmatch(value):
        return ""
    user, _, path = value.partition(":")
    return f'another host is written as in "ssh://{user}/{path.lstrip("/")}", and a vault\'s is its key host'
