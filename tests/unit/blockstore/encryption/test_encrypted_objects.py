"""Objects of an encrypted store: read as they were put, by any range; and refused when anybody else touched them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.object_store.memory_store import MemoryStore
from zvault.blockstore.encryption.encrypted_store import EncryptedStore, StoreKeyring
from zvault.blockstore.encryption.keyring import WrongKey
from zvault.blockstore.encryption.pieces import (
    PIECE_OVERHEAD,
    PLAIN_PIECE_SIZE,
    STORED_PIECE_SIZE,
    NotAuthentic,
    compute_plain_size,
    compute_stored_size,
)
from zvault.blockstore.encryption.store_key import StoreKey
from zvault.blockstore.format import BLOCK_SIZE, Superblock
from zvault.blockstore.recovery import create_store, read_superblock
from zvault.core.errors import ConfigError, Refused
from zvault.object_store.interface import ListedObject, ObjectDamaged, ObjectStore, ObjectTooLarge

KEY = StoreKey(bytes(range(32)))
OTHER = StoreKey(bytes(range(1, 33)))
SIZES = st.sampled_from(
    [
        0,
        1,
        100,
        PLAIN_PIECE_SIZE - 1,
        PLAIN_PIECE_SIZE,
        PLAIN_PIECE_SIZE + 1,
        2 * PLAIN_PIECE_SIZE,
        2 * PLAIN_PIECE_SIZE + 7,
        3 * PLAIN_PIECE_SIZE,
    ]
)
NAME = "v/segments/0000000001-00000001"


def encrypted(
    bare: ObjectStore, key: StoreKey = KEY, said: list[str] | None = None, prefix: str = "v"
) -> EncryptedStore:
    return EncryptedStore(bare, StoreKeyring(prefix, key, (said if said is not None else []).append))


def is_noise(found: bytes, true: bytes) -> bool:
    """Whether it is not what it should be; of a few bytes noise may be that by chance."""
    return found != true or len(true) < 16


def refused(bare: MemoryStore, name: str, true: bytes, *, start: int = 0, every: bool = True) -> str:
    """That an object is not read as what somebody else made of it; why."""
    said: list[str] = []
    store = encrypted(bare, KEY, said)
    found = store.get(name, start, PLAIN_PIECE_SIZE)
    assert is_noise(found, true[start : start + PLAIN_PIECE_SIZE])
    reads: list[Callable[[], object]] = [lambda: store.read(name, 5 * PLAIN_PIECE_SIZE)]
    for read in (*reads, lambda: store.tail(name, 5 * PLAIN_PIECE_SIZE)) if every else reads:
        with pytest.raises(NotAuthentic, match=re.escape(name)) as error:
            read()
    return error.value.why


def made(size: int = 1 << 30) -> tuple[MemoryStore, EncryptedStore]:
    bare = MemoryStore()
    store = encrypted(bare)
    create_store(store, "v", size)
    return bare, encrypted(bare)


BARE, STORE = made()


def data_of(size: int, tag: int = 0) -> bytes:
    at = np.arange(size, dtype=np.int64)
    return ((at * 31 + at // 251 + tag) % 256).astype(np.uint8).tobytes()


DATA = {
    size: data_of(size)
    for size in (
        0,
        1,
        100,
        PLAIN_PIECE_SIZE - 1,
        PLAIN_PIECE_SIZE,
        PLAIN_PIECE_SIZE + 1,
        2 * PLAIN_PIECE_SIZE,
        2 * PLAIN_PIECE_SIZE + 7,
    )
}
DATA[3 * PLAIN_PIECE_SIZE] = data_of(3 * PLAIN_PIECE_SIZE)


@given(
    SIZES, st.integers(0, 4 * PLAIN_PIECE_SIZE), st.one_of(st.none(), st.integers(0, 4 * PLAIN_PIECE_SIZE))
)
@settings(deadline=None, max_examples=cases(60))
def test_any_range_reads_as_from_a_store_that_is_not_encrypted(
    size: int, start: int, length: int | None
) -> None:
    plain, data = MemoryStore(), DATA[size]
    plain.put(NAME, data)
    STORE.put(NAME, memoryview(data))
    assert STORE.get(NAME, start, length) == plain.get(NAME, start, length)
    assert STORE.tail(NAME, start) == plain.tail(NAME, start)
    assert STORE.read(NAME, 4 * PLAIN_PIECE_SIZE)[0] == data
    assert list(STORE.list("v/segments/")) == [ListedObject(NAME, size)]
    assert compute_stored_size(size) == len(BARE.objects[NAME])
    assert compute_plain_size(compute_stored_size(size)) == size


def test_nothing_that_is_put_can_be_read_in_the_bucket() -> None:
    bare, store = made()
    marker = b"a marker that nobody else writes"
    store.put(NAME, marker * 3000)
    assert marker not in b"".join(bare.objects.values())
    first = bare.objects[NAME]
    store.put(NAME, marker * 3000)
    assert bare.objects[NAME] != first
    assert len(first) - 3000 * len(marker) == 2 * PIECE_OVERHEAD


def test_two_puts_share_no_key_and_nonce() -> None:
    bare, store = made()
    for number in range(50):
        store.put(f"v/maps/{number:010x}-00000001", bytes(16))
    found = [data[PIECE_OVERHEAD - 16 : -16] for key, data in bare.objects.items() if "/maps/" in key]
    assert len(set(found)) == 50


@given(SIZES.filter(bool), st.data())
@settings(deadline=None, max_examples=cases(60))
def test_a_changed_byte_is_refused(size: int, data: st.DataObject) -> None:
    STORE.put(NAME, DATA[size])
    whole = bytearray(BARE.objects[NAME])
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    BARE.objects[NAME] = bytes(whole)
    said: list[str] = []
    store, piece = encrypted(BARE, KEY, said), at // STORED_PIECE_SIZE * PLAIN_PIECE_SIZE
    found = store.get(NAME)
    assert is_noise(found[piece : piece + PLAIN_PIECE_SIZE], DATA[size][piece : piece + PLAIN_PIECE_SIZE])
    assert (found[:piece], found[piece + PLAIN_PIECE_SIZE :]) == (
        DATA[size][:piece],
        DATA[size][piece + PLAIN_PIECE_SIZE :],
    )
    assert len(said) == 1
    assert NAME in said[0]
    refused(BARE, NAME, DATA[size], start=piece)


@given(SIZES.filter(bool), st.data())
@settings(deadline=None, max_examples=cases(60))
def test_an_object_that_was_cut_off_is_refused(size: int, data: st.DataObject) -> None:
    STORE.put(NAME, DATA[size])
    whole = BARE.objects[NAME]
    left = data.draw(
        st.one_of(
            st.integers(0, len(whole) - 1), st.just(len(whole) // STORED_PIECE_SIZE * STORED_PIECE_SIZE)
        )
    )
    if left == len(whole):
        return
    BARE.objects[NAME] = whole[:left]
    assert STORE.get(NAME) != DATA[size]
    for read in (lambda: STORE.read(NAME, 4 * PLAIN_PIECE_SIZE), lambda: STORE.tail(NAME, 10)):
        with pytest.raises(NotAuthentic):
            read()


@pytest.mark.parametrize(
    "other",
    [
        "v/segments/0000000002-00000001",
        "v/segments/0000000001-00000002",
        "v/maps/0000000001-00000001",
        "v/epoch",
    ],
    ids=["sequence", "epoch", "kind", "name"],
)
def test_an_object_under_another_name_is_refused(other: str) -> None:
    bare, store = made()
    store.put(NAME, DATA[100])
    bare.objects[other] = bare.objects[NAME]
    assert "tag" in refused(bare, other, DATA[100])


def test_an_object_of_another_store_with_the_same_key_is_refused() -> None:
    (bare, store), (theirs, other) = made(), made()
    other.put(NAME, DATA[100])
    store.put(NAME, DATA[1])
    bare.objects[NAME] = theirs.objects[NAME]
    refused(bare, NAME, DATA[100])
    assert other.get(NAME) == DATA[100]


@pytest.mark.parametrize("order", [[1, 0, 2], [0, 0, 2], [0, 2], [0, 1, 2, 2], [1, 2]])
def test_pieces_in_another_order_are_refused(order: list[int]) -> None:
    bare, store = made()
    store.put(NAME, DATA[2 * PLAIN_PIECE_SIZE + 7])
    whole = bare.objects[NAME]
    pieces = [whole[at : at + STORED_PIECE_SIZE] for at in range(0, len(whole), STORED_PIECE_SIZE)]
    bare.objects[NAME] = b"".join(pieces[at] for at in order)
    assert store.get(NAME) != DATA[2 * PLAIN_PIECE_SIZE + 7]
    with pytest.raises(NotAuthentic, match=re.escape(NAME)):
        store.read(NAME, 5 * PLAIN_PIECE_SIZE)


def test_pieces_of_two_puts_of_one_name_are_refused() -> None:
    bare, store = made()
    store.put(NAME, DATA[2 * PLAIN_PIECE_SIZE])
    before = bare.objects[NAME]
    store.put(NAME, data_of(2 * PLAIN_PIECE_SIZE, 9))
    bare.objects[NAME] = before[:STORED_PIECE_SIZE] + bare.objects[NAME][STORED_PIECE_SIZE:]
    assert store.get(NAME) not in (DATA[2 * PLAIN_PIECE_SIZE], data_of(2 * PLAIN_PIECE_SIZE, 9))
    with pytest.raises(NotAuthentic, match="not put together"):
        store.read(NAME, 5 * PLAIN_PIECE_SIZE)


def test_what_is_not_encrypted_is_refused() -> None:
    bare, store = made()
    bare.objects[NAME] = DATA[PLAIN_PIECE_SIZE]
    assert "not encrypted" in refused(bare, NAME, DATA[PLAIN_PIECE_SIZE])
    assert store.get(NAME, 5, 50) != DATA[PLAIN_PIECE_SIZE][5:55]


def test_an_object_that_is_larger_than_it_can_be_is_not_read() -> None:
    _, store = made()
    store.put(NAME, DATA[100])
    assert store.read(NAME, 100)[0] == DATA[100]
    with pytest.raises(ObjectTooLarge):
        store.read(NAME, 99)


# The keys


def test_the_wrong_key_is_refused_and_names_the_right_one() -> None:
    bare, _ = made()
    with pytest.raises(WrongKey, match=KEY.id) as error:
        read_superblock(encrypted(bare, OTHER), "v")
    assert OTHER.id in str(error.value)
    assert KEY.secret.hex() not in str(error.value)


def test_without_a_key_it_is_no_store_that_can_be_opened() -> None:
    bare, _ = made()
    with pytest.raises(Refused, match="encrypted") as error:
        read_superblock(bare, "v")
    assert "encryption-key=" in error.value.next


def test_a_key_for_a_store_that_is_not_encrypted_is_refused() -> None:
    bare = MemoryStore()
    create_store(bare, "v", 1 << 30)
    with pytest.raises(Refused, match="not encrypted"):
        read_superblock(encrypted(bare), "v")


def test_a_new_data_key_leaves_what_is_there_readable() -> None:
    bare, store = made()
    store.put(NAME, DATA[100])
    before = bare.objects[NAME]
    old = encrypted(bare)
    assert old.get(NAME) == DATA[100]
    store.rotate(None, None, 5.0)
    store.put("v/maps/1", DATA[1])
    assert bare.objects[NAME] == before
    assert bare.objects["v/maps/1"][4:8] != before[4:8]
    for one in (encrypted(bare), old):  # old: one that runs reads the keys again when it meets the new one
        assert (one.get(NAME), one.get("v/maps/1")) == (DATA[100], DATA[1])


def test_another_owners_key_opens_it_alone() -> None:
    bare, store = made()
    store.put(NAME, DATA[100])
    before = bare.objects["v/store"]
    store.rotate(None, OTHER, 5.0)
    assert encrypted(bare, OTHER).get(NAME) == DATA[100]
    with pytest.raises(WrongKey):
        encrypted(bare).get(NAME)
    bare.objects["v/store"] = bare.objects["v/keys"] = before
    with pytest.raises(WrongKey):
        encrypted(bare, OTHER).get(NAME)


def test_the_recovery_key_opens_it_also_after_the_keys_were_changed() -> None:
    bare = MemoryStore()
    store = encrypted(bare)
    create_store(store, "v", 1 << 30)
    assert store.keys.made is not None
    written_down = store.keys.made.text
    store.put(NAME, DATA[100])
    encrypted(bare).rotate(None, OTHER, 5.0)
    encrypted(bare, OTHER).put("v/maps/1", DATA[1])
    recovery = StoreKey.parse(written_down.lower().encode() + b"\n", "there")
    found = encrypted(bare, recovery)
    assert (found.get(NAME), found.get("v/maps/1")) == (DATA[100], DATA[1])
    again = StoreKey.new_recovery()
    encrypted(bare, OTHER).rotate(again, None, 6.0)
    with pytest.raises(WrongKey):
        encrypted(bare, recovery).get(NAME)
    assert encrypted(bare, again).get(NAME) == DATA[100]


def test_what_is_put_with_an_older_first_object_is_told() -> None:
    bare, store = made()
    before = dict(bare.objects)
    store.rotate(None, None, 5.0)
    store.put(NAME, DATA[100])
    bare.objects |= before
    assert "older" in refused(bare, NAME, DATA[100])


def test_nothing_of_the_first_object_can_be_changed() -> None:
    bare, _ = made()
    document = json.loads(bare.objects["v/store"])
    forged: list[dict[str, object]] = [
        document | {"size": document["size"] * 2},
        document | {"generation": 7},
        document | {"slots": document["slots"][:1]},
        document | {"uuid": "00" * 16},
        document | {"keys": document["keys"][:-8] + "AAAAAAA="},
    ]
    for one in forged:
        bare.objects["v/store"] = bare.objects["v/keys"] = json.dumps(one).encode()
        with pytest.raises((ObjectDamaged, WrongKey)):
            read_superblock(encrypted(bare), "v")


def test_whoever_reads_the_bucket_can_make_no_store_for_the_recovery_key() -> None:
    bare = MemoryStore()
    store = encrypted(bare)
    create_store(store, "v", 1 << 30)
    recovery = store.keys.made
    assert recovery is not None
    forged = MemoryStore()
    other = encrypted(forged, OTHER)
    forged.objects = dict(bare.objects)
    # Its public key is there to be read, so a store for it can be put; what it was made with is not.
    mine = StoreKey.new_recovery()
    del forged.objects["v/store"], forged.objects["v/keys"]
    create_store(other, "v", 1 << 30)
    ring = other.ring()
    public = recovery.private.public_key().public_bytes_raw()
    forged.objects["v/store"] = replace(ring, public=public, shared=mine.shared).as_bytes(OTHER)
    forged.objects["v/keys"] = forged.objects["v/store"]
    with pytest.raises(WrongKey):
        read_superblock(encrypted(forged, recovery), "v")


@pytest.mark.parametrize("lost", ["missing", "damaged"])
def test_a_lost_first_object_is_made_good_by_its_copy(lost: str) -> None:
    bare, store = made()
    store.put(NAME, DATA[100])
    what = read_superblock(store, "v")
    if lost == "missing":
        del bare.objects["v/store"]
    else:
        bare.objects["v/store"] = b"{"
    again = encrypted(bare)
    assert again.get(NAME) == DATA[100]
    again.put("v/store", what.as_bytes())
    assert read_superblock(encrypted(bare), "v") == what
    assert encrypted(bare).get(NAME) == DATA[100]


def test_the_copy_is_kept() -> None:
    bare, store = made()
    assert bare.objects["v/keys"] == bare.objects["v/store"]
    bare.objects["v/keys"] = b"else"
    store.keep_copy()
    assert bare.objects["v/keys"] == bare.objects["v/store"]


def test_a_store_is_not_made_over_the_keys_of_another() -> None:
    bare, store = made()
    del bare.objects["v/store"]
    other = Superblock(1, "ab" * 16, 1 << 30, 0.0)
    with pytest.raises(Refused, match="another store"):
        store.put("v/store", other.as_bytes())


@pytest.mark.parametrize(
    "data", [KEY.secret, KEY.secret.hex().encode(), KEY.secret.hex().upper().encode() + b"\n"]
)
def test_forms_of_a_key(data: bytes) -> None:
    assert StoreKey.parse(data, "it") == KEY


@pytest.mark.parametrize(
    "data", [b"", b"x", b"12" * 20, b"g" * 64, b"zvault-recovery-abc", bytes(33), b"\xff" * 64]
)
def test_no_keys(data: bytes) -> None:
    with pytest.raises(ConfigError, match="it") as error:
        StoreKey.parse(data, "it")
    assert "g" * 64 not in str(error.value)


@given(st.binary(min_size=32, max_size=32), st.integers(0, 100), st.sampled_from("abcdefghijklmnop234567"))
def test_a_recovery_key_that_was_copied_wrongly_is_told(secret: bytes, at: int, letter: str) -> None:
    text = StoreKey(secret, recovery=True).text
    assert StoreKey.parse(text.encode(), "it") == StoreKey(secret, recovery=True)
    head = len("zvault-recovery-")
    at = head + at % (len(text) - head)
    wrong = text[:at] + letter + text[at + 1 :]
    if wrong.lower() == text.lower() or text[at] == "-":
        return
    with pytest.raises(ConfigError):
        StoreKey.parse(wrong.encode(), "it")


def test_no_key_shows_in_a_repr() -> None:
    _, store = made()
    ring = store.ring()
    shown = repr(ring) + repr(KEY) + repr(ring.data[0])
    assert KEY.secret.hex() not in shown
    assert repr(ring.data[0].secret) not in shown
    assert BLOCK_SIZE == 4096
