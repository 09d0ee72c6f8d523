"""An object store in which everything below a block store's prefix is encrypted and authenticated.

Whoever uses it sees objects as those of version 1: their bytes, sizes and ranges. Names stay as they are, and so do the
number, sizes and times of objects and requests.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from zvault.blockstore.encryption.keyring import Keyring
from zvault.blockstore.encryption.pieces import (
    PLAIN_PIECE_SIZE,
    STORED_PIECE_SIZE,
    UPDATE_INTO_SLACK,
    NotAuthentic,
    compute_plain_size,
    compute_stored_size,
    decrypt_or_noise,
    decrypt_pieces,
    encrypt_object,
    make_not_authentic_error,
)
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.blockstore.format import ObjectDamaged, Superblock, make_keyring_key, make_superblock_key
from zvault.core.errors import Refused
from zvault.core.policy.object_lock import LockMode
from zvault.object_store.interface import (
    SMALL_OBJECT,
    Buffer,
    ListedObject,
    ListedVersion,
    ObjectMissing,
    ObjectStore,
    ObjectTooLarge,
    split_version,
)

KEY_LOOK_INTERVAL = 5.0
"""Seconds between two looks for a data key that is not known."""
MOST_TOLD = 100
"""Objects that are told of; whoever forges more of them needs no more words."""
KEPT_FROM = 1 << 20
"""Bytes of an object from which on the memory that it was encrypted into is kept for the next one."""
SPARE_CIPHER_BUFFERS = 2
"""So many are kept: two of four uploads are hardly ever between two objects at once."""


class StoreKeyring:
    """The keys of a store; read when they are first needed. Safe for threads."""

    def __init__(self, prefix: str, key: StoreKey, say: Callable[[str], None] = lambda _: None) -> None:
        """``say`` is told of objects that are not authentic, once of each."""
        self.prefix, self.key, self.say = prefix, key, say
        self.told: set[str] = set()
        self.made: StoreKey | None = None
        """The recovery key of a store that was made here: to be shown, once."""
        self._ring: Keyring | None = None
        self._lock = threading.Lock()
        self._looked = -KEY_LOOK_INTERVAL

    def ring(self, store: ObjectStore) -> Keyring:
        """The keys. Raises WrongKey, Refused, ObjectDamaged, ObjectMissing where there is no store, StoreError."""
        with self._lock:
            if self._ring is None:
                self._ring = self._read(store)
            return self._ring

    def again(self, store: ObjectStore, known: Keyring) -> Keyring:
        """The same, read anew unless that was done since ``known``, or a moment ago: forged ids cost little."""
        with self._lock:
            if self._ring is known and time.monotonic() - self._looked > KEY_LOOK_INTERVAL:
                self._looked = time.monotonic()
                self._ring = self._read(store)
            return self._ring or known

    def set(self, ring: Keyring) -> None:
        """They are these from now on."""
        with self._lock:
            self._ring = ring

    def there(self, store: ObjectStore) -> Keyring | None:
        """The keys of the store that is there, also where only their copy is left; None where there are none."""
        try:
            return self.ring(store)
        except ObjectMissing:
            return None

    def _read(self, store: ObjectStore) -> Keyring:
        name = make_superblock_key(self.prefix)
        try:
            return Keyring.of_bytes(store.read(name)[0], self.key, name)
        except (ObjectDamaged, ObjectMissing) as error:
            copy = make_keyring_key(self.prefix)
            try:
                return Keyring.of_bytes(store.read(copy)[0], self.key, copy)
            except (ObjectDamaged, ObjectMissing):
                raise error from None


class EncryptedStore:
    """An ObjectStore over another one. Raises besides what that raises NotAuthentic, WrongKey, Refused."""

    def __init__(self, store: ObjectStore, keys: StoreKeyring) -> None:
        """Asks nothing yet."""
        self._store, self.keys = store, keys
        self._first = make_superblock_key(keys.prefix)
        self._bare = (self._first, make_keyring_key(keys.prefix))
        """What has the keys, and is no encrypted object itself."""
        self._spare: list[bytearray] = []

    def over(self, store: ObjectStore) -> EncryptedStore:
        """The same with the same keys, by another way to the store."""
        return EncryptedStore(store, self.keys)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See ObjectStore. Pieces that are not authentic are noise, and told: whoever gets ranges verifies them."""
        if length == 0:
            return self._store.get(key, 0, 0)
        if start == 0 and length is None:
            return self._pieces(key, self._store.get(key), 0)
        first = start // PLAIN_PIECE_SIZE
        count = None if length is None else (start + length - 1) // PLAIN_PIECE_SIZE + 1 - first
        data = self._store.get(
            key, first * STORED_PIECE_SIZE, None if count is None else count * STORED_PIECE_SIZE
        )
        begin = start - first * PLAIN_PIECE_SIZE
        found = self._pieces(key, data, first)
        return found[begin:] if length is None else found[begin : begin + length]

    def tail(self, key: str, length: int) -> tuple[bytes, int]:
        """See ObjectStore. Asks for one piece, and once more where that is not enough."""
        data, stored = self._store.tail(key, STORED_PIECE_SIZE)
        pieces, size = max(1, -(-stored // STORED_PIECE_SIZE)), compute_plain_size(stored)
        last = stored - (pieces - 1) * STORED_PIECE_SIZE
        found = self._end(key, data[len(data) - last :], pieces - 1)
        wanted = min(length, size)
        if len(found) < wanted:
            first = (size - wanted) // PLAIN_PIECE_SIZE
            found = self._end(key, self._store.get(key, first * STORED_PIECE_SIZE), first)
            if len(found) < wanted:
                raise make_not_authentic_error(key, "it changed while it was read")
        return found[len(found) - wanted :], size

    def read(self, key: str, most: int = SMALL_OBJECT) -> tuple[bytes, str]:
        if split_version(key)[0] == self._first:
            data, etag = self._store.read(key)
            ring = Keyring.of_bytes(data, self.keys.key, split_version(key)[0])
            self.keys.set(ring)
            return ring.first, etag
        data, etag = self._store.read(key, compute_stored_size(most))
        found = self._end(key, data, 0)
        if len(found) > most:
            raise ObjectTooLarge(f"{key} is not what was put there", f"it has {len(found)} bytes", "")
        return found, etag

    def put(self, key: str, data: Buffer, condition: str | None = None) -> str:
        if key == self._first:
            return self._put_first(bytes(data), condition)
        newest, size = (
            self.ring().data[-1],
            compute_stored_size(len(memoryview(data).cast("B"))) + UPDATE_INTO_SLACK,
        )
        memory = self._memory(size) if size > KEPT_FROM else None
        try:
            body = encrypt_object(data, (newest.id, newest.secret), self._bound(key), memory)
            return self._store.put(key, body, condition)
        finally:
            if memory is not None and len(self._spare) < SPARE_CIPHER_BUFFERS:
                self._spare.append(memory)

    def _memory(self, size: int) -> bytearray:
        """Memory for an object that is being put, where it can be of one before."""
        with contextlib.suppress(IndexError):
            if len(memory := self._spare.pop()) >= size:
                return memory
        return bytearray(size)

    def list(self, prefix: str, after: str = "") -> Iterator[ListedObject]:
        """See ObjectStore. Sizes are of what objects hold, if they are whole."""
        for found in self._store.list(prefix, after):
            yield (
                found if found.key in self._bare else ListedObject(found.key, compute_plain_size(found.size))
            )

    def delete(self, keys: Sequence[str]) -> None:
        self._store.delete(keys)

    def versions(self, prefix: str, after: str = "") -> Iterator[ListedVersion]:
        """See ObjectStore. Sizes are as those of ``list``; ETags are of what is stored."""
        for found in self._store.versions(prefix, after):
            bare = found.marker or found.key in self._bare
            yield found if bare else replace(found, size=compute_plain_size(found.size))

    def retain(self, key: str, version: str, mode: LockMode, until: float) -> None:
        self._store.retain(key, version, mode, until)

    def delete_versions(self, versions: Sequence[ListedVersion]) -> Sequence[ListedVersion]:
        return self._store.delete_versions(versions)

    def ring(self) -> Keyring:
        """Its keys. Raises as StoreKeyring.ring."""
        return self.keys.ring(self._store)

    def keep_copy(self) -> None:
        """See to it that the copy of the store's keys is what its first object is. Raises StoreError."""
        data, name = self._store.read(self._first)[0], make_keyring_key(self.keys.prefix)
        try:
            if self._store.read(name)[0] == data:
                return
        except (ObjectMissing, ObjectTooLarge):
            pass
        self._store.put(name, data)

    def rotate(self, recovery: StoreKey | None, key: StoreKey | None, now: float) -> Keyring:
        """Encrypt with a new data key what is put from now on.

        ``recovery``: a new recovery key; ``key``: a new key of the owner's, by which alone the store is opened then.
        What is there stays as it is. Raises PreconditionFailed where somebody else did so meanwhile.
        """
        data, etag = self._store.read(self._first)
        ring = Keyring.of_bytes(data, self.keys.key, self._first).rotate(now, recovery)
        self._store.put(self._first, ring.as_bytes(key or self.keys.key), etag)
        self.keep_copy()
        self.keys.key = key or self.keys.key
        self.keys.set(ring)
        return ring

    def _put_first(self, data: bytes, condition: str | None) -> str:
        """Make the store, or its first object anew."""
        ring, made = self.keys.there(self._store), None
        if ring is None:
            made = StoreKey.new_recovery()
            ring = Keyring.new(data, made, time.time())
        elif ring.identity != Superblock.of_bytes(data).identity:
            what = f"{make_keyring_key(self.keys.prefix)} has the keys of another store"
            raise Refused(
                what, "a store that is made has keys of its own", "choose another key, or remove it"
            )
        else:
            ring = replace(ring, first=data)
        etag = self._store.put(self._first, ring.as_bytes(self.keys.key), condition)
        self.keys.set(ring)
        self.keys.made = made or self.keys.made
        self.keep_copy()
        return etag

    def _end(self, key: str, data: Buffer, first: int) -> bytes:
        return decrypt_pieces(data, first, lambda name: self._data_key(name, key), self._bound(key), key)

    def _pieces(self, key: str, data: Buffer, first: int) -> bytes:
        of = self._bound(key)
        return decrypt_or_noise(data, first, lambda name: self._data_key(name, key), of, key, self._tell)

    def _tell(self, error: NotAuthentic) -> None:
        if error.what not in self.keys.told and len(self.keys.told) < MOST_TOLD:
            self.keys.told.add(error.what)
            self.keys.say(f"{error.what}: {error.why}")

    def _data_key(self, name: bytes, key: str) -> bytes:
        """A data key's secret: one that is not known may be new. Raises NotAuthentic, StoreError."""
        ring = self.ring()
        for again in (False, True):
            if again:
                ring = self.keys.again(self._store, ring)
            for one in ring.data:
                if one.id == name:
                    return one.secret
        why = f"it is encrypted with data key {name.hex()}, which the store's first object does not have"
        raise make_not_authentic_error(key, f"{why}: it is an older one, or this object is forged")

    def _bound(self, key: str) -> bytes:
        ring = self.ring()
        name, _ = split_version(key)
        return ring.identity + name.removeprefix(f"{self.keys.prefix}/").encode()
