"""How an encrypted object looks: pieces of a fixed size, each encrypted by itself, so that ranges can be read.

A piece is a head of 24 bytes (magic, 1 if it is the last one, the data key's id, the object's salt), the ciphertext of
PIECE bytes or, of the last one, of what is left, and a tag of 16 bytes: AES-256-GCM. The key is the object's own: HKDF
of the data key with a salt that is drawn anew for each put, and with the store's uuid and the object's name, which has
its epoch and sequence. The nonce counts the pieces and says which is the last, as in the STREAM construction (Hoang,
Reyhanitabar, Rogaway, Vizár: Online Authenticated-Encryption and its Nonce-Reuse Misuse-Resistance, 2015). So no nonce
is used twice with a key, whatever crashes or is put again; and pieces that were moved, left out, cut off or taken from
another object, store or put do not pass.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from zvault.blockstore.format import CHUNK_SLOTS, SLOT_SIZE, ObjectDamaged
from zvault.object_store.interface import Buffer

PLAIN_PIECE_SIZE = CHUNK_SLOTS * SLOT_SIZE
"""Bytes that are encrypted together: what is read at once of a segment, so random reads fetch no more than before."""
_HEAD = struct.Struct("<3sB4s16s")
_MAGIC = b"zv2"
_NONCE = struct.Struct("<QI")
_TAG = 16
KEY_ID_SIZE = 4
"""Bytes of a data key's id."""
PIECE_OVERHEAD = _HEAD.size + _TAG
"""Bytes that a piece has beside what it holds."""
STORED_PIECE_SIZE = PLAIN_PIECE_SIZE + PIECE_OVERHEAD
"""Bytes of a whole piece."""
UPDATE_INTO_SLACK = 15
"""Bytes that ``update_into`` wants behind what it writes: a block less one."""


class NotAuthentic(ObjectDamaged):
    """An object is not what a holder of the key put under this name."""

    reason = "not-authentic"


KeyOf = Callable[[bytes], bytes]
"""The data key of an id. Raises NotAuthentic."""


