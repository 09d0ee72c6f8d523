"""docs/reference/refusals.md, from the table in zvault/core/refusals.py."""

from __future__ import annotations

import errno
import os

from zvault.core.refusals import KERNEL_REFUSALS, REFUSAL_ROWS, UNKNOWN_NEXT, Duration

INTRO = """\
<!-- Made by docs/generate.py from zvault/core/refusals.py. Do not edit. -->

# What ZFS refuses

`zfs`, `zpool` and the kernel give short messages when they refuse something. This page lists the messages that zvault
knows, with their meaning, how long the refusal lasts, and what to do.

| lasts | zvault |
|---|---|
| permanent | does not try again, because somebody has to change something first |
| transient | tries again, as often as `retries` says, because it passes by itself |
| unknown | tries again, as often as `retries` says, which may or may not help |

The messages are those of OpenZFS 2.1 to 2.4. The first matching row counts.

## Streams, and other commands

*From* is `zfs send`, `zfs receive`, or any command of zfs and zpool. *Reason* is the label in
[the metrics](metrics.md#reasons) if a stream fails for it.

| message | from | lasts | what it means | what to do | reason |
|---|---|---|---|---|---|
"""

KERNEL = """
## The kernel

libzfs_core, with which zvault makes snapshots, holds and bookmarks on its own host, returns a number.

| errno | lasts | what it means | what to do |
|---|---|---|---|
"""

END = f"""
## Anything else

{UNKNOWN_NEXT}. Please report the words, so that they get a row.
"""


def refusals() -> str:
    """The page."""
    rows = "".join(
        f"| {row.words} | {_speaker(row.speaker)} | {row.duration} | {_cell(row.means)} | {_cell(row.next)} |"
        f" `{row.error.reason}` |\n"
        for row in REFUSAL_ROWS
    )
    numbers = "".join(
        f"| {errno.errorcode[code]} ({os.strerror(code)}) | {row.duration} | {_cell(row.means)} | {_cell(row.next)} |\n"
        for code, row in sorted(KERNEL_REFUSALS.items(), key=_permanent_first)
    )
    return INTRO + rows + KERNEL + numbers + END


def _permanent_first(item: tuple[int, object]) -> tuple[int, int]:
    return list(Duration).index(KERNEL_REFUSALS[item[0]].duration), item[0]


def _speaker(speaker: str) -> str:
    return "any" if speaker == "any" else f"`zfs {speaker}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
