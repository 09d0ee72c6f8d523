"""Name-value lists as ZFS packs them: XDR in the header of a package, native in a resume token. Pure.

The format is that of OpenZFS's nvpair.c. Whoever wrote one may be hostile, so everything has a bound, a name stands in
a list once, and what is not exactly of the format is refused: a lenient reader would see another list than ZFS does.
"""

from __future__ import annotations

import struct

DEEPEST_NVLIST = 8
"""Lists within lists: a package has five (fss, one dataset, snapprops, one snapshot, its own list)."""

_BOOLEAN, _UINT64, _STRING, _NVLIST = 1, 8, 9, 19
_XDR, _NATIVE = 1, 0
_UNIQUE_NAME = 1


class BadNvlist(Exception):
    """This is no name-value list; the text says how that shows."""


class UnusedValue(int):
    """A value of a type that nobody here has a use for: the type's number in OpenZFS's nvpair.h."""


Value = bool | int | str | UnusedValue | dict[str, "Value"]
Nvlist = dict[str, Value]


def unpack_nvlist(data: bytes) -> Nvlist:
    """A packed list. A flag without a value is True. Raises BadNvlist."""
    try:
        encoding, endian = data[0], data[1]
        if encoding == _XDR:
            return _Xdr(data).whole()
        if encoding == _NATIVE and endian in {0, 1}:
            return _native(data, "<" if endian else ">")
    except (struct.error, IndexError):
        raise BadNvlist("it ends before its end") from None
    except UnicodeDecodeError:
        raise BadNvlist("a text in it is no UTF-8") from None
    raise BadNvlist(f"it has an unknown encoding ({encoding})")


def _put(found: Nvlist, name: str, value: Value) -> None:
    if name in found:
        raise BadNvlist("a name is in it twice")
    found[name] = value


def _text(raw: bytes) -> str:
    if b"\0" in raw:
        raise BadNvlist("a text in it has a NUL")
    return raw.decode()


class _Xdr:
    """RFC 4506: big endian, everything in units of four bytes."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 4

    def whole(self) -> Nvlist:
        found = self._list(0)
        if self.at != len(self.data):
            raise BadNvlist("something comes after it")
        return found

    def _u32(self) -> int:
        value: int = struct.unpack_from(">I", self.data, self.at)[0]
        self.at += 4
        return value

    def _take(self, size: int) -> bytes:
        taken = self.data[self.at : self.at + size]
        if len(taken) != size:
            raise BadNvlist("it ends before its end")
        self.at += size + -size % 4
        return taken

    def _list(self, depth: int) -> Nvlist:
        version, flags = self._u32(), self._u32()
        if version or flags != _UNIQUE_NAME or depth > DEEPEST_NVLIST:
            raise BadNvlist("a list in it is of another version or too deep")
        found: Nvlist = {}
        while True:
            start = self.at
            size, decoded = self._u32(), self._u32()
            if not size and not decoded:
                return found
            name = _text(self._take(self._u32()))
            kind, count = self._u32(), self._u32()
            _put(found, name, self._value(kind, count, start + size, depth))
            if self.at != start + size:
                raise BadNvlist("a pair in it is not of the size that it has")

    def _value(self, kind: int, count: int, end: int, depth: int) -> Value:
        if kind == _BOOLEAN and count == 0:
            return True
        if kind == _UINT64 and count == 1:
            return self._u32() << 32 | self._u32()
        if kind == _STRING and count == 1:
            return _text(self._take(self._u32()))
        if kind == _NVLIST and count == 1:
            return self._list(depth + 1)
        if kind in {_BOOLEAN, _UINT64, _STRING, _NVLIST} or not self.at <= end <= len(self.data):
            raise BadNvlist("a pair in it is not of its type's form")
        self.at = end
        return UnusedValue(kind)


def _native(data: bytes, order: str) -> Nvlist:
    """As the kernel packs it for itself: pairs in units of eight bytes. Only flat lists: a token is one."""
    version, flags = struct.unpack_from(f"{order}iI", data, 4)
    if version or flags != _UNIQUE_NAME:
        raise BadNvlist("it is of another version")
    found: Nvlist = {}
    at = 12
    while True:
        (size,) = struct.unpack_from(f"{order}i", data, at)
        if not size:
            break
        _, name_size, _, count, kind = struct.unpack_from(f"{order}ihhii", data, at)
        value_at, end = at + _eights(16 + name_size), at + size
        if name_size < 2 or size % 8 or value_at > end or end > len(data):
            raise BadNvlist("a pair in it is not of the size that it has")
        raw = data[at + 16 : at + 16 + name_size]
        if raw[-1]:
            raise BadNvlist("a name in it does not end")
        _put(found, _text(raw[:-1]), _native_value(kind, count, data[value_at:end], order))
        at = end
    if at + 4 != len(data):
        raise BadNvlist("something comes after it")
    return found


def _native_value(kind: int, count: int, raw: bytes, order: str) -> Value:
    if kind == _BOOLEAN and count == 0 and not raw:
        return True
    if kind == _UINT64 and count == 1 and len(raw) == 8:
        return int(struct.unpack(f"{order}Q", raw)[0])
    if kind == _STRING and count == 1 and b"\0" in raw and len(raw) - raw.index(b"\0") <= 8:
        text, _, rest = raw.partition(b"\0")
        if not any(rest):
            return _text(text)
    if kind in {_BOOLEAN, _UINT64, _STRING, _NVLIST}:
        raise BadNvlist("a pair in it is not of its type's form")
    return UnusedValue(kind)


def _eights(size: int) -> int:
    return -(-size // 8) * 8
