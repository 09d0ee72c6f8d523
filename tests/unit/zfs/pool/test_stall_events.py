"""OpenZFS's events, as ``zpool events -Hv`` of 2.3.9 prints them."""

from __future__ import annotations

import pytest

from zvault.core.diagnosis.stalls import StallSign
from zvault.zfs.pool.stall_events import EventReader, PoolEvent, find_stall_sign

DELAY = """\
Nov 22 2026 02:47:40.750118400\tereport.fs.zfs.delay
        class = "ereport.fs.zfs.delay"
        ena = 0x22d56520000001
        detector = (embedded nvlist)
                version = 0x0
                scheme = "zfs"
                pool = 0x8ceac2a5b155c89
                vdev = 0xe726680b9e66f542
        (end detector)
        pool = "my pool"
        pool_state = 0x0
        vdev_type = "disk"
        vdev_path = "/dev/nbd0"
        zio_err = 0x5
        zio_flags = 0x1002c0 [PHYSICAL CANFAIL CONFIG_WRITER DONT_QUEUE]
        zio_delta = 0x826299e00
        time = 0x6b0257cc 0x2cb5e600 
        eid = 0x1f

"""  # noqa: W291 - zpool leaves the blank behind the time
HISTORY = """\
Nov 22 2026 02:47:41.840132352\tsysevent.fs.zfs.history_event
        class = "sysevent.fs.zfs.history_event"
        pool = "my pool"
        history_hostname = "host = x"
        time = 0x6b0257cd 0x2cb5e600 
        eid = 0x20

"""  # noqa: W291


def events(text: str) -> list[PoolEvent]:
    reader = EventReader()
    return [event for line in text.split("\n") if (event := reader.feed(line)) is not None]


def test_events_are_put_together_from_lines():
    first, second = events(DELAY + HISTORY)
    assert (first.kind, first.number) == ("ereport.fs.zfs.delay", 31)
    assert first.time == 0x6B0257CC * 10**9 + 750118400
    assert (second.kind, second.number) == ("sysevent.fs.zfs.history_event", 32)
    assert "zio_err" not in second.fields


def test_one_that_is_cut_off_is_none():
    assert events(DELAY.rstrip("\n")) == []
    assert events("\n\n  eid = 0x1\n\n") == []


def test_an_event_names_its_pool_and_device():
    (event,) = events(DELAY)
    assert find_stall_sign(event) == StallSign("delay", "a request to nbd0 took 35s", pool="my pool")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("deadman", "nbd0 has been in flight"),
        ("io", "nbd0 returned an error (errno 5)"),
        ("checksum", "nbd0 returned wrong data"),
        ("data", "see 'zvaultctl vault status'"),
        ("probe_failure", "nbd0 does not answer"),
    ],
)
def test_each_class_is_told_in_words(kind: str, words: str):
    (event,) = events(DELAY.replace("zfs.delay", f"zfs.{kind}"))
    sign = find_stall_sign(event)
    assert sign is not None
    assert sign.kind == kind
    assert words in sign.text


def test_a_pool_that_was_suspended():
    (event,) = events(DELAY.replace("zfs.delay", "zfs.io_failure"))
    sign = find_stall_sign(event)
    assert sign is not None
    assert sign.kind == "suspended"


@pytest.mark.parametrize("kind", ["sysevent.fs.zfs.io", "ereport.fs.zfs.config.sync", "ereport.io.delay"])
def test_what_happens_in_a_healthy_pool_is_no_sign(kind: str):
    (event,) = events(DELAY.replace("ereport.fs.zfs.delay", kind))
    assert find_stall_sign(event) is None


def test_newer_than_what_was_seen():
    event = PoolEvent("x", 31, 1000, {})
    assert not event.after(31, 1000)
    assert not event.after(40, 2000)
    assert event.after(30, 1000)
    assert event.after(40, 900), "the module was loaded anew"
    assert event.after(30, 2000), "the clock was set back"
    assert event.after(None, 900)
    assert not event.after(None, 1000), "of what was before the first daemon only the time tells"


@pytest.mark.parametrize("number", ["0123", "9" * 5000, "0x" + "f" * 40, "0x", "²"])
def test_numbers_that_no_kernel_prints(number: str):
    reader = EventReader()
    for line in ('\tclass = "ereport.fs.zfs.io"', f"\teid = {number}", f"\tzio_err = {number}"):
        assert reader.feed(line) is None
    event = reader.feed("")
    assert event is not None
    assert 0 <= event.number < 10**20
    find_stall_sign(event)
