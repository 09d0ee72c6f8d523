"""zvaultctl blockstore: make, look at, check, repair, clean up, copy and serve block stores, without the daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from zvault.cli.event_text import format_plural
from zvault.cli.options import AsJson, Chosen, DryRun, Exact, Quiet, Store, TableForm, Tabs, Yes
from zvault.cli.output import (
    find_width,
    format_labelled,
    print_document,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.parse_times import parse_last_moment
from zvault.cli.tables import (
    TableColumn,
    choose_columns,
    format_ago,
    format_cell,
    format_table,
    select_columns,
)
from zvault.cli.verbs import blockstore_keys, blockstore_place
from zvault.cli.verbs.blockstore_check import REPAIR_HELP, RepairWish, check_store
from zvault.cli.verbs.blockstore_copy import copy_
from zvault.cli.verbs.blockstore_drill import drill
from zvault.cli.verbs.blockstore_gc import gc
from zvault.cli.verbs.blockstore_history import history
from zvault.cli.verbs.blockstore_journal import drop_journal_frames
from zvault.cli.verbs.blockstore_missing_journal import give_up_journal
from zvault.cli.verbs.blockstore_probe import probe, read_kept
from zvault.cli.verbs.blockstore_recover import recover
from zvault.cli.verbs.blockstore_rewind import rewind
from zvault.cli.verbs.blockstore_rollback import accept_older_store
from zvault.cli.verbs.blockstore_serve import serve_store
from zvault.core.errors import ConfigError, Refused
from zvault.core.units import format_size, parse_size

app = typer.Typer(no_args_is_help=True)


INFO_COLUMNS = [
    TableColumn("place"),
    TableColumn("size", "size"),
    TableColumn("live", "size", "live_bytes"),
    TableColumn("stored", "size", "stored_bytes"),
    TableColumn("dead", "size", "dead_bytes"),
    TableColumn("moments", "count"),
    TableColumn("past", "size", "past_bytes"),
    TableColumn("locked_until", "time"),
    TableColumn("segments", "count"),
    TableColumn("log", "count", "log_segments"),
    TableColumn("log_bytes", "size"),
    TableColumn("epoch", "count"),
    TableColumn("owner"),
    TableColumn("since", "time"),
    TableColumn("checkpoint", "count"),
    TableColumn("map_objects", "count"),
    TableColumn("map_bytes", "size"),
    TableColumn("created", "time"),
    TableColumn("uuid"),
]
INFO_DEFAULT = ("place", "size", "live", "stored", "dead", "segments", "log", "epoch", "owner")


@app.command("create")
def create(
    place: Store,
    size: Annotated[
        str | None,
        typer.Option("--size", help="Of the device, as 10T; or size=… of the place.", show_default=False),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Make a block store where there is nothing yet.

    'zvaultctl vault create' does so by itself for a vault's devices, unless they are to be encrypted: then this shows
    the store's recovery key, once.
    """
    from zvault.blockstore import recovery
    from zvault.blockstore.locked_bucket import require_locking, see_that_conditions_hold
    from zvault.blockstore.reached_store import make_s3_settings

    found = blockstore_place.find_store(place)
    wanted = _size(size, found.spec.size)
    require_locking(make_s3_settings(found.spec))
    store = blockstore_place.reach_objects(found)
    if dry_run:
        left = next(iter(store.list(f"{found.spec.key}/")), None)
        if left is not None:
            raise Refused(f"there is something in {found} already", left.key, "choose another key")
        if not quiet:
            print_line(f"would make a block store of {format_size(wanted)} in {found}")
        return
    see_that_conditions_hold(blockstore_place.reach_writers_bucket(found), found.spec, print_trouble)
    made = recovery.create_store(store, found.spec.key, wanted)
    recovery_key = blockstore_keys.make_recovery_key(store)
    if json:
        body = {"place": str(found), "size": made.size, "uuid": made.uuid, "recovery_key": recovery_key}
        print_document("blockstore create", body)
    elif not quiet:
        print_line(f"a block store of {format_size(made.size)} is made in {found}")
    blockstore_keys.show_recovery_key(recovery_key, json=json)


def _size(text: str | None, said: int | None) -> int:
    try:
        size = parse_size(text) if text is not None else said
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--size'") from None
    if size is None:
        raise typer.BadParameter("say how large the device shall be, as in --size 10T", param_hint="'--size'")
    if text is not None and said not in (None, size):
        what = f"--size {text} and size={format_size(said or 0)} of the place differ"
        raise ConfigError(what, "", "leave one out")
    return size


