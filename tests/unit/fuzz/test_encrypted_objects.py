"""Objects of an encrypted store, and the first one with its keys, as a bucket gives them back."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from zvault.blockstore.encryption.keyring import Keyring
from zvault.blockstore.encryption.pieces import NotAuthentic, decrypt_or_noise, decrypt_pieces, encrypt_object
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.core.errors import ZvaultError

KEY, RECOVERY = StoreKey(bytes(range(32))), StoreKey(bytes(32), recovery=True)
RING = Keyring.new(seed("segments", "superblock"), RECOVERY, 0.0)
FIRST = RING.rotate(1.0).as_bytes(KEY)
NEWEST = RING.data[-1]
OBJECTS = [
    encrypt_object(data, (NEWEST.id, NEWEST.secret), b"bound") for data in (b"", b"small", bytes(70_000))
]


def secret(name: bytes) -> bytes:
    if name != NEWEST.id:
        raise NotAuthentic("v", "no such key", "")
    return NEWEST.secret


def test_the_seeds_are_read() -> None:
    for key in (KEY, RECOVERY):
        assert Keyring.of_bytes(FIRST, key, "v/store").first == RING.first
    assert [len(decrypt_pieces(one, 0, secret, b"bound", "v")) for one in OBJECTS] == [0, 5, 70_000]


@target(mutated([FIRST]), ZvaultError, cap=4 * MIB)
def test_first_objects(data: bytes) -> None:
    """By its owner's key, and by the recovery key."""
    Keyring.of_bytes(data, KEY, "v/store")
    Keyring.of_bytes(data, RECOVERY, "v/store")


@target(
    st.dictionaries(
        st.sampled_from(["version", "uuid", "slots", "keys", "generation"]),
        st.recursive(
            st.none() | st.integers() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
    ),
    ZvaultError,
    cap=4 * MIB,
)
def test_first_objects_of_other_forms(parts: dict[str, object]) -> None:
    """JSON that has something else in the place of what should be there."""
    Keyring.of_bytes(json.dumps(json.loads(FIRST) | parts).encode(), KEY, "v/store")


@target(mutated(OBJECTS), NotAuthentic, cap=4 * MIB)
def test_objects(data: bytes) -> None:
    """Whole, which must be authentic, and in parts, where noise stands for what is not."""
    found = decrypt_or_noise(data, 0, secret, b"bound", "v", lambda _: None)
    assert len(found) <= len(data)
    decrypt_pieces(data, 0, secret, b"bound", "v")
    assert data in OBJECTS
