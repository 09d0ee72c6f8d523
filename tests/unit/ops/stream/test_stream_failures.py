"""Which stage of a stream failed first, of those that ended, with what zfs and mbuffer were seen to say."""

import pytest

from zvault.core.errors import (
    Busy,
    Conflict,
    DeviceGone,
    PoolSuspended,
    ResumeRefused,
    TransferFailed,
    VaultFull,
    WrongBytes,
    ZfsRefused,
    ZvaultError,
)
from zvault.core.refusals import UNKNOWN_NEXT
from zvault.ops.stream.failure import raise_stream_failure
from zvault.system.process.pipeline import StageEnd

SEND = ("zfs", "send", "-vP", "tank@s2")
BUFFER = ("mbuffer", "-s", "131072", "-m", "131072k")
RECEIVE = ("zfs", "receive", "-s", "-u", "cold/tank")
TRUNCATED = """\
cannot receive new filesystem stream: checksum mismatch or incomplete stream.
Partially received snapshot is saved.
A resuming stream can be generated on the sending system by running:
    zfs send -t 1-c1e34dae5-b8-789c636064000310a500c4ec50360710e72765a5
"""
SENT = "full\ttank@s2\t105055600\nsize\t105055600\n12:44:23\t15637568\ttank@s2\n"
PASSED = "in @ 15.9 MiB/s, out @ 10.0 MiB/s, 12.0 MiB total, buffer 100% full\n"
NEEDS_L = "incremental send stream requires -L (--large-block), to match previous receive."
ECHO = "cannot receive: failed to read from stream\n"
BROKEN_PIPE = (
    PASSED + "mbuffer: error: outputThread: error writing to <stdout> at offset 0xf70000: Broken pipe\n"
    "mbuffer: warning: error during output to <stdout>: Broken pipe\n"
    "summary: 15.4 MiByte in  1.6sec - average of  9.8 MiB/s\n"
)


def ends(*said: tuple[int, str, float]) -> list[StageEnd]:
    stages = [SEND, RECEIVE] if len(said) == 2 else [SEND, BUFFER, RECEIVE]
    return [StageEnd(argv, code, text, when) for argv, (code, text, when) in zip(stages, said, strict=True)]


def test_a_stream_that_went_well_blames_nobody() -> None:
    raise_stream_failure(ends((0, SENT, 1.0), (0, PASSED, 1.1), (0, "", 1.2)))


@pytest.mark.parametrize(
    ("said", "kind", "what", "why"),
    [
        pytest.param(
            (
                (1, SENT + "warning: cannot send 'tank@s2': Input/output error\n", 1.0),
                (0, PASSED, 1.1),
                (1, TRUNCATED, 1.2),
            ),
            TransferFailed,
            "zfs send failed",
            "warning: cannot send 'tank@s2': Input/output error",
            id="the sender cannot read on",
        ),
        pytest.param(
            ((-13, SENT, 1.1), (-9, PASSED, 1.0), (1, TRUNCATED, 1.2)),
            TransferFailed,
            "mbuffer failed",
            "killed by signal 9",
            id="mbuffer was killed",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, BROKEN_PIPE, 1.1), (1, TRUNCATED, 1.2)),
            WrongBytes,
            "zfs receive failed",
            "cannot receive new filesystem stream: checksum mismatch or incomplete stream.",
            id="the receiver read wrong bytes, of its own disks perhaps, and nobody else ended",
        ),
        pytest.param(
            ((-13, SENT, 1.2), (1, BROKEN_PIPE, 1.1), (-9, "", 1.0)),
            TransferFailed,
            "zfs receive failed",
            "killed by signal 9",
            id="the receiver was killed",
        ),
        pytest.param(
            (
                (-13, SENT, 1.0),
                (1, BROKEN_PIPE, 1.1),
                (
                    1,
                    "cannot receive incremental stream: destination cold/tank has been modified\n"
                    "since most recent snapshot\n",
                    1.2,
                ),
            ),
            Conflict,
            "zfs receive failed",
            "cannot receive incremental stream: destination cold/tank has been modified; since most recent snapshot",
            id="the vault was written to",
        ),
        pytest.param(
            (
                (-13, SENT, 1.0),
                (1, BROKEN_PIPE, 1.1),
                (1, "cannot receive new filesystem stream: out of space\n", 1.2),
            ),
            VaultFull,
            "zfs receive failed",
            "cannot receive new filesystem stream: out of space",
            id="the vault is full",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, "cannot receive: pool I/O is currently suspended\n", 1.2)),
            PoolSuspended,
            "zfs receive failed",
            "cannot receive: pool I/O is currently suspended",
            id="the vault is suspended",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, "cannot receive new filesystem stream: I/O error\n", 1.2)),
            DeviceGone,
            "zfs receive failed",
            "cannot receive new filesystem stream: I/O error",
            id="the vault's device fails",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, "cannot receive incremental stream: dataset is busy\n", 1.2)),
            Busy,
            "zfs receive failed",
            "cannot receive incremental stream: dataset is busy",
            id="another receive runs",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, f"cannot receive incremental stream: {NEEDS_L}\n", 1.2)),
            Conflict,
            "zfs receive failed",
            f"cannot receive incremental stream: {NEEDS_L}",
            id="the vault was sent with -L before",
        ),
        pytest.param(
            (
                (-13, SENT, 1.0),
                (1, "cannot receive incremental stream: IV set guid mismatch. See the man page", 1.2),
            ),
            Conflict,
            "zfs receive failed",
            "cannot receive incremental stream: IV set guid mismatch. See the man page",
            id="the vault was not sent raw before",
        ),
        pytest.param(
            (
                (255, "cannot resume send: 'tank@s2' used in the initial send no longer exists\n", 1.0),
                (1, ECHO, 1.2),
            ),
            ResumeRefused,
            "zfs send failed",
            "cannot resume send: 'tank@s2' used in the initial send no longer exists",
            id="the snapshot of a token went since it was looked at",
        ),
        *(
            pytest.param(
                ((-13, SENT, 1.0), (1, f"cannot receive resume stream: {words}\n", 1.2)),
                ResumeRefused,
                "zfs receive failed",
                f"cannot receive resume stream: {words}",
                id=words,
            )
            for words in (
                "kernel modules must be upgraded to receive this stream.",
                "incompatible embedded data stream feature with encrypted receive.",
                "IV set guid missing. See errata 4",
            )
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, "cannot receive resume stream: permission denied\n", 1.2)),
            ZfsRefused,
            "zfs receive failed",
            "cannot receive resume stream: permission denied",
            id="not the token's fault",
        ),
        pytest.param(
            ((-13, SENT, 1.0), (1, "cannot receive resume stream: out of space\n", 1.2)),
            VaultFull,
            "zfs receive failed",
            "cannot receive resume stream: out of space",
            id="the token is good, the vault is full",
        ),
    ],
)
def test_the_one_who_failed_first_is_named(
    said: tuple[tuple[int, str, float], ...], kind: type[ZvaultError], what: str, why: str
) -> None:
    with pytest.raises(kind) as failure:
        raise_stream_failure(ends(*said))
    assert (failure.value.what, failure.value.why) == (what, why)
    assert type(failure.value) is kind
    assert failure.value.next


