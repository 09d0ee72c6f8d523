"""The table of what ZFS refuses: each row has the whole line that it stands for, and no row hides another.

The lines were seen in the lab with 2.3.9, except those marked SOURCE, which are put together from the format strings of
libzfs_sendrecv.c, libzfs_util.c and libzfs_dataset.c of 2.3.9.
"""

from __future__ import annotations

import errno
import os

import pytest

from zvault.core.errors import PoolReadOnly, ToolFailed, ZvaultError
from zvault.core.refusals import (
    KERNEL_REFUSALS,
    KERNEL_WORDS,
    REFUSAL_ROWS,
    UNKNOWN_NEXT,
    Duration,
    Speaker,
    describe_errnos,
    find_cure,
    find_refusal,
    make_refusal,
)

NEW = "cannot receive new filesystem stream: "
ON = "cannot receive incremental stream: "
SEND = "warning: cannot send 'tank/z@1': "

SAID: dict[str, tuple[Speaker, str]] = {
    "quota exceeded": ("receive", NEW + "destination cold/q/z space quota exceeded."),
    "out of space": ("any", "cannot create 'cold/res': out of space"),
    "No space left": ("any", "cannot write: No space left on device"),  # SOURCE: zfs_strerror(ENOSPC)
    "I/O is currently suspended": ("receive", "cannot receive: pool I/O is currently suspended"),
    "is read-only": ("receive", ON + "pool is read-only"),
    "pool export in progress": ("any", "cannot import 'cold': pool export in progress"),  # SOURCE
    "pool is imported on a different host": (
        "receive",
        NEW + "pool is imported on a different host",
    ),  # SOURCE
    "pool must be upgraded": ("receive", NEW + "pool must be upgraded to receive this stream."),
    "stream uses crypto parameters not compatible": (  # SOURCE
        "receive",
        NEW + "stream uses crypto parameters not compatible with this pool",
    ),
    "is not a filesystem": ("receive", NEW + "parent 'cold/vol' is not a filesystem"),
    "has been modified": ("receive", ON + "destination cold/z has been modified\nsince most recent snapshot"),
    "most recent snapshot": (
        "receive",
        ON + "most recent snapshot of cold/z does not\nmatch incremental source",
    ),
    "must specify -F to overwrite it": (
        "receive",
        NEW + "destination 'cold/z' exists\nmust specify -F to overwrite it",
    ),
    "must destroy it to overwrite it": (  # SOURCE
        "receive",
        NEW + "destination 'cold/z' is a clone\nmust destroy it to overwrite it",
    ),
    "must destroy them to overwrite it": (  # SOURCE
        "receive",
        NEW + "destination has snapshots (eg. cold/z@1)\nmust destroy them to overwrite it",
    ),
    "cannot overwrite with a ZVOL": (  # SOURCE
        "receive",
        NEW + "destination has children (eg. cold/z/a)\ncannot overwrite with a ZVOL",
    ),
    "already exists": ("receive", "cannot restore to cold/z@2: destination already exists"),
    "unable to restore to destination": (
        "receive",
        "cannot open 'cold/none': dataset does not exist\n" + NEW + "unable to restore to destination",
    ),
    "requires -L": (
        "receive",
        ON + "incremental send stream requires -L (--large-block), to match previous receive.",
    ),
    "source snapshot contains large microzaps": (  # SOURCE, from 2.3 on
        "send",
        SEND + "source snapshot contains large microzaps, need -L (--large-block) or -w (--raw) to generate"
        " stream",
    ),
    "IV set guid mismatch": (
        "receive",
        ON
        + "IV set guid mismatch. See the 'zfs receive' man page section\n discussing the limitations of raw"
        " encrypted send streams.",
    ),
    "IV set guid missing": (  # SOURCE
        "receive",
        ON + "IV set guid missing. See errata 4 at https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER.",
    ),
    "on top of existing unencrypted": (
        "receive",
        ON + "cannot perform raw receive on top of existing unencrypted dataset",
    ),
    "cannot be used to destroy an encrypted filesystem": (
        "receive",
        NEW
        + "zfs receive -F cannot be used to destroy an encrypted filesystem or overwrite an unencrypted one"
        " with an encrypted one",
    ),
    "embedded data stream feature": (
        "receive",
        NEW + "incompatible embedded data stream feature with encrypted receive.",
    ),
    "cannot be set or excluded for raw streams": (
        "receive",
        NEW + "encryption property 'encryption' cannot be set or excluded for raw streams.",
    ),
    "encryption key does not match": ("receive", ON + "encryption key does not match existing key"),  # SOURCE
    "failed to create encryption key": ("receive", NEW + "failed to create encryption key"),  # SOURCE
    "inherited key must be loaded": ("receive", ON + "inherited key must be loaded"),
    "key must be loaded": ("send", SEND + "dataset key must be loaded"),
    "key is not loaded": (
        "any",
        "cannot create 'cold/enc/x': encryption root's key is not loaded or provided",
    ),
    "may not be sent with properties without the raw flag": (
        "send",
        "cannot send tank/e@1: encrypted dataset tank/e may not be sent with properties without the raw flag",
    ),
    "invalid property": (
        "receive",
        NEW + "'compression' must be one of 'on | off'\n" + NEW + "invalid property value",
    ),
    "name is too long": ("any", "cannot rename to 'cold/aaaa': name is too long"),
    "nesting depth exceeded": ("any", "cannot create 'cold/d/d': maximum name nesting depth exceeded"),
    "invalid name": ("receive", "cannot receive: invalid name"),
    "stream has unsupported feature": (  # SOURCE
        "receive",
        "cannot receive: stream has unsupported feature, feature flags = 400000004 (unknown flags = 400000000)",
    ),
    "Spill block flag missing": (  # SOURCE
        "receive",
        ON
        + "Spill block flag missing for raw send.\nThe zfs software on the sending system must be updated.",
    ),
    "kernel modules must be upgraded": (
        "receive",
        ON + "kernel modules must be upgraded to receive this stream.",
    ),
    "the loaded zfs module does not support": (  # SOURCE
        "any",
        "cannot scrub cold: the loaded zfs module does not support an option for this operation. A reboot may be"
        " required to enable this option.",
    ),
    "larger than the system can support": (  # SOURCE
        "receive",
        NEW
        + "zfs receive required kernel memory allocation larger than the system can support. Please file an"
        " issue at the OpenZFS issue tracker:\nhttps://github.com/openzfs/zfs/issues/new",
    ),
    "ZFS modules cannot be auto-loaded": ("any", "The ZFS modules cannot be auto-loaded."),  # SOURCE
    "ZFS modules are not loaded": ("any", "The ZFS modules are not loaded."),  # SOURCE
    "permission denied": ("any", "cannot hold: permission denied"),
    "contains partially-complete state": (
        "receive",
        ON + 'destination cold/tok contains partially-complete state from "zfs receive -s".',
    ),
    "is busy": ("any", "cannot rename 'cold/p': dataset is busy"),
    "not an earlier snapshot from the same fs": ("send", SEND + "not an earlier snapshot from the same fs"),
    "does not exist": ("send", "cannot open 'tank/z@nope': dataset does not exist"),
    "incomplete stream": (
        "receive",
        NEW + "checksum mismatch or incomplete stream.\nPartially received snapshot is saved.",
    ),
    "checksum mismatch": ("receive", NEW + "invalid stream (checksum mismatch)"),  # SOURCE
    "signal received": ("receive", ON + "signal received"),  # SOURCE: EZFS_INTR
    "Input/output error": ("send", SEND + "Input/output error"),
    "I/O error": ("receive", NEW + "I/O error"),
    "one or more devices is currently unavailable": (
        "any",
        "cannot import 'cold': one or more devices is currently unavailable",
    ),
    "out of memory": ("any", "cannot receive: out of memory"),  # SOURCE
}


