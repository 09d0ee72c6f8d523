"""Who may write the configuration. Its hooks run as root: whoever else may write it is root too."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from pathlib import Path

from zvault.config.problems import Problem

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def written_by_others(files: Iterable[Path]) -> list[Problem]:
    """Those of these files, their folders and what they are links to that others than root may write.

    Whoever runs this may own them too: a draft is not in force, and zvaultd is root. What is not there is no problem.
    """
    places = dict.fromkeys(
        place for file in files for real in (file, file.resolve()) for place in (real.parent, real)
    )
    return [Problem(place, None, (), why) for place in places if (why := _why(place))]


def _why(place: Path) -> str:
    try:
        seen = place.stat()
    except OSError:
        return ""
    trouble = "and whoever may write it can run programs as root, by hooks"
    if seen.st_uid not in {0, os.geteuid()}:
        return f"belongs to {_user(seen.st_uid)}, {trouble}: 'chown root {place}'"
    if seen.st_mode & _OTHERS:
        who = "everybody" if seen.st_mode & stat.S_IWOTH else "its group"
        return f"may be written by {who}, {trouble}: 'chmod go-w {place}'"
    return ""


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
