"""zvaultctl status: the screen one wants at 3 a.m."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from zvault.api import routes
from zvault.api.headlines import write_status_headlines
from zvault.api.status import NEXT_RUN_UNKNOWN, BackupDocument, DaemonDocument, StatusDocument
from zvault.api.vaults import JudgedVault
from zvault.cli import completion
from zvault.cli.choose_vault import expand_name
from zvault.cli.daemon_client import read_document
from zvault.cli.health_text import (
    LEVEL_COLOURS,
    LEVEL_EXITS,
    WELL_VERDICT,
    describe_store_trouble,
    find_proven_time,
    find_state_word,
    find_vault_place,
    find_worst_level,
    is_well,
    list_finding_lines,
)
from zvault.cli.options import AsJson, Exact, TableForm, Tabs
from zvault.cli.output import (
    clean_line,
    find_width,
    format_labelled,
    paint_text,
    print_document,
    print_lines,
    wrap_text,
)
from zvault.cli.scrub_text import describe_scrub, describe_scrub_damage
from zvault.cli.tables import TableColumn, format_ago, format_cell, format_local_time, format_table
from zvault.core.errors import ErrorDocument, NotFound
from zvault.core.units import format_duration

MOST_TOLD_RESTORES = 10
"""Backups of which each is told what its time to restore rests on; of more, where they are named."""


def status(
    name: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these backups and vaults.",
            show_default=False,
            autocompletion=completion.complete_backups_and_vaults,
        ),
    ] = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show how every backup and vault is.

    What is not well is told with why and what to do next.

    With -H one line a backup or vault, led by that word. Backups: name, health, state, lag, max_lag,
    last_success, last_run, last_result, next_run, bytes_done, bytes_total, error, restore, max_restore.
    Vaults: name, health, state, pool, pool_health, size, alloc, free, users, error.

    RESTORE is how long it takes to restore all of a backup, as its vault was last read in earnest: by a restore,
    a drill, a verification or a scrub of 64 MiB or more. A terminal that is too narrow shows a table without RESTORE,
    LAST SUCCESS, PROVEN and VAULT, as many of these as have to go.

    Exit status: 0 all is well; 1 a warning, or something is critical; 2 the daemon cannot be asked; 3 nothing is
    known to be wrong, and something is not known to be well. With -H and -j each line has its level.
    """
    found = _only(read_document(routes.STATUS), name or [])
    if json:
        print_document("status", found)
    elif tabs:
        print_lines(_for_scripts(found, exact))
    else:
        print_lines(_screen(found, TableForm(exact=exact)))
    raise typer.Exit(LEVEL_EXITS[find_worst_level(found)])


def _only(found: StatusDocument, names: list[str]) -> StatusDocument:
    """The status of the named backups and vaults alone; of all when none is named."""
    if not names:
        return found
    backups, vaults = ([one["name"] for one in found[kind]] for kind in ("backups", "vaults"))
    known = {*backups, *vaults}
    # A vault and a backup may have one name: then it means both.
    meant = {name: {*expand_name(name, backups), *({name} & set(vaults))} for name in names}
    if unknown := [name for name in names if not meant[name]]:
        raise NotFound(
            f"there is no backup or vault '{unknown[0]}'",
            f"zvaultd knows {', '.join(sorted(known)) or 'none'}",
            "if it was added to the configuration just now, 'systemctl reload zvaultd'",
        )
    names = [one for named in meant.values() for one in named]
    return {
        **found,
        "daemon": {**found["daemon"], "warnings": [], "verdict": WELL_VERDICT},
        "backups": [b for b in found["backups"] if b["name"] in names],
        "vaults": [v for v in found["vaults"] if v["name"] in names],
    }


def _activity(backup: BackupDocument) -> str:
    """``idle``, ``waiting`` or ``running 45%``."""
    total = backup["bytes_total"]
    if backup["state"] != "running" or not total:
        return str(backup["state"])
    return f"running {min(backup['bytes_done'] / total, 1):.0%}"


