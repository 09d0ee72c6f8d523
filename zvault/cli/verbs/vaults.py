"""zvaultctl vault up, down and status: a vault's stack of devices and its pool."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from zvault.api import routes
from zvault.api.blockstore import StoreDocument
from zvault.api.cost import CostDocument, describe_requests, describe_spending
from zvault.api.routes import ApiRoute
from zvault.api.vaults import (
    CreationDocument,
    DeviceDocument,
    JudgedVault,
    VaultAnswer,
    VaultDocument,
    VaultPastDocument,
)
from zvault.cli import completion
from zvault.cli.daemon_client import connect_daemon, read_document, request_action
from zvault.cli.event_text import format_plural
from zvault.cli.health_text import (
    LEVEL_COLOURS,
    LEVEL_EXITS,
    describe_store_trouble,
    find_vault_place,
    is_storage_well,
    is_well,
    list_finding_lines,
)
from zvault.cli.options import AsJson, Chosen, Exact, Quiet, TableForm, Tabs, VaultName, Yes
from zvault.cli.output import (
    OK_STATUS,
    TROUBLE_STATUS,
    USAGE_STATUS,
    choose_colour,
    find_width,
    format_labelled,
    paint_text,
    print_document,
    print_error,
    print_line,
    print_lines,
    print_trouble,
)
from zvault.cli.scrub_text import describe_scrub, describe_scrub_damage
from zvault.cli.tables import (
    TableColumn,
    choose_columns,
    format_ago,
    format_cell,
    format_table,
    select_columns,
)
from zvault.cli.verbs.accept_older import accept_older
from zvault.cli.verbs.begin_anew import begin_anew
from zvault.cli.verbs.measure import follow_messages
from zvault.cli.verbs.takeover import take
from zvault.cli.verbs.vault_past import close_past, open_past
from zvault.core.errors import NotFound
from zvault.core.health.verdict import select_worst_level

app = typer.Typer(no_args_is_help=True)

VAULT_COLUMNS = [
    TableColumn("name"),
    TableColumn("pool"),
    TableColumn("state", "state", get=find_vault_place),
    TableColumn("health", "state"),
    TableColumn("size", "size"),
    TableColumn("alloc", "size", "allocated"),
    TableColumn("free", "size"),
    TableColumn("users", get=lambda vault: ",".join(vault["users"])),
    TableColumn("pinned", "bool"),
    TableColumn("inhibitor", "bool"),
    TableColumn("cost", "figure", get=lambda vault: (vault["cost"] or {}).get("cost")),
    TableColumn("forecast", "figure", get=lambda vault: (vault["cost"] or {}).get("forecast")),
    TableColumn("error", get=lambda vault: (vault["error"] or {}).get("what")),
]
VAULT_DEFAULT = ("name", "pool", "state", "health", "size", "alloc", "free", "users")
DEVICE_COLUMNS = [
    TableColumn("device", key="name"),
    TableColumn("state", "state"),
    TableColumn("size", "size"),
    TableColumn("path"),
    TableColumn("spec"),
]


@app.command("up")
def up(vault: VaultName, quiet: Quiet = False, json: AsJson = False) -> None:
    """Bring VAULT up, and keep it up until 'vault down'.

    Its devices are connected from the bottom up, then its pool is imported.
    """
    _bring(routes.VAULT_UP, vault, "up", quiet, json)


@app.command("down")
def down(vault: VaultName, quiet: Quiet = False, json: AsJson = False) -> None:
    """Export VAULT's pool and take its devices down.

    Refused while a run uses it.
    """
    _bring(routes.VAULT_DOWN, vault, "down", quiet, json)


def _bring(route: ApiRoute[VaultAnswer], name: str, way: str, quiet: bool, json: bool) -> None:
    if sys.stderr.isatty() and not quiet:
        print_trouble(f"taking vault {name} down" if way == "down" else f"bringing vault {name} up")
    vault = request_action(route, vault=name)["vault"]
    if json:
        print_document(f"vault {way}", {"vault": vault})
    elif not quiet:
        detail = f": pool {vault['pool']} {_health(vault)}, {_space(vault)}" if vault["state"] == "up" else ""
        print_line(f"vault {name} is {vault['state']}{detail}")
    if vault["error"]:
        print_error(vault["error"])
    elif way == "down" and vault["state"] == "up" and not vault["devices"]:
        print_trouble(
            f"it has no devices that zvault could take down; 'zpool export {vault['pool']}' if its pool may go"
        )
    raise typer.Exit(OK_STATUS if vault["state"] == way and is_storage_well(vault) else TROUBLE_STATUS)


@app.command("create")
def create(
    vault: VaultName,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be run.")] = False,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Make VAULT's pool on its devices.

    Shows what it will run, device by device, and asks. A device that holds anything is refused, and nothing on it is
    changed. The vault is down afterwards, unless it is one that is always up.

    Exit status: 0 made, or shown with -n; 1 it was refused or failed; 2 --yes is missing, where nobody can be asked.
    """
    plan = connect_daemon().get(routes.CREATION, {"vault": vault})["creation"]
    if dry_run and json:
        print_document("vault create", {"creation": plan})
    elif not json:
        print_lines(_to_create(plan))
    if dry_run:
        return
    if not yes and not (sys.stdin.isatty() and typer.confirm("Do this?", err=True)):
        print_trouble(f"nothing was made: 'zvaultctl vault create {vault} --yes' does it")
        raise typer.Exit(USAGE_STATUS)
    made = follow_messages(connect_daemon().followed(routes.VAULT_CREATE, vault=vault, follow=1))["vault"]
    if json:
        print_document("vault create", {"creation": plan, "vault": made})
    else:
        print_line(f"pool {made['pool']} is made; vault {vault} is {made['state']}")


