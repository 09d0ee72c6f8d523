"""zvaultctl top: runs, streams and vaults, live."""

from __future__ import annotations

import sys
import time

import typer

from zvault.api import routes
from zvault.cli.daemon_client import connect_daemon
from zvault.cli.health_text import LEVEL_EXITS, find_worst_level
from zvault.cli.output import USAGE_STATUS, find_width, paint_text, print_lines, print_trouble
from zvault.cli.terminal import is_usable_terminal
from zvault.cli.top.feed import TopFeed
from zvault.cli.top.screen import make_frame_once, run_top_screen
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
    client, state = connect_daemon(), TopState()
    first = client.get(routes.STATUS, {})
    feed = TopFeed(client)
    feed.start(first)
    if is_usable_terminal():
        run_top_screen(feed, state)
    else:
        time.sleep(ONE_FRAME)
        feed.news.take(state)
        columns = find_width(sys.stdout)
        lines = make_frame_once(state, columns if columns is not None else 132)
        print_lines(paint_text(line.text, line.colour, sys.stdout) for line in lines)
        print_trouble("no terminal: this is one frame; 'zvaultctl status -H' is for scripts")
    if state.status is None or state.trouble:
        raise typer.Exit(USAGE_STATUS)
    raise typer.Exit(LEVEL_EXITS[find_worst_level(state.status)])
