"""Long answers of the daemon: what it says meanwhile is shown while somebody waits, and gone after that."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TypeVar

from zvault.api.routes import ApiRoute
from zvault.cli.daemon_client import HttpClient, find_socket_path
from zvault.cli.output import clean_line, find_width, print_trouble
from zvault.cli.progress import shorten_name
from zvault.core.printable import make_printable

A = TypeVar("A")


def wait_for_answer(route: ApiRoute[A], request: Mapping[str, object]) -> A:
    """Send a request that takes long and return its answer. Ctrl-C ends the work in the daemon. Raises ZvaultError."""
    telling = HttpClient(find_socket_path()).followed(route, request)
    try:
        while True:
            text = clean_line(next(telling))
            # That a vault is up has a cost, so that stays to be read; how far it is does not.
            if text.startswith("vault "):
                _redraw("")
                print_trouble(text)
            else:
                _redraw(text)
    except StopIteration as end:
        found: A = end.value
        return found
    finally:
        telling.close()
        _redraw("")


def _redraw(text: str) -> None:
    """The line that is shown while it goes on, on a terminal."""
    if sys.stderr.isatty():
        columns = find_width(sys.stderr) or 80
        sys.stderr.write(f"\r\x1b[K{shorten_name(make_printable(text, keep=''), columns - 1)}")
        sys.stderr.flush()
