"""zvaultctl top: runs, streams and vaults, live."""

from __future__ import annotations

import sys
import time

import typer

from zvault.api import routes
from zvault.cli.client import connect
from zvault.cli.health_text import EXITS, level_of
from zvault.cli.output import USAGE, paint, say_all, tell, width
from zvault.cli.terminal import can_show
from zvault.cli.top.feed import Feed
from zvault.cli.top.screen import lines_once, run
from zvault.cli.top.state import TopState

ONE_FRAME = 3.0
"""Seconds to listen before a single frame: progress comes twice a second, a vault's figures every two."""


def top() -> None:
    """Show live what zvaultd does: runs, their streams and buffers, and what is asked of the vaults' devices and
    object stores, and how long that waits.

    Keys: q quits, s sorts by name, health, lag or rate. RATE is what the vault takes; BUFFER the least and the most
    that mbuffer's memory was filled (full: the vault is slower; empty: the source is); WAIT how long a request took at
    the slowest device of a vault, QUEUE the writes that wait in OpenZFS and those at the devices, BOUND BY what
    'zvaultctl doctor' found; REQUESTS are those to the object store, COST this month's by its
    prices (with a plus, if not all of it is counted). What a narrow terminal has no room for is left
    out, names and states last.

    Without a terminal it prints one frame.

    Exit status: as that of 'zvaultctl status', by what was seen last; 2 where zvaultd could not be asked.
    """
    client, state = connect(), TopState()
    first = client.get(routes.STATUS, {})
    feed = Feed(client)
    feed.start(first)
    if can_show():
        run(feed, state)
    else:
        time.sleep(ONE_FRAME)
        feed.news.take(state)
        columns = width(sys.stdout)
        lines = lines_once(state, columns if columns is not None else 132)
        say_all(paint(line.text, line.colour, sys.stdout) for line in lines)
        tell("no terminal: this is one frame; 'zvaultctl status -H' is for scripts")
    if state.status is None or state.trouble:
        raise typer.Exit(USAGE)
    raise typer.Exit(EXITS[level_of(state.status)])
