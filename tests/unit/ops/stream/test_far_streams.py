"""Who is to blame when a stream between two hosts breaks: the link, the far end, or the near one."""

import pytest

from zvault.core.address import Address
from zvault.core.errors import Conflict, HostUnreachable, StreamRefused, VaultFull, ZfsRefused
from zvault.ops.stream.failure import raise_stream_failure
from zvault.system import ssh
from zvault.system.process.pipeline import StageEnd
from zvault.zfs.gate.check import OrderedSnapshot, StreamOrder
from zvault.zfs.gate.process import GATE_PREFIX, INCOMPLETE, REFUSED_STATUS, gate_argv

PEER = Address("peer", "root")
FAR = tuple(ssh.ssh_argv(PEER, None, "exec sh -c 'zfs …'"))
SEND, RECEIVE, MBUFFER = ("zfs", "send", "-vP", "t@1"), ("zfs", "receive", "v/t"), ("mbuffer", "-s", "1")
PROGRESS = "full\ttank@1\t100\nsize\t100\n12:00:01\t50\ttank@1\n"
ECHO = "cannot receive new filesystem stream: incomplete stream\n"


def end(argv: tuple[str, ...], code: int, said: str = "", at: float = 0.0) -> StageEnd:
    return StageEnd(argv, code, said, at)


@pytest.mark.parametrize(
    "said",
    [
        "Timeout, server peer not responding.\n",
        "client_loop: send disconnect: Broken pipe\n",
        "Connection to peer closed by remote host.\n",
        "",  # a shared connection that was given up
    ],
)
def test_a_link_that_is_lost_is_the_link_s_fault(said: str) -> None:
    pull = [end(FAR, 255, PROGRESS + said, 1), end(MBUFFER, 0, "", 2), end(RECEIVE, 1, ECHO, 3)]
    push = [
        end(SEND, -13, PROGRESS, 3),
        end(MBUFFER, 1, "mbuffer: error: Broken pipe\n", 2),
        end(FAR, 255, said, 1),
    ]
    for ends in (pull, push):
        with pytest.raises(HostUnreachable, match=r"lost the link to ssh://root@peer"):
            raise_stream_failure(ends)


def test_what_the_far_sender_says_is_told() -> None:
    ends = [
        end(FAR, 1, PROGRESS + "warning: cannot send 'tank@1': permission denied\n", 1),
        end(MBUFFER, 0, "", 2),
        end(RECEIVE, 1, ECHO, 3),
    ]
    with pytest.raises(ZfsRefused) as caught:
        raise_stream_failure(ends)
    assert caught.value.what == "the stream failed on ssh://root@peer"
    assert "permission denied" in caught.value.why
    assert "'zfs allow'" in caught.value.next


@pytest.mark.parametrize("code", [141, 255])
def test_a_far_sender_that_lost_its_receiver_here_is_not_to_blame(code: int) -> None:
    """The command over there died of SIGPIPE: its shell says 141; without a shell ssh says 255 and no word."""
    ends = [
        end(FAR, code, PROGRESS, 1),
        end(MBUFFER, 1, "mbuffer: error: Broken pipe\n", 2),
        end(RECEIVE, 1, "cannot receive: out of space\n", 3),
    ]
    with pytest.raises(VaultFull):
        raise_stream_failure(ends)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("cannot receive incremental stream: out of space\n", VaultFull),
        (
            "cannot receive incremental stream: destination v/t has been modified\nsince most recent snapshot\n",
            Conflict,
        ),
    ],
)
def test_a_far_receiver_s_words_mean_what_they_mean_here(said: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        raise_stream_failure([end(SEND, -13, PROGRESS, 2), end(FAR, 1, said, 1)])


def test_a_host_key_that_changed_is_told_of_a_stream_too() -> None:
    said = "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.\n"
    with pytest.raises(Exception, match="another host key"):
        raise_stream_failure([end(FAR, 255, said, 1), end(RECEIVE, 1, ECHO, 2)])


GATE = tuple(gate_argv(StreamOrder("t", 2, 0, (OrderedSnapshot(1, "1"),))))


def test_a_stream_that_the_gate_refuses_is_nobody_else_s_fault() -> None:
    ends = [
        end(FAR, 255, PROGRESS, 1),
        end(MBUFFER, 1, "mbuffer: error: Broken pipe\n", 2),
        end(GATE, REFUSED_STATUS, f"{GATE_PREFIX}'t/kid@1' in it has the GUID 7, not 1\n", 3),
        end(RECEIVE, 1, ECHO, 2.5),
    ]
    with pytest.raises(StreamRefused) as caught:
        raise_stream_failure(ends)
    assert caught.value.why == "'t/kid@1' in it has the GUID 7, not 1"
    assert not caught.value.retryable


def test_a_link_that_is_lost_is_not_the_gate_s_fault() -> None:
    cut = end(GATE, 1, f"{GATE_PREFIX}{INCOMPLETE}\n", 1)
    with pytest.raises(HostUnreachable):
        raise_stream_failure(
            [end(FAR, 255, PROGRESS, 2), end(MBUFFER, 0, "", 2), cut, end(RECEIVE, 1, ECHO, 3)]
        )
    full = end(RECEIVE, 1, "cannot receive: out of space\n", 3)
    with pytest.raises(VaultFull):
        raise_stream_failure([end(FAR, 255, PROGRESS, 2), end(GATE, -13, "", 2), full])
