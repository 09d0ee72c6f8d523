"""A block device that s3backer keeps in a bucket, as the configuration names it: ``s3backer:BUCKET[/PREFIX] …``."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from zvault.config.device_specs.secret_words import refuse_secrets_within
from zvault.core.units import parse_size

_CHOSEN = """
accessEC2IAM accessFile accessId accessType authVersion baseURL blockCacheSize blockCacheThreads blockHashPrefix
blockSize cacert compress encrypt initialRetryPause insecure keyLength listBlocks maxDownloadSpeed maxRetryPause
maxUploadSpeed md5CacheSize md5CacheTime minWriteDelay noAutoDetect passwordFile readAhead readAheadTrigger region rrs
size sse ssl storageClass timeout vhost
"""
S3BACKER_SETTINGS = frozenset(_CHOSEN.split())
"""s3backer's options that are the user's to choose: s3backer(1). zvault sets those on which the pool's safety hangs."""

S3BACKER_SECRETS = {"accessKey": "accessFile", "password": "passwordFile"}
"""Options that hold a secret, which every user of the host would see, and those that name a file with it."""

_BUCKET = re.compile(r"(?P<bucket>[A-Za-z0-9][A-Za-z0-9._-]*)(?:/(?P<prefix>[A-Za-z0-9._/-]+))?")
_SETTING = re.compile(r"(?P<name>[A-Za-z0-9]+)(?:=(?P<value>[^\x00-\x1f\x7f]+))?")


@dataclass(frozen=True, slots=True)
class S3backerServer:
    """A server zvault starts itself: s3backer's one file, served by nbdkit. ``settings`` are s3backer's own options."""

    bucket: str
    prefix: str = ""
    settings: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.bucket}/{self.prefix}" if self.prefix else self.bucket
        return "s3backer:" + " ".join([place, *(shlex.quote(word) for word in self.settings)])

    def setting(self, name: str) -> str:
        """The value of a setting; "" where it has none."""
        return dict(word.partition("=")[::2] for word in self.settings).get(name, "")

    @property
    def identity(self) -> tuple[str, ...]:
        where = sorted(word for word in self.settings if word.startswith(("baseURL=", "region=")))
        return ("s3backer", self.bucket, self.prefix.strip("/"), *where)


def parse_s3backer(rest: str) -> S3backerServer:
    """Parse what stands after ``s3backer:``. Raises ValueError: what is wrong and what is right."""
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ValueError(f"cannot be split into words as a shell would: {str(error).lower()}") from None
    match = _BUCKET.fullmatch(words[0]) if words else None
    if match is None:
        raise ValueError(
            "names no bucket, as in s3backer:attic/cold size=1T blockSize=128k accessFile=/etc/s3b"
        )
    for word in words[1:]:
        _check(word)
    names = {word.partition("=")[0] for word in words[1:]}
    for needed in ("size", "blockSize"):
        if needed not in names:
            raise ValueError(f"needs {needed}=…: what s3backer takes without it is wrong for a pool")
    return S3backerServer(match["bucket"], (match["prefix"] or "").strip("/"), tuple(words[1:]))


def _check(word: str) -> None:
    match = _SETTING.fullmatch(word)
    name = match["name"] if match else word.partition("=")[0]
    refuse_secrets_within(word)
    if name in S3BACKER_SECRETS:
        raise ValueError(
            f"{name}=… would show the secret in the process list; put it in a file that only root can read and"
            f" write {S3BACKER_SECRETS[name]}=/path/of/that/file"
        )
    if match is None or name not in S3BACKER_SETTINGS:
        raise ValueError(f'"{name}" is none of the settings of s3backer(1) that can be chosen here')
    if name in ("size", "blockSize"):
        try:
            parse_size(match["value"] or "")
        except ValueError:
            raise ValueError(f"{name} must be a size, as in {name}=128k") from None