def _trouble(backup: BackupDocument) -> ErrorDocument | None:
    """The error of the run that waits to try again, else that of the last run."""
    return backup["retry_error"] or backup["last_error"]


def _what(backup: BackupDocument) -> str | None:
    error = _trouble(backup)
    return error["what"] if error is not None else None


def _unproven(backup: BackupDocument) -> str:
    """What stands in place of the time of a proof."""
    if backup["vault"] is None:
        return "-"
    return "unknown" if backup["proofs"] is None else "never"


def _restore_time(backup: BackupDocument) -> float | None:
    return backup["restore"]["seconds"] if backup["restore"] is not None else None


def _untold_restore(backup: BackupDocument) -> str:
    """What stands in place of the time to restore it."""
    return "-" if backup["restore"] is None else "unknown"


HEALTH_COLUMN = TableColumn("health", "state", get=find_state_word)
STATUS_BACKUP_COLUMNS = [
    TableColumn("backup", key="name"),
    TableColumn("vault", spare=1),
    HEALTH_COLUMN,
    TableColumn("state", get=_activity),
    # A lag that nobody could read is not a small one.
    TableColumn("lag", "duration", "lag_seconds", missing=lambda b: "-" if b["vault"] is None else "unknown"),
    TableColumn("max_lag", "duration", "max_lag_seconds", header="MAX LAG"),
    TableColumn("restore", "duration", get=_restore_time, missing=_untold_restore, spare=4),
    TableColumn("last_success", "ago", header="LAST SUCCESS", spare=3),
    TableColumn("proven", "ago", get=find_proven_time, missing=_unproven, spare=2),
    TableColumn("next_run", "ago", header="NEXT RUN"),
]
STATUS_VAULT_COLUMNS = [
    TableColumn("vault", key="name"),
    TableColumn("health", "state", get=find_state_word),
    TableColumn("state", get=find_vault_place),
    TableColumn("size", "size"),
    TableColumn("alloc", "size", "allocated"),
    TableColumn("free", "size"),
    TableColumn("used_by", get=lambda vault: ", ".join(vault["users"]), header="USED BY"),
]
BACKUPS_FOR_SCRIPTS = [
    TableColumn("name"),
    HEALTH_COLUMN,
    TableColumn("state"),
    TableColumn("lag", "duration", "lag_seconds"),
    TableColumn("max_lag", "duration", "max_lag_seconds"),
    TableColumn("last_success", "ago"),
    TableColumn("last_run", "ago"),
    TableColumn("last_result"),
    TableColumn("next_run", "ago"),
    TableColumn("bytes_done", "size"),
    TableColumn("bytes_total", "size"),
    TableColumn("error", get=_what),
    TableColumn("restore", "duration", get=_restore_time),
    TableColumn("max_restore", "duration", "max_restore_seconds"),
]
VAULTS_FOR_SCRIPTS = [
    TableColumn("name"),
    TableColumn("health", get=find_state_word),
    TableColumn("state", get=find_vault_place),
    TableColumn("pool"),
    TableColumn("pool_health", key="health"),
    TableColumn("size", "size"),
    TableColumn("alloc", "size", "allocated"),
    TableColumn("free", "size"),
    TableColumn("users", get=lambda vault: ",".join(vault["users"])),
    TableColumn("error", get=lambda vault: (vault["error"] or {}).get("what")),
]


def _for_scripts(found: StatusDocument, exact: bool) -> Iterator[str]:
    """One line a backup or vault, led by the word that says which."""
    form = TableForm(tabs=True, exact=exact)
    yield from (f"backup\t{line}" for line in format_table(BACKUPS_FOR_SCRIPTS, found["backups"], form))
    yield from (f"vault\t{line}" for line in format_table(VAULTS_FOR_SCRIPTS, found["vaults"], form))


