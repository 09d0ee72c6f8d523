"""Whether a folder may have a snapshot mounted on it. A program, too: the folder's file system may hang.

Whoever may change a part of the way to it could lead the mount elsewhere, over /etc say. So each part belongs to root,
or whoever asks, and nobody else may write to it, or the sticky bit keeps others from renaming what is in it.
"""

from __future__ import annotations

import os
import stat
import sys


def check_folder_argv(folder: str) -> list[str]:
    """The program that prints what is wrong with a folder, or nothing."""
    return [sys.executable, "-I", "-S", __file__, folder]


def find_folder_trouble(folder: str) -> str:
    """Why nothing is to be mounted there, in words; empty where it may be."""
    if not folder.startswith("/") or os.path.normpath(folder) != folder or folder == "/":
        return "it is no plain absolute path"
    try:
        for found in (*_ways(folder), folder):
            if why := _unsafe(found):
                return why
        if os.path.ismount(folder):
            return "something is mounted there"
        return "it is not empty" if os.listdir(folder) else ""  # noqa: PTH208 - nothing is made of the names
    except OSError as error:
        return f"{error.filename or folder}: {os.strerror(error.errno or 0)}"


def _ways(folder: str) -> list[str]:
    """What it lies in, from the root on."""
    parts = folder.split("/")[1:-1]
    return ["/", *("/" + "/".join(parts[: number + 1]) for number in range(len(parts)))]


def _unsafe(path: str) -> str:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        return f"{path} is a symbolic link"
    if not stat.S_ISDIR(found.st_mode):
        return f"{path} is no folder"
    if found.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {found.st_uid}, who could lead it elsewhere"
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"others may write to {path}, and could lead it elsewhere"
    return ""


if __name__ == "__main__":
    sys.stdout.write(find_folder_trouble(sys.argv[1]))
