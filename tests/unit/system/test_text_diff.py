"""The lines that differ come from diff(1), of contents that were in no file, whatever these hold."""

from __future__ import annotations

from zvault.system.process.runner import HostRunner
from zvault.system.process.unprivileged import unprivileged_argv
from zvault.system.text_diff import DIFFERS, SAME, encode_diff_input, text_diff_argv


async def compared(old: bytes, new: bytes) -> tuple[int, str]:
    labels = ["a: --help", "b"]
    argv = unprivileged_argv(text_diff_argv())
    done = await HostRunner().run(argv, stdin=encode_diff_input(labels, [old, new]), check=False)
    return done.returncode, done.stdout


async def test_a_unified_diff() -> None:
    code, said = await compared(b"1\n2\n", b"1\nx\xff\x1b")
    assert code == DIFFERS
    assert said == (
        "--- a: --help\n+++ b\n@@ -1,2 +1,2 @@\n 1\n-2\n+x\ufffd\x1b\n\\ No newline at end of file\n"
    )


async def test_the_same() -> None:
    assert await compared(b"--x\n", b"--x\n") == (SAME, "")
