"""Which stage of a stream that failed is to blame, and what kind of error that is."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from zvault.core.errors import ResumeRefused, StreamRefused, TransferFailed
from zvault.core.refusals import UNKNOWN_NEXT, Speaker, find_refusal
from zvault.system import ssh
from zvault.system.process.pipeline import StageEnd
from zvault.system.process.spawn import describe_exit
from zvault.system.process.throttle import parse_bytes_let_pass
from zvault.zfs.gate.process import GATE_PREFIX, INCOMPLETE, REFUSED_STATUS, is_gate
from zvault.zfs.stream_stages import is_progress

_ECHOES = ("incomplete stream", "failed to read from stream", "invalid backup stream")
"""What zfs receive says of a stream that ended too soon: the cause is whoever ended it."""


_TOKEN_IS_BAD = (
    "used in the initial send",
    "cannot resume send: incremental source",
    "resume token is corrupt",
    "resume stream: kernel modules must be upgraded",
    "resume stream: incompatible embedded data",
    "resume stream: IV set guid missing",
    "resume stream: Resuming recv on existing destination",
)
"""What either side says of a resume token that is of no use (libzfs_sendrecv.c).

"Kernel modules" and "embedded data" are what libzfs makes of any EINVAL (2.3.9). What is not among these may be
another trouble, for which nothing of what was received is given up.
"""


def raise_stream_failure(ends: Sequence[StageEnd]) -> None:
    """Raise for the stage that failed first; the others fail only because it did."""
    failed = [end for end in ends if not end.ok]
    if not failed:
        return
    culprit = _culprit(failed, ends[-1])
    there = ssh.find_ssh_address(culprit.argv)
    if there is not None and culprit.returncode == ssh.OWN_FAILURE:
        raise ssh.make_ssh_error(there, "\n".join(_words(culprit)))
    if is_gate(culprit.argv) and culprit.returncode == REFUSED_STATUS:
        raise StreamRefused(
            "what was sent is not what was ordered, and was not received",
            _complaint(culprit).removeprefix(GATE_PREFIX),
            "look at who controls the sending host: its ZFS would not send this by itself",
        )
    what = f"{_program(culprit.argv)} failed" if there is None else f"the stream failed on {there}"
    said, code = _complaint(culprit), culprit.returncode
    # What one that was killed said before is not why it ended.
    why = "; ".join(filter(None, [describe_exit(code), said])) if code < 0 else said or describe_exit(code)
    if any(phrase in culprit.stderr for phrase in _TOKEN_IS_BAD):
        raise ResumeRefused(what, why, "nothing: it begins anew")
    if code < 0 or not said:
        raise TransferFailed(what, why, "the next try resumes what was received")
    row = find_refusal(culprit.stderr, _speaker(culprit, ends))
    if row is not None:
        raise row.error(what, why, row.next)
    raise TransferFailed(what, why, UNKNOWN_NEXT)


def _speaker(culprit: StageEnd, ends: Sequence[StageEnd]) -> Speaker:
    """Which row of the table may be its: a stage between the two ends has nothing of ZFS to say."""
    if culprit is ends[-1]:
        return "receive"
    return "send" if culprit is ends[0] else "any"


def _culprit(failed: Sequence[StageEnd], receiver: StageEnd) -> StageEnd:
    """The gate, if it refuses the stream; the receiver, if it says what it has against the stream; else the first that
    did not just lose its neighbour.
    """
    if refusing := [end for end in failed if is_gate(end.argv) and end.returncode == REFUSED_STATUS]:
        return refusing[0]
    echo = any(phrase in receiver.stderr for phrase in _ECHOES)
    if receiver in failed and not echo and _complaint(receiver):
        return receiver
    if echo and all(_lost_its_reader(end) for end in failed if end is not receiver):
        # The others only lost whom they wrote to, so nobody but the receiver ended by itself: it says the same of
        # wrong bytes on its own disks.
        return receiver
    at_fault = [end for end in failed if not (end is receiver and echo) and not _lost_its_neighbour(end)]
    others = [end for end in failed if not is_gate(end.argv)]
    return min(at_fault or others or failed, key=lambda end: end.ended)


def _lost_its_neighbour(end: StageEnd) -> bool:
    """Whether a stage ended only because nobody took what it wrote, or gave it all that it was to pass on."""
    if _is_lost_link(end):
        return not _complaint(end)
    if is_gate(end.argv) and INCOMPLETE in end.stderr:
        return True
    return _lost_its_reader(end)


def _is_lost_link(end: StageEnd) -> bool:
    return end.returncode == ssh.OWN_FAILURE and ssh.find_ssh_address(end.argv) is not None


def _lost_its_reader(end: StageEnd) -> bool:
    """Whether a stage ended only because nobody took what it wrote; ssh says "Broken pipe" of its own link, too."""
    if _is_lost_link(end):
        return False
    return end.returncode in {-signal.SIGPIPE, 128 + signal.SIGPIPE} or "Broken pipe" in end.stderr


def _program(argv: Sequence[str]) -> str:
    if is_gate(argv):
        return "the gate"
    return " ".join(argv[:2]) if argv[0] == "zfs" else argv[0]


def _words(end: StageEnd) -> list[str]:
    """What a stage said, line by line, without its progress."""
    said = [line.strip() for line in end.stderr.splitlines() if line.strip()]
    return [line for line in said if not is_progress(line) and parse_bytes_let_pass(line) is None]


def _complaint(end: StageEnd) -> str:
    """What a stage said of its trouble: its lines without progress and without the hint how to resume."""
    lines = _words(end)
    hint = next((i for i, line in enumerate(lines) if line.startswith("Partially received")), len(lines))
    return "; ".join(lines[:hint][:3])