@app.command("grow")
def grow(vault: VaultName, json: AsJson = False) -> None:
    """Have VAULT's pool use all of its devices, which were grown.

    Grow the image, export or disk first. The vault is brought up for it, and is down again afterwards unless it is to
    be up; one that is up has to be taken down before, for its devices to have their new size. Nothing makes a pool
    smaller again.

    Exit status: 0 it has grown; 2 there is nothing more of its devices, or it failed.
    """
    grown = follow_messages(connect_daemon().followed(routes.VAULT_GROW, vault=vault, follow=1))["vault"]
    if json:
        print_document("vault grow", {"vault": grown})


app.command("open")(open_past)
app.command("close")(close_past)
app.command("begin-anew")(begin_anew)
app.command("accept-older")(accept_older)
app.command("take")(take)


def _to_create(plan: CreationDocument) -> Iterator[str]:
    """The commands as one would type them, each below the device it makes."""
    device: str | None = ""
    for step in plan["steps"]:
        if step["device"] != device:
            device = step["device"]
            yield f"device {device}" if device else f"pool {plan['pool']}"
        yield f"    # {step['what']}"
        yield f"    {step['command']}"


@app.command("status")
def status(
    vault: Annotated[
        list[str] | None,
        typer.Argument(
            help="Only these vaults.", show_default=False, autocompletion=completion.complete_vaults
        ),
    ] = None,
    columns: Chosen = None,
    tabs: Tabs = False,
    exact: Exact = False,
    json: AsJson = False,
) -> None:
    """Show each vault's pool and devices.

    With -H or -o one line a vault.

    Exit status: 0 all are well, up or down; 1 one needs attention; 3 none does, and one is not known to be well.
    """
    picked = choose_columns(VAULT_COLUMNS, columns, VAULT_DEFAULT)
    vaults = _only(read_document(routes.VAULTS)["vaults"], vault or [])
    form = TableForm(tabs, exact)
    if json:
        print_document("vault status", {"vaults": select_columns(picked, vaults) if columns else vaults})
    elif tabs or columns:
        print_lines(format_table(picked, vaults, form))
    elif vaults:
        print_lines(line for i, vault in enumerate(vaults) for line in _block(vault, form, first=i == 0))
    else:
        print_trouble("no vaults")
    raise typer.Exit(LEVEL_EXITS[select_worst_level(vault["verdict"]["level"] for vault in vaults)])


def _only(vaults: list[JudgedVault], names: list[str]) -> list[JudgedVault]:
    known = [vault["name"] for vault in vaults]
    for name in names:
        if name not in known:
            raise NotFound(
                f"there is no vault '{name}'",
                f"zvaultd knows {', '.join(known) or 'none'}",
                "see 'zvaultctl vault status'",
            )
    return [vault for vault in vaults if not names or vault["name"] in names]


