"""Which streams are small enough to go through libzfs_core in a helper process, and which go through programs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from zvault.core.model import VaultProperty
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.receive_properties import SELINUX_PROPERTIES
from zvault.core.replication.source_properties import COUNT_LIMITS, SPACE_LIMITS

SMALL_STREAM = 8 << 20
"""Bytes by ZFS's estimate up to which a stream goes without programs.

``zfs send`` and ``zfs receive`` take 80 to 95 ms to start and end (docs/reference/benchmarks.md), which is as long as
such a stream takes on its way. mbuffer gains nothing for it: a receive itself reads 16 MiB ahead of what it has written
(zfs_recv_queue_length in zfs(4)). A larger stream gains by the buffer, and does not notice the start.
"""

_BY_VALUE = ("keylocation", "volsize")
"""Properties that a stream sets, but not as received ones: what counts is the value that is in force."""


def explain_use_of_programs(
    step: TransferStep, size: int | None, *, here: bool, limited: bool, alike: bool
) -> str:
    """Why a stream goes through programs, or "" where it goes through libzfs_core.

    ``size`` is the estimate in bytes. ``here``: source and vault are both on this host. ``limited``: a stage holds it
    to a bandwidth limit. ``alike``: it has no properties to bring that the vault's dataset does not have.
    """
    follows = step.kind is TransferAction.INCREMENTAL and step.origin is None and not step.over
    reasons = (
        (not here, "one end of it is on another host"),
        (not follows, "it does not follow on what the vault has: 'zfs receive' looks after the rest"),
        (size is None, "its size is not known"),
        (
            (size or 0) > SMALL_STREAM,
            "it is large: a buffer helps it, and it does not notice the start of programs",
        ),
        (limited, "a stage between two programs holds it to its bandwidth limit"),
        (not alike, "it brings properties: libzfs_core takes no package, which has them"),
    )
    return next((words for true, words in reasons if true), "")


def leaves_properties_unchanged(
    sent: Mapping[str, str], there: Mapping[str, VaultProperty], kept_out: Collection[str]
) -> bool:
    """True if a stream with its properties would change no property on the vault.

    ``sent`` are those set on the source's dataset, by ``zfs set`` or a stream, exact; ``there`` all those of the
    vault's; ``kept_out`` those that must not come into force there. Limits are kept on record in another way.
    """
    for key in kept_out:
        if key in there and there[key].source == "received":
            return False
    for key in _BY_VALUE:
        if key in sent and (key not in there or there[key].value != sent[key]):
            return False
    apart = {*SPACE_LIMITS, *COUNT_LIMITS, *SELINUX_PROPERTIES, *_BY_VALUE}
    mine = {key: value for key, value in sent.items() if key not in apart}
    return mine == {
        key: one.received for key, one in there.items() if one.received != "-" and key not in apart
    }
