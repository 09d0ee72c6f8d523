"""Real bytes, changed: what a broken disk, a torn write, another version or somebody hostile may make of them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from hypothesis import strategies as st

SEEDS = Path(__file__).parent / "seeds"

NUMBERS = (
    0,
    1,
    2,
    7,
    8,
    127,
    128,
    255,
    256,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
)
LARGE = (*NUMBERS, 1 << 32, 1 << 40, (1 << 53) + 1, (1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
"""Where lengths, counts and offsets go wrong."""

WORDS = (
    *(
        b"",
        b"-",
        b"0",
        b"1",
        b"-1",
        b"+1",
        b"1_0",
        b" 1",
        b"\t",
        b"\n",
        b"\r",
        b"\0",
        b"\x1c",
        b"\x85",
        b"@",
        b"#",
        b"/",
    ),
    *(
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        "²".encode(),
        "٣".encode(),
        "\u2028".encode(),
        "\u00a0".encode(),
        b"=",
        b"%",
    ),
    *(
        b"nan",
        b"inf",
        b"1e999",
        b"9" * 5000,
        b"null",
        b"true",
        b"[]",
        b"{}",
        b'"',
        b"\\u0000",
        b"[" * 2000,
        b"{" * 2000,
    ),
    *(
        b"../",
        b"a" * 300,
        b"tank",
        b"cold",
        b"zvault_9999-12-31T23:59:59Z",
        b"zvault_0000-00-00T00:00:00Z",
        b"0x",
    ),
)
"""What texts go wrong at."""


def seeds(family: str) -> list[bytes]:
    """The real bytes of a family, by name."""
    found = [path.read_bytes() for path in sorted((SEEDS / family).iterdir())]
    assert found, f"there are no seeds of {family}"
    return found


def seed(family: str, name: str) -> bytes:
    """One of them."""
    return (SEEDS / family / name).read_bytes()


Change = tuple[str, int, int, int]


def mutated(
    seeds: Sequence[bytes], *, most: int = 6, words: Sequence[bytes] = WORDS
) -> st.SearchStrategy[bytes]:
    """One of the seeds, or a piece of several, with some changes; now and then bytes of no seed at all."""
    place = st.integers(0, (1 << 16) - 1)
    number = st.integers(0, (1 << 16) - 1)
    change = st.tuples(st.sampled_from(sorted(_CHANGES)), place, place, number)
    changed = st.tuples(
        st.sampled_from(list(seeds)), st.sampled_from(list(seeds)), st.lists(change, max_size=most)
    )
    made = changed.map(lambda drawn: _changed(*drawn, words))
    return st.one_of(made, made, made, st.binary(max_size=400))


def _changed(data: bytes, other: bytes, changes: Sequence[Change], words: Sequence[bytes]) -> bytes:
    for kind, at, to, number in changes:
        low, high = at * (len(data) + 1) >> 16, to * (len(data) + 1) >> 16
        data = _CHANGES[kind](data, other, low, high, number, words)
    return data


def _bit(data: bytes, _: bytes, at: int, __: int, number: int, ___: Sequence[bytes]) -> bytes:
    at = min(at, len(data) - 1)
    return data[:at] + bytes([data[at] ^ 1 << number % 8]) + data[at + 1 :] if data else data


def _byte(data: bytes, _: bytes, at: int, __: int, number: int, ___: Sequence[bytes]) -> bytes:
    return data[:at] + bytes([number % 256]) + data[at + 1 :]


def _number(data: bytes, _: bytes, at: int, to: int, number: int, __: Sequence[bytes]) -> bytes:
    """A number of 2, 4 or 8 bytes, at a place where one may stand."""
    form, known = (("<I", NUMBERS), (">I", NUMBERS), ("<Q", LARGE), (">Q", LARGE), ("<H", NUMBERS[:12]))[
        to % 5
    ]
    packed = struct.pack(form, known[number % len(known)])
    at -= at % min(len(packed), 4)
    return data[:at] + packed + data[at + len(packed) :]


def _cut(data: bytes, _: bytes, at: int, __: int, ___: int, ____: Sequence[bytes]) -> bytes:
    return data[:at]


def _drop(data: bytes, _: bytes, at: int, to: int, number: int, __: Sequence[bytes]) -> bytes:
    return data[:at] + data[at + (number % 64) :]


def _double(data: bytes, _: bytes, at: int, to: int, ___: int, ____: Sequence[bytes]) -> bytes:
    low, high = sorted((at, to))
    return (data[:high] + data[low:high] + data[high:])[: 4 * len(data) + 64]


def _splice(data: bytes, other: bytes, at: int, to: int, ___: int, ____: Sequence[bytes]) -> bytes:
    return data[:at] + other[to:]


def _word(data: bytes, _: bytes, at: int, __: int, number: int, words: Sequence[bytes]) -> bytes:
    return data[:at] + words[number % len(words)] + data[at:]


def _field(data: bytes, _: bytes, at: int, __: int, number: int, words: Sequence[bytes]) -> bytes:
    """Another word in the place of one that stands between blanks, tabs or commas."""
    low = max(data.rfind(mark, 0, at) for mark in (b"\t", b"\n", b" ", b",", b":")) + 1
    ends = [end for mark in (b"\t", b"\n", b" ", b",", b":") if (end := data.find(mark, at)) >= 0]
    return data[:low] + words[number % len(words)] + data[min(ends, default=len(data)) :]


def _line(data: bytes, other: bytes, at: int, to: int, number: int, _: Sequence[bytes]) -> bytes:
    """A line gone, twice, or elsewhere."""
    lines = data.split(b"\n")
    at, to = at % len(lines), to % len(lines)
    line = lines[at] if number % 3 == 1 else lines.pop(at)
    if number % 3:
        lines.insert(to, line)
    return b"\n".join(lines)


_CHANGES = {
    "bit": _bit,
    "byte": _byte,
    "number": _number,
    "cut": _cut,
    "drop": _drop,
    "double": _double,
    "splice": _splice,
    "word": _word,
    "field": _field,
    "line": _line,
}
