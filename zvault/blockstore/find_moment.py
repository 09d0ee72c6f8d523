"""The program that looks up a moment of a store's past: the last one up to a time that is kept.

Run as ``python -m zvault.blockstore.find_moment TIME bucket=… key=… …``, with TIME in seconds since the epoch, and the
words of a server (server.py) that says ``readonly=yes``. Prints a JSON object: ``epoch``, ``number`` and ``taken`` of
the moment, or ``error`` as a server's status has it. What a bucket says is read without root's rights, as by a server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from zvault.blockstore.kept_moments import find_moment_up_to
from zvault.blockstore.own_rights import drop_server_rights
from zvault.blockstore.reached_store import describe_place
from zvault.blockstore.serve_options import ServeOptions
from zvault.blockstore.server import ServedDevice, log_server_line
from zvault.core.errors import ZvaultError


def find_moment(when: float, words: Sequence[str]) -> dict[str, Any]:
    """Find the moment and return what is printed."""
    try:
        serving = ServedDevice(ServeOptions.of(words), log_server_line)
        serving.take_key()
        drop_server_rights(serving)
        moment = find_moment_up_to(serving.past(), when, describe_place(serving.words.spec))
    except ZvaultError as error:
        told = {"kind": type(error).__name__, "what": error.what, "why": error.why, "next": error.next}
        return {"error": told}
    except OSError as error:
        return {
            "error": {"kind": "ToolFailed", "what": "the past cannot be read", "why": str(error), "next": ""}
        }
    return {"epoch": moment.epoch, "number": moment.number, "taken": moment.taken}


if __name__ == "__main__":
    json.dump(find_moment(float(sys.argv[1]), sys.argv[2:]), sys.stdout)