def _screen(found: StatusDocument, form: TableForm) -> Iterator[str]:
    colour = LEVEL_COLOURS[find_worst_level(found)]
    for sentence in write_status_headlines(found):
        for line in wrap_text(sentence, "", find_width(sys.stdout), "  "):
            yield paint_text(line, colour, sys.stdout)
    yield from _daemons(found)
    if found["backups"]:
        yield ""
        yield from format_table(STATUS_BACKUP_COLUMNS, found["backups"], form)
        for backup in found["backups"]:
            if backup["vault"] is None:
                only = "makes snapshots only, and" if backup["makes_snapshots"] else "only prunes, and"
                yield f"{backup['name']} {only} backs nothing up: {_newest_told(backup)}"
            yield from _turn_told(backup)
            yield from _wait_told(backup)
        yield from _restores_told(found["backups"])
    if found["vaults"]:
        yield ""
        yield from format_table(STATUS_VAULT_COLUMNS, found["vaults"], form)
        for vault in found["vaults"]:
            if vault["hosts"]:
                has = (
                    f"{clean_line(vault['held_by'])} has it"
                    if vault["held_by"]
                    else "none is known to have it now"
                )
                yield f"{vault['name']} is shared by {', '.join(vault['hosts'])}: {has}"
    for backup in found["backups"]:
        if not is_well(backup) or backup["last_error"] or backup["retry_at"] is not None:
            yield ""
            yield from _troubled_backup(backup)
    for vault in found["vaults"]:
        if not is_well(vault):
            yield ""
            yield from _troubled_vault(vault)


def _wait_told(backup: BackupDocument) -> Iterator[str]:
    if backup["waits_for"] is not None:
        yield f"{backup['name']} waits for {clean_line(backup['waits_for'])}"


def _restores_told(found: list[BackupDocument]) -> Iterator[str]:
    """How long it takes to restore all of each, what that rests on, and how long it may, where that is known."""
    if len(found) > MOST_TOLD_RESTORES:
        return
    for backup in found:
        its, limit = backup["restore"], backup["max_restore_seconds"]
        if its is not None and its["seconds"] is not None:
            wanted = f"; at most {format_duration(limit)} is wanted" if limit is not None else ""
            yield f"to restore all of {backup['name']} takes {clean_line(its['told'])}{wanted}"


def _turn_told(backup: BackupDocument) -> Iterator[str]:
    """What another host that shares the vault does in this one's place; what it claims nobody here has seen."""
    turn = backup["turn"]
    if turn is None:
        return
    if turn["waits"] is not None:
        yield f"{backup['name']} waits for its turn: {clean_line(turn['waits'])}"
    if turn["claimed_by"] is not None:
        lag = turn["claimed_lag"]
        told = (
            "it did not say what the lag was" if lag is None else f"its lag is {format_duration(lag)} by that"
        )
        own = "" if turn["own_lag"] is None else f"; {format_duration(turn['own_lag'])} as read here"
        yield f"{backup['name']}: last run by host {clean_line(turn['claimed_by'])}, as that host says; {told}{own}"


def _daemons(found: StatusDocument) -> Iterator[str]:
    daemon = found["daemon"]
    if "hosts" not in found:
        yield _daemon(daemon)
    for host in found.get("hosts", ()):
        if host["daemon"] is not None:
            yield f"{host['name']}: {_daemon(host['daemon'])}"
    for one in daemon["verdict"]["findings"]:
        for line in wrap_text(clean_line(one["why"]), f"{one['level']}: ", find_width(sys.stdout)):
            yield paint_text(line, LEVEL_COLOURS[one["level"]], sys.stdout)


def _daemon(daemon: DaemonDocument) -> str:
    return f"zvaultd {daemon['version']}, pid {daemon['pid']}, started {format_ago(daemon['started'])}"


