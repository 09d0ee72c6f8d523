"""A store's keys, as its first object has them: ``PREFIX/store`` of version 2, with a copy in ``PREFIX/keys``.

Objects are encrypted with *data keys*, made at random. They are encrypted with a key that is drawn anew each time this
object is put, and that once for each *slot*: for the key of the store's owner, and for the recovery key. So a new data
key, or another owner's key, changes this object and no other. All of the object that can be read without a key is
authenticated with the data keys (as AES-GCM's associated data): who has no key cannot change any of it.

For the recovery key the encryption is to a public key (X25519), so that keys which come later can be encrypted for it
while it lies in a safe. Who only knows the public key, as whoever reads the bucket, can make no slot for it: it takes a
secret as well that is kept with the data keys.
"""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from zvault.blockstore.encryption.pieces import KEY_ID_SIZE, derive_secret, make_not_authentic_error
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.blockstore.format import ENCRYPTED_VERSION, PARSE_ERRORS, ObjectDamaged, Superblock
from zvault.core.errors import Refused
from zvault.object_store.interface import describe_loss
from zvault.system.key_source import SIZE

_NONCE = 12


class WrongKey(Refused):
    """The key that was given is none of the store's."""

    reason = "wrong-key"


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that objects are encrypted with. ``since`` in seconds since the epoch."""

    id: bytes
    secret: bytes = field(repr=False)
    since: float

    @classmethod
    def new(cls, now: float, but: tuple[DataKey, ...] = ()) -> DataKey:
        """One with an id that none of ``but`` has."""
        taken = {one.id for one in but}
        while (name := os.urandom(KEY_ID_SIZE)) in taken:
            pass
        return cls(name, os.urandom(SIZE), now)


@dataclass(frozen=True, slots=True)
class Keyring:
    """All keys of a store. ``first``: what version 1 has in ``PREFIX/store``; ``data``: the oldest first.

    ``public`` and ``shared``: of its recovery key, see StoreKey. ``generation`` counts the times it was changed.
    """

    first: bytes
    data: tuple[DataKey, ...]
    public: bytes
    shared: bytes = field(repr=False)
    generation: int = 1

    @classmethod
    def new(cls, first: bytes, recovery: StoreKey, now: float) -> Keyring:
        """Make the keyring of a new store."""
        public = recovery.private.public_key().public_bytes_raw()
        return cls(first, (DataKey.new(now),), public, recovery.shared)

    @property
    def identity(self) -> bytes:
        """The store's uuid, 16 bytes."""
        return Superblock.of_bytes(self.first).identity

    def rotate(self, now: float, recovery: StoreKey | None = None) -> Keyring:
        """With a new data key for what is put from now on; and with another recovery key, if there is one."""
        found = replace(self, data=(*self.data, DataKey.new(now, self.data)), generation=self.generation + 1)
        if recovery is None:
            return found
        return replace(found, public=recovery.private.public_key().public_bytes_raw(), shared=recovery.shared)

    def as_bytes(self, key: StoreKey) -> bytes:
        """As the object holds it, for this owner's key and the recovery key alone."""
        what, wrapping = Superblock.of_bytes(self.first), os.urandom(SIZE)
        slots = [_recovery_slot(self, what.identity, wrapping)]
        if not key.recovery:
            slots.insert(0, _owner_slot(key, what.identity, wrapping))
        document: dict[str, Any] = {
            "version": ENCRYPTED_VERSION,
            "uuid": what.uuid,
            "size": what.size,
            "created": what.created,
            "generation": self.generation,
            "slots": slots,
        }
        inside = {
            "first": _text(self.first),
            "data": [[_text(one.id), _text(one.secret), one.since] for one in self.data],
            "shared": _text(self.shared),
        }
        document["keys"] = _locked(wrapping, json.dumps(inside).encode(), _open_part(document))
        return json.dumps(document, indent=1).encode()

    @classmethod
    def of_bytes(cls, data: bytes, key: StoreKey, name: str) -> Keyring:
        """Read back. Raises WrongKey, ObjectDamaged, and Refused for the object of a store that is not encrypted."""
        document = parse_keyring(data, name)
        try:
            identity = bytes.fromhex(document["uuid"])
            slots = [dict(one) for one in document["slots"]]
            public = next(_bytes(one["public"]) for one in slots if one["kind"] == "recovery")
            wrapping = _unwrapped(slots, key, identity, name)
            inside = json.loads(_unlocked(wrapping, document.pop("keys"), _open_part(document)))
            keys = tuple(DataKey(_bytes(i), _bytes(secret), float(at)) for i, secret, at in inside["data"])
            found = cls(
                _bytes(inside["first"]), keys, public, _bytes(inside["shared"]), int(document["generation"])
            )
            if not keys or any((len(one.id), len(one.secret)) != (KEY_ID_SIZE, SIZE) for one in keys):
                raise ValueError("it has no data keys")
            if found.identity != identity:
                raise ValueError("it is of two stores")
        except InvalidTag:
            raise make_not_authentic_error(name, "it was changed by somebody who has no key") from None
        except (*PARSE_ERRORS, StopIteration) as error:
            raise ObjectDamaged(f"{name} cannot be read", str(error), _LOST) from error
        return found


