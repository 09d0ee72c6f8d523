"""What is set on datasets and what streams brought, as libzfs reads it: by ctypes, for the helper process lzc_child.py.

libzfs_core has no call for it. ``zfs get all`` asks the kernel for version, utf8only, normalization and casesensitivity
of each dataset one by one, and, where no stream ever brought properties, once more for each property for which the
column ``received`` is to be empty (zfs_prop_get_recvd in libzfs_dataset.c): seen with 2.3.9, some 80 calls a dataset,
each of which opens it. Here there are two. What is read is what ``zfs send -p`` puts into a stream (send_iterate_prop
in libzfs_sendrecv.c): numbers as they are stored, and text byte for byte, so none can be taken for another.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from typing import Any

LIBZFS_NAMES = ("libzfs.so.7", "libzfs.so.6")
"""As OpenZFS 2.4 and 2.3 call it. The calls made here are the same in both; of others that is not known."""

PAIRS = "libnvpair.so.3"

TYPES = 1 | 2 | 4
"""ZFS_TYPE_FILESYSTEM, _SNAPSHOT and _VOLUME of ``zfs_type_t`` (sys/fs/zfs.h)."""

RECEIVED = b"$recvd"
"""The source of a property that is in force as a stream brought it (ZPROP_SOURCE_VAL_RECVD)."""

NO_SOURCE = frozenset({b"volsize"})
"""A property that has a value of its own and no source; ``zfs get`` calls it local."""

_place, _text, _count = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64


class UnreadableProperty(Exception):
    """A property of a dataset is not of a kind that is known here."""


class Libzfs:
    """Calls into the library. Raises OSError where it cannot be used."""

    def __init__(self) -> None:
        self._zfs, self._pairs = _first_of(LIBZFS_NAMES), ctypes.CDLL(PAIRS)
        zfs, pairs = self._zfs, self._pairs
        zfs.libzfs_init.restype = zfs.zfs_open.restype = _place
        zfs.zfs_open.argtypes = [_place, _text, ctypes.c_int]
        zfs.zfs_close.argtypes = [_place]
        for call in (zfs.zfs_get_all_props, zfs.zfs_get_recvd_props):
            call.restype, call.argtypes = _place, [_place]
        pairs.nvlist_next_nvpair.restype = _place
        pairs.nvlist_next_nvpair.argtypes = [_place, _place]
        pairs.nvpair_name.restype, pairs.nvpair_name.argtypes = _text, [_place]
        pairs.nvpair_value_nvlist.argtypes = [_place, ctypes.POINTER(_place)]
        pairs.nvlist_lookup_string.argtypes = [_place, _text, ctypes.POINTER(_text)]
        pairs.nvlist_lookup_uint64.argtypes = [_place, _text, ctypes.POINTER(_count)]
        self._handle = zfs.libzfs_init()
        if not self._handle:
            number = ctypes.get_errno() or errno.ENXIO
            raise OSError(number, os.strerror(number))

    def settings(self, name: str) -> dict[str, Any] | None:
        """Read the properties of a filesystem, volume or snapshot: ``set`` has by property the value and whether that
        came with a stream, ``received`` all that streams brought. None where that cannot be told.
        """
        opened = self._zfs.zfs_open(self._handle, name.encode(), TYPES)
        if not opened:
            return None
        try:
            ctypes.set_errno(0)
            brought = self._zfs.zfs_get_recvd_props(opened)
            if not brought and ctypes.get_errno() != errno.ENOTSUP:  # which says that no stream brought any
                return None
            all_of_it, own = self._zfs.zfs_get_all_props(opened), {name.encode(), RECEIVED}
            found = {
                _str(key): [self._value(of_it), source == RECEIVED]
                for key, of_it, source in self._properties(all_of_it)
                if source in own or (source is None and key in NO_SOURCE)
            }
            if not brought and any(received for _, received in found.values()):
                return None  # ENOTSUP is said of any failure, too (zfs_ioc_objset_recvd_props in zfs_ioctl.c)
            return {
                "set": found,
                # Values that cannot be stored as they are stand there with the dataset as their source ($iuv).
                "received": {
                    _str(key): self._value(of_it)
                    for key, of_it, source in self._properties(brought)
                    if source == RECEIVED
                },
            }
        except UnreadableProperty:
            return None
        finally:
            self._zfs.zfs_close(opened)

    def _properties(self, found: int | None) -> Iterator[tuple[bytes, ctypes.c_void_p, bytes | None]]:
        """The name of each, what is told of it, and its source where it has one."""
        pair = self._pairs.nvlist_next_nvpair(found, None) if found else None
        while pair:
            of_it = _place()
            if self._pairs.nvpair_value_nvlist(pair, ctypes.byref(of_it)):
                raise UnreadableProperty
            yield self._pairs.nvpair_name(pair), of_it, self._string(of_it, b"source")
            pair = self._pairs.nvlist_next_nvpair(found, pair)

    def _value(self, of_it: ctypes.c_void_p) -> str:
        number = _count()
        if not self._pairs.nvlist_lookup_uint64(of_it, b"value", ctypes.byref(number)):
            return str(number.value)
        text = self._string(of_it, b"value")
        if text is None:
            raise UnreadableProperty
        return _str(text)

    def _string(self, of_it: ctypes.c_void_p, key: bytes) -> bytes | None:
        found = _text()
        return None if self._pairs.nvlist_lookup_string(of_it, key, ctypes.byref(found)) else found.value


def _first_of(names: tuple[str, ...]) -> ctypes.CDLL:
    """The first of these libraries that there is. Raises OSError where there is none."""
    for name in names[:-1]:
        try:
            return ctypes.CDLL(name, use_errno=True)
        except OSError:
            continue
    return ctypes.CDLL(names[-1], use_errno=True)


def _str(text: bytes) -> str:
    return text.decode(errors="surrogateescape")
