"""The gate as it runs: a process between two pipes, that lets pass what was ordered and nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from tests.unit.zfs.gate.hostile_bytes import (
    END_OF_PACKAGE,
    HARMLESS,
    RAW_FEATURES,
    Fields,
    begin,
    contents,
    header,
    record,
    sub,
    write,
)
from zvault.zfs.gate.check import OrderedSnapshot, StreamCheck, StreamOrder
from zvault.zfs.gate.process import INCOMPLETE, REFUSED_STATUS, StreamGate, gate_argv
from zvault.zfs.gate.records import (
    BEGIN,
    EMBED_DATA,
    END,
    FREE,
    HOLDS,
    LARGE_BLOCKS,
    OBJECT,
    RAW,
    RECORD,
    REDACTED,
    RESUMING,
    SUBSTREAM,
    WRITE,
    BadStream,
    detect_layout,
)

S1, S2 = OrderedSnapshot(11, "s1"), OrderedSnapshot(22, "s2")
FULL = StreamOrder("tank/a", 2, 0, (S1,), may=HARMLESS)
INCREMENTAL = FULL._replace(base=11, snapshots=(S2,))
PACKAGE = FULL._replace(package=True, properties=True)
SEVERAL = PACKAGE._replace(base=7, snapshots=(S1, S2))
PLAIN_SEVERAL = SEVERAL._replace(properties=False)
RAW_FULL = FULL._replace(must=RAW)

PACKED = header("tank/a@s1", contents("tank/a", {"s1": 11}))
BOTH = header("tank/a@s2", contents("tank/a", {"s0": 7, "s1": 11, "s2": 22}))

GOOD = {
    "full": (FULL, sub("tank/a@s1", 11)),
    "of the other byte order": (FULL, sub("tank/a@s1", 11, order=">")),
    "incremental": (INCREMENTAL, sub("tank/a@s2", 22, 11)),
    "raw": (RAW_FULL, sub("tank/a@s1", 11, features=RAW_FEATURES)),
    "package": (PACKAGE, PACKED + sub("tank/a@s1", 11) + END_OF_PACKAGE),
    "several": (SEVERAL, BOTH + sub("tank/a@s1", 11, 7) + sub("tank/a@s2", 22, 11) + END_OF_PACKAGE),
    "several without properties": (
        PLAIN_SEVERAL,
        header("tank/a@s2", None) + sub("tank/a@s1", 11, 7) + sub("tank/a@s2", 22, 11) + END_OF_PACKAGE,
    ),
    "a clone": (
        INCREMENTAL._replace(clone=True),
        sub("tank/a@s2", 22, 11, flags=13),
    ),
    "large": (FULL, begin("tank/a@s1", 11) + write(1 << 20) + write(3 << 20) + record(END)),
}


def packed(fields: Fields) -> bytes:
    return header("tank/a@s1", fields) + sub("tank/a@s1", 11) + END_OF_PACKAGE


def listed(**more: object) -> Fields:
    return contents("tank/a", {"s1": 11}, **more)


TWO = listed()
TWO["fss"] = {**TWO["fss"], "0x2": contents("tank/a/kid", {"s1": 33})["fss"]["0x1"]}
RECURSIVE = {key: value for key, value in listed().items() if key != "not_recursive"}

BAD = {
    "a package instead of a stream": (FULL, PACKED + sub("tank/a@s1", 11) + END_OF_PACKAGE, "a package"),
    "a stream instead of a package": (PACKAGE, sub("tank/a@s1", 11), "no package"),
    "a package within": (PACKAGE, PACKED + PACKED + sub("tank/a@s1", 11), "a package, which was not"),
    "all below it": (PACKAGE, packed(RECURSIVE), "with all below it"),
    "all below it, and what to destroy": (
        PACKAGE,
        packed({**RECURSIVE, "fromsnap": "s0"}),
        "with all below it",
    ),
    "two datasets": (PACKAGE, packed(TWO), "not of one dataset"),
    "another's header": (PACKAGE, packed(contents("tank/b", {"s1": 11})), "of another dataset"),
    "another's snapshots": (PACKAGE, packed(contents("tank/a", {"s1": 666})), "were not ordered"),
    "marked as raw": (PACKAGE, packed({**listed(), "raw": True}), "marked as raw"),
    "a key's place that is too long": (PACKAGE, packed(listed(props={"keylocation": "f" * 256})), "longer"),
    "a version": (PACKAGE, packed(listed(props={"version": 5})), "the property 'version'"),
    "a label": (PACKAGE, packed(listed(props={"mlslabel": "x"})), "the property 'mlslabel'"),
    "a quota of a user": (PACKAGE, packed(listed(props={"userquota@0": 1})), "'userquota@…'"),
    "a user's quota that looks like another's property": (
        PACKAGE,
        packed(listed(props={"userquota@org.example:note": 1})),
        "'userquota@…'",
    ),
    "encryption without any": (PACKAGE, packed(listed(props={"encryption": 8})), "the property 'encryption'"),
    # send.raw, of a dataset that is not encrypted: what is marked as raw has a key, and nothing else.
    "encryption without any, in a package that is to be raw": (
        PACKAGE._replace(raw=True),
        packed(listed(props={"encryption": 8})),
        "the property 'encryption'",
    ),
    "properties that nobody ordered": (
        PLAIN_SEVERAL,
        BOTH + sub("tank/a@s1", 11, 7) + sub("tank/a@s2", 22, 11) + END_OF_PACKAGE,
        "brings properties",
    ),
    "a header that is none": (
        PACKAGE,
        begin("tank/a@s1", 0, header=2, features=0, payload=b"x" * 64),
        "cannot be read",
    ),
    "a child": (
        PACKAGE,
        PACKED + sub("tank/a@s1", 11) + sub("tank/a/kid@s1", 33),
        "after all that was ordered",
    ),
    "a child instead": (PACKAGE, PACKED + sub("tank/a/kid@s1", 11), "brings 'tank/a/kid@s1'"),
    "too little of a package": (SEVERAL, BOTH + sub("tank/a@s1", 11, 7) + END_OF_PACKAGE, "1 snapshots of 2"),
    "another GUID": (FULL, sub("tank/a@s1", 12), "has the GUID 12"),
    "another base": (INCREMENTAL, sub("tank/a@s2", 22, 12), "starts from the GUID 12"),
    "no base": (INCREMENTAL, sub("tank/a@s2", 22), "starts from the GUID 0"),
    "another name": (FULL, sub("tank/a@s2", 11), "brings 'tank/a@s2'"),
    "another type": (FULL, sub("tank/a@s1", 11, kind=3), "another type"),
    "a clone": (INCREMENTAL, sub("tank/a@s2", 22, 11, flags=13), "flags"),
    "not raw": (RAW_FULL, sub("tank/a@s1", 11), "lacks the mark of a raw stream"),
    "raw": (FULL, sub("tank/a@s1", 11, features=RAW_FEATURES), "raw stream (-w), which was not"),
    "redacted": (FULL, sub("tank/a@s1", 11, features=HARMLESS | REDACTED), "redaction"),
    "resumed": (FULL, sub("tank/a@s1", 11, features=HARMLESS | RESUMING), "resumed"),
    "large blocks": (FULL, sub("tank/a@s1", 11, features=HARMLESS | LARGE_BLOCKS), "-L"),
    "embedded": (FULL, sub("tank/a@s1", 11, features=HARMLESS | EMBED_DATA), "-e"),
    "holds": (FULL, sub("tank/a@s1", 11, features=HARMLESS | HOLDS), "-h"),
    "a feature nobody knows": (FULL, sub("tank/a@s1", 11, features=HARMLESS | 1 << 40), "features 0x"),
    "a second stream": (FULL, sub("tank/a@s1", 11) + sub("tank/a@s1", 11), "after its end"),
    "something after the package": (
        PACKAGE,
        PACKED + sub("tank/a@s1", 11) + END_OF_PACKAGE * 2,
        "after its end",
    ),
    "a BEGIN in the middle": (
        FULL,
        begin("tank/a@s1", 11) + write() + begin("tank/a@s1", 11),
        "in the middle",
    ),
    "no BEGIN": (FULL, write() * 2, "does not begin"),
    "noise": (FULL, b"\1" * 4096, "does not begin"),
    "an unknown record": (FULL, begin("tank/a@s1", 11) + record(6), "type 6"),
    "a block that is too large": (
        FULL,
        begin("tank/a@s1", 11) + record(WRITE, b"\xff" * 100),
        "type 3 with",
    ),
    "an object with too much": (FULL, begin("tank/a@s1", 11) + record(OBJECT, b"\xff" * 100), "type 1 with"),
}


def through(order: StreamOrder, stream: bytes) -> tuple[int, bytes, str]:
    """What the gate lets pass of a stream: its exit status, the bytes, what it says."""
    done = subprocess.run(gate_argv(order), input=stream, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


@functools.cache
def of_bad(name: str) -> tuple[int, bytes, str]:
    """What the gate lets pass of one of these."""
    order, stream, _ = BAD[name]
    return through(order, stream)


@pytest.mark.parametrize("name", GOOD)
def test_what_was_ordered_passes_unchanged(name: str) -> None:
    order, stream = GOOD[name]
    assert through(order, stream) == (0, stream, "")


@pytest.mark.parametrize("name", BAD)
def test_what_was_not_ordered_is_refused(name: str) -> None:
    _, stream, words = BAD[name]
    code, passed, said = of_bad(name)
    assert code == REFUSED_STATUS
    assert words in said
    assert stream.startswith(passed)
    assert len(passed) < len(stream)
    assert b"kid" not in passed


HEADLESS = [
    name
    for name, (_, stream, _) in BAD.items()
    if not stream.startswith((GOOD["full"][1][:312], PACKED, BOTH))
]


@pytest.mark.parametrize("name", HEADLESS)
def test_nothing_of_a_bad_head_passes(name: str) -> None:
    assert of_bad(name)[1] == b""


@pytest.mark.parametrize("name", GOOD)
def test_a_stream_that_is_cut_off_is_told_from_one_that_is_refused(name: str) -> None:
    order, stream = GOOD[name]
    for at in (0, 100, 312, len(stream) // 2, len(stream) - 312, len(stream) - 1):
        code, passed, said = through(order, stream[:at])
        assert (code, INCOMPLETE in said) == (1, True)
        assert stream.startswith(passed)


def test_an_order_survives_the_command_line() -> None:
    odd = StreamOrder(
        "tank/a b:c",
        3,
        5,
        (OrderedSnapshot(1 << 63, "a:b"), OrderedSnapshot(2, "c d")),
        True,
        True,
        True,
        RAW,
        7,
        True,
    )
    for order in (FULL, SEVERAL, odd):
        assert StreamOrder.of_words(order.words()) == order


def begins(stream: bytes) -> list[tuple[str, int, int]]:
    """Name, GUID and base of each snapshot in what passed, as a receiver reads it."""
    found: list[tuple[str, int, int]] = []
    at, shape = 0, detect_layout(stream[:RECORD]) if stream else None
    while shape is not None and at + RECORD <= len(stream):
        one = stream[at : at + RECORD]
        if shape.kind(one) == BEGIN and shape.begin(one).header == SUBSTREAM:
            found.append((shape.begin(one).name, shape.begin(one).to_guid, shape.begin(one).from_guid))
        at += RECORD + shape.payload(one)
    return found


@settings(max_examples=cases(500), deadline=None)
@given(st.data())
def test_one_changed_byte_never_brings_another_snapshot(data: st.DataObject) -> None:
    order, stream = data.draw(st.sampled_from([GOOD["several"], GOOD["full"], GOOD["package"]]))
    at = data.draw(st.integers(0, len(stream) - 1))
    changed = stream[:at] + bytes([data.draw(st.integers(0, 255))]) + stream[at + 1 :]
    passed = piped(order, changed)
    assert changed.startswith(passed)
    wanted = begins(stream)
    assert begins(passed) == wanted[: len(begins(passed))]


def piped(order: StreamOrder, stream: bytes) -> bytes:
    """The same in this process: what passes until it is refused."""
    source, feed = os.pipe()
    drain, sink = os.pipe()
    got: list[bytes] = []

    def collect() -> None:
        while some := os.read(drain, 1 << 16):
            got.append(some)

    def feeding() -> None:
        with os.fdopen(feed, "wb") as file:
            file.write(stream)

    threads = [threading.Thread(target=collect), threading.Thread(target=feeding)]
    for thread in threads:
        thread.start()
    try:
        StreamGate(order, source, sink).run()
    except BadStream:
        while os.read(source, 1 << 16):
            pass
    finally:
        os.close(sink)
        for thread in threads:
            thread.join()
        os.close(source)
        os.close(drain)
    return b"".join(got)


def test_it_is_nobody_that_can_open_nothing() -> None:
    child = subprocess.Popen(gate_argv(FULL), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None
    try:
        child.stdin.write(begin("tank/a@s1", 11) + record(FREE))
        child.stdin.flush()
        assert child.stdout is not None
        child.stdout.read(312)
        there = Path(f"/proc/{child.pid}")
        lines = there.joinpath("status").read_text().splitlines()
        told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == 0
        if os.geteuid() == 0:
            assert told["Uid"].split() == told["Gid"].split() == ["65534"] * 4
            assert told["Groups"].strip() == ""
            assert "fdinfo" in str(there.joinpath("root").readlink())
        limits = there.joinpath("limits").read_text()
        assert "Max open files            3                    3" in limits
    finally:
        child.kill()
        child.wait()
        child.stdin.close()
        child.stdout.close()


def test_every_record_counts_also_far_into_a_stream() -> None:
    check = StreamCheck(FULL)
    head = begin("tank/a@s1", 11)
    assert check.record(head[:312]) == (True, 0)
    check.begin(head, b"")
    for _ in range(1000):
        assert check.record(write()[:312]) == (False, 512)
    with pytest.raises(BadStream):
        check.record(head[:312])