def _health(vault: VaultDocument) -> str:
    return format_cell(vault["health"], "text", False)


def _space(vault: VaultDocument, exact: bool = False) -> str:
    if vault["size"] is None:
        return "size not known"
    size, allocated, free = (format_cell(vault[key], "size", exact) for key in ("size", "allocated", "free"))
    return f"{size}, {allocated} allocated, {free} free"


def _block(vault: JudgedVault, form: TableForm, first: bool) -> Iterator[str]:
    """One vault as ``zpool status`` shows a pool."""
    if not first:
        yield ""
    error = vault["error"]
    columns = find_width(sys.stdout)
    place = find_vault_place(vault)
    state = f"{place}, pool {_health(vault)}" if vault["health"] else place
    if place == "away":
        state = f"{place}: its disk is not plugged in; what is due runs once it is"
    colour = LEVEL_COLOURS[vault["verdict"]["level"]]
    pairs: list[tuple[str, Any]] = [
        ("vault", vault["name"]),
        ("pool", vault["pool"]),
        ("state", state),
        ("size", _space(vault, form.exact) if vault["state"] != "down" else ""),
        ("used by", ", ".join(vault["users"])),
        ("pinned", "up until 'zvaultctl vault down'" if vault["pinned"] else ""),
        *(("open as it was", _past(past)) for past in vault["past"]),
        ("scrub", describe_scrub(vault["scrub"])),
        ("damaged", describe_scrub_damage(vault["scrub"])),
        ("cost", _cost(vault["cost"])),
        ("not counted", ", ".join(vault["uncounted"])),
        ("inhibitor", _awake(vault["inhibitor_since"])),
        *list_finding_lines(vault["verdict"], error),
        ("error", error["what"] if error else ""),
        ("why", error["why"] if error else ""),
        ("next", _next(vault)),
    ]
    for line in format_labelled(pairs, columns):
        yield paint_text(line, colour, sys.stdout) if " state: " in line else line
    if vault["devices"]:
        yield ""
        for line in format_table(DEVICE_COLUMNS, vault["devices"], form, notes=_detail):
            yield f"    {line}"


def _past(past: VaultPastDocument) -> str:
    state = "" if past["opened"] else ", not whole"
    return f"{format_cell(past['taken'], 'time', False)}, pool {past['pool']}, for {past['user']}{state}"


def _cost(cost: CostDocument | None) -> str:
    if cost is None:
        return ""
    moved = f"{format_cell(cost['put_bytes'], 'size', False)} up, {format_cell(cost['get_bytes'], 'size', False)} down"
    since = format_cell(cost["since"], "time", False)
    return "; ".join(
        part
        for part in (describe_spending(cost), f"{describe_requests(cost)}, {moved}, since {since}")
        if part
    )


def _next(vault: JudgedVault) -> str:
    error, findings = vault["error"], vault["verdict"]["findings"]
    if error is not None:
        return error["next"]
    return "" if is_well(vault) else findings[0]["next"]


def _awake(since: float | None) -> str:
    return "" if since is None else f"taken {format_ago(since)}: sleep waits"


def _detail(device: DeviceDocument) -> Iterator[str]:
    if device["detail"]:
        yield f"    {device['detail']}"
    if (store := device["store"]) is not None:
        if "mode" in store:
            yield f"    {_stored(store)}"
        if trouble := describe_store_trouble(device):
            yield f"    {paint_text(f'trouble: {trouble}', choose_colour('troubled'), sys.stdout)}"


def _stored(store: StoreDocument) -> str:
    """How a block store fares, in a line."""
    journal, capacity, live, stored = (
        format_cell(size, "size", False)
        for size in (
            store.get("journal_used"),
            store.get("journal_capacity"),
            store.get("live_bytes"),
            store.get("stored_bytes"),
        )
    )
    fenced = "; another writer has it" if store.get("fenced") else ""
    past = ""
    if moments := store.get("moments"):
        size = format_cell(store.get("past_bytes"), "size", exact=False)
        past = f", {size} of it for {format_plural(moments, 'moment')} of its past"
    held = f"{live} live, {stored} in the bucket{past}"
    return f"{store['mode']}; {journal} of {capacity} in its journal; {held}{fenced}"
