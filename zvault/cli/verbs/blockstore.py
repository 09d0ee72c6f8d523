"""zvaultctl blockstore: make, look at, check, repair, clean up, copy and serve block stores, without the daemon."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from zvault.cli.event_text import plural
from zvault.cli.options import AsJson, Chosen, DryRun, Exact, Quiet, TableForm, Tabs, Yes
from zvault.cli.output import OK, TROUBLE, document, labelled, say, say_all, tell, width
from zvault.cli.progress import Steps
from zvault.cli.tables import Column, ago, chosen, restricted, table, written
from zvault.cli.times import moment
from zvault.cli.verbs import blockstore_keys, blockstore_place
from zvault.cli.verbs.blockstore_check import REPAIR_HELP, check_store
from zvault.cli.verbs.blockstore_drill import drill
from zvault.cli.verbs.blockstore_history import history
from zvault.cli.verbs.blockstore_recover import recover
from zvault.cli.verbs.blockstore_rewind import rewind
from zvault.cli.verbs.blockstore_rollback import accept
from zvault.cli.verbs.blockstore_serve import serve_store
from zvault.cli.verbs.blockstore_versions import remove_garbage
from zvault.core.errors import ConfigError, NotFound, Refused
from zvault.core.units import format_size, parse_size

app = typer.Typer(no_args_is_help=True)

Store = Annotated[
    str,
    typer.Argument(
        metavar="PLACE",
        help="'zvault:BUCKET/KEY endpoint=…', or VAULT[/N] of the configuration.",
        show_default=False,
    ),
]
WORKERS = 8

COLUMNS = [
    Column("place"),
    Column("size", "size"),
    Column("live", "size", "live_bytes"),
    Column("stored", "size", "stored_bytes"),
    Column("dead", "size", "dead_bytes"),
    Column("moments", "count"),
    Column("past", "size", "past_bytes"),
    Column("locked_until", "time"),
    Column("segments", "count"),
    Column("log", "count", "log_segments"),
    Column("log_bytes", "size"),
    Column("epoch", "count"),
    Column("owner"),
    Column("since", "time"),
    Column("checkpoint", "count"),
    Column("map_objects", "count"),
    Column("map_bytes", "size"),
    Column("created", "time"),
    Column("uuid"),
]
DEFAULT = ("place", "size", "live", "stored", "dead", "segments", "log", "epoch", "owner")


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
    from zvault.blockstore.locked_bucket import see_that_it_locks
    from zvault.blockstore.reach import settings_of

    found = blockstore_place.find(place)
    wanted = _size(size, found.spec.size)
    see_that_it_locks(settings_of(found.spec))
    store = blockstore_place.reach(found)
    if dry_run:
        left = next(iter(store.list(f"{found.spec.key}/")), None)
        if left is not None:
            raise Refused(f"there is something in {found} already", left.key, "choose another key")
        if not quiet:
            say(f"would make a block store of {format_size(wanted)} in {found}")
        return
    made = recovery.create(store, found.spec.key, wanted)
    recovery_key = blockstore_keys.recovery_key(store)
    if json:
        body = {"place": str(found), "size": made.size, "uuid": made.uuid, "recovery_key": recovery_key}
        document("blockstore create", body)
    elif not quiet:
        say(f"a block store of {format_size(made.size)} is made in {found}")
    blockstore_keys.show(recovery_key, json=json)


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
    from zvault.blockstore.maintenance.info import info

    picked = chosen(COLUMNS, columns, DEFAULT)
    found = blockstore_place.find(place)
    with blockstore_place.workers(WORKERS) as pool:
        told = info(blockstore_place.reach(found), found.spec.key, pool, found.prices)
    row = {"place": str(found), **told.as_dict()}
    if json:
        document("blockstore info", restricted(picked, [row])[0] if columns else row)
    elif tabs or columns:
        say_all(table(picked, [row], TableForm(tabs, exact)))
    else:
        say_all(labelled(_told(row, exact), width(sys.stdout)))


def _told(row: dict[str, Any], exact: bool) -> Iterator[tuple[str, str]]:
    def size(key: str) -> str:
        return written(row[key], "size", exact)

    yield "store", row["place"]
    yield "size", size("size")
    now = row["stored_bytes"] - row["past_bytes"]
    share = f", {now / row['live_bytes']:.2f} for each live byte" if row["live_bytes"] else ""
    yield "live", size("live_bytes")
    yield "stored", f"{size('stored_bytes')} in {plural(row['segments'], 'segment')}{share}"
    if row["moments"]:
        yield "past", f"{size('past_bytes')} of that, for {plural(row['moments'], 'moment')} that are kept"
    if row["locked_until"]:
        until = written(row["locked_until"], "time", exact=False)
        yield "locked", f"all that is needed until {until} at least ({row['lock_mode']})"
    yield "garbage", f"{size('dead_bytes')}, at the last checkpoint"
    when = "-" if not row["checkpoint"] else f"number {row['checkpoint']} of epoch {row['checkpoint_epoch']}"
    yield "checkpoint", when
    yield "log since", f"{plural(row['log_segments'], 'segment')}, {size('log_bytes')}"
    yield "map", f"{size('map_bytes')} in {plural(row['map_objects'], 'object')}"
    since = f", since {ago(row['since'])}" if row["since"] else ""
    yield "writer", f"{row['owner']} (epoch {row['epoch']}{since})" if row["epoch"] else "none so far"
    yield "requests", ", ".join(f"{number} {kind}" for kind, number in row["requests"].items() if number)
    yield "cost", "" if row["cost"] is None or not any(row["requests"].values()) else f"{row['cost']:.2f}"


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
        bool, typer.Option("--cut-log", help="Let the log end before a segment that cannot be read.")
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
    found = blockstore_place.find(place)
    if accept_rollback:
        raise typer.Exit(accept(found, do=yes and not dry_run, json=json))
    if give_up_journal is not None:
        raise typer.Exit(_give_up(found, give_up_journal, do=yes and not dry_run, json=json))
    share = 1.0 if every else _share(sample)
    wanted = (doubtful, cut_log, yes and not dry_run) if repair else None
    raise typer.Exit(check_store(found, share, wanted, TableForm(tabs, exact), json=json, quiet=quiet))


def _share(text: str) -> float:
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise typer.BadParameter("is a share of the segments, as in 1% or 0.25", param_hint="'--sample'")
    return share


def _give_up(place: blockstore_place.StorePlace, folder: Path, *, do: bool, json: bool) -> int:
    """Drop the frames of a journal that another writer overtook."""
    from zvault.blockstore.log.journal import Journal
    from zvault.blockstore.recovery import newest_root, superblock

    if not folder.is_dir():
        raise NotFound(
            f"there is no journal in {folder}", "there is no such folder", "see journal= of the place"
        )
    store, key = blockstore_place.reach(place), place.spec.key
    what = superblock(store, key)
    journal = Journal(
        folder, what.identity, capacity=place.spec.journal_size, durable=place.spec.mode == "writeback"
    )
    try:
        root = newest_root(store, key, what)
        if journal.epoch > root.epoch:
            raise Refused(
                f"the journal in {folder} is not given up",
                f"it is of epoch {journal.epoch}, and the store of {root.epoch}: it is the store that is older",
                "see 'zvaultctl blockstore check --accept-rollback'",
            )
        if journal.epoch in (0, root.epoch):
            why = "it is empty" if journal.epoch == 0 else "no other host has written to the store since"
            raise Refused(
                f"the journal in {folder} is not given up", why, "bring the vault up: it goes on from it"
            )
        epoch = journal.epoch
        lost = [(frame.number, frame.count) for frame in journal.frames(_last_kept(epoch, root))]
        size = sum(count for _, count in lost) * 4096
        if do:
            journal.begin(root.epoch, root.frame + 1)
    finally:
        journal.close()
    if json:
        document(
            "blockstore check", {"journal": str(folder), "writes": len(lost), "bytes": size, "given_up": do}
        )
    else:
        many = f"{plural(len(lost), 'write')} ({format_size(size)}) of epoch {epoch}"
        say(f"given up: {many}" if do else f"would give up {many}; do so with --yes")
    return OK


def _last_kept(epoch: int, root: Any) -> int:
    """The last frame of an epoch that the store has; 0 where nobody knows any more."""
    for before, after in zip(root.reigns, root.reigns[1:], strict=False):
        if before.epoch == epoch:
            return int(after.frame)
    return 0


@app.command("gc")
def gc(
    place: Store, yes: Yes = False, dry_run: DryRun = False, quiet: Quiet = False, json: AsJson = False
) -> None:
    """Take a store that nobody uses, and remove all of its garbage, until 1.1 bytes are stored for each live one.

    A server does so by itself, to 1.25 bytes and at its leisure. Exit status: 0 done; 1 a segment could not be cleared.

    Where the place has lock= or gc=elsewhere the store is not taken, and may be in use: versions of objects are removed
    that nobody needs any more, and whose lock has ended, with keys that may do so. It is refused where somebody has
    been at what is needed.
    """
    from zvault.blockstore.maintenance.info import info
    from zvault.blockstore.maintenance.offline_gc import sweep

    found = blockstore_place.find(place)
    if found.spec.lock is not None or found.spec.gc_elsewhere:
        remove_garbage(found, do=not dry_run, yes=yes, quiet=quiet, json=json)
        return
    store, key = blockstore_place.reach(found), found.spec.key
    with blockstore_place.workers(WORKERS) as pool:
        before = info(store, key, pool)
        if dry_run:
            say(f"{format_size(before.dead_bytes)} of {format_size(before.stored_bytes)} could be removed")
            return
        blockstore_place.refuse_in_use(found, "cleaned up", before.owner, yes=yes)
        with blockstore_place.options(found) as options, Steps(not quiet and not json, tell) as steps:
            done = sweep(
                store, key, options, blockstore_place.me("gc"), pool=pool, progress=steps.see, say=tell
            )
    if json:
        names = ("before", "after", "past", "live", "moved", "cleared", "strays", "stray_bytes", "trouble")
        document("blockstore gc", {"place": str(found), **{name: getattr(done, name) for name in names}})
    elif not quiet:
        freed = format_size(max(0, done.before - done.after) + done.stray_bytes)
        past = f", and {format_size(done.past)} for the past" if done.past else ""
        stored = format_size(done.after - done.past)
        say(f"freed {freed}: {stored} are stored for {format_size(done.live)} that are live{past}")
    if done.trouble is not None:
        tell(f"not all could be cleared: {done.trouble}")
    raise typer.Exit(OK if done.trouble is None else TROUBLE)


@app.command("copy")
def copy_(
    source: Store,
    target: Annotated[str, typer.Argument(metavar="TO", help="Another place, where there is nothing yet.")],
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Copy a store to another place: what the last checkpoint and the log say, and only what is live.

    The copy has a uuid of its own, and is encrypted if its place names a key, whatever the source is: so a store that
    is not encrypted becomes one that is. While the source is written to a copy may have to give up. What a copy that
    was broken off leaves is no store; what it could not remove is told by 'create', and can be removed.
    """
    from zvault.blockstore.maintenance.copy import copy
    from zvault.blockstore.maintenance.info import info
    from zvault.blockstore.view import now

    here, there = blockstore_place.find(source), blockstore_place.find(target)
    if here.spec.identity == there.spec.identity:
        raise Refused(f"{here} cannot be copied", "both places are the same", "give another bucket or key")
    store, other = blockstore_place.reach(here), blockstore_place.reach_bare(there)
    kept = blockstore_keys.Target(there)
    if dry_run:
        with blockstore_place.workers(WORKERS) as pool:
            told = info(store, here.spec.key, pool)
        say(f"would copy about {format_size(told.live_bytes)} to {there}")
        return
    view = now(store, here.spec.key)
    try:
        with (
            blockstore_place.workers(WORKERS) as pool,
            blockstore_place.scratch(there) as options,
            Steps(not quiet and not json, tell) as steps,
        ):
            me = blockstore_place.me("copy")
            done = copy(view, other, there.spec.key, options, me, pool, steps.see, kept.encrypted)
    finally:
        view.close()
    if json:
        body = {
            "source": str(here),
            "target": str(there),
            "size": done.size,
            "data": done.data,
            "stored": done.stored,
            "recovery_key": kept.recovery_key,
        }
        document("blockstore copy", body)
    elif not quiet:
        say(f"copied {format_size(done.data)} of a device of {format_size(done.size)} to {there}")
    blockstore_keys.show(kept.recovery_key, json=json)


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
    when = None if at is None else moment(at)
    serve_store(blockstore_place.find(place), socket, when, dry_run=dry_run, quiet=quiet)


app.command("history")(history)
app.command("rewind")(rewind)
app.command("rotate-key")(blockstore_keys.rotate)
app.command("recover")(recover)
app.command("drill")(drill)
