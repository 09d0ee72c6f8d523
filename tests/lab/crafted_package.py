"""A `zfs send` on the peer whose package has properties put into its header that no `zfs send` puts there."""

from __future__ import annotations

import json
import shlex

from peer import peer

PLACE = "/root/craft"

CRAFT = r"""#!/usr/bin/python3
import ctypes, json, shutil, struct, sys
nv = ctypes.CDLL("libnvpair.so.3")
for name in ("nvlist_next_nvpair",):
    getattr(nv, name).restype = ctypes.c_void_p

def inner(held, name):
    found = ctypes.c_void_p()
    assert nv.nvlist_lookup_nvlist(held, name, ctypes.byref(found)) == 0, name
    return found

def fletcher4(data):
    a = b = c = d = 0
    for (word,) in struct.iter_unpack("<I", data):
        a += word; b += a; c += b; d += c
    return struct.pack("<4Q", *(one % 2**64 for one in (a, b, c, d)))

into, out = sys.stdin.buffer, sys.stdout.buffer
begin = into.read(312)
payload = into.read(struct.unpack_from("<I", begin, 4)[0])
end = into.read(312)
assert struct.unpack_from("<I", end)[0] == 5
whole = ctypes.c_void_p()
assert nv.nvlist_unpack(payload, ctypes.c_size_t(len(payload)), ctypes.byref(whole), 0) == 0
listed = inner(whole, b"fss")
first, dataset = ctypes.c_void_p(nv.nvlist_next_nvpair(listed, None)), ctypes.c_void_p()
assert nv.nvpair_value_nvlist(first, ctypes.byref(dataset)) == 0
properties = inner(dataset, b"props")
for name, value in json.loads(sys.argv[1]).items():
    if isinstance(value, int):
        assert nv.nvlist_add_uint64(properties, name.encode(), ctypes.c_uint64(value)) == 0
    else:
        assert nv.nvlist_add_string(properties, name.encode(), value.encode()) == 0
buffer, size = ctypes.c_char_p(), ctypes.c_size_t()
assert nv.nvlist_pack(whole, ctypes.byref(buffer), ctypes.byref(size), 1, 0) == 0
packed = ctypes.string_at(buffer, size.value)
begin = begin[:4] + struct.pack("<I", len(packed)) + begin[8:]
end = end[:8] + fletcher4(begin + packed) + end[40:]
for piece in (begin, packed, end):
    out.write(piece)
out.flush()
shutil.copyfileobj(into, out)
"""
"""libzfs verifies the header's checksum (fletcher4 of BEGIN and nvlist) against the END that follows."""


def install() -> None:
    """Put the program on the peer."""
    peer(f"printf %s {shlex.quote(CRAFT)} >{PLACE}; chmod +x {PLACE}")


def crafted(send: str, properties: dict[str, int | str]) -> str:
    """The line of shell that answers as ``send`` does, with these properties besides: numbers as ZFS stores them."""
    return f"{send} | {PLACE} {shlex.quote(json.dumps(properties))}"
