"""argv of the stages a stream runs through, and what those stages say of their progress. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from zvault.config.schema import Send
from zvault.core.model import Dataset
from zvault.core.replication import Action, Step

KEEP_OUT = ("mountpoint", "sharenfs", "sharesmb", "quota", "refquota", "reservation", "refreservation")
"""Received but not in force on a vault: they would mount, share or fill it. ``zfs send -b`` gives them back."""

VOLUME_KEEP_OUT = ("reservation", "refreservation")


@dataclass(frozen=True, slots=True)
class Flags:
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
    def of(cls, send: Send, dataset: Dataset) -> Flags:
        """The flags a backup's ``send`` table means for this dataset."""
        raw = send.raw or dataset.encrypted
        return cls(send.large_blocks, send.compressed, send.embedded and not raw, raw, send.properties)

    def argv(self) -> list[str]:
        """As ``zfs send`` takes them."""
        chosen = {"-L": self.large_blocks, "-c": self.compressed, "-e": self.embedded, "-w": self.raw}
        return [flag for flag, on in {**chosen, "-p": self.properties}.items() if on]

    def lzc(self) -> list[str]:
        """As libzfs_core's send_space takes them."""
        chosen = {
            "large_blocks": self.large_blocks,
            "compress": self.compressed,
            "embedded_data": self.embedded,
            "raw": self.raw,
        }
        return [flag for flag, on in chosen.items() if on]


def send_argv(step: Step, flags: Flags) -> list[str]:
    """``zfs send`` for one step; ``-vP`` makes it say its bytes once a second."""
    if step.kind is Action.RESUME and step.token is not None:
        return ["zfs", "send", "-vP", "-t", step.token]
    argv = ["zfs", "send", "-vP", *flags.argv()]
    if step.base is not None:
        argv += ["-I" if step.intermediates else "-i", step.base.name]
    return [*argv, step.to.name]


def receive_argv(target: str, kind: str) -> list[str]:
    """``zfs receive`` into a vault: unmounted, readonly, resumable (invariant 3)."""
    own = (
        {"readonly": "on", "volmode": "none"}
        if kind == "volume"
        else {"readonly": "on", "canmount": "noauto"}
    )
    argv = ["zfs", "receive", "-s", "-u"]
    for key, value in own.items():
        argv += ["-o", f"{key}={value}"]
    for key in VOLUME_KEEP_OUT if kind == "volume" else KEEP_OUT:
        argv += ["-x", key]
    return [*argv, target]


def restore_send_argv(snapshot: str, *, raw: bool) -> list[str]:
    """``zfs send`` back from a vault; ``-b`` gives the properties as they came, not as the vault set them.

    Not of a raw stream: zfs receive 2.3.9 aborts on ``-w -b`` (seen in the lab), so that goes with ``-p``.
    """
    return ["zfs", "send", "-vP", "-L", "-c", *(["-w", "-p"] if raw else ["-e", "-b"]), snapshot]


def restore_receive_argv(target: str, kind: str, *, raw: bool) -> list[str]:
    """``zfs receive`` of a restored dataset: it must not mount or share over what is live.

    With ``raw`` the vault's own settings come along and are left out here.
    """
    keep_out = [] if kind == "volume" else ["mountpoint", "sharenfs", "sharesmb"]
    if raw:
        keep_out += ["readonly", "volmode" if kind == "volume" else "canmount"]
    return ["zfs", "receive", "-u", *(word for key in keep_out for word in ("-x", key)), target]


def mbuffer_argv(memory: int, block: int) -> list[str]:
    """``mbuffer`` with ``memory`` and ``block`` in bytes. It is not told to be quiet: its status is our progress."""
    return ["mbuffer", "-s", str(block), "-m", f"{memory // 1024}k"]


_SENT = re.compile(r"^\d\d:\d\d:\d\d\t(\d+)\t")
_PASSED = re.compile(r"(?<![\d.+])(\d+(?:\.\d+)?) ([kMGTPE]?)i?B(?:yte)? (?:total|in)\b(?:.*buffer +(\d+)%)?")
_UNIT = {prefix: 1024**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E"))}


def bytes_sent(line: str) -> int | None:
    """Bytes so far from a progress line of ``zfs send -vP``: ``12:04:46\\t60833664\\ttank@s1``."""
    found = _SENT.match(line)
    return int(found[1]) if found else None


def bytes_passed(line: str) -> tuple[int, int | None] | None:
    """Bytes written so far, and percent of the buffer filled, from mbuffer's status or summary line.

    ``in @ 62.9 MiB/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer 100% full``: three or four digits are exact.
    """
    found = _PASSED.search(line)
    if not found:
        return None
    return int(float(found[1]) * _UNIT[found[2]]), int(found[3]) if found[3] else None


def is_progress(line: str) -> bool:
    """Whether a line tells progress (or repeats the estimate), not trouble."""
    first = line.split("\t", 1)[0]
    return (
        bytes_sent(line) is not None
        or line.startswith(("in @", "summary:"))
        or first in {"full", "incremental", "size"}
        or line.startswith(("resume token contents:", "nvlist version:", "\t"))
    )
