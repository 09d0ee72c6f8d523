"""The NBD server that behaves by a script of faults: over its own socket, by a client of the protocol."""

import errno
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "lab"))
import faulty_nbd
from fault_script import parse_script
from faulty_nbd import FLUSH, READ, TRIM, WRITE, Disk, FaultyServer, FaultyStorage

SIZE = 8 << 20
BLOCK = 4096


class Client:
    """One connection to an export, by NBD_OPT_GO."""

    def __init__(self, port: int, export: str = "") -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        assert self.receive(18)[:16] == b"NBDMAGICIHAVEOPT"
        name = export.encode()
        body = struct.pack(">I", len(name)) + name + struct.pack(">H", 0)
        self.socket.sendall(struct.pack(">I", 3) + struct.pack(">8sII", b"IHAVEOPT", 7, len(body)) + body)
        self.size = self.flags = 0
        kind = 0
        while kind != faulty_nbd.REP_ACK:
            _, _, kind, length = struct.unpack(">QIII", self.receive(20))
            data = self.receive(length)
            if kind == faulty_nbd.REP_ERR_UNKNOWN:
                raise LookupError(export)
            if kind == faulty_nbd.REP_INFO:
                self.size, self.flags = struct.unpack(">HQH", data)[1:]

    def receive(self, length: int) -> bytes:
        return faulty_nbd._receive(self.socket, length)

    def send(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"") -> None:
        head = struct.pack(">IHHQQI", 0x25609513, 0, kind, kind, offset, length or len(data))
        self.socket.sendall(head + data)

    def receive_reply(self, length: int = 0) -> tuple[int, int, bytes]:
        """The kind that is answered, its errno and what was read."""
        _, code, cookie = struct.unpack(">IIQ", self.receive(16))
        return cookie, code, self.receive(length) if cookie == READ and not code else b""

    def do(self, kind: int, offset: int = 0, length: int = 0, data: bytes = b"") -> bytes:
        """A request that is answered well."""
        self.send(kind, offset, length, data)
        answered, code, read = self.receive_reply(length)
        assert (answered, code) == (kind, 0)
        return read


@pytest.fixture(name="server")
def sound_server(tmp_path: Path) -> Iterator[FaultyServer]:
    path = tmp_path / "disk"
    path.touch()
    os.truncate(path, SIZE)
    it = FaultyServer(Disk(path))
    it.listen()
    yield it
    it.be_sound()
    it.close()


def begin(server: FaultyServer, text: str) -> None:
    server.start_script(parse_script(f"run: {text}").faults)


def wait_until_gone(client: Client) -> None:
    """Until the server has ended a connection."""
    with pytest.raises((EOFError, OSError)):
        client.receive(1)


def connect_again(port: int) -> Client:
    end = time.monotonic() + 10
    while True:
        try:
            return Client(port)
        except (OSError, EOFError):
            assert time.monotonic() < end
            time.sleep(0.02)


def test_a_sound_one_keeps_what_is_written(server: FaultyServer) -> None:
    client = Client(server.port)
    assert client.size == SIZE
    client.do(WRITE, BLOCK, data=b"x" * BLOCK)
    assert client.do(READ, 0, 3 * BLOCK) == bytes(BLOCK) + b"x" * BLOCK + bytes(BLOCK)
    client.do(TRIM, BLOCK, BLOCK)
    assert client.do(READ, BLOCK, BLOCK) == bytes(BLOCK)
    client.send(READ, SIZE, BLOCK)
    assert client.receive_reply()[1] == errno.EINVAL
    with pytest.raises(LookupError):
        Client(server.port, "another")