@pytest.mark.parametrize("row", REFUSAL_ROWS, ids=lambda row: row.words)
def test_each_row_is_found_by_what_zfs_says(row: object) -> None:
    """None is without its line, and none is hidden by one before it."""
    assert row in REFUSAL_ROWS
    words = row.words  # type: ignore[attr-defined]
    speaker, said = SAID[words]
    assert find_refusal(said, speaker) is row


def test_no_line_is_without_its_row() -> None:
    assert set(SAID) == {row.words for row in REFUSAL_ROWS}
    assert len(SAID) == len(REFUSAL_ROWS)


@pytest.mark.parametrize("code", sorted(KERNEL_REFUSALS))
def test_the_kernels_own_words_lead_to_its_row(code: int) -> None:
    """A receive that is frozen and goes on, as by a suspend, ends with EINTR: it was told as an unknown refusal."""
    assert KERNEL_WORDS[code] == os.strerror(code)
    row = find_refusal(f"cannot receive incremental stream: {os.strerror(code)}\n", "receive")
    assert row is not None
    assert row.duration is KERNEL_REFUSALS[code].duration
    assert find_refusal(f"mbuffer: {os.strerror(code)} in the middle", "receive") in (None, *REFUSAL_ROWS)


def test_what_lasts_is_not_tried_again_and_what_passes_is() -> None:
    for row in REFUSAL_ROWS:
        assert row.error.retryable == (row.duration is not Duration.PERMANENT), row.words


def test_nobody_is_told_to_run_again_what_will_not_go() -> None:
    texts = [row.next for row in REFUSAL_ROWS if row.duration is not Duration.TRANSIENT]
    texts += [row.next for row in KERNEL_REFUSALS.values() if row.duration is not Duration.TRANSIENT]
    for text in [*texts, UNKNOWN_NEXT]:
        assert text
        assert "run it again" not in text
        assert "try again" not in text


def test_words_of_one_end_are_not_looked_for_in_the_other() -> None:
    assert find_refusal("mbuffer: has been modified", "any") is None
    assert find_refusal("the moon is full", "receive") is None


@pytest.mark.parametrize(
    ("codes", "duration"),
    [
        ({errno.EROFS}, Duration.PERMANENT),
        ({errno.EBUSY, errno.ENOSPC}, Duration.PERMANENT),
        ({errno.EBUSY}, Duration.TRANSIENT),
        ({errno.EBUSY, errno.EDOM}, Duration.UNKNOWN),
        ({errno.EDOM}, Duration.UNKNOWN),
        (set(), Duration.UNKNOWN),
    ],
)
def test_of_several_errnos_the_one_that_lasts_counts(codes: set[int], duration: Duration) -> None:
    assert describe_errnos(codes)[0] is duration


def test_a_command_that_failed_is_of_its_kind_with_advice() -> None:
    error = make_refusal("cannot create 'cold/x'", "cannot create 'cold/x': pool is read-only", ToolFailed)
    assert (type(error), error.retryable) == (PoolReadOnly, False)
    assert "readonly=on" in error.next
    gone = make_refusal("cannot set", "cannot open 'cold/x': dataset does not exist", ToolFailed)
    assert type(gone) is ToolFailed
    odd: ZvaultError = make_refusal("cannot set", "the moon is full", ToolFailed)
    assert (type(odd), odd.next) == (ToolFailed, "")
    assert find_cure("cannot set property for 'cold': pool is read-only") == error.next
    assert find_cure("the moon is full") == ""
