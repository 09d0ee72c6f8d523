"""The errors zvault tells of: each says what failed, why, and what to do next.

They stand in core because every layer raises them and every face shows them the same way. ``reason`` is the
short word that metrics use as a label, so the set of classes bounds the label's values.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TypedDict


class ErrorDocument(TypedDict):
    """An error as the API sends it."""

    reason: str
    what: str
    why: str
    next: str


class ZvaultError(Exception):
    """A failure a person can act on.

    ``what`` names what failed, ``why`` the cause as far as it is known, ``next`` the step to take.
    ``retryable`` tells whether it may go better after a while, with nobody doing anything about it.
    """

    reason: str = "failed"
    retryable: bool = False

    def __init__(self, what: str, why: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.next = next

    def __str__(self) -> str:
        text = self.what if not self.why else f"{self.what}: {self.why}"
        return text if not self.next else f"{text}. Next: {self.next}"

    def as_dict(self) -> ErrorDocument:
        """The error as the API sends it."""
        return {"reason": self.reason, "what": self.what, "why": self.why, "next": self.next}


class ConfigError(ZvaultError):
    """The configuration cannot be used. ``why`` holds every problem, one a line, each with file and line."""

    reason = "config"


class NotFound(ZvaultError):
    """Something named does not exist: a backup, vault, dataset, snapshot or pool."""

    reason = "not-found"


class SeveralVaults(NotFound):
    """A backup has several vaults, and it was not said which one is meant."""

    reason = "several-vaults"


class Refused(ZvaultError):
    """zvault will not do it, because something could be lost."""

    reason = "refused"


class TakenOver(Refused):
    """Another host had the storage of a pool that this host still has imported: nothing more may be written."""

    reason = "taken-over"


class Conflict(ZvaultError):
    """Source and vault share no base, or the vault's dataset has gone its own way."""

    reason = "conflict"


class Busy(ZvaultError):
    """Something else holds what is needed: a lock, a hold, a clone, a mount, a receive."""

    reason = "busy"
    retryable = True


class HeldElsewhere(Busy):
    """Another host has the vault."""

    reason = "held-elsewhere"


class ToolMissing(ZvaultError):
    """A program zvault calls is not installed."""

    reason = "tool-missing"


class ToolFailed(ZvaultError):
    """A program zvault called ended with an error."""

    reason = "tool-failed"


class DeadlineExceeded(ZvaultError):
    """A program did not end in time; it was killed, or left behind if it hangs in the kernel."""

    reason = "deadline"
    retryable = True


class TransferFailed(ZvaultError):
    """A stream broke; ``what`` names the stage that failed first."""

    reason = "transfer"
    retryable = True


class StreamInterrupted(TransferFailed):
    """The kernel broke a call of a stream off, as for a host that was frozen (EINTR): it goes on if it is sent on."""


class WrongBytes(TransferFailed):
    """The receiver read wrong bytes: in the stream, which may have ended too soon, or on its own disks."""


class StreamRefused(ZvaultError):
    """Another host sent what it was not asked for; nothing of it was received."""

    reason = "not-as-ordered"


class ResumeRefused(TransferFailed):
    """A stream could not be resumed with the token it was resumed by; without it, it may go."""

    reason = "resume"


class Stalled(ZvaultError):
    """No byte of a stream moved for so long that it was put down."""

    reason = "stalled"
    retryable = True


class ZfsRefused(ZvaultError):
    """ZFS will not do it as long as nobody changes something: another try would end the same way."""

    reason = "refused-by-zfs"


class PoolReadOnly(ZvaultError):
    """A pool was imported read-only, so nothing in it can be changed."""

    reason = "read-only"


class SnapshotRefused(ZvaultError):
    """ZFS makes no snapshot of a dataset of the source."""

    reason = "no-snapshot"


class VaultFull(ZvaultError):
    """The vault's pool has no room for what is to be received."""

    reason = "vault-full"


class DiskAway(NotFound):
    """The disk of a vault that is plugged in now and then is not there."""

    reason = "disk-away"


class DeviceGone(ZvaultError):
    """A layer below the vault's pool is not there, or went away."""

    reason = "device-gone"
    retryable = True


class JournalMissing(DeviceGone):
    """The journal that a block store waits for is not there: what was answered may be in it alone."""

    reason = "journal-missing"


class PoolSuspended(ZvaultError):
    """The vault's pool has suspended its I/O."""

    reason = "pool-suspended"
    retryable = True


class PoolDamaged(ZvaultError):
    """A pool has damage that ZFS cannot repair by itself."""

    reason = "damaged"


class HostUnreachable(ZvaultError):
    """The daemon, or another host, does not answer."""

    reason = "unreachable"
    retryable = True


class HookFailed(ZvaultError):
    """A program of the user's that stands before or after what zvault does failed, or took too long."""

    reason = "hook"


@contextlib.contextmanager
def refuse_unparsable(what: str) -> Iterator[None]:
    """Guard a block that reads a program's output: raise ToolFailed for what is not of its form."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError) as error:
        raise ToolFailed(
            f"{what} cannot be understood",
            f"{type(error).__name__}: {error}",
            "see what the command prints there",
        ) from None
