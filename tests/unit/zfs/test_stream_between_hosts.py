"""The stages of a stream between hosts: buffers, compression and limit, each where it belongs."""

from collections.abc import Sequence

import pytest

from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.stream_stages import (
    HELPERS,
    Compression,
    MbufferSettings,
    StreamEnd,
    choose_codec,
    make_stages,
    warn_of_missing_buffer,
)

ALL = frozenset(HELPERS)
SEND, RECEIVE = ["zfs", "send", "t@1"], ["zfs", "receive", "v/t"]
BUFFER = MbufferSettings(128 << 20, 1 << 20, 900.0)
MBUFFER = ["mbuffer", "-s", "1048576", "-m", "131072k"]
PLAIN = SendFlags(large_blocks=True, compressed=False, embedded=True, raw=False, properties=True)
PACKED = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)
RAW = SendFlags(large_blocks=True, compressed=False, embedded=False, raw=True, properties=True)


def here(tools: frozenset[str] = ALL) -> StreamEnd:
    return StreamEnd("this host", tools)


def there(tools: frozenset[str] = ALL, name: str = "peer") -> StreamEnd:
    def remote(commands: Sequence[Sequence[str]]) -> list[str]:
        return ["ssh", name, " | ".join(" ".join(command) for command in commands)]

    return StreamEnd(name, tools, remote)


def test_on_one_host_there_is_one_buffer_and_the_limit_before_it() -> None:
    assert make_stages(SEND, RECEIVE, here(), here(), buffer=BUFFER) == [SEND, MBUFFER, RECEIVE]
    assert make_stages(SEND, RECEIVE, here(), here(), buffer=BUFFER, throttle=["slow"]) == [
        SEND,
        ["slow"],
        MBUFFER,
        RECEIVE,
    ]
    assert make_stages(SEND, RECEIVE, here(frozenset()), here(frozenset()), buffer=BUFFER) == [SEND, RECEIVE]


def test_a_pull_is_buffered_and_compressed_on_both_sides_and_limited_on_the_way() -> None:
    assert make_stages(SEND, RECEIVE, there(), here(), buffer=BUFFER, codec="zstd", throttle=["slow"]) == [
        ["ssh", "peer", "zfs send t@1 | mbuffer -s 1048576 -m 131072k -W 900 -q | zstd -q -c -1"],
        ["slow"],
        ["zstd", "-q", "-d", "-c"],
        MBUFFER,
        RECEIVE,
    ]


def test_a_push_is_the_mirror_of_it_and_the_far_buffer_tells_the_progress() -> None:
    assert make_stages(SEND, RECEIVE, here(), there(), buffer=BUFFER, codec="lz4", throttle=["slow"]) == [
        SEND,
        [*MBUFFER, "-q"],
        ["lz4", "-q", "-c", "-1"],
        ["slow"],
        ["ssh", "peer", "lz4 -q -d -c | mbuffer -s 1048576 -m 131072k -W 900 | zfs receive v/t"],
    ]


def test_each_end_has_the_memory_that_it_may_have_and_only_the_last_waits_until_it_is_fuller() -> None:
    buffer = MbufferSettings(128 << 20, 1 << 20, 900.0, start=50, there=2 << 20)
    assert make_stages(SEND, RECEIVE, there(), here(), buffer=buffer) == [
        ["ssh", "peer", "zfs send t@1 | mbuffer -s 419430 -m 2048k -W 900 -q"],
        [*MBUFFER, "-P", "50"],
        RECEIVE,
    ]
    (_, _, far) = make_stages(SEND, RECEIVE, here(), there(), buffer=buffer)
    assert "mbuffer -s 419430 -m 2048k -P 50 -W 900 | zfs receive" in far[2]


def test_without_a_buffer_over_there_the_one_here_tells_the_progress() -> None:
    assert make_stages(SEND, RECEIVE, here(), there(frozenset()), buffer=BUFFER) == [
        SEND,
        MBUFFER,
        ["ssh", "peer", "zfs receive v/t"],
    ]


def test_from_host_to_host_the_bytes_go_through_two_ssh() -> None:
    assert make_stages(SEND, RECEIVE, there(frozenset()), there(frozenset(), "attic"), buffer=BUFFER) == [
        ["ssh", "peer", "zfs send t@1"],
        ["ssh", "attic", "zfs receive v/t"],
    ]


@pytest.mark.parametrize(
    ("wanted", "flags", "codec"),
    [
        ("auto", PLAIN, "zstd"),
        ("auto", PACKED, None),
        ("auto", RAW, None),
        ("off", PLAIN, None),
        ("zstd", PACKED, "zstd"),
        ("gzip", RAW, "gzip"),
        ("lz4", PLAIN, "lz4"),
    ],
)
def test_auto_compresses_only_what_is_not_compressed_yet(
    wanted: Compression, flags: SendFlags, codec: str | None
) -> None:
    assert choose_codec(wanted, flags, there(), here()) == (codec, "")
    assert choose_codec(wanted, flags, here(), there()) == (codec, "")
    assert choose_codec(wanted, flags, here(), here()) == (None, "")


def test_what_is_lacking_is_left_out_and_told() -> None:
    bare = there(frozenset({"gzip"}))
    assert choose_codec("auto", PLAIN, bare, here()) == (
        None,
        "zstd is not installed on peer: streams go uncompressed",
    )
    assert choose_codec("auto", PACKED, bare, here()) == (None, "")
    assert warn_of_missing_buffer(bare, here()) == (
        "mbuffer is not installed on peer: streams go without a buffer, slower"
    )
    assert warn_of_missing_buffer(bare, here(frozenset())).startswith(
        "mbuffer is not installed on peer and this host"
    )
    assert warn_of_missing_buffer(here(frozenset()), here(frozenset())).startswith(
        "mbuffer is not installed on this host:"
    )
    assert warn_of_missing_buffer(there(), here()) == ""


GATE = ["gate", "order"]


def test_the_gate_is_next_to_the_receiver_or_as_near_as_this_host_is() -> None:
    assert make_stages(SEND, RECEIVE, there(), here(), buffer=BUFFER, codec="zstd", gate=GATE)[1:] == [
        ["zstd", "-q", "-d", "-c"],
        MBUFFER,
        GATE,
        RECEIVE,
    ]
    assert make_stages(SEND, RECEIVE, here(), here(), buffer=BUFFER, gate=GATE) == [
        SEND,
        MBUFFER,
        GATE,
        RECEIVE,
    ]
    assert make_stages(SEND, RECEIVE, here(), there(), buffer=BUFFER, codec="lz4", gate=GATE)[:2] == [
        SEND,
        GATE,
    ]


def test_from_host_to_host_a_stream_is_unpacked_here_for_the_gate() -> None:
    far, *between, near = make_stages(
        SEND, RECEIVE, there(), there(name="attic"), buffer=BUFFER, codec="zstd", throttle=["slow"], gate=GATE
    )
    assert (far[1], near[1]) == ("peer", "attic")
    assert between == [["slow"], ["zstd", "-q", "-d", "-c"], GATE, ["zstd", "-q", "-c", "-1"]]
    assert len(make_stages(SEND, RECEIVE, there(), there(), buffer=BUFFER, codec="zstd")) == 2
