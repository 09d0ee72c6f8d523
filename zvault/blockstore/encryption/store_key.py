"""The key that opens a block store: 32 bytes that its owner keeps, or the recovery key that was shown once."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from zvault.blockstore.encryption.pieces import derive_secret
from zvault.core.errors import ConfigError
from zvault.system.key_source import SIZE, parse_key

_RECOVERY = "zvault-recovery-"
_CHECK = 3


@dataclass(frozen=True, slots=True)
class StoreKey:
    """A key. ``recovery``: it is a recovery key, whose public part is in the store."""

    secret: bytes = field(repr=False)
    recovery: bool = False

    @property
    def id(self) -> str:
        """The name of the key where it must not be shown: 8 hexadecimal digits."""
        return derive_secret(self.secret, b"zvault block store key id")[:4].hex()

    @property
    def private(self) -> X25519PrivateKey:
        """The half of a recovery key that decrypts."""
        return X25519PrivateKey.from_private_bytes(derive_secret(self.secret, b"zvault recovery key x25519"))

    @property
    def shared(self) -> bytes:
        """The part of a recovery key that the store's owners know as well, so that nobody else can encrypt for it."""
        return derive_secret(self.secret, b"zvault recovery key shared")

    @property
    def text(self) -> str:
        """The recovery key as text, to be written down."""
        body = base64.b32encode(self.secret + _check(self.secret)).decode().rstrip("=")
        return _RECOVERY + "-".join(body[at : at + 7] for at in range(0, len(body), 7))

    @classmethod
    def new_recovery(cls) -> StoreKey:
        """A recovery key that nobody has yet."""
        return cls(os.urandom(SIZE), recovery=True)

    @classmethod
    def parse(cls, data: bytes, where: str) -> StoreKey:
        """From 32 bytes, 64 hexadecimal digits or a recovery key's text. Raises ConfigError, which does not show it."""
        text = data.strip().decode("ascii", "replace")
        if text.startswith(_RECOVERY):
            return _recovery(text, where)
        return cls(parse_key(data, where))


def _recovery(text: str, where: str) -> StoreKey:
    body = "".join(text.removeprefix(_RECOVERY).upper().split()).replace("-", "")
    try:
        data = base64.b32decode(body + "=" * (-len(body) % 8))
    except binascii.Error:
        data = b""
    secret, check = data[:SIZE], data[SIZE:]
    if len(secret) != SIZE or check != _check(secret):
        what = f"the recovery key in {where} is not right"
        raise ConfigError(what, "a letter is wrong or missing", "compare it with what was written down")
    return StoreKey(secret, recovery=True)


def _check(secret: bytes) -> bytes:
    return hashlib.sha256(b"zvault recovery key check" + secret).digest()[:_CHECK]