def parse_keyring(data: bytes, name: str) -> dict[str, Any]:
    """The object's JSON, of version 2. Raises ObjectDamaged; Refused for version 1."""
    try:
        document = json.loads(data)
        version = int(document["version"])
    except PARSE_ERRORS as error:
        raise ObjectDamaged(f"{name} cannot be read", describe_loss(data) or str(error), _LOST) from error
    if version == ENCRYPTED_VERSION:
        return dict(document)
    raise Refused(
        f"the block store of {name} is not encrypted",
        f"a key is given for it, and it is of version {version}",
        "leave the key out; or copy the store to one that is encrypted, by 'zvaultctl blockstore copy'. If it was"
        " encrypted before, somebody has put another one in its place",
    )


def _unwrapped(slots: list[dict[str, Any]], key: StoreKey, identity: bytes, name: str) -> bytes:
    """What the data keys are encrypted with. Raises WrongKey, InvalidTag."""
    kind = "recovery" if key.recovery else "owner"
    for slot in slots:
        if slot["kind"] != kind or (not key.recovery and slot["id"] != key.id):
            continue
        try:
            if not key.recovery:
                return _unlocked(_owner_secret(key, identity), slot["wrapped"], identity)
            ephemeral = _bytes(slot["ephemeral"])
            public = key.private.public_key().public_bytes_raw()
            shared = key.private.exchange(X25519PublicKey.from_public_bytes(ephemeral))
            secret = _recovery_secret(shared, key.shared, ephemeral + public)
            return _unlocked(secret, slot["wrapped"], identity)
        except InvalidTag:
            continue
    theirs = ", ".join(str(slot.get("id")) for slot in slots if slot["kind"] == "owner") or "none"
    what = "this recovery key" if key.recovery else f"key {key.id}"
    raise WrongKey(
        f"the block store of {name} cannot be opened with {what}",
        f"it is encrypted for key {theirs}, and for a recovery key",
        "give the right key by encryption-key=; with the recovery key in that file it can be opened, too",
    )


def _owner_secret(key: StoreKey, identity: bytes) -> bytes:
    return derive_secret(key.secret, b"zvault block store owner\0" + identity)


def _owner_slot(key: StoreKey, identity: bytes, wrapping: bytes) -> dict[str, Any]:
    return {
        "kind": "owner",
        "id": key.id,
        "wrapped": _locked(_owner_secret(key, identity), wrapping, identity),
    }


def _recovery_slot(ring: Keyring, identity: bytes, wrapping: bytes) -> dict[str, Any]:
    ephemeral = X25519PrivateKey.generate()
    mine = ephemeral.public_key().public_bytes_raw()
    shared = ephemeral.exchange(X25519PublicKey.from_public_bytes(ring.public))
    secret = _recovery_secret(shared, ring.shared, mine + ring.public)
    return {
        "kind": "recovery",
        "public": _text(ring.public),
        "ephemeral": _text(mine),
        "wrapped": _locked(secret, wrapping, identity),
    }


def _recovery_secret(exchanged: bytes, shared: bytes, publics: bytes) -> bytes:
    return derive_secret(exchanged + shared, b"zvault block store recovery\0" + publics)


def _open_part(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def _locked(secret: bytes, data: bytes, bound: bytes) -> str:
    nonce = os.urandom(_NONCE)
    return _text(nonce + AESGCM(secret).encrypt(nonce, data, bound))


def _unlocked(secret: bytes, text: str, bound: bytes) -> bytes:
    data = _bytes(text)
    return AESGCM(secret).decrypt(data[:_NONCE], data[_NONCE:], bound)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


_LOST = "bring it back from a version that the bucket keeps, or from its copy, PREFIX/keys"