def _troubled_backup(backup: BackupDocument) -> Iterator[str]:
    """What is wrong with a backup, why, and what to do."""
    verdict = backup["verdict"]
    yield paint_text(
        f"backup {backup['name']}: {verdict['state']}", LEVEL_COLOURS[verdict["level"]], sys.stdout
    )
    error, snapshot = _trouble(backup), backup.get("next_snapshot")
    yield from format_labelled(
        [
            ("lag", _lag_told(backup) if backup["vault"] is not None else "none, it has no vault"),
            ("snapshots", _newest_told(backup) if backup["vault"] is None else ""),
            ("last success", _when(backup["last_success"], "never")),
            ("last run", _last_run(backup)),
            ("this run", _waits(backup)),
            *list_finding_lines(verdict, error),
            ("error", error["what"] if error else ""),
            ("why", error["why"] if error else ""),
            ("next", error["next"] if error and error["next"] else _advice(backup)),
            ("next run", _next_run(backup)),
            *([("next snapshot", _when(snapshot, ""))] if snapshot is not None else []),
        ],
        find_width(sys.stdout),
    )


def _waits(backup: BackupDocument) -> str:
    """That the run under way waits to try again, since when, and until when."""
    if backup["retry_at"] is None:
        return ""
    since = _when(backup["retry_since"], "some time")
    return f"failed {since}, and tries again {_when(backup['retry_at'], '')}"


def _next_run(backup: BackupDocument) -> str:
    if backup["scheduled"]:
        return _when(backup["next_run"], NEXT_RUN_UNKNOWN)
    return "by hand only" + ", once this one has ended" * (backup["retry_at"] is not None)


def _newest_told(backup: BackupDocument) -> str:
    """How old the newest snapshot is, where nothing is sent."""
    age = backup["snapshot_age_seconds"]
    if age is None:
        return "how old the newest is on each dataset is not known"
    return f"the newest is {format_duration(age)} old" + (
        f", of {backup['datasets']} datasets where it is the oldest" if (backup["datasets"] or 0) > 1 else ""
    )


def _lag_told(backup: BackupDocument) -> str:
    limit = backup["max_lag_seconds"]
    lag = "unknown" if backup["lag_seconds"] is None else format_duration(backup["lag_seconds"])
    return lag if limit is None else f"{lag}, at most {format_duration(limit)} is wanted"


def _advice(backup: BackupDocument) -> str:
    """What to do about a backup of which no error is known."""
    if backup["state"] != "idle":
        return f"watch it with 'zvaultctl follow {backup['name']}'"
    return "" if is_well(backup) else backup["verdict"]["findings"][0]["next"]


def _last_run(backup: BackupDocument) -> str:
    when = _when(backup["last_run"], "never")
    return f"{when}, {backup['last_result']}" if backup["last_result"] else when


def _when(when: float | None, otherwise: str) -> str:
    return otherwise if when is None else f"{format_ago(when)} ({format_local_time(when)})"


def _troubled_vault(vault: JudgedVault) -> Iterator[str]:
    """What is wrong with a vault, layer by layer."""
    verdict = vault["verdict"]
    yield paint_text(
        f"vault {vault['name']}: {verdict['state']}", LEVEL_COLOURS[verdict["level"]], sys.stdout
    )
    error = vault["error"]
    devices = [
        f"{d['name']} {d['state']} "
        f"({d['spec']}){': ' + why if (why := d['detail'] or describe_store_trouble(d)) else ''}"
        for d in vault["devices"]
        if d["state"] != "up" or describe_store_trouble(d)
    ]
    yield from format_labelled(
        [
            ("pool", f"{vault['pool']} {format_cell(vault['health'], 'text', False)}"),
            ("devices", "\n".join(devices)),
            ("scrub", describe_scrub(vault["scrub"])),
            ("damaged", describe_scrub_damage(vault["scrub"])),
            *list_finding_lines(verdict, error),
            ("error", error["what"] if error else ""),
            ("why", error["why"] if error else ""),
            ("next", error["next"] if error and error["next"] else verdict["findings"][0]["next"]),
        ],
        find_width(sys.stdout),
    )
