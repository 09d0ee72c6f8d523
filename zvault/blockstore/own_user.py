"""The block store's server as a user of its own: it parses what a bucket says, and needs nothing of root's for that.

It begins as root, who alone may read its keys and enter the folders above its own. Then it becomes a user that nobody
else is, one for each store. Its folders are that user's, and reached by descriptors that were opened before: by
``/proc/self/fd/N``, for which no folder above is entered. Its keys are opened by a process that stays root and opens
nothing else (zvault/system/opener.py), so that they may change while it serves.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from zvault.blockstore.reached_store import make_s3_settings
from zvault.blockstore.serve_options import ServeOptions
from zvault.config.device_specs.blockstore import SERVER_USER_IDS
from zvault.object_store.s3_settings import S3Settings
from zvault.system import opener

NEEDED_CAPABILITIES = {"CAP_CHOWN": 0, "CAP_SETGID": 6, "CAP_SETUID": 7}
"""Capabilities, and their numbers."""

BOTO_VARIABLES = ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
"""Of the environment: files that boto3 reads itself."""

NEEDED_LIBRARIES = ("zvault", "boto3", "botocore", "cryptography", "numpy", "xxhash")
"""What it imports, or reads files of, when it is another user already."""

IN_FOLDERS = {
    "journal": re.compile(r"\d{12,}\.journal|\d+\.spare|begin\.new|lost\+found"),
    "cache": re.compile(r"frames|index|index\.new|lost\+found"),
}
"""What a journal and a cache have in their folders (log/journal.py, read/disk_cache.py), which may be file systems."""

_PR_SET_DUMPABLE = 4


@dataclass(frozen=True, slots=True)
class OwnUser:
    """The means by which a server becomes another user. ``words`` are its own, with folders that it can reach by
    then.
    """

    uid: int
    words: ServeOptions
    opener: opener.FileOpener
    names: Mapping[str, str]
    """What its folders are called, by how it reaches them."""

    def become(self) -> None:
        """Give up root's rights, for good. Raises OSError."""
        os.setgroups([])
        os.setresgid(self.uid, self.uid, self.uid)
        os.setresuid(self.uid, self.uid, self.uid)
        # Else /proc/self is root's, and its folders out of reach. Nobody else is this user, to trace it.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def explain_staying_root(uid: int) -> str | None:
    """Why a server cannot become this user; None where it can."""
    lacks = [name for name, number in NEEDED_CAPABILITIES.items() if not _capabilities() >> number & 1]
    if lacks:
        return f"it lacks {', '.join(lacks)}: is its unit an older one?"
    if not _is_mapped(uid, Path("/proc/self/uid_map").read_text(encoding="ascii")):
        return f"user {uid} cannot be in this container"
    if (closed := _for_root_alone(NEEDED_LIBRARIES)) is not None:
        return f"{closed} is for root alone, and programs are below it"
    theirs = [name for name in BOTO_VARIABLES if os.environ.get(name)]
    if Path("/root/.aws").exists() or theirs:
        where = ", ".join(theirs) or "/root/.aws"
        return f"{where}: boto3 reads that itself, and it is root's; put the keys in credential= or keys="
    return None


def find_shared_folder(folders: Mapping[str, str]) -> str | None:
    """Which of a store's folders, by setting, has something in it that is not the store's; None where none has.

    Whoever owns a folder may remove what is in it: one that others use as well must stay root's. One that is a server's
    already is that server's alone, and closed to root without capabilities.
    """
    for name, folder in folders.items():
        with suppress(FileNotFoundError):
            if os.stat(folder).st_uid in SERVER_USER_IDS:  # noqa: PTH116
                continue
            for entry in sorted(os.listdir(folder)):  # noqa: PTH208
                if not IN_FOLDERS[name].fullmatch(entry):
                    return f"{name}={folder} has something else in it, {entry}: give it a folder of its own"
    return None


def prepare_own_user(words: ServeOptions, uid: int) -> OwnUser:
    """All that takes root's rights. Before any thread starts. Raises OSError, and NotFound for lost keys."""
    settings = make_s3_settings(words.spec)
    opens = opener.start_opener(list_key_files(settings), words.seen)
    paths = {"journal": words.spec.journal, "cache": words.spec.cache}
    given = {name: Path(path) for name, path in paths.items() if path is not None}
    if words.status is not None:
        given["status"] = words.status.parent
    if words.seen is not None:
        words.seen.mkdir(mode=0o700, parents=True, exist_ok=True)
    reached = {name: _give(folder, uid) for name, folder in given.items()}
    named = {name: reached[name] for name in paths if name in reached}
    if settings.keys is not None:
        named["keys"] = settings.keys
    old = [one for one in words.spec.settings if one.partition("=")[0] not in (*named, "credential")]
    spec = replace(words.spec, settings=(*old, *(f"{name}={value}" for name, value in named.items())))
    status = Path(reached["status"], words.status.name) if words.status is not None else None
    names = {reached[name]: str(folder) for name, folder in given.items()}
    return OwnUser(uid, replace(words, spec=spec, status=status), opens, names)


def list_key_files(settings: S3Settings) -> list[str]:
    """The files that its keys are in."""
    secrets = (settings.access_key, settings.secret_key, settings.session_token)
    files = [one[1:] for one in secrets if one is not None and one.startswith("+")]
    return [*files, settings.keys] if settings.keys is not None else files


def _give(folder: Path, uid: int) -> str:
    """Make a folder this user's with the files in it that were root's or a server's; how to reach it from now on."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _give_at(fd, uid)
    return f"/proc/self/fd/{fd}"


def _give_at(fd: int, uid: int) -> None:
    path = f"/proc/self/fd/{fd}"
    # First root's: root may enter it only so, without a capability, and nobody else puts anything there meanwhile.
    os.chown(path, 0, 0)
    with _readable(path) as entries:
        for name in os.listdir(entries):  # noqa: PTH208 - a descriptor has no path
            if _may_be_given(os.stat(name, dir_fd=entries, follow_symlinks=False)):
                os.chown(name, uid, uid, dir_fd=entries, follow_symlinks=False)
    os.chown(path, uid, uid)


@contextmanager
def _readable(path: str) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _may_be_given(found: os.stat_result) -> bool:
    """A file of root's, or of another store's server, that has no other name elsewhere."""
    theirs = found.st_uid == 0 or found.st_uid in SERVER_USER_IDS
    return theirs and stat.S_ISREG(found.st_mode) and found.st_nlink == 1


def _capabilities() -> int:
    """Those in force, as bits."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith("CapEff:")), 0)


def _for_root_alone(libraries: Iterable[str]) -> Path | None:
    """The first folder that only root may enter, of those that these are in."""
    found = (importlib.util.find_spec(name) for name in libraries)
    files = [Path(one.origin).resolve() for one in found if one is not None and one.origin is not None]
    folders = (folder for file in files for folder in reversed(file.parents))
    return next((folder for folder in folders if not folder.stat().st_mode & stat.S_IXOTH), None)


def _is_mapped(uid: int, uid_map: str) -> bool:
    """True if a user can be, by the lines of /proc/self/uid_map (user_namespaces(7))."""
    rows = ([int(word) for word in line.split()] for line in uid_map.splitlines())
    return any(first <= uid < first + count for first, _, count in rows)
