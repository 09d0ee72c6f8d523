"""Has one message sent by a process of its own: it may hang, be told lies, or die, and nobody else notices."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from zvault.core.errors import DeadlineExceeded, ToolFailed
from zvault.system.process.runner import ProcessRunner
from zvault.system.process.spawn import make_bare_environment

SENDER_CHILD = Path(__file__).with_name("sender_child.py")

SENDER_GRACE = 5.0
"""Seconds for the process to start, and to say itself that time is up."""


def bare_argv(argv: Sequence[str]) -> list[str]:
    """A program without zvaultd's environment, which may have keys in it."""
    return ["env", "-i", *(f"{name}={value}" for name, value in make_bare_environment().items()), *argv]


async def send_message(runner: ProcessRunner, order: Mapping[str, Any], timeout: float) -> str:
    """Carry an order of sender_child.py out; what there is to tell all the same. Raises ToolFailed, DeadlineExceeded.

    Secrets are on its stdin, and on no command line. What it says is another host's: it may have anything in it.
    """
    text = json.dumps({**order, "timeout": timeout}).encode()
    try:
        done = await runner.run(
            bare_argv([sys.executable, "-I", str(SENDER_CHILD)]),
            deadline=timeout + SENDER_GRACE,
            stdin=text,
            check=False,
        )
    except DeadlineExceeded:
        raise DeadlineExceeded("it was not sent", f"it did not end within {timeout:g} s") from None
    try:
        said = json.loads(done.stdout)
        ok, told = bool(said["ok"]), str(said["told"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ToolFailed("it was not sent", f"the process that sends it ended: {done.complaint()}") from None
    if not ok:
        raise ToolFailed("it was not sent", told)
    return told


async def send_mail_locally(
    runner: ProcessRunner, sender: str, recipients: Sequence[str], mail: bytes, timeout: float
) -> None:
    """Give mail to the host's own mail system. Raises ToolMissing, ToolFailed, DeadlineExceeded."""
    argv = bare_argv(["sendmail", "-oi", "-f", sender, *recipients])
    try:
        done = await runner.run(argv, deadline=timeout, stdin=mail, check=False)
    except DeadlineExceeded:
        raise DeadlineExceeded("it was not sent", f"sendmail did not end within {timeout:g} s") from None
    if done.returncode == 127:
        raise ToolFailed(
            "it was not sent", "there is no sendmail on this host", "install a mail system, or set smtp"
        )
    if done.returncode != 0:
        raise ToolFailed("it was not sent", f"sendmail failed: {done.complaint()}")
