"""Where an S3 bucket is, and whose keys open it.

Keys come from one of three places: ``access_key`` and ``secret_key`` themselves; a file ``keys`` in the format of
~/.aws/credentials, whose section is ``profile`` or else "default"; or boto3's own chain: the environment, ~/.aws
(``profile`` chooses in it), a container's or machine's role. What expires in the chain boto3 fetches anew; the file is
read again when it has changed.

    [default]
    aws_access_key_id = …
    aws_secret_access_key = …
    aws_session_token = …
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from zvault.core.policy.object_lock import ObjectLock
from zvault.object_store.interface import StoreDenied

Style = Literal["auto", "path", "virtual"]
MAX_KEYS = 1 << 20
"""Characters read of a file with keys."""
_STYLES: dict[str, Style] = {"auto": "auto", "path": "path"}
_KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")


def open_to_read(path: str) -> int:
    """A descriptor of a file with keys. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """A bucket, and how to talk to it. None: as boto3 has it, from its configuration or by default.

    ``style`` says where the bucket's name stands in a URL: in its path or in the host's name; "auto" leaves it to
    boto3. ``access_key``, ``secret_key`` and ``session_token`` may be "+FILE", as nbdkit_read_password(3) has it: then
    the file's first line counts. ``storage_class``, ``sse``, ``sse_kms_key_id`` and ``lock`` are those of new objects.
    ``connect_seconds`` and ``read_seconds`` bound how long a request may take to connect, and between two bytes of
    its answer. ``connections`` is how many requests may be under way at once; more of them wait for each other.
    ``open_file`` opens the files named here, where this process itself may not.
    """

    bucket: str
    endpoint: str | None = None
    region: str | None = None
    style: Style = "auto"
    profile: str | None = None
    keys: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    storage_class: str | None = None
    sse: Literal["AES256", "aws:kms"] | None = None
    sse_kms_key_id: str | None = None
    lock: ObjectLock | None = None
    connect_seconds: float = 5.0
    read_seconds: float = 30.0
    connections: int = 32
    open_file: Callable[[str], int] = field(default=open_to_read, repr=False, compare=False)

    @classmethod
    def of_words(cls, words: Mapping[str, str], keys: str | None) -> S3Settings:
        """From a server's parameters, NAME to VALUE; ``keys`` is the file with its keys. An empty value counts as none.

        nbdkit's S3 plugin calls the endpoint ``endpoint-url``.
        """
        given = {name: value for name, value in words.items() if value}
        return cls(
            bucket=given["bucket"],
            endpoint=given.get("endpoint-url", given.get("endpoint", "")).rstrip("/") or None,
            region=given.get("region"),
            style=_STYLES.get(given.get("style", "auto"), "virtual"),
            profile=given.get("profile"),
            keys=keys,
            access_key=given.get("access-key"),
            secret_key=given.get("secret-key"),
            session_token=given.get("session-token"),
        )

    def __str__(self) -> str:
        return f"s3://{self.bucket}" + (f" at {self.endpoint}" if self.endpoint else "")

    def for_new_objects(self) -> dict[str, str]:
        """Return what a put says beside its data, as boto3's parameters."""
        said = {
            "StorageClass": self.storage_class,
            "ServerSideEncryption": self.sse,
            "SSEKMSKeyId": self.sse_kms_key_id,
        }
        return {name: value for name, value in said.items() if value}


def read_s3_keys(settings: S3Settings) -> dict[str, str | None]:
    """The keys, as a session's arguments. What is in the file must not get into an error."""
    if settings.access_key is not None:
        given = (settings.access_key, settings.secret_key, settings.session_token)
        return dict(zip(_KEYS, (_secret(one, settings) for one in given), strict=True))
    if settings.keys is None:
        return {"profile_name": settings.profile}
    path, section = Path(settings.keys), settings.profile or "default"
    what, form = f"the keys in {path} cannot be used", "write it as ~/.aws/credentials is written"
    found = configparser.RawConfigParser()
    try:
        found.read_string(_text(settings, settings.keys))
    except OSError as error:
        raise StoreDenied(what, error.strerror or str(error), "correct its path or mode") from error
    except (configparser.Error, UnicodeDecodeError):
        raise StoreDenied(what, "it cannot be understood", form) from None
    if not found.has_section(section):
        raise StoreDenied(what, f"it has no section [{section}]", form)
    keys = {name: found.get(section, name, fallback=None) or None for name in _KEYS}
    if not (keys[_KEYS[0]] and keys[_KEYS[1]]):
        raise StoreDenied(what, f"[{section}] lacks {_KEYS[0]} or {_KEYS[1]}", form)
    return keys


def _text(settings: S3Settings, path: str) -> str:
    with os.fdopen(settings.open_file(path), encoding="utf-8") as file:
        return file.read(MAX_KEYS)


def _secret(value: str | None, settings: S3Settings) -> str | None:
    if value is None or not value.startswith("+"):
        return value
    try:
        return _text(settings, value[1:]).split("\n", 1)[0]
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise StoreDenied(
            f"the secret in {value[1:]} cannot be read", why, "correct its path or mode"
        ) from None
