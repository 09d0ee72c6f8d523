"""What zfs, zpool and the kernel refuse, what each refusal means, whether it passes by itself, and what to do.

The words are those of OpenZFS 2.1 to 2.4 (libzfs_sendrecv.c, libzfs_dataset.c, libzfs_util.c, libzfs_pool.c), most of
them seen in the lab with 2.3.9 (tests/unit/core/test_refusals.py has the whole lines). A refusal that no row knows is
of unknown duration: zvault tries again as often as ``retries`` says, but never tells a person to run it again. Pure.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from zvault.core.errors import (
    Busy,
    Conflict,
    DeviceGone,
    PoolReadOnly,
    PoolSuspended,
    StreamInterrupted,
    TransferFailed,
    VaultFull,
    WrongBytes,
    ZfsRefused,
    ZvaultError,
)


class Duration(StrEnum):
    """For how long a refusal lasts."""

    PERMANENT = "permanent"
    """Until somebody does something about it; zvault does not try again."""
    TRANSIENT = "transient"
    """It passes, so zvault tries again."""
    UNKNOWN = "unknown"
    """It may be either: zvault tries again as often as ``retries`` says."""


Speaker = Literal["send", "receive", "any"]
"""Which end of a stream says it; ``any`` are also all other commands of zfs and zpool."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row: what is said (``words`` are a part of it), by whom, what it means, how long it lasts, what to do.

    ``error`` is what is raised for it where a stream fails.
    """

    words: str
    speaker: Speaker
    duration: Duration
    error: type[ZvaultError]
    means: str
    next: str


_P, _T, _U = Duration.PERMANENT, Duration.TRANSIENT, Duration.UNKNOWN

SET_ASIDE_ADVICE = (
    "set the vault's dataset aside, as 'zfs rename NAME NAME-old_zvault-conflict-$(date -u +%Y%m%dT%H%M%SZ)', and the "
    "next run sends it in full"
)
"""To another name it would be followed (core/replication/lineage.py: set_aside_command)."""

_ROOM = "make room on the vault: prune more, or grow its device"

REFUSAL_ROWS: tuple[Refusal, ...] = (
    # No room
    Refusal(
        "quota exceeded",
        "any",
        _P,
        VaultFull,
        "a quota, or a limit on datasets or snapshots, above or on the dataset is used up",
        "raise the quota on the vault ('zfs get -r quota,refquota,filesystem_limit,snapshot_limit' shows them), or"
        " prune more",
    ),
    Refusal("out of space", "any", _P, VaultFull, "the pool has no room, or it is reserved", _ROOM),
    Refusal("No space left", "any", _P, VaultFull, "the pool has no room, or it is reserved", _ROOM),
    # The pool
    Refusal(
        "I/O is currently suspended",
        "any",
        _T,
        PoolSuspended,
        "the pool lost a device that it cannot do without",
        "bring its device back: a vault's pool zvault resumes by itself ('zvaultctl vault status')",
    ),
    Refusal(
        "is read-only",
        "any",
        _P,
        PoolReadOnly,
        "the pool was imported read-only, so nothing in it can be changed, not even a hold",
        "'zpool export' the pool, then import it without 'readonly=on' ('zvaultctl vault up' does so with a vault's)",
    ),
    Refusal(
        "pool export in progress",
        "any",
        _T,
        Busy,
        "somebody is exporting the pool",
        "wait until it has ended",
    ),
    Refusal(
        "pool is imported on a different host",
        "any",
        _P,
        ZfsRefused,
        "multihost protection: another host has the pool imported",
        "export the pool on that host first",
    ),
    Refusal(
        "pool must be upgraded",
        "any",
        _P,
        ZfsRefused,
        "the pool lacks a feature that the stream or a property needs, as zstd, large blocks or encryption",
        "'zpool upgrade POOL' of the receiving pool enables what it lacks ('zpool status POOL' says whether it lacks"
        " anything); an older OpenZFS may not import it then. Where 'zpool get compatibility POOL' is set, change that"
        " first",
    ),
    Refusal(
        "stream uses crypto parameters not compatible",
        "receive",
        _P,
        ZfsRefused,
        "the receiving pool cannot hold what is encrypted so",
        "update OpenZFS on the vault's host, then 'zpool upgrade' the vault's pool",
    ),
    # What is at the place
    Refusal(
        "is not a filesystem",
        "any",
        _P,
        Conflict,
        "what lies above the dataset is a volume, and nothing can lie below a volume",
        "'zfs rename' that volume on the vault, or choose another 'into' for this backup",
    ),
    Refusal(
        "has been modified",
        "receive",
        _P,
        Conflict,
        "somebody wrote to the vault's dataset after its newest snapshot",
        "'zfs rollback' the vault's dataset to the base, or rename it",
    ),
    Refusal(
        "most recent snapshot",
        "receive",
        _P,
        Conflict,
        "the vault's dataset got a snapshot of its own, or lost its newest",
        "'zfs rollback' the vault's dataset to the base, or rename it",
    ),
    Refusal(
        "must specify -F to overwrite it",
        "receive",
        # A receive whose ioctl a suspend's freezer interrupted begins anew and finds what it made itself: the next try
        # resumes it (test_sleep).
        _U,
        TransferFailed,
        "something that was not there when the run was planned is at the dataset's place, or a sleep interrupted it",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "must destroy it to overwrite it",
        "receive",
        _P,
        Conflict,
        "a clone is at the dataset's place",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "must destroy them to overwrite it",
        "receive",
        _P,
        Conflict,
        "what was a placeholder got snapshots",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "cannot overwrite with a ZVOL",
        "receive",
        _P,
        Conflict,
        "a filesystem is where a volume is to be",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "already exists",
        "receive",
        _P,
        Conflict,
        "the vault has another snapshot or dataset of that name",
        "a snapshot of that name, but not of that origin, is on the vault: rename it",
    ),
    Refusal(
        "unable to restore to destination",
        "receive",
        _T,
        TransferFailed,
        "a dataset above the destination went while it was received",
        "the next try makes what lies above it",
    ),
    # How it was sent before
    Refusal(
        "requires -L",
        "receive",
        _P,
        Conflict,
        "the vault's dataset was sent with large blocks, and this stream has none (OpenZFS #6224)",
        "take 'large_blocks = false' out of this backup's 'send' if it is there. If it is not, the source's dataset"
        f" came back without its large blocks, and the vault's cannot follow it: {SET_ASIDE_ADVICE}",
    ),
    Refusal(
        "source snapshot contains large microzaps",
        "send",
        _P,
        ZfsRefused,
        "a directory of the source is stored in a form that only large blocks can carry",
        "take 'large_blocks = false' out of this backup's 'send'",
    ),
    Refusal(
        "IV set guid mismatch",
        "receive",
        _P,
        Conflict,
        "raw streams and others were mixed (OpenZFS #8758)",
        f"raw streams and others were mixed (OpenZFS #8758): {SET_ASIDE_ADVICE}",
    ),
    Refusal(
        "IV set guid missing",
        "receive",
        _P,
        Conflict,
        "the source's dataset was encrypted by an OpenZFS before 0.8.0 (errata 4)",
        "make the dataset anew on the source as https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER says",
    ),
    Refusal(
        "on top of existing unencrypted",
        "receive",
        _P,
        Conflict,
        "the vault's dataset was not received raw (OpenZFS #8308)",
        f"it was not received raw (OpenZFS #8308): {SET_ASIDE_ADVICE}",
    ),
    Refusal(
        "cannot be used to destroy an encrypted filesystem",
        "receive",
        _P,
        Conflict,
        "an encrypted dataset cannot take the place of one that is not",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "embedded data stream feature",
        "receive",
        _P,
        Conflict,
        "blocks embedded in their pointers cannot be encrypted on the vault",
        "if the vault's dataset is encrypted there, set send = { embedded = false } for this backup",
    ),
    Refusal(
        "cannot be set or excluded for raw streams",
        "receive",
        _P,
        ZfsRefused,
        "a raw stream brings its own encryption",
        "take encryption, keyformat, keylocation and pbkdf2iters out of this backup's 'receive.properties'",
    ),
    # Keys
    Refusal(
        "encryption key does not match",
        "receive",
        _P,
        Conflict,
        "the vault's dataset has another key than the source's: it is not its replica",
        SET_ASIDE_ADVICE,
    ),
    Refusal(
        "failed to create encryption key",
        "receive",
        _P,
        ZfsRefused,
        "the raw stream's key cannot be kept below the vault's dataset",
        "see whether what lies above it on the vault is encrypted, and choose another 'into' for this backup",
    ),
    Refusal(
        "inherited key must be loaded",
        "receive",
        _P,
        Conflict,
        "the vault's dataset is encrypted with a key of the vault's, or was received raw and this stream is not raw",
        "if its key is the vault's, load that ('zfs load-key'); if it was received raw, put send = { raw = true } back",
    ),
    Refusal(
        "key must be loaded",
        "send",
        _P,
        ZfsRefused,
        "the source's dataset is encrypted and locked",
        "'zfs load-key' the source's dataset, or send it as it is: send = { raw = true }",
    ),
    Refusal(
        "key is not loaded",
        "any",
        _P,
        ZfsRefused,
        "what lies above the dataset is encrypted and locked",
        "'zfs load-key' what lies above it",
    ),
    Refusal(
        "may not be sent with properties without the raw flag",
        "send",
        _P,
        ZfsRefused,
        "the properties of an encrypted dataset go only with a raw stream",
        "set send = { raw = true } for this backup",
    ),
    # Properties
    Refusal(
        "invalid property",
        "receive",
        _P,
        ZfsRefused,
        "a property of the stream, or of 'receive.properties', is none that the vault's OpenZFS takes there",
        "correct this backup's 'receive.properties', or update OpenZFS on the vault's host",
    ),
    # Names
    Refusal(
        "name is too long",
        "any",
        _P,
        ZfsRefused,
        "a name has more than 255 bytes",
        "give the dataset or one above it a shorter name ('zfs rename'), or choose a shorter 'into'",
    ),
    Refusal(
        "nesting depth exceeded",
        "any",
        _P,
        ZfsRefused,
        "more datasets lie in each other than ZFS allows (50)",
        "choose a shorter 'into' for this backup, or leave the dataset out ('exclude')",
    ),
    Refusal(
        "invalid name",
        "any",
        _P,
        ZfsRefused,
        "a name is too long, or has what ZFS does not allow",
        "give the dataset or one above it a shorter name ('zfs rename'), or choose a shorter 'into'",
    ),
    # Versions
    Refusal(
        "stream has unsupported feature",
        "receive",
        _P,
        ZfsRefused,
        "the sender's OpenZFS is newer, and uses what the vault's does not know",
        "update OpenZFS on the vault's host",
    ),
    Refusal(
        "Spill block flag missing",
        "receive",
        _P,
        ZfsRefused,
        "the sender's OpenZFS is so old that its raw streams may lose metadata",
        "update OpenZFS on the source's host",
    ),
    Refusal(
        "kernel modules must be upgraded",
        "receive",
        _U,
        TransferFailed,
        "the kernel takes the stream for invalid; libzfs says this of every EINVAL",
        "compare 'zfs version' of both hosts: the vault's must not be older than the source's. If it is not, 'zfs"
        " receive -A' the vault's dataset, so that its stream begins anew",
    ),
    Refusal(
        "the loaded zfs module does not support",
        "any",
        _P,
        ZfsRefused,
        "OpenZFS was updated, and the kernel still runs the old module",
        "restart that host",
    ),
    Refusal(
        "larger than the system can support",
        "receive",
        _P,
        ZfsRefused,
        "a block is larger than this host's kernel can take",
        "receive it on a host of 64 bits, or set send = { large_blocks = false } for a vault that has nothing of it",
    ),
    Refusal(
        "ZFS modules cannot be auto-loaded",
        "any",
        _P,
        ZfsRefused,
        "the kernel has no zfs module",
        "'modprobe zfs' on that host; after an update of its kernel 'dkms autoinstall' first",
    ),
    Refusal(
        "ZFS modules are not loaded",
        "any",
        _P,
        ZfsRefused,
        "the kernel has no zfs module loaded",
        "'modprobe zfs' on that host; after an update of its kernel 'dkms autoinstall' first",
    ),
    # Rights
    Refusal(
        "permission denied",
        "any",
        _P,
        ZfsRefused,
        "the user as which zfs runs there may not do it",
        "let its user do it with 'zfs allow', or use sudo: see zvault's how-to on ssh",
    ),
    # Others are at it
    Refusal(
        "contains partially-complete state",
        "receive",
        _T,
        Busy,
        "an earlier receive into the dataset has not ended (EBUSY)",
        "an earlier receive into it is still ending: wait for it",
    ),
    Refusal(
        "is busy",
        "any",
        _T,
        Busy,
        "another receive, a mount or a hold uses it",
        "another receive may be running; 'zfs holds' and 'zfs mount' show what uses it",
    ),
    # What went since it was planned
    Refusal(
        "not an earlier snapshot from the same fs",
        "send",
        _T,
        TransferFailed,
        "a promote or rollback since it was listed gave the base to another dataset",
        "the next try lists both sides and plans anew",
    ),
    Refusal(
        "does not exist",
        "any",
        _T,
        TransferFailed,
        "it was renamed or destroyed since it was listed",
        "the next try lists both sides and plans anew",
    ),
    # The stream
    Refusal(
        "incomplete stream",
        "receive",
        _T,
        # Of wrong bytes libzfs says "checksum mismatch or incomplete stream", whichever it was.
        WrongBytes,
        "the stream ended too soon, or bytes of it, or of what was received before, are wrong",
        "the next try resumes what was received; if it comes again, see 'zpool status' of the vault's pool",
    ),
    Refusal(
        "checksum mismatch",
        "receive",
        _T,
        WrongBytes,
        "bytes changed on their way",
        "the next try resumes what was received; if it comes again, test the memory of both hosts",
    ),
    Refusal(
        "signal received",
        "any",
        _T,
        StreamInterrupted,
        "the kernel broke a call off, as where the host was frozen for a moment (EINTR)",
        "nothing: it is sent on",
    ),
    # Devices
    Refusal(
        "Input/output error",
        "send",
        _U,
        TransferFailed,
        "a block of the source cannot be read: it is damaged, or its device fails",
        "see 'zpool status' of the source's pool: a damaged block has to be restored or its file deleted before a new"
        " snapshot can be sent",
    ),
    Refusal(
        "I/O error",
        "any",
        _T,
        DeviceGone,
        "a device failed, or went away",
        "look at 'zpool status' and the vault's devices",
    ),
    Refusal(
        "one or more devices is currently unavailable",
        "any",
        _T,
        DeviceGone,
        "a device failed, or went away",
        "look at 'zpool status' and the vault's devices",
    ),
    Refusal(
        "out of memory",
        "any",
        _T,
        TransferFailed,
        "the host has no memory left",
        "give that host more memory",
    ),
)
"""The first row that fits counts."""

UNKNOWN_NEXT = (
    "zvault does not know this refusal, nor whether it passes: see the kernel's log and 'zpool status' of both sides."
    " What was received stays, and a later stream resumes it"
)
"""What to do of a refusal that no row knows."""


def find_refusal(said: str, speaker: Speaker) -> Refusal | None:
    """The row for what a command said; ``any`` is a command other than zfs send and receive.

    Where libzfs has no words of its own for an error it prints the kernel's (zfs_standard_error in libzfs_util.c), as
    in "cannot receive incremental stream: Interrupted system call" of a host that was frozen. KERNEL_REFUSALS has
    those.
    """
    own = next((row for row in REFUSAL_ROWS if row.speaker in {speaker, "any"} and row.words in said), None)
    return own or _find_kernel_refusal(said)


def _find_kernel_refusal(said: str) -> Refusal | None:
    lines = [line.rstrip(". ") for line in said.splitlines() if line.lstrip().startswith("cannot ")]
    for code, row in KERNEL_REFUSALS.items():
        words = KERNEL_WORDS[code]
        if any(line.endswith(f": {words}") for line in lines):
            error: type[ZvaultError] = ZfsRefused if row.duration is _P else TransferFailed
            if code == errno.EINTR:
                error = StreamInterrupted
            return Refusal(words, "any", row.duration, error, row.means, row.next)
    return None


@dataclass(frozen=True, slots=True)
class KernelRefusal:
    """The meaning of an errno of the kernel where libzfs_core asks it for a snapshot, hold, bookmark, release or
    destroy.
    """

    duration: Duration
    means: str
    next: str


_UNAVAILABLE = KernelRefusal(
    _T, "a device of the pool failed, or went away", "see 'zpool status' of that pool"
)
_FULL = KernelRefusal(
    _P, "no room, or a quota is used up", "make room in that pool, or raise its quota or reservation"
)
_RIGHTS = KernelRefusal(
    _P,
    "the user may not do it",
    "let its user do it with 'zfs allow', or use sudo: see zvault's how-to on ssh",
)

KERNEL_REFUSALS: Mapping[int, KernelRefusal] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EPERM: _RIGHTS,
    errno.EROFS: KernelRefusal(
        _P, "the pool was imported read-only", "'zpool export' it, then import it without 'readonly=on'"
    ),
    errno.ENAMETOOLONG: KernelRefusal(
        _P, "a name has more than 255 bytes", "give the dataset or one above it a shorter name ('zfs rename')"
    ),
    errno.ENOTSUP: KernelRefusal(_P, "the pool lacks a feature", "'zpool upgrade' that pool"),
    errno.EXDEV: KernelRefusal(
        _P,
        "the names are of several pools or datasets",
        "please report it: zvault asks for one pool at a time",
    ),
    errno.EBUSY: KernelRefusal(
        _T, "somebody uses it", "'zfs holds', 'zfs mount' and 'zfs list -o clones' show what uses it"
    ),
    errno.EAGAIN: KernelRefusal(
        _T, "the pool has suspended its I/O", "bring its device back; zvault resumes a vault's pool by itself"
    ),
    errno.EINTR: KernelRefusal(_T, "the call was interrupted", "nothing: the next try does it"),
    errno.EIO: _UNAVAILABLE,
    errno.ENXIO: _UNAVAILABLE,
    errno.ENOENT: KernelRefusal(
        _T, "it was renamed or destroyed since it was listed", "nothing: the next try lists it anew"
    ),
    errno.ENOMEM: KernelRefusal(_T, "the host has no memory left", "give that host more memory"),
}
"""By errno; of any other it is not known for how long it lasts."""

KERNEL_WORDS: Mapping[int, str] = {
    errno.ENOSPC: "No space left on device",
    errno.EDQUOT: "Disk quota exceeded",
    errno.EPERM: "Operation not permitted",
    errno.EROFS: "Read-only file system",
    errno.ENAMETOOLONG: "File name too long",
    errno.ENOTSUP: "Operation not supported",
    errno.EXDEV: "Invalid cross-device link",
    errno.EBUSY: "Device or resource busy",
    errno.EAGAIN: "Resource temporarily unavailable",
    errno.EINTR: "Interrupted system call",
    errno.EIO: "Input/output error",
    errno.ENXIO: "No such device or address",
    errno.ENOENT: "No such file or directory",
    errno.ENOMEM: "Cannot allocate memory",
}
"""What the C library calls each of these errors (strerror(3))."""


def describe_errnos(codes: Collection[int]) -> tuple[Duration, str]:
    """Return how long a refusal of several names lasts, and what to do: what lasts longest counts."""
    rows = [KERNEL_REFUSALS.get(code) for code in sorted(codes)]
    known = [row for row in rows if row is not None]
    if permanent := next((row for row in known if row.duration is _P), None):
        return _P, permanent.next
    if len(known) < len(rows) or not known:
        return _U, known[0].next if known else ""
    return _T, known[0].next


def find_cure(said: str) -> str:
    """Return what to do about an error of zfs or zpool; empty where no row of the table matches."""
    row = find_refusal(said, "any")
    return row.next if row is not None else ""


def make_refusal(what: str, said: str, otherwise: type[ZvaultError]) -> ZvaultError:
    """The error for a command of zfs or zpool that failed: as its row has it, or else ``otherwise``."""
    row = find_refusal(said, "any")
    if row is None:
        return otherwise(what, said)
    # What a stream has by the next try, any other command has by the next run.
    kind = otherwise if issubclass(row.error, TransferFailed) else row.error
    return kind(what, said, row.next)
