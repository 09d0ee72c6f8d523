"""Who may write what root reads as its configuration, or runs: whoever else may write that is root too."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zvault.config.problems import ConfigProblem

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True)
class ForeignWriter:
    """A file or folder that others than root may write: ``who`` in words, and the command that mends it."""

    place: Path
    who: str
    cure: str

    def __str__(self) -> str:
        return f"{self.place} {self.who}"


def list_writer_problems(
    files: Iterable[Path], power: str = "can run programs as root, by hooks"
) -> list[ConfigProblem]:
    """Those of these files, the folders on the way to them, and what they are links to that others than root may write.

    Whoever runs this may own them too: a draft is not in force, and zvaultd is root. What is not there is no problem.
    ``power`` says what those others can do by it.
    """
    return [
        ConfigProblem(found.place, None, (), f"{found.who}, and whoever may write it {power}: '{found.cure}'")
        for found in find_writers(files)
    ]


def find_writers(files: Iterable[Path]) -> list[ForeignWriter]:
    """List who else may write these files: the files themselves, what they are links to, and each folder on the way."""
    ways = dict.fromkeys(place for file in files for place in _way_to(file))
    return [found for place in ways if (found := _writer(place)) is not None]


def find_writers_within(folder: Path) -> Iterator[ForeignWriter]:
    """Find who else may write anything in a folder, or what a link in it leads to; what is gone meanwhile is no
    problem.
    """
    for at, folders, files in os.walk(folder):
        for place in (Path(at, name) for name in (*folders, *files)):
            if place.is_symlink():
                yield from find_writers([place])
            elif (found := _writer(place)) is not None:
                yield found


def _way_to(file: Path) -> Iterator[Path]:
    """A file, what it is a link to, and the folders on the way to both, from the root."""
    for real in (Path(os.path.abspath(file)), file.resolve()):  # noqa: PTH100 - resolve() would follow the links
        yield from reversed(real.parents)
        yield real


def _writer(place: Path) -> ForeignWriter | None:
    try:
        seen = place.lstat()
    except OSError:
        return None
    if stat.S_ISLNK(seen.st_mode):
        return None  # to change it takes its folder, and what it leads to is on the way, too
    if seen.st_uid not in {0, os.geteuid()}:
        return ForeignWriter(place, f"belongs to {_user(seen.st_uid)}", f"chown root {place}")
    if not seen.st_mode & _OTHERS:
        return None
    if stat.S_ISDIR(seen.st_mode) and seen.st_mode & stat.S_ISVTX:
        return None  # as /tmp: others may add to it, and neither rename nor remove what is not theirs
    who = "everybody" if seen.st_mode & stat.S_IWOTH else "its group"
    return ForeignWriter(place, f"may be written by {who}", f"chmod go-w {place}")


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