def compute_stored_size(size: int) -> int:
    """Bytes of the object that holds so many."""
    return size + PIECE_OVERHEAD * max(1, -(-size // PLAIN_PIECE_SIZE))


def compute_plain_size(stored: int) -> int:
    """Bytes that an object of this size holds, if it is whole; at least 0."""
    return max(0, stored - PIECE_OVERHEAD * -(-stored // STORED_PIECE_SIZE))


def derive_secret(secret: bytes, purpose: bytes, salt: bytes | None = None) -> bytes:
    """32 bytes for one purpose, of a secret."""
    return HKDF(SHA256(), 32, salt, purpose).derive(secret)


@lru_cache(maxsize=4096)
def _key(secret: bytes, salt: bytes, bound: bytes) -> AES:
    return AES(derive_secret(secret, b"zvault block store object\0" + bound, salt))


def encrypt_object(
    data: Buffer, key: tuple[bytes, bytes], bound: bytes, into: bytearray | None = None
) -> Buffer:
    """An object's bytes. ``key``: id and secret of a data key; ``bound``: the store's uuid, and the object's name.

    ``into``: memory for it, of ``compute_stored_size`` and SLACK bytes at least: memory that is new costs more than
    encrypting.
    """
    view, salt = memoryview(data).cast("B"), os.urandom(16)
    cipher, last = _key(key[1], salt, bound), max(0, -(-len(view) // PLAIN_PIECE_SIZE) - 1)
    size = compute_stored_size(len(view))
    out = memoryview(into if into is not None else bytearray(size + UPDATE_INTO_SLACK))
    at = 0
    for number in range(last + 1):
        head = _HEAD.pack(_MAGIC, number == last, key[0], salt)
        one = Cipher(cipher, GCM(_NONCE.pack(number, number == last))).encryptor()
        one.authenticate_additional_data(head + bound)
        out[at : at + _HEAD.size] = head
        at += _HEAD.size
        at += one.update_into(view[number * PLAIN_PIECE_SIZE : (number + 1) * PLAIN_PIECE_SIZE], out[at:])
        one.finalize()
        out[at : at + _TAG] = one.tag
        at += _TAG
    return out[:size] if into is not None else bytes(out[:size])


def decrypt_pieces(data: Buffer, first: int, key_of: KeyOf, bound: bytes, name: str) -> bytes:
    """Decrypt an object's last pieces, from the one of number ``first`` on, and to its end. Raises NotAuthentic."""
    found, ended = _every(data, first, key_of, bound, name, None)
    if not ended:
        raise make_not_authentic_error(name, "it is cut off")
    return found


def decrypt_or_noise(
    data: Buffer, first: int, key_of: KeyOf, bound: bytes, name: str, tell: Callable[[NotAuthentic], None]
) -> bytes:
    """Decrypt consecutive pieces, for whoever verifies what he reads in smaller parts.

    In the place of a piece that is not authentic there is noise, which matches no checksum: so what is wrong is found
    as any damage is, block by block, and the rest can be read.
    """
    return _every(data, first, key_of, bound, name, tell)[0]


def _every(
    data: Buffer,
    first: int,
    key_of: KeyOf,
    bound: bytes,
    name: str,
    tell: Callable[[NotAuthentic], None] | None,
) -> tuple[bytes, bool]:
    view = memoryview(data)
    size = sum(
        max(0, min(STORED_PIECE_SIZE, len(view) - at) - PIECE_OVERHEAD)
        for at in range(0, len(view), STORED_PIECE_SIZE)
    )
    whole = io.BytesIO()  # bytes that can be written into before they are given away
    whole.seek(size + UPDATE_INTO_SLACK - 1)
    whole.write(b"\0")
    put: bytes | None = None
    ended, done = False, 0
    with whole.getbuffer() as out:
        for number, at in enumerate(range(0, len(view), STORED_PIECE_SIZE), first):
            piece = view[at : at + STORED_PIECE_SIZE]
            holds = max(0, len(piece) - PIECE_OVERHEAD)
            try:
                if ended:
                    raise make_not_authentic_error(name, "more comes after its end")
                head = bytes(piece[: _HEAD.size])
                _piece(piece, head, number, key_of, bound, name, out[done:])
                put = put or head[4:]
                if put != head[4:]:
                    raise make_not_authentic_error(name, "it is made of pieces that were not put together")
                ended = bool(head[3])
            except NotAuthentic as error:
                if tell is None:
                    raise
                tell(error.with_traceback(None))  # which has slices of this memory
                out[done : done + holds] = os.urandom(holds)
            done += holds
    whole.truncate(size)
    return whole.getvalue(), ended


def _piece(
    piece: memoryview, head: bytes, number: int, key_of: KeyOf, bound: bytes, name: str, out: memoryview
) -> None:
    """Decrypt a piece into the beginning of ``out``. What is there counts only if this returns."""
    if len(piece) < PIECE_OVERHEAD or head[:3] != _MAGIC or head[3] > 1:
        raise make_not_authentic_error(name, "it is not encrypted, or cut off")
    if not head[3] and len(piece) < STORED_PIECE_SIZE:
        raise make_not_authentic_error(name, "it is cut off")
    secret = key_of(head[4 : 4 + KEY_ID_SIZE])
    mode = GCM(_NONCE.pack(number, head[3]), bytes(piece[-_TAG:]))
    one = Cipher(_key(secret, head[4 + KEY_ID_SIZE :], bound), mode).decryptor()
    one.authenticate_additional_data(head + bound)
    one.update_into(piece[_HEAD.size : -_TAG], out)
    try:
        one.finalize()
    except InvalidTag:
        raise make_not_authentic_error(name, "it does not match its authentication tag") from None


def make_not_authentic_error(name: str, why: str) -> NotAuthentic:
    """The error for an object."""
    return NotAuthentic(
        f"{name} is not what was put there under this name",
        why,
        "run 'zvaultctl blockstore check'; where the bucket keeps versions, bring back the right one",
    )