def test_a_kind_that_stalls_lets_the_others_pass(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 stall flush for 600")
    client.send(FLUSH)
    client.send(READ, 0, BLOCK)
    assert client.receive_reply(BLOCK)[0] == READ
    server.be_sound()
    assert client.receive_reply()[:2] == (FLUSH, 0)


def test_what_stalls_goes_on_when_its_time_is_over(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 stall flush for 0.6")
    client.do(FLUSH)


def test_a_slow_kind_and_one_that_fails(server: FaultyServer) -> None:
    client = Client(server.port)
    began = time.monotonic()
    begin(server, "0 slow read by 0.3 for 600; 0 error write for 600")
    client.do(READ, 0, BLOCK)
    assert time.monotonic() - began >= 0.3
    client.send(WRITE, 0, data=b"x" * BLOCK)
    assert client.receive_reply()[:2] == (WRITE, errno.EIO)
    server.be_sound()
    assert client.do(READ, 0, BLOCK) == bytes(BLOCK), "what failed was not written"


def test_read_only_and_another_size_are_told_to_who_connects(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 read-only for 9; 0 shrink by 2 for 9")
    wait_until_gone(client)
    client = Client(server.port)
    assert client.flags & faulty_nbd.IS_READ_ONLY
    assert client.size == SIZE - (2 << 20)
    client.send(WRITE, 0, data=b"x" * BLOCK)
    assert client.receive_reply()[1] == errno.EPERM
    begin(server, "0 grow by 2 for 9")
    assert connect_again(server.port).size == SIZE + (2 << 20)


def test_it_vanishes_and_returns(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 vanish for 0.5")
    wait_until_gone(client)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=5)
    connect_again(server.port).do(READ, 0, BLOCK)


def test_it_returns_under_another_name(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 rename for 9")
    wait_until_gone(client)
    with pytest.raises(LookupError):
        Client(server.port)
    assert Client(server.port, faulty_nbd.OTHER_NAME).size == SIZE
    server.be_sound()
    Client(server.port)


def test_half_of_the_connections_wait(server: FaultyServer) -> None:
    odd, even = Client(server.port), Client(server.port)
    begin(server, "0 half for 600")
    odd.send(READ, 0, BLOCK)
    even.do(READ, 0, BLOCK)
    assert not select.select([odd.socket], [], [], 0.3)[0]
    server.be_sound()
    assert odd.receive_reply(BLOCK)[:2] == (READ, 0)


def test_what_waits_when_its_connection_ends_is_never_carried_out(server: FaultyServer) -> None:
    client = Client(server.port)
    begin(server, "0 stall write for 600")
    client.send(WRITE, 0, data=b"x" * BLOCK)
    client.socket.close()
    time.sleep(1.0)
    server.be_sound()
    time.sleep(0.4)
    assert Client(server.port).do(READ, 0, BLOCK) == bytes(BLOCK)


def test_a_cut_of_the_power_loses_what_was_not_flushed(server: FaultyServer) -> None:
    client = Client(server.port)
    client.do(WRITE, 0, data=b"a" * BLOCK)
    client.do(FLUSH)
    client.do(WRITE, 0, data=b"b" * BLOCK)
    client.do(TRIM, 0, BLOCK)
    client.do(WRITE, BLOCK, data=b"c" * BLOCK)
    begin(server, "0 power")
    wait_until_gone(client)
    client = connect_again(server.port)
    assert client.do(READ, 0, 2 * BLOCK) == b"a" * BLOCK + bytes(BLOCK)
    assert server.counts["undone"] == 3


def test_it_goes_back_in_time_whatever_was_flushed(server: FaultyServer) -> None:
    client = Client(server.port)
    client.do(WRITE, 0, data=b"a" * BLOCK)
    time.sleep(2.5)
    client.do(WRITE, 0, data=b"b" * BLOCK)
    client.do(FLUSH)
    begin(server, "0 back by 2")
    wait_until_gone(client)
    assert connect_again(server.port).do(READ, 0, BLOCK) == b"a" * BLOCK


def test_it_remembers_no_more_than_it_may(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty_nbd, "REMEMBERED", 2 * BLOCK)
    client = Client(server.port)
    for letter in b"abcd":
        client.do(WRITE, 0, data=bytes([letter]) * BLOCK)
    client.do(FLUSH)
    client.do(WRITE, BLOCK, data=b"e" * BLOCK)
    assert server.disk.lose_unflushed() == 1
    assert server.disk.go_back(9) == 1, "the newest of what is flushed; the rest is forgotten"
    assert client.do(READ, 0, BLOCK) == b"c" * BLOCK


def test_as_a_program_it_does_what_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    path.touch()
    os.truncate(path, SIZE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with FaultyStorage(path, port) as storage:
        client = Client(port)
        storage.command("script run: 0 error read for 60")
        client.send(READ, 0, BLOCK)
        assert client.receive_reply()[1] == errno.EIO
        storage.command("sound")
        client.do(READ, 0, BLOCK)
        assert storage.report() == {"connections": 1, "read": 2, "failed": 1}
