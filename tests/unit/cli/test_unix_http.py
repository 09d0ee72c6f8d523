"""The client's HTTP against what a daemon, or something else on its socket, may answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zvault.cli.unix_http import TruncatedAnswer, send_http

Answers = Callable[[bytes], Path]


@pytest.fixture
def answers(tmp_path: Path) -> Iterator[Answers]:
    """A socket whose server reads a request, sends these bytes and closes; ``heard`` is the request."""
    threads = []

    def serve(raw: bytes) -> Path:
        path, server = tmp_path / "s", socket.socket(socket.AF_UNIX)
        server.bind(str(path))
        server.listen()

        def once() -> None:
            with server, server.accept()[0] as link:
                (tmp_path / "heard").write_bytes(link.recv(65536))
                link.sendall(raw)

        threads.append(threading.Thread(target=once))
        threads[-1].start()
        return path

    yield serve
    for thread in threads:
        thread.join(10)


def test_a_request_and_its_answer(answers: Answers, tmp_path: Path):
    path = answers(b"HTTP/1.0 404 Not Found\r\nserver: x\r\nContent-Length: 3\r\n\r\nabc")
    with send_http(path, "POST", "/v1/run/a%2Fb?x=1", b"{}", 5.0) as answer:
        assert (answer.status, answer.read()) == (404, b"abc")
    assert (tmp_path / "heard").read_bytes() == (
        b"POST /v1/run/a%2Fb?x=1 HTTP/1.0\r\nHost: zvaultd\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}"
    )


def test_lines_of_an_answer_without_a_length(answers: Answers):
    path = answers(b"HTTP/1.1 200 OK\r\n\r\none\ntwo\n")
    with send_http(path, "GET", "/", None, 5.0) as answer:
        assert list(answer.body) == [b"one\n", b"two\n"]


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", "the answer is empty"),
        (b"SSH-2.0-OpenSSH_10.0\r\n", "it answered"),
        (b"HTTP/1.0 hello\r\n\r\n", "it answered"),
        (b"HTTP/1.0 200 OK\r\nserver: x\r\n", "ended within its head"),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nabc", "9 bytes were announced, but only 3 arrived"),
    ],
)
def test_what_is_cut_short_or_no_http(answers: Answers, raw: bytes, told: str):
    with pytest.raises(TruncatedAnswer, match=told), send_http(answers(raw), "GET", "/", None, 5.0) as answer:
        answer.read()
