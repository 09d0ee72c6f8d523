"""zvaultctl for tests that use it and do not test how it starts: each command is a process of its own, forked from one
that has imported it already. Run as a program, this is that process.

Its half second of imports, some thousand times, was a tenth of what the lab's guests computed.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NoReturn

LARGEST = 1 << 20
"""Bytes of a request: its words and its environment."""


@cache
def _server() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        its.set_inheritable(True)
        subprocess.Popen([sys.executable, __file__, str(its.fileno())], pass_fds=[its.fileno()])
    return ours


def run(argv: Sequence[str], timeout: float) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command.

    Raises subprocess.TimeoutExpired after ``timeout`` seconds.
    """
    words = ["zvaultctl", *argv]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        result, its = os.pipe()
        with os.fdopen(result, "rb", buffering=0) as told:
            request = json.dumps([words, str(Path.cwd()), dict(os.environ)]).encode()
            socket.send_fds(_server(), [request], [out.fileno(), err.fileno(), its])
            os.close(its)
            process = int(told.read(16) or 0)
            ended = select.poll()
            ended.register(told, select.POLLIN)
            if not ended.poll(timeout * 1000):
                os.kill(process, signal.SIGKILL)
                raise subprocess.TimeoutExpired(words, timeout)
            code = told.read(16)
        texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
    assert code, f"{words} was killed: {texts}"
    return int(code), texts[0], texts[1]


def _serve(requests: socket.socket) -> None:
    from zvault.cli.app import assemble_app

    assemble_app()  # imports all verbs
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    while True:
        request, files, _, _ = socket.recv_fds(requests, LARGEST, 3)
        if not request:
            return  # whoever asked has ended
        if os.fork() == 0:
            requests.close()
            _become(*json.loads(request), *files)
        for file in files:
            os.close(file)


def _become(
    argv: list[str], folder: str, environment: dict[str, str], out: int, err: int, result: int
) -> NoReturn:
    from zvault.cli.app import main

    os.write(result, b"%16d" % os.getpid())
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = argv
    code = 0
    try:
        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # as the interpreter would, and never back to where it was forked
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(result, b"%16d" % code)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.path.pop(0)  # zvault is what is installed, whatever lies beside this file
    _serve(socket.socket(fileno=int(sys.argv[1])))
