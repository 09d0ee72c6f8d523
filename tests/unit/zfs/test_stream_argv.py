"""argv as zfs-send(8) and zfs-receive(8) want it, and what zfs 2.3.9 and mbuffer 20241007 say on stderr."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.config.schema import Send
from zvault.core.model import Bookmark, Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.receive_properties import ReceiveProperties
from zvault.zfs.stream_argv import (
    SendFlags,
    receive_argv,
    restore_receive_argv,
    restore_resume_argv,
    restore_send_argv,
    send_argv,
)
from zvault.zfs.stream_stages import is_progress, mbuffer_argv, parse_bytes_passed, parse_bytes_sent

FIRST = Snapshot(DatasetName("tank/my data"), "s1", 1, 10, 100)
SECOND = Snapshot(DatasetName("tank/my data"), "s2", 2, 11, 200)
MARK = Bookmark(DatasetName("tank/my data"), "b1", 1, 10, 100)
PLAIN = SendFlags(large_blocks=True, compressed=True, embedded=True, raw=False, properties=True)


def dataset(*, encrypted: bool) -> Dataset:
    return Dataset(DatasetName("tank/a"), 1, "filesystem", encrypted=encrypted)


@pytest.mark.parametrize(
    ("step", "tail"),
    [
        (TransferStep(TransferAction.FULL, FIRST), ["tank/my data@s1"]),
        (
            TransferStep(TransferAction.INCREMENTAL, SECOND, FIRST),
            ["-i", "tank/my data@s1", "tank/my data@s2"],
        ),
        (
            TransferStep(TransferAction.INCREMENTAL, SECOND, MARK),
            ["-i", "tank/my data#b1", "tank/my data@s2"],
        ),
        (
            TransferStep(TransferAction.INCREMENTAL, SECOND, FIRST, intermediates=True),
            ["-I", "tank/my data@s1", "tank/my data@s2"],
        ),
    ],
)
def test_a_step_as_zfs_send_takes_it(step: TransferStep, tail: list[str]) -> None:
    assert send_argv(step, PLAIN) == ["zfs", "send", "-vP", "-L", "-c", "-e", "-p", *tail]


def test_a_token_brings_its_own_flags() -> None:
    step = TransferStep(TransferAction.RESUME, SECOND, token="1-abc")
    assert send_argv(step, PLAIN) == ["zfs", "send", "-vP", "-t", "1-abc"]


def test_an_encrypted_dataset_always_goes_raw() -> None:
    flags = SendFlags.of(Send(), dataset(encrypted=True))
    assert flags.argv() == ["-L", "-c", "-w", "-p"]
    assert flags.lzc() == ["large_blocks", "compress", "raw"]


def test_flags_follow_the_configuration() -> None:
    assert SendFlags.of(Send(), dataset(encrypted=False)).argv() == ["-L", "-c", "-e", "-p"]
    bare = Send(large_blocks=False, compressed=False, embedded=False, properties=False)
    assert SendFlags.of(bare, dataset(encrypted=False)).argv() == []
    assert SendFlags.of(bare, dataset(encrypted=False)).lzc() == []
    assert SendFlags.of(Send(), dataset(encrypted=False)).lzc() == [
        "large_blocks",
        "compress",
        "embedded_data",
    ]


@pytest.mark.parametrize("kind", ["filesystem", "volume"])
def test_what_is_received_is_not_mounted_not_written_and_can_be_resumed(kind: str) -> None:
    argv = receive_argv("cold/my data", kind)
    assert argv[:4] == ["zfs", "receive", "-s", "-u"]
    assert argv[-1] == "cold/my data"
    assert "readonly=on" in argv
    assert "-F" not in argv
    assert not any("org.zvault" in word and "=" in word for word in argv)


@pytest.mark.parametrize("kind", ["filesystem", "volume"])
def test_a_source_s_properties_decide_nothing_on_a_vault(kind: str) -> None:
    argv = receive_argv("cold/my data", kind)
    kept_out = {argv[place + 1] for place, word in enumerate(argv) if word == "-x"}
    assert kept_out >= {"checksum", "copies", "dedup", "sync", "primarycache", "redundant_metadata"}
    assert kept_out >= {"org.zvault:scratch", "org.zvault:placeholder", "org.zvault:restoring"}
    assert not kept_out & {"recordsize", "compression", "acltype", "xattr"}


@pytest.mark.parametrize("kind", ["filesystem", "volume"])
@pytest.mark.parametrize("noted", ["", "-compression sync", "mountpoint"])
def test_what_a_backup_chooses_stands_once_and_changes_nothing_that_zvault_rules(
    kind: str, noted: str
) -> None:
    own = ReceiveProperties(
        {"sync": "always", "checksum": "sha512", "org.example:note": "a b"}, ("recordsize",)
    )
    argv = receive_argv("cold/a", kind, own=own, noted=noted)
    said = [word.partition("=")[0] for flag, word in pairwise(argv) if flag in {"-o", "-x"}]
    assert len(said) == len(set(said)), "ZFS refuses what is set and left out"
    assert {"sync=always", "checksum=sha512", "org.example:note=a b", "readonly=on"} <= set(argv)
    assert ("recordsize" in said) == (kind == "filesystem")
    assert set(said) >= {"dedup", "copies", "org.zvault:placeholder"}
    (names,) = [word.partition("=")[2] for word in argv if word.startswith("org.zvault:receive-properties=")]
    assert set(names.split()) == own.words(kind) | (set(noted.split()) - {"mountpoint"})


def test_without_a_choice_a_source_brings_no_record_of_one() -> None:
    argv = receive_argv("cold/a", "filesystem")
    assert argv[argv.index("org.zvault:receive-properties") - 1] == "-x"


def test_what_a_backup_set_does_not_go_back_with_a_raw_stream() -> None:
    argv = restore_receive_argv("tank/a", "filesystem", raw=True, noted="sync com.sun:auto-snapshot readonly")
    assert {word for flag, word in pairwise(argv) if flag == "-x"} >= {"sync", "com.sun:auto-snapshot"}
    argv = restore_receive_argv("tank/a", "filesystem", raw=False, noted="sync")
    assert "sync" not in argv, "'zfs send -b' does not send it, and the source's is to come"


@pytest.mark.parametrize("kind", ["filesystem", "volume"])
def test_the_flags_are_put_on_record_as_the_vaults_own_property(kind: str) -> None:
    argv = receive_argv("cold/a", kind, sent="1f:Lce")
    assert argv[argv.index("org.zvault:sent=1f:Lce") - 1] == "-o"


def test_a_volume_gets_no_property_that_zfs_refuses_on_one() -> None:
    words = receive_argv("cold/vol", "volume")
    assert not {"canmount=noauto", "mountpoint", "quota", "sharenfs"} & set(words)
    assert "volmode=none" in words


def test_what_comes_without_encryption_is_encrypted_as_the_vault_is() -> None:
    assert "encryption" not in receive_argv("cold/a", "filesystem")
    argv = receive_argv("cold/a", "filesystem", encryption="inherit")
    assert argv[argv.index("encryption") - 1] == "-x"
    argv = receive_argv("cold/a", "filesystem", encryption="off")
    assert argv[argv.index("encryption=off") - 1] == "-o"
    back = restore_send_argv("cold/a@s1", raw=False, properties=False)
    assert back == ["zfs", "send", "-vP", "-L", "-c", "-e", "cold/a@s1"]
    assert restore_send_argv("cold/a@s1", raw=True, properties=False) == restore_send_argv(
        "cold/a@s1", raw=True
    )


def test_a_restore_brings_properties_back_but_neither_mounts_nor_shares() -> None:
    assert restore_send_argv("cold/a@s1", raw=False) == [
        "zfs",
        "send",
        "-vP",
        "-L",
        "-c",
        "-e",
        "-b",
        "cold/a@s1",
    ]
    assert restore_send_argv("cold/a@s1", raw=True) == [
        "zfs",
        "send",
        "-vP",
        "-L",
        "-c",
        "-w",
        "-p",
        "cold/a@s1",
    ]
    names = ("sent", "source-properties", "receive-properties", "placeholder", "scratch")
    own = [word for name in names for word in ("-x", f"org.zvault:{name}")]
    left_out = [*own, "-x", "mountpoint", "-x", "sharenfs", "-x", "sharesmb"]
    filesystem = restore_receive_argv("tank/new", "filesystem", raw=False)
    assert filesystem == ["zfs", "receive", "-s", "-u", *left_out, "tank/new"]
    volume = restore_receive_argv("tank/new", "volume", raw=False)
    assert volume == ["zfs", "receive", "-s", "-u", *own, "tank/new"]


def test_a_clone_is_restored_from_its_origin_and_marked_until_all_is_done() -> None:
    send = restore_send_argv("cold/b@s2", raw=False, base="cold/a@s1")
    assert send[-3:] == ["-i", "cold/a@s1", "cold/b@s2"]
    receive = restore_receive_argv("tank/b", "volume", raw=False, origin="tank/a@s1", mark="77")
    assert receive[4:8] == ["-o", "org.zvault:restoring=77", "-o", "origin=tank/a@s1"]
    assert restore_resume_argv("1-abc")[-2:] == ["-t", "1-abc"]


def test_mbuffer_gets_bytes_and_kilobytes() -> None:
    assert mbuffer_argv(128 << 20, 128 << 10) == ["mbuffer", "-s", "131072", "-m", "131072k"]


SEND_SAYS = [
    "full\ttank@s1\t210090608",
    "incremental\ts1\ttank/my data@s2\t21016432",
    "size\t210090608",
    "12:04:46\t60833664\ttank@s1",
    "12:44:16\t15769728\ttank/my data@s3",
]


def test_what_zfs_send_has_sent() -> None:
    assert [parse_bytes_sent(line) for line in SEND_SAYS] == [None, None, None, 60833664, 15769728]


@pytest.mark.parametrize("cut", range(1, len("12:04:46\t60833664\t")))
def test_half_a_line_is_no_number(cut: int) -> None:
    assert parse_bytes_sent("12:04:46\t60833664\ttank@s1"[:cut]) is None


MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("line", "passed"),
    [
        (
            "in @ 62.9 MiB/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer 100% full",
            (int(28.1 * MIB), 100),
        ),
        ("in @ 13.7 MiB/s, out @ 14.2 MiB/s, 40.1 MiB total, buffer  97% full", (int(40.1 * MIB), 97)),
        ("in @  0.0 kiB/s, out @  0.0 kiB/s,  0.0 kiB total, buffer   0% full", (0, 0)),
        ("in @ 4019 kiB/s, out @ 2009 kiB/s, 1408 kiB total, buffer  34% full", (1408 << 10, 34)),
        ("in @  210 MiB/s, out @  198 MiB/s, 9999 MiB total, buffer   3% full", (9999 * MIB, 3)),
        ("in @  210 MiB/s, out @  198 MiB/s, 97.7 GiB total, buffer   3% full", (int(97.7 * GIB), 3)),
        ("in @  1.2 GiB/s, out @  1.1 GiB/s, 12.5 TiB total, buffer   3% full", (int(12.5 * 1024 * GIB), 3)),
        (
            "in @ 62.9 MiB/s, out @ 40.0 MiB/s, 2 x 28.1 MiB total, buffer  50% full,  23% done",
            (int(28.1 * MIB), 50),
        ),
        ("in @  ??? B/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer 100% full", (int(28.1 * MIB), 100)),
        ("in @ 62.9 MiB/s, out @ 40.0 MiB/s, 1e+05 B total, buffer   0% full", None),
        ("summary:  201 MiByte in  5.0sec - average of 40.0 MiB/s", (201 * MIB, None)),
        ("summary: 15.4 MiByte in  1.6sec - average of  9.8 MiB/s", (int(15.4 * MIB), None)),
        ("summary:  0.0 kiByte in  0.0sec - average of  0.0 kiB/s", (0, None)),
        ("summary: 33.5 GiByte in  9min 40.1sec - average of 59.1 MiB/s", (int(33.5 * GIB), None)),
        (
            "summary: 12.5 TiByte in 30h 02min 04.1sec - average of  120 MiB/s, 3x empty",
            (13743895347200, None),
        ),
        ("in @ 62.9 MiB/s, out @ 40.0 MiB/s", None),
        ("mbuffer: warning: error during output to <stdout>: Broken pipe", None),
    ],
)
def test_what_mbuffer_has_passed_on(line: str, passed: tuple[int, int | None] | None) -> None:
    assert parse_bytes_passed(line) == passed


@given(st.text(alphabet="in@MkGB.,/s totalbuffer%0123456789e+ \t:", max_size=60))
def test_no_line_upsets_the_readers(line: str) -> None:
    parse_bytes_passed(line)
    parse_bytes_sent(line)
    is_progress(line)


@pytest.mark.parametrize("digits", [21, 400, 5000])
def test_a_number_that_is_none_of_theirs_is_not_read(digits: int) -> None:
    number = "9" * digits
    assert parse_bytes_sent(f"12:04:46\t{number}\ttank@s1") is None
    assert (
        parse_bytes_passed(f"in @ 62.9 MiB/s, out @ 40.0 MiB/s, {number} MiB total, buffer 100% full") is None
    )


def test_progress_is_told_from_trouble() -> None:
    for line in (
        *SEND_SAYS,
        "in @ 62.9 MiB/s, out @ 40.0 MiB/s, 28.1 MiB total, buffer 100% full",
        "summary:  201 MiByte in  5.0sec - average of 40.0 MiB/s",
        "resume token contents:",
        "nvlist version: 0",
        "\tfromguid = 0xef8aff84a9685ca8",
        "\ttoname = tank/my data@s3",
    ):
        assert is_progress(line), line
    for line in (
        "cannot open 'tank/my data@nope': dataset does not exist",
        "warning: cannot send 'tank/vol@s1': signal received",
        "cannot receive new filesystem stream: checksum mismatch or incomplete stream.",
        "mbuffer: error: outputThread: error writing to <stdout> at offset 0xf70000: Broken pipe",
    ):
        assert not is_progress(line), line
