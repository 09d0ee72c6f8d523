"""What a resume token says, by what it holds; and that no token does harm."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.zfs.gate.hostile_bytes import native, token, xdr
from zvault.core.replication.stream_flags import SentFlags
from zvault.zfs.gate.nvlist import BadNvlist, unpack_nvlist
from zvault.zfs.gate.resume_token import MAX_PACKED, BadToken, ResumeToken, decode_token

REAL = (
    "1-cae9bfcdd-f0-789c636064000310a500c4ec50360710e72765a52697303030419460caa7a515a796806444e0f26c48f2499525a9c54"
    "0da44560cabfe92fcf4d2cc14a07ce57db9793b38d43590e439c1f27989b9a9403a312f5b3f352fd9a1d8106e0e3703c2ddc9f9b90545a9"
    "c5c5f9d9103109a83b60f24589e530290600060d1b88"
)
"""Made by OpenZFS 2.3.9, of an encrypted dataset."""

FIELDS = {"object": 2, "offset": 0, "bytes": 5, "toguid": 9, "toname": "tank/a@s"}


def test_a_real_token() -> None:
    assert decode_token(REAL) == ResumeToken(
        0x2708B89E1EDF7934, "tank/enc@s1", 0, SentFlags(compressed=True, raw=True), 0x161D34
    )


def test_every_field() -> None:
    more = dict.fromkeys(("largeblockok", "compressok", "embedok", "rawok"), True)
    assert decode_token(token({**FIELDS, "fromguid": 7, **more})) == ResumeToken(
        9, "tank/a@s", 7, SentFlags(True, True, True, True), 5
    )
    assert decode_token(token(xdr({**FIELDS}))).to_name == "tank/a@s"


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "1",
        REAL[:-2],
        REAL.replace("1-c", "2-c", 1),
        REAL.upper(),
        f" {REAL}",
        f"{REAL}\n",
        token({**FIELDS, "toname": "tank/a@s\n\trawok = 1"}),
        token({**FIELDS, "toname": "tank/a"}),
        token({**FIELDS, "toname": "tank/a@s@t"}),
        token({**FIELDS, "toname": "/a@s"}),
        token({**FIELDS, "savedok": True}),
        token({**FIELDS, "rawok": 1}),
        token({**FIELDS, "toguid": "9"}),
        token({**FIELDS, "toguid": 0}),
        token({key: value for key, value in FIELDS.items() if key != "toguid"}),
        token({key: value for key, value in FIELDS.items() if key != "toname"}),
        token(native({"rawok": True})[:-4] + native(FIELDS)[12:], length=1),
        token(native({**FIELDS})[:-4] + native({"toguid": 66})[12:]),
        token(FIELDS, length=10),
        token(FIELDS, packed=zlib.compress(native(FIELDS)) + b"more"),
        token(FIELDS, packed=zlib.compress(native(FIELDS))[:-2]),
        token(b""),
        token(native(FIELDS) + b"\0"),
    ],
)
def test_what_is_not_wholly_a_token_is_none(bad: str) -> None:
    with pytest.raises(BadToken):
        decode_token(bad)


def test_a_token_that_unpacks_to_very_much_takes_no_memory() -> None:
    bomb = zlib.compress(bytes(1 << 28), 9)
    small = zlib.compress(bytes(20 << 20), 9)
    tokens = (
        token(b"", packed=bomb, length=1 << 28),
        token(b"", packed=small, length=20 << 20),
        token(b"", packed=small, length=MAX_PACKED),
    )
    tracemalloc.start()
    try:
        for text in tokens:
            with pytest.raises(BadToken):
                decode_token(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


numbers = st.integers(0, 2**64 - 1)
fields = st.dictionaries(
    st.sampled_from([*FIELDS, "fromguid", "rawok", "compressok", "embedok", "largeblockok", "x"]),
    st.one_of(st.just(True), numbers, st.text(max_size=20).filter(lambda text: "\0" not in text)),
)


@settings(max_examples=cases(500), deadline=None)
@given(fields)
def test_a_token_of_any_fields_is_decoded_or_refused(given_fields: dict[str, object]) -> None:
    text = token(dict(given_fields))
    try:
        told = decode_token(text)
    except BadToken:
        return
    assert told.to_guid == given_fields["toguid"]
    assert told.to_name == given_fields["toname"]
    assert told.from_guid == given_fields.get("fromguid", 0)
    assert told.flags.raw == ("rawok" in given_fields)


@settings(max_examples=cases(1000), deadline=None)
@given(st.binary(max_size=400))
@example(b"")
@example(bytes([0, 1, 0, 0]) + struct.pack("<iIihhii", 0, 1, 8, 8, 0, 1, 8) + bytes(16))
@example(bytes([0, 1, 0, 0]) + struct.pack("<iIi", 0, 1, -8))
@example(bytes([0, 1, 0, 0]) + struct.pack("<iIi", 0, 1, 2**31 - 8))
@example(bytes([1, 1, 0, 0]) + struct.pack(">IIII", 0, 1, 0xFFFFFFFF, 1))
@example(bytes([1, 1, 0, 0]) + struct.pack(">IIIII", 0, 1, 8, 8, 0xFFFFFFFF))
@example(xdr({"a": {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": {"j": 1}}}}}}}}}}))
def test_no_bytes_do_harm(data: bytes) -> None:
    for start in (b"", bytes([0, 1, 0, 0]), bytes([1, 1, 0, 0])):
        try:
            unpack_nvlist(start + data)
        except BadNvlist:
            continue


@settings(max_examples=cases(1000), deadline=None)
@given(st.data())
def test_one_changed_byte_does_no_harm(data: st.DataObject) -> None:
    whole = data.draw(st.sampled_from([native(FIELDS), xdr({**FIELDS, "fss": {"1": {"name": "a"}}})]))
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([data.draw(st.integers(0, 255))]) + whole[at + 1 :]
    try:
        unpack_nvlist(changed[: data.draw(st.integers(1, len(changed)))])
    except BadNvlist:
        return


@given(st.text(max_size=200))
def test_no_text_does_harm(text: str) -> None:
    for one in (text, f"1-0-0-{text}", f"1-1-10-789c{text}"):
        with pytest.raises(BadToken):
            decode_token(one)
