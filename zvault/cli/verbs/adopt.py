"""zvaultctl adopt: the backup that goes on from a replica that another tool made."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from zvault.api.backups import AdoptDocument, SteeringDocument
from zvault.cli.event_text import format_plural, format_step
from zvault.cli.options import AsJson
from zvault.cli.output import OK_STATUS, TROUBLE_STATUS, clean_line, print_document, print_line, print_lines
from zvault.core.address import Source, parse_source
from zvault.core.errors import Refused
from zvault.core.replication.adoption import suggest_name
from zvault.core.units import format_size


def adopt(
    source: Annotated[
        str,
        typer.Argument(help="The dataset that is backed up, as in tank/data or ssh://root@filer1/tank/data."),
    ],
    replica: Annotated[
        str,
        typer.Argument(help="The dataset that has its replica, as in cold/backups/data; or on another host."),
    ],
    name: Annotated[
        str | None,
        typer.Option("--name", help="What to call the backup.", show_default="the last part of SOURCE"),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show how zvault goes on from a replica that another tool made.

    Prints the tables for zvault.toml, and as comments what the first run with them would do. What another tool sent is
    not sent again: both sides have snapshots of the same GUIDs, whatever their names. Looks at both sides, and changes
    nothing; the replica's pool must be imported. Needs no daemon.

    Exit status: 0 the next run goes on; 1 a dataset is in conflict, cannot be listed, or was written to after its
    newest snapshot.
    """
    found = _asked(_place(source), _place(replica), name)
    if json:
        print_document("adopt", found)
    else:
        print_lines(found["toml"])
        print_line()
        # Each on one line: what follows a line break would be no comment.
        print_lines(f"# {clean_line(line)}".rstrip() for line in _notes(found))
    conflict = any(one["action"] == "conflict" for one in found["datasets"])
    raise typer.Exit(TROUBLE_STATUS if conflict or found["first"] or found["unlisted"] else OK_STATUS)


def _place(text: str) -> Source:
    try:
        return parse_source(text)
    except ValueError as error:
        raise Refused(
            f"'{text}' is no dataset", str(error), "as in tank/data, or ssh://root@filer1/tank/data"
        ) from None


def _asked(source: Source, replica: Source, name: str | None) -> AdoptDocument:
    # pydantic is slow to import.
    import asyncio

    from zvault.config.load_config import has_config, load_config
    from zvault.config.paths import Paths
    from zvault.config.schema import Config
    from zvault.ops.adopt import AdoptRequest, make_adoption_document
    from zvault.system.process.runner import HostRunner

    paths = Paths()
    config = load_config(paths) if has_config(paths) else Config()
    request = AdoptRequest(name or suggest_name(source.dataset.name), source, replica)
    return asyncio.run(make_adoption_document(config, paths, HostRunner(), request))


def _notes(found: AdoptDocument) -> list[str]:
    """What is to be known, in lines."""
    lines = []
    if found["first"]:
        lines.append(
            f"{format_size(found['written'])} were written to the replica since its newest snapshots, as when a dataset"
            " is mounted."
        )
        host = _place(found["replica"]).host
        there = f", on {host.host}" if host is not None else ""
        lines.append(f"Before the first run take that back, or save what it is{there}:")
        lines += [f"  {command}" for command in found["first"]]
    with_snapshot = f", with its snapshot {found['snapshot']}" if found["snapshot"] else ""
    lines += [f"The first run, of {format_plural(len(found['datasets']), 'dataset')}{with_snapshot}:"]
    for one in found["datasets"]:
        lines.append(f"  {one['dataset']} into {one['vault_dataset']}: {one['action']}")
        lines += [f"    first: {text}" for text in one["changes"]]
        lines += [
            f"    send: {'FULL' if each['kind'] == 'full' else each['kind']} {format_step(each['from'], each['to'])}"
            + (f", {format_size(each['bytes'])}" if each["bytes"] is not None else "")
            for each in one["steps"]
        ]
        lines += [f"    lies: {one['encryption']}"] if one["encryption"] else []
        lines.append(f"    why: {one['reason']}")
        if one["next"]:
            lines.append(f"    next: {one['next']}")
    lines += list_steering_notes(found["steering"])
    if found["strangers"]:
        lines.append("On the replica, and followed by nothing: " + ", ".join(found["strangers"]))
    lines += [f"Not looked at: {line}" for line in found["unlisted"]]
    if found["unknown"]:
        lines.append(
            "Their counterparts may be there, so it is not known what they are: "
            + ", ".join(found["unknown"])
        )
    lines.append(
        "Switch the other tool's replication off before the first run: one tool receives into a dataset."
    )
    return lines


NAMED_DATASETS = 3
"""Datasets that a line names before it says how many more there are."""


def _some(names: list[str]) -> str:
    more = len(names) - NAMED_DATASETS
    return ", ".join(names[:NAMED_DATASETS]) + (f" and {more} more" if more > 0 else "")


def list_steering_notes(found: list[SteeringDocument]) -> list[str]:
    """What both sides have for other tools to go by, and what zvault does about it, in lines.

    Properties of one tool in the same places are told of together: a plan of znapzend's has eighteen.
    """
    together: dict[tuple[str, ...], list[SteeringDocument]] = {}
    for one in found:
        lists = (one["source"], one["received"], one["local"], one["above"])
        places = (one["tool"], *("\n".join(datasets) for datasets in lists))
        together.setdefault(places, []).append(one)
    return [line for several in together.values() for line in _steering_lines(several)]


def _steering_lines(several: list[SteeringDocument]) -> list[str]:
    """The same of properties that are in the same places."""
    one, names = several[0], [each["property"] for each in several]
    alone = len(names) == 1
    steer, they_stay, them = ("steers", "it stays", "it") if alone else ("steer", "they stay", "them")
    lines = [f"{_some(names)} {steer} {one['tool']}:"]
    if one["source"]:
        lines.append(
            f"  set on {_some(one['source'])}: {they_stay} out of the vault, unless 'receive.let_in' names {them}"
        )
    if one["received"]:
        lines.append(
            f"  came with a stream to {_some(one['received'])}: the first run takes {them} out of force there"
        )
    if one["local"]:
        lines.append(f"  set by hand on {_some(one['local'])}, where zvault leaves {them}. To remove {them}:")
        lines += [
            f"    {shlex.join(['zfs', 'inherit', name, dataset])}"
            for name in names
            for dataset in one["local"]
        ]
    if one["above"]:
        lines.append(
            f"  inherited from {_some(one['above'])}, which is above the replica: zvault leaves {them}. To shield the"
            f" replica set {them} in 'receive.set'"
        )
    return lines
