"""argv of zfs send and zfs receive, and which properties a stream brings. Pure."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.config.schema import Send
from zvault.core.integrity.verification import DRILLED_PROPERTY, PROOF_LEVELS, VERIFIED_PREFIX
from zvault.core.model import Dataset
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.receive_properties import (
    NO_RECEIVE_PROPERTIES,
    RECEIVE_RECORD_PROPERTY,
    ReceiveProperties,
    list_named_properties,
    parse_property_words,
)
from zvault.core.replication.receive_properties import format_property_words as words_record
from zvault.core.replication.receive_properties import list_excluded_properties as kept_out_of
from zvault.core.replication.source_properties import SOURCE_RECORD_PROPERTY
from zvault.zfs.parse_listing import PLACEHOLDER, SENT
from zvault.zfs.trial_dataset import TRIAL_MARK

RESTORING = "org.zvault:restoring"
"""User property of a dataset that is being restored, until all of its restore has ended: the GUID of its snapshot."""
_OWN = (
    PLACEHOLDER,
    TRIAL_MARK,
    RESTORING,
    DRILLED_PROPERTY,
    *(VERIFIED_PREFIX + level for level in PROOF_LEVELS),
)
_SET = {
    "filesystem": {"readonly": "on", "canmount": "noauto"},
    "volume": {"readonly": "on", "volmode": "none"},
}
"""What a vault's dataset is set to whenever it receives."""
OwnEncryption = Literal["", "inherit", "off"]
"""What a receive is told of encryption; "" is what the stream says, and all that a raw one may be told."""

_ENCRYPTION: dict[OwnEncryption, list[str]] = {
    "": [],
    "inherit": ["-x", "encryption"],
    "off": ["-o", "encryption=off"],
}
_STORED = {("readonly", "on"): 1, ("canmount", "noauto"): 2, ("volmode", "none"): 3}
"""Values of properties that are an index, as they are on the disk (zfs_prop_init in zcommon/zfs_prop.c)."""


@dataclass(frozen=True, slots=True)
class SendFlags:
    """The send flags of one dataset (zfs-send(8)).

    An encrypted dataset always goes raw: its plaintext must not land on a vault, and zfs refuses to send its
    properties otherwise.
    """

    large_blocks: bool
    compressed: bool
    embedded: bool
    raw: bool
    properties: bool

    @classmethod
    def of(cls, send: Send, dataset: Dataset) -> SendFlags:
        """The flags a backup's ``send`` table means for this dataset."""
        raw = send.raw or dataset.encrypted
        return cls(send.large_blocks, send.compressed, send.embedded and not raw, raw, send.properties)

    def argv(self) -> list[str]:
        """As ``zfs send`` takes them."""
        chosen = {"-L": self.large_blocks, "-c": self.compressed, "-e": self.embedded, "-w": self.raw}
        return [flag for flag, on in {**chosen, "-p": self.properties}.items() if on]

    def lzc_send(self) -> tuple[str, ...]:
        """As libzfs_core's send takes them: ``-w`` is all of them, as zfs(8) has it (zfs_main.c)."""
        every = ("large_blocks", "compress", "embedded_data", "raw")
        return every if self.raw else tuple(self.lzc())

    def lzc(self) -> list[str]:
        """As libzfs_core's send_space takes them."""
        chosen = {
            "large_blocks": self.large_blocks,
            "compress": self.compressed,
            "embedded_data": self.embedded,
            "raw": self.raw,
        }
        return [flag for flag, on in chosen.items() if on]


def send_argv(step: TransferStep, flags: SendFlags) -> list[str]:
    """``zfs send`` for one step; ``-vP`` makes it say its bytes once a second."""
    if step.kind is TransferAction.RESUME and step.token is not None:
        return ["zfs", "send", "-vP", "-t", step.token]
    argv = ["zfs", "send", "-vP", *flags.argv()]
    if step.base is not None:
        argv += ["-I" if step.intermediates else "-i", step.base.name]
    return [*argv, step.to.name]


