"""A server that is to stop, and has clients: in a process of its own, for the signals are its main thread's."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE

SERVER = """
import os, socket, sys, threading
from zvault.blockstore.stop_signal import end_clients_on_stop, hang_up_clients

listens = socket.socket(socket.AF_UNIX)
listens.bind(sys.argv[1])
listens.listen()
pair, other = socket.socketpair()
store = socket.create_server(("127.0.0.1", 0))
to_store = socket.create_connection(store.getsockname())
at_store, _ = store.accept()
over = threading.Event()
end_clients_on_stop(over.set)
print("ready", flush=True)
client, _ = listens.accept()
files = len(os.listdir("/proc/self/fd"))
asked = client.recv(7)
print("accepted", flush=True)
gone = client.recv(7)
over.wait()
client.sendall(b"answer to " + asked)
other.sendall(b"pair")
at_store.sendall(b"store")
print(gone, pair.recv(5), to_store.recv(5), flush=True)
for _ in range(20):
    hang_up_clients()
print(len(os.listdir("/proc/self/fd")) - files, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_client_that_does_not_go_is_hung_up_on_and_what_is_worked_on_is_answered(
    tmp_path: Path, number: signal.Signals
) -> None:
    argv = [sys.executable, "-c", SERVER, str(tmp_path / "socket")]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(PATIENCE)
            client.connect(str(tmp_path / "socket"))
            client.sendall(b"request")
            assert server.stdout.readline() == "accepted\n"
            server.send_signal(number)
            assert client.recv(100) == b"answer to request"
            assert server.stdout.readline() == "b'' b'pair' b'store'\n"
            # What is put away after that opens files: the looks for clients leave none behind.
            assert int(server.stdout.readline()) <= 2
            assert server.wait(PATIENCE) == 0
