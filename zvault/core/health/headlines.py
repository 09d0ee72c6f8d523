"""The state of everything in a sentence or two. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from zvault.core.health.verdict import VerdictLevel


class HeadlineSubject(NamedTuple):
    """A backup or vault: its name, level and state in one word; ``sends``: whether a backup has a vault."""

    name: str
    level: VerdictLevel
    state: str
    sends: bool = True


class DaemonFinding(NamedTuple):
    """A fault of zvaultd itself, in a sentence without its subject."""

    level: VerdictLevel
    what: str


def write_headlines(
    backups: Sequence[HeadlineSubject], vaults: Sequence[HeadlineSubject], daemon: Sequence[DaemonFinding]
) -> list[str]:
    """A sentence for each kind that needs attention or is not known, or that all is well."""
    lines = [*_about("backup", backups), *_about("vault", vaults), *_about_daemon(daemon)]
    if lines:
        return lines
    sending = sum(one.sends for one in backups)
    told = (
        (sending, format_count(sending, "backup")),
        (len(backups) - sending, f"{format_count(len(backups) - sending, 'source')} with snapshots only"),
        (len(vaults), format_count(len(vaults), "vault")),
    )
    counts = [text for number, text in told if number]
    return [f"all is well: {', '.join(counts)}" if counts else "nothing is configured"]


def format_count(number: int, noun: str) -> str:
    """``1 backup``, ``3 backups``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _about(noun: str, subjects: Sequence[HeadlineSubject]) -> Iterator[str]:
    total = format_count(len(subjects), noun)
    troubled = [f"{one.name} {one.state}" for one in subjects if one.level in ("warning", "critical")]
    if troubled:
        needs = "needs" if len(troubled) == 1 else "need"
        yield f"{len(troubled)} of {total} {needs} attention: {', '.join(troubled)}"
    unknown = [f"{one.name} {one.state}" for one in subjects if one.level == "unknown"]
    if unknown:
        are = "is" if len(unknown) == 1 else "are"
        yield f"{len(unknown)} of {total} {are} not known to be well: {', '.join(unknown)}"


def _about_daemon(findings: Sequence[DaemonFinding]) -> Iterator[str]:
    warnings = list(_bad(one.level for one in findings))
    if warnings:
        yield f"zvaultd has {format_count(len(warnings), 'warning')}"
    elif findings:
        yield f"zvaultd {findings[0].what}"


def _bad(levels: Iterable[VerdictLevel]) -> Iterator[VerdictLevel]:
    return (level for level in levels if level != "unknown")