def receive_argv(  # noqa: PLR0913 - what a vault's dataset is received with
    target: str,
    kind: str,
    step: TransferStep | None = None,
    *,
    sent: str = "",
    record: str = "",
    own: ReceiveProperties = NO_RECEIVE_PROPERTIES,
    noted: str = "",
    encryption: OwnEncryption = "",
    unlisted: Sequence[str] = (),
    lacking: Container[str] = (),
) -> list[str]:
    """``zfs receive`` into a vault: unmounted, readonly, resumable (invariant 3).

    ``sent``, the flags, and ``record``, the source's properties that it cannot have, are put on record there. So are
    the names of the properties that the backup sets or leaves out, ``own``, beside those ``noted`` there.

    ``encryption`` "inherit": what comes without is encrypted as what it is received below, or as the origin of the
    clone that it is; else a stream with properties says that it is not (zfs_receive_one in OpenZFS's
    libzfs_sendrecv.c). "off": it is not, whatever it is received below.

    ``unlisted``: what else the ZFS there can set (core/replication/receive_properties.py): it does not come in either.
    ``lacking``: what it has not got, and so cannot leave out.

    A ``step`` may begin a clone of a snapshot there, or go over a placeholder: ``-F`` then replaces nothing but an
    empty filesystem, and is refused once that has a snapshot (seen with 2.3.9).
    """
    argv = ["zfs", "receive", "-s", "-u"]
    words = words_record(own.words(kind) | parse_property_words(noted))
    chosen = own.to_set(kind) | ({RECEIVE_RECORD_PROPERTY: words} if words else {})
    for key, value in (chosen | _SET[kind] | _records(sent, record)).items():
        argv += ["-o", f"{key}={value}"]
    for key in (*list_properties_kept_out(kind, own), *unlisted):
        if key not in chosen and key not in lacking:
            argv += ["-x", key]
    argv += _ENCRYPTION[encryption]
    if step is not None and step.origin is not None:
        argv += ["-o", f"origin={step.origin}"]
    if step is not None and step.over:
        argv += ["-F"]
    return [*argv, target]


def list_properties_kept_out(kind: str, own: ReceiveProperties = NO_RECEIVE_PROPERTIES) -> tuple[str, ...]:
    """The properties that a vault's dataset does not take from a stream; ``own`` is what its backup says besides."""
    return (*kept_out_of(kind), *_OWN, RECEIVE_RECORD_PROPERTY, *own.to_leave_out(kind))


def list_stored_properties(kind: str, *, sent: str, record: str) -> dict[str, int | str]:
    """Return what ``receive_argv`` has ``zfs receive`` set, as libzfs_core takes it: numbers as they are stored.

    What the backup sets itself is not among it: that stays as it is (ops/replication/receive_properties.py).
    """
    native: dict[str, int | str] = {key: _STORED[key, value] for key, value in _SET[kind].items()}
    return native | _records(sent, record)


def _records(sent: str, record: str) -> dict[str, str]:
    return {key: value for key, value in {SENT: sent, SOURCE_RECORD_PROPERTY: record}.items() if value}


def restore_send_argv(
    snapshot: str,
    *,
    raw: bool,
    base: str | None = None,
    properties: bool = True,
    embedded: bool = True,
) -> list[str]:
    """``zfs send`` back from a vault; ``-b`` gives the properties as they came, not as the vault set them.

    Not of a raw stream: zfs receive 2.3.9 aborts on ``-w -b`` (seen in the lab), so that goes with ``-p``. Without
    ``properties``, where the vault encrypts what came without: ZFS sends those of encrypted datasets raw only. Without
    ``embedded`` blocks, where it is encrypted again when it arrives: ZFS refuses them there.
    """
    start = ["-i", base] if base is not None else []
    words = ["-w", "-p"] if raw else [*(["-e"] * embedded), *(["-b"] if properties else [])]
    return ["zfs", "send", "-vP", "-L", "-c", *words, *start, snapshot]


def restore_resume_argv(token: str) -> list[str]:
    """``zfs send`` of what an interrupted restore lacks."""
    return ["zfs", "send", "-vP", "-t", token]


def restore_receive_argv(
    target: str,
    kind: str,
    *,
    raw: bool,
    origin: str | None = None,
    mark: str = "",
    noted: str = "",
    encryption: OwnEncryption = "",
) -> list[str]:
    """``zfs receive`` of a restored dataset, resumable: it must not mount or share over what is live.

    With ``raw`` the vault's own settings come along and are left out here, also those that a backup set, whose names
    are ``noted``; its record of the flags is in any case. ``mark`` tells that the restore has not ended (RESTORING).
    ``encryption``: as of ``receive_argv``.
    """
    keep_out = [SENT, SOURCE_RECORD_PROPERTY, RECEIVE_RECORD_PROPERTY, PLACEHOLDER, TRIAL_MARK]
    if kind != "volume":
        keep_out += ["mountpoint", "sharenfs", "sharesmb"]
    if raw:
        keep_out += ["readonly", "volmode" if kind == "volume" else "canmount"]
        keep_out += [
            DRILLED_PROPERTY,
            *(VERIFIED_PREFIX + level for level in PROOF_LEVELS),
            *sorted(list_named_properties(parse_property_words(noted))),
        ]
    own = [f"{RESTORING}={mark}"] if mark else []
    if origin is not None:
        own.append(f"origin={origin}")
    options = [word for key in own for word in ("-o", key)] + [
        word for key in keep_out for word in ("-x", key)
    ]
    return ["zfs", "receive", "-s", "-u", *options, *_ENCRYPTION[encryption], target]
