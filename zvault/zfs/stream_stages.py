"""argv of what stands between zfs send and zfs receive, and what all stages say of their progress. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from zvault.config.profile import MIN_BLOCKS
from zvault.zfs.stream_argv import SendFlags


def mbuffer_argv(memory: int, block: int, start: int = 0) -> list[str]:
    """``mbuffer`` with ``memory`` and ``block`` in bytes; ``start`` is how full it is, in percent, before it passes on.

    It is not told to be quiet: its status is our progress.
    """
    return ["mbuffer", "-s", str(block), "-m", f"{memory // 1024}k", *(["-P", str(start)] if start else [])]


Compression = Literal["auto", "zstd", "lz4", "gzip", "off"]
_CODECS = {
    "zstd": (["zstd", "-q", "-c", "-1"], ["zstd", "-q", "-d", "-c"]),
    "lz4": (["lz4", "-q", "-c", "-1"], ["lz4", "-q", "-d", "-c"]),
    "gzip": (["gzip", "-c", "-1"], ["gzip", "-d", "-c"]),
}
HELPERS = ("mbuffer", *_CODECS)
"""Programs a stream may go through; none of them is needed."""


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """One end of a stream: its host's name, which helpers that has, and how commands joined by pipes are run there.

    ``remote`` None is this host: its commands are stages themselves.
    """

    name: str
    tools: frozenset[str]
    remote: Callable[[Sequence[Sequence[str]]], list[str]] | None = None

    def stages(self, commands: list[list[str]]) -> list[list[str]]:
        """The commands as stages of a pipeline on this host."""
        return commands if self.remote is None else [self.remote(commands)]


@dataclass(frozen=True, slots=True)
class MbufferSettings:
    """mbuffer's memory and block in bytes, and how full it is before it passes on to a receiver, in percent.

    One on another host gives up after ``patience`` seconds without a byte, and may have another memory, ``there``.
    """

    memory: int
    block: int
    patience: float
    start: int = 0
    there: int | None = None

    def argv(self, end: StreamEnd, *, quiet: bool, last: bool = False) -> list[list[str]]:
        """As commands at an end, the ``last`` one before the receiver: none where it has no mbuffer."""
        if "mbuffer" not in end.tools:
            return []
        memory = self.memory if end.remote is None or self.there is None else self.there
        block = min(self.block, memory // MIN_BLOCKS)
        # Nobody here can stop it once the link is dead, and its receive would keep the dataset busy for long.
        watchdog = [] if end.remote is None else ["-W", str(max(1, round(self.patience)))]
        argv = mbuffer_argv(memory, block, self.start if last else 0)
        return [[*argv, *watchdog, *(["-q"] if quiet else [])]]


def make_stages(  # noqa: PLR0913 - what stands between two ends
    send: list[str],
    receive: list[str],
    source: StreamEnd,
    vault: StreamEnd,
    *,
    buffer: MbufferSettings | None,
    codec: str | None = None,
    throttle: Sequence[str] = (),
    gate: Sequence[str] = (),
) -> list[list[str]]:
    """A stream's stages on this host, first to last. ``throttle`` is the one that limits it, if any.

    Between two hosts each end has a buffer, and the one next to the receiver tells the progress; between them the
    stream is compressed by ``codec``, and limited as it is there. The ``gate``, if any, is on this host: as near to the
    receiver as that is.
    """
    limit, check = ([list(stage)] if stage else [] for stage in (throttle, gate))
    if source.remote is None and vault.remote is None:
        buffering = buffer.argv(vault, quiet=False, last=True) if buffer else []
        return [send, *limit, *buffering, *check, receive]
    after = buffer.argv(vault, quiet=False, last=True) if buffer else []
    before = buffer.argv(source, quiet=bool(after)) if buffer else []
    pack, unpack = ([packer] for packer in _CODECS[codec]) if codec else ([], [])
    sending, receiving = [send, *before, *pack], [*unpack, *after, receive]
    if vault.remote is None:
        receiving = [*unpack, *after, *check, receive]
    elif source.remote is None:
        sending = [send, *check, *before, *pack]
    elif check:
        limit += [*unpack, *check, *pack]
    return [*source.stages(sending), *limit, *vault.stages(receiving)]


def choose_codec(
    wanted: Compression, flags: SendFlags, source: StreamEnd, vault: StreamEnd
) -> tuple[str | None, str]:
    """Choose how a stream between two hosts is compressed, and what is to be told if it is not as wanted.

    "auto" leaves alone what comes compressed from the disk already (``-c``, ``-w``).
    """
    if source.remote is None and vault.remote is None:
        return None, ""
    if wanted == "off" or (wanted == "auto" and (flags.compressed or flags.raw)):
        return None, ""
    codec = "zstd" if wanted == "auto" else wanted
    lacking = [end.name for end in (source, vault) if codec not in end.tools]
    if lacking:
        return None, f"{codec} is not installed on {' and '.join(lacking)}: streams go uncompressed"
    return codec, ""


def warn_of_missing_buffer(source: StreamEnd, vault: StreamEnd) -> str:
    """Say what is to be told where a stream lacks a buffer; empty where it has one."""
    ends = {end.name: end for end in (source, vault)}
    lacking = [name for name, end in ends.items() if "mbuffer" not in end.tools]
    return (
        f"mbuffer is not installed on {' and '.join(lacking)}: streams go without a buffer, slower"
        if lacking
        else ""
    )


_SENT = re.compile(r"^\d\d:\d\d:\d\d\t([0-9]{1,20})\t")
_PASSED = re.compile(
    r"(?<![\d.+])([0-9]{1,20}(?:\.[0-9]+)?) ([kMGTPE]?)i?B(?:yte)? (?:total|in)\b(?:.*buffer +([0-9]{1,3})%)?"
)
_UNIT = {prefix: 1024**power for power, prefix in enumerate(("", "k", "M", "G", "T", "P", "E"))}


def parse_bytes_sent(line: str) -> int | None:
    """Bytes so far from a progress line of ``zfs send -vP``: ``12:04:46\\t60833664\\ttank@s1``."""
    found = _SENT.match(line)
    return int(found[1]) if found else None


def parse_bytes_passed(line: str) -> tuple[int, int | None] | None:
    """Bytes written so far, and percent of the buffer filled, from mbuffer's status or summary line.

    ``in @ 62.9 MiB/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer 100% full``: three or four digits are exact.
    """
    found = _PASSED.search(line)
    if not found:
        return None
    return int(float(found[1]) * _UNIT[found[2]]), int(found[3]) if found[3] else None


def is_progress(line: str) -> bool:
    """True if a line tells progress (or repeats the estimate), not trouble."""
    first = line.split("\t", 1)[0]
    return (
        parse_bytes_sent(line) is not None
        or line.startswith(("in @", "summary:"))
        or first in {"full", "incremental", "size"}
        or line.startswith(("resume token contents:", "nvlist version:", "\t"))
    )