@app.command("info")
def info_(
    place: Store,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show what a store holds, who writes to it, and how much of it is garbage, by a handful of requests.

    It tells of the last checkpoint and of the log after it.
    """
    from zvault.blockstore.maintenance.info import read_store_info

    picked = choose_columns(INFO_COLUMNS, columns, INFO_DEFAULT)
    found = blockstore_place.find_store(place)
    with blockstore_place.start_workers() as pool:
        told = read_store_info(blockstore_place.reach_objects(found), found.spec.key, pool, found.prices)
    row = {"place": str(found), **told.as_dict(), "probe": read_kept(found)}
    if json:
        print_document("blockstore info", select_columns(picked, [row])[0] if columns else row)
    elif tabs or columns:
        print_lines(format_table(picked, [row], TableForm(tabs, exact)))
    else:
        print_lines(format_labelled(_told(row, exact), find_width(sys.stdout)))


def _told(row: dict[str, Any], exact: bool) -> Iterator[tuple[str, str]]:
    def size(key: str) -> str:
        return format_cell(row[key], "size", exact)

    yield "store", row["place"]
    yield "size", size("size")
    now = row["stored_bytes"] - row["past_bytes"]
    share = f", {now / row['live_bytes']:.2f} for each live byte" if row["live_bytes"] else ""
    # What the log has is not counted: a new store would show nothing as live until its first checkpoint.
    since = f", and at most {size('log_bytes')} in the log since" if row["log_bytes"] else ""
    yield "live", f"{size('live_bytes')} at the last checkpoint{since}" if since else size("live_bytes")
    yield "stored", f"{size('stored_bytes')} in {format_plural(row['segments'], 'segment')}{share}"
    if row["moments"]:
        yield (
            "past",
            f"{size('past_bytes')} of that, for {format_plural(row['moments'], 'moment')} that are kept",
        )
    if row["locked_until"]:
        until = format_cell(row["locked_until"], "time", exact=False)
        yield "locked", f"all that is needed until {until} at least ({row['lock_mode']})"
    yield "garbage", f"{size('dead_bytes')}, at the last checkpoint"
    when = "-" if not row["checkpoint"] else f"number {row['checkpoint']} of epoch {row['checkpoint_epoch']}"
    yield "checkpoint", when
    yield "log since", f"{format_plural(row['log_segments'], 'segment')}, {size('log_bytes')}"
    yield "map", f"{size('map_bytes')} in {format_plural(row['map_objects'], 'object')}"
    since = f", since {format_ago(row['since'])}" if row["since"] else ""
    yield "writer", f"{row['owner']} (epoch {row['epoch']}{since})" if row["epoch"] else "none so far"
    if (journal := row["journal"]) is not None:
        yield "journal", f"what is not in the bucket yet is in {journal['folder']} of {journal['host']}"
    if (probed := row["probe"]) is not None:
        yield "probed", _probed(probed)
    yield "requests", ", ".join(f"{number} {kind}" for kind, number in row["requests"].items() if number)
    yield "cost", "" if row["cost"] is None or not any(row["requests"].values()) else f"{row['cost']:.2f}"


def _probed(report: dict[str, Any]) -> str:
    from zvault.blockstore.kept_probe import describe_probe

    at = report.get("at")
    when = format_cell(at, "time", exact=False) if isinstance(at, (int, float)) else ""
    return ", ".join(part for part in (describe_probe(report), when) if part)


@app.command("check", help=REPAIR_HELP)
def check(  # noqa: PLR0913, PLR0917 - its options
    place: Store,
    sample: Annotated[
        str, typer.Option("--sample", metavar="SHARE", help="Read this share of the segments whole.")
    ] = "1%",
    every: Annotated[bool, typer.Option("--all", help="Read every segment whole.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Repair what can be repaired; with --yes.")
    ] = False,
    doubtful: Annotated[
        str,
        typer.Option(
            "--doubtful", metavar="data|fail", help="Blocks that may be zeroed since.", show_default=False
        ),
    ] = "",
    cut_log: Annotated[
        bool,
        typer.Option(
            "--cut-log",
            help="Let the log end before a segment that cannot be read; shows what is lost, and asks.",
        ),
    ] = False,
    give_up_journal: Annotated[
        Path | None,
        typer.Option(
            "--give-up-journal", metavar="FOLDER", help="Drop an overtaken journal.", show_default=False
        ),
    ] = None,
    accept_rollback: Annotated[
        bool,
        typer.Option(
            "--accept-rollback", help="Go on with a store that is older than this host knows it; with --yes."
        ),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """See REPAIR_HELP."""
    if doubtful not in ("", "data", "fail"):
        raise typer.BadParameter("is 'data' or 'fail'", param_hint="'--doubtful'")
    found = blockstore_place.find_store(place)
    if accept_rollback:
        raise typer.Exit(accept_older_store(found, do=yes and not dry_run, json=json))
    if give_up_journal is not None:
        raise typer.Exit(drop_journal_frames(found, give_up_journal, do=yes and not dry_run, json=json))
    share = 1.0 if every else _share(sample)
    wish = RepairWish(doubtful, cut_log, yes and not dry_run, ask=not (dry_run or quiet or json))
    wanted = wish if repair else None
    raise typer.Exit(check_store(found, share, wanted, TableForm(tabs, exact), json=json, quiet=quiet))


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter("is a share of the segments, as in 1% or 0.25", param_hint="'--sample'")
    return share


app.command("gc")(gc)
app.command("copy")(copy_)


@app.command("serve")
def serve(
    place: Store,
    socket: Annotated[
        Path,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="Where it listens, a unix socket; for root alone.",
            show_default=False,
        ),
    ],
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="As it was then: the last moment up to TIME that is kept.",
            show_default=False,
        ),
    ] = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Serve a store read-only, as it is now, until interrupted; others may write to it.

    It becomes an NBD server, nbdkit, and tells how to attach it and import its pool. Nothing is taken and nothing
    changed: the writer does not notice. What is seen stays of one moment. Some checkpoints later the writer removes
    blocks that it had: reads of these fail then, which is told once; detach it and serve it anew. Of a vault the cache
    is left to its own server.

    With --at it is served as it was: 'blockstore history' lists the moments that are kept. What one needs stays until
    the rules drop it.
    """
    when = None if at is None else parse_last_moment(at)
    serve_store(blockstore_place.find_store(place), socket, when, dry_run=dry_run, quiet=quiet)


app.command("history")(history)
app.command("rewind")(rewind)
app.command("rotate-key")(blockstore_keys.rotate)
app.command("give-up-journal")(give_up_journal)
app.command("recover")(recover)
app.command("drill")(drill)
app.command("probe")(probe)
