"""What ``zfs send`` and ``zfs receive`` say of an errno that libzfs_core returns: the same words for the same trouble.

As libzfs has them (zfs_send_one and zfs_receive_one in libzfs_sendrecv.c, zfs_standard_error in libzfs_util.c, 2.3.9).
The numbers beyond errno.h are ``zfs_errno_t`` in include/sys/fs/zfs.h, which do not change. Pure.
"""

from __future__ import annotations

import errno
import os

_CHECKSUM = errno.EBADE
"""ECKSUM of OpenZFS on Linux."""

_IVSET_MISSING, _IVSET_MISMATCH, _TRUNCATED, _LARGE_BLOCKS = 1034, 1035, 1040, 1041

_ANY = {
    errno.EAGAIN: "pool I/O is currently suspended",
    errno.EBUSY: "dataset is busy",
    errno.EDQUOT: "out of space",
    errno.EIO: "I/O error",
    errno.ENOENT: "dataset does not exist",
    errno.ENOSPC: "out of space",
    errno.ENXIO: "one or more devices is currently unavailable",
    errno.EPERM: "permission denied",
    errno.EROFS: "pool is read-only",
}

_RECEIVE = {
    errno.EINVAL: "kernel modules must be upgraded to receive this stream.",
    errno.EEXIST: "destination already exists",
    errno.ENOTSUP: "pool must be upgraded to receive this stream.",
    errno.EACCES: "inherited key must be loaded",
    _CHECKSUM: "invalid stream (checksum mismatch)",
    _TRUNCATED: "incomplete stream",
    _IVSET_MISSING: "IV set guid missing",
    _IVSET_MISMATCH: "IV set guid mismatch. See the 'zfs receive' man page section discussing the limitations of raw "
    "encrypted send streams.",
    _LARGE_BLOCKS: "incremental send stream requires -L (--large-block), to match previous receive.",
}

_IN_WORDS_OF_C = (
    *(
        errno.EDQUOT,
        errno.EFAULT,
        errno.EFBIG,
        errno.EINVAL,
        errno.EIO,
        errno.ENOLINK,
        errno.ENOSPC,
        errno.ENOSTR,
    ),
    *(errno.ENXIO, errno.EPIPE, errno.ERANGE, errno.EROFS),
)
"""Of these ``zfs send`` says what strerror(3) does: "Input/output error" is of the source, "I/O error" never."""

_SEND = {
    errno.EACCES: "dataset key must be loaded",
    errno.EXDEV: "not an earlier snapshot from the same fs",
    **{number: os.strerror(number) for number in _IN_WORDS_OF_C},
}


def describe_send_errno(number: int, snapshot: str) -> str:
    """Return what ``zfs send`` says of a failed stream of a snapshot."""
    return f"cannot send '{snapshot}': {_SEND.get(number) or _common(number)}"


def describe_receive_errno(number: int, target: str, into: str) -> str:
    """Return what ``zfs receive`` says of a failed incremental stream into ``target``, of which the snapshot is
    ``into``.
    """
    if number == errno.ENODEV:
        why = f"most recent snapshot of {target} does not match incremental source"
    elif number == errno.ETXTBSY:
        why = f"destination {target} has been modified since most recent snapshot"
    elif number == errno.EDQUOT:
        why = f"destination {target} space quota exceeded."
    elif number == errno.EEXIST:
        return f"cannot restore to {into}: {_RECEIVE[number]}"
    else:
        why = _RECEIVE.get(number) or _common(number)
    return f"cannot receive incremental stream: {why}"


def _common(number: int) -> str:
    return _ANY.get(number) or os.strerror(number)
