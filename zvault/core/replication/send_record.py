"""The send record: with which flags a vault's dataset was sent, and which change of them it would not survive.

The record is a user property of the vault's dataset, so it goes where the dataset goes. What ZFS accepts is written
here as it was seen with OpenZFS 2.3.9; the lab's test_ledger.py tries it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from zvault.core.model import Dataset
from zvault.core.replication.lineage import format_set_aside
from zvault.core.replication.stream_flags import SentFlags


def format_send_record(source: Dataset, flags: SentFlags) -> str:
    """The record as the property holds it: ``SOURCE-GUID:Lce``."""
    return f"{source.guid:x}:{flags.letters}"


def find_recorded_flags(vault: Dataset, source: Dataset, parent: Dataset | None) -> SentFlags | None:
    """The flags on record of a vault's dataset that follows ``source``; None where there is no record.

    A dataset inherits its parent's properties: what names another source counts only if it differs from what
    ``parent`` has. Then it is that of a source since replaced, restored from this vault perhaps.
    """
    owner, colon, letters = vault.sent.partition(":")
    if not colon:
        return None
    inherited = parent is None or parent.sent == vault.sent
    return None if owner != f"{source.guid:x}" and inherited else SentFlags.of_letters(letters)


@dataclass(frozen=True, slots=True)
class FlagConflict:
    """Why no stream, sent as it is wanted now, may follow on what a vault's dataset has; and what to do."""

    problem: str
    advice: str


def find_flag_conflict(
    source: Dataset, vault: Dataset, wanted: SentFlags, before: SentFlags | None
) -> FlagConflict | None:
    """Return what forbids an incremental stream with the flags ``wanted`` after one with those ``before``, if anything.

    ``-c`` and ``-e`` may change at will: they only say how blocks travel, and each is stored whole either way.
    """
    anew = f"'{format_set_aside(vault.name)}' keeps what it holds, and the next run sends in full"
    if source.encrypted and not (vault.encrypted or vault.key_root):
        return FlagConflict(
            f"{source.name} is encrypted and goes raw (-w), but {vault.name} was received without -w and is not "
            "encrypted: ZFS cannot mix the two (OpenZFS #8308)",
            anew,
        )
    if before is None:
        return None
    if before.raw != wanted.raw:
        was, now = ("with", "without") if before.raw else ("without", "with")
        return FlagConflict(
            f"{vault.name} was received {was} -w, and {source.name} would now go {now} it: a chain in which raw "
            "streams and others follow on each other is broken for good (OpenZFS #8308, #8758)",
            anew,
        )
    if before.large_blocks == wanted.large_blocks:
        return None
    set_back = f"set send = {{ large_blocks = {str(before.large_blocks).lower()} }} again; or {anew}"
    if before.large_blocks:
        return FlagConflict(
            f"{vault.name} was received with -L, and would now follow without it: ZFS refuses that, for before "
            "OpenZFS 2.0 it left files full of zeros (OpenZFS #6224)",
            set_back,
        )
    return FlagConflict(
        f"{vault.name} was received without -L, and would now follow with it: a vault with OpenZFS before 2.0 "
        "fills files with zeros then, and none ever gets the large blocks back (OpenZFS #6224, #10383)",
        set_back,
    )


def needs_proof_of_key(source: Dataset, vault: Dataset, before: SentFlags | None) -> bool:
    """True if a vault's dataset may be encrypted by another key than its source, so that no raw stream follows on it.

    So it is where another tool sent it decrypted (``zfs send`` without ``-w``, ``--decrypt``) below an encrypted
    dataset. What zvault sent is on record.
    """
    return source.encrypted and bool(vault.encrypted or vault.key_root) and before is None


def find_key_conflict(source: Dataset, vault: Dataset, here: str, there: str) -> FlagConflict | None:
    """What forbids a raw stream by the ``ivsetguid`` of the common snapshot on both sides; None if they are the same.

    A raw stream brings it along; whoever encrypts anew draws another (dsl_crypto_recv_raw in OpenZFS's dsl_crypt.c).
    Where either is unknown ("-"), nothing is known against it.
    """
    if here == there or "-" in {here, there}:
        return None
    return FlagConflict(
        f"{source.name} and {vault.name} are encrypted by different keys: it was sent there decrypted, and encrypted "
        "again on arrival. What is encrypted goes raw (-w), and no raw stream follows on that (OpenZFS #8308)",
        f"'{format_set_aside(vault.name)}' keeps what it holds, and the next run sends in full; or go on sending it"
        ' decrypted: send = { encrypted = "decrypted" }',
    )