@pytest.mark.parametrize(
    "echo",
    [
        "cannot receive: failed to read from stream\n",
        "cannot receive: failed to read from stream\ncannot receive: invalid backup stream\n",
        "cannot receive new filesystem stream: invalid backup stream\n",
        "cannot open 'cold/tank': dataset does not exist\n"
        "cannot receive new filesystem stream: invalid backup stream\n",
    ],
)
def test_a_sender_that_fails_at_once_is_named_and_not_the_receiver_that_got_nothing(echo: str) -> None:
    words = "cannot open 'tank@s2': dataset does not exist"
    with pytest.raises(TransferFailed) as failure:
        raise_stream_failure(ends((1, words + "\n", 1.0), (0, "", 1.1), (1, echo, 1.2)))
    assert (failure.value.what, failure.value.why) == ("zfs send failed", words)


def test_who_only_lost_his_reader_is_not_to_blame_whoever_was_seen_to_end_first() -> None:
    # mbuffer was killed; that zfs send had ended by SIGPIPE was noticed a moment earlier.
    with pytest.raises(TransferFailed) as failure:
        raise_stream_failure(ends((-13, SENT, 1.0), (-9, PASSED, 1.0001), (1, TRUNCATED, 1.2)))
    assert failure.value.what == "mbuffer failed"


def test_what_one_that_was_killed_said_before_is_not_why_it_ended() -> None:
    with pytest.raises(TransferFailed) as caught:
        raise_stream_failure(
            ends((-13, SENT, 1.1), (-9, "mbuffer: warning: HOME is not set\n", 1.0), (1, TRUNCATED, 1.2))
        )
    assert caught.value.why.startswith("killed by signal 9; ")


@pytest.mark.parametrize(
    "said",
    [
        "cannot receive new filesystem stream: pool must be upgraded to receive this stream.",
        "cannot receive incremental stream: pool is read-only",
        "cannot receive new filesystem stream: parent 'cold/vol' is not a filesystem",
        f"cannot receive incremental stream: {NEEDS_L}",
    ],
)
def test_what_zfs_refuses_for_good_is_not_tried_again_and_never_told_so(said: str) -> None:
    with pytest.raises(ZvaultError) as failure:
        raise_stream_failure(
            ends((-13, SENT + "warning: cannot send 'tank@s2': signal received\n", 1.0), (1, said, 1.2))
        )
    assert not failure.value.retryable
    assert "again" not in failure.value.next


def test_what_nobody_knows_may_pass_but_nobody_is_told_to_run_it_again() -> None:
    with pytest.raises(TransferFailed) as failure:
        raise_stream_failure(ends((-13, SENT, 1.0), (1, "cannot receive: the moon is full\n", 1.2)))
    assert failure.value.retryable, "as often as 'retries' says"
    assert failure.value.next == UNKNOWN_NEXT
    assert "again" not in failure.value.next


def test_a_locked_source_is_told_of_the_sender() -> None:
    with pytest.raises(ZfsRefused) as failure:
        raise_stream_failure(
            ends((1, "warning: cannot send 'tank@s2': dataset key must be loaded\n", 1.0), (1, ECHO, 1.2))
        )
    assert "'zfs load-key' the source's dataset" in failure.value.next
