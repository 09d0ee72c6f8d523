"""The process that sends, against real servers here: each that refuses, hangs, lies or floods has its outcome."""

from __future__ import annotations

import asyncio
import http.server
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE
from zvault.core.errors import DeadlineExceeded, ToolFailed, ZvaultError
from zvault.system.notify import sender
from zvault.system.process.runner import HostRunner


class Web(http.server.ThreadingHTTPServer):
    """Answers by the path that is asked for, and writes down what was."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str, str, dict[str, str]]] = []
        self.elsewhere = ""
        self.over = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self.server.asked.append((self.command, self.path, body, dict(self.headers)))
        match self.path.partition("?")[0]:
            case "/ok":
                self.end(200)
            case "/refuse":
                self.end(403, b"no such token S3CRET\nsecond line")
            case "/here":
                self.end(308, location="/ok")
            case "/away":
                self.end(302, location=self.server.elsewhere)
            case "/round":
                self.end(307, location="/round")
            case "/file":
                self.end(301, location="file:///etc/passwd")
            case "/big":
                self.flood(200)
            case "/bigno":
                self.flood(500)
            case "/hang":
                self.server.over.wait(FOR_EVER)
            case "/drip":
                self.send_response(500)
                self.end_headers()
                while not self.server.over.wait(0.1):
                    self.wfile.write(b"x")
            case "/noise":
                self.wfile.write(b"\0\xff" * 1000)

    do_GET = do_POST

    def end(self, code: int, body: bytes = b"", location: str = "") -> None:
        self.send_response(code)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def flood(self, code: int) -> None:
        self.send_response(code)
        self.end_headers()
        sent = 0
        try:
            while sent < 10 << 20:
                sent += self.wfile.write(b"y" * 65536)
        except OSError:
            self.server.asked.append(("cut off", "", "", {}))

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def served(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield
    finally:
        if isinstance(server, Web):
            server.over.set()
        server.shutdown()
        server.server_close() if not isinstance(server, Web) else server.socket.close()
        thread.join()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    with served(server):
        yield server


async def post(url: str, timeout: float = PATIENCE, **more: Any) -> str:
    order = {"way": "http", "url": url, "method": "POST", "headers": {"X-A": "b"}, "body": "a text ü", **more}
    return await sender.send_message(HostRunner(), order, timeout)


async def refused(url: str, timeout: float = PATIENCE) -> str:
    with pytest.raises(ZvaultError) as caught:
        await post(url, timeout)
    return caught.value.why


async def test_what_goes_through(web: Web) -> None:
    assert await post(f"{web.url}/ok?a=1") == ""
    ((method, path, body, headers),) = web.asked
    assert (method, path, body, headers["X-A"]) == ("POST", "/ok?a=1", "a text ü", "b")


async def test_a_refusal_is_told_with_the_first_line_of_the_answer(web: Web) -> None:
    assert await refused(f"{web.url}/refuse") == "it answered 403 Forbidden: no such token S3CRET"


async def test_a_redirection_is_followed_on_the_same_host_with_all_that_is_sent(web: Web) -> None:
    await post(f"{web.url}/here")
    assert [(path, body) for _, path, body, _ in web.asked] == [("/here", "a text ü"), ("/ok", "a text ü")]


async def test_nothing_goes_to_another_host(web: Web) -> None:
    with served(other := Web()):
        web.elsewhere = other.url.replace("127.0.0.1", "localhost") + "/ok"
        assert "redirects to http://localhost, where nothing is sent" in await refused(f"{web.url}/away")
        web.elsewhere = other.url + "/ok"
        assert "where nothing is sent" in await refused(f"{web.url}/away"), "another port is another service"
        assert not other.asked


@pytest.mark.parametrize("path", ["/round", "/file"])
async def test_a_redirection_to_nowhere_ends(web: Web, path: str) -> None:
    assert "redirects" in await refused(web.url + path)


async def test_an_answer_of_10_mb_is_not_read(web: Web) -> None:
    assert await post(f"{web.url}/big") == ""
    why = await refused(f"{web.url}/bigno")
    assert why.startswith("it answered 500")
    assert len(why) <= 200


@pytest.mark.parametrize("path", ["/hang", "/drip"])
async def test_one_that_hangs_is_given_up(web: Web, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "SENDER_GRACE", 1.0)
    with pytest.raises((ToolFailed, DeadlineExceeded)) as caught:
        await asyncio.wait_for(post(web.url + path, 1.0), PATIENCE)
    assert "within 1 s" in caught.value.why


async def test_noise_is_no_answer(web: Web) -> None:
    assert "does not speak HTTP" in await refused(f"{web.url}/noise")


async def test_nobody_listens() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        assert await refused(f"http://127.0.0.1:{silent.getsockname()[1]}/") == "Connection refused"


async def test_a_service_that_does_not_speak_tls(web: Web) -> None:
    assert "the connection is not safe" in await refused(web.url.replace("http:", "https:") + "/ok")


class Mail(socketserver.ThreadingTCPServer):
    """Takes mail as RFC 5321 has it; refuses recipients whose name begins with "no"."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, *, greeting: bytes = b"220 lab ESMTP\r\n") -> None:
        super().__init__(("127.0.0.1", 0), MailHandler)
        self.greeting = greeting
        self.got: list[tuple[list[str], bytes]] = []


class MailHandler(socketserver.StreamRequestHandler):
    server: Mail

    def handle(self) -> None:
        self.wfile.write(self.server.greeting)
        recipients: list[str] = []
        for line in iter(self.rfile.readline, b""):
            word = line.strip().upper().split(b" ")[0]
            if word == b"RCPT":
                who = line.decode().partition("<")[2].partition(">")[0]
                if who.startswith("no"):
                    self.wfile.write(b"550 no such user\r\n")
                    continue
                recipients.append(who)
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                data = b""
                while not data.endswith(b"\r\n.\r\n"):
                    data += self.rfile.readline()
                self.server.got.append((recipients, data))
            self.wfile.write(b"250 fine\r\n")


async def give(server: Mail, *recipients: str, **more: Any) -> str:
    host, port = server.server_address[:2]
    order = {
        **{"way": "smtp", "host": host, "port": port, "encryption": "off", "user": None, "password": None},
        **{"sender": "zvault@lab", "recipients": list(recipients), "mail": "Subject: x\r\n\r\n.a text\r\n"},
        **more,
    }
    return await sender.send_message(HostRunner(), order, PATIENCE)


async def test_mail_goes_to_a_server() -> None:
    with served(server := Mail()):
        assert await give(server, "root", "you@example.org") == ""
        ((recipients, data),) = server.got
    assert recipients == ["root", "you@example.org"]
    assert b"Subject: x\r\n\r\n..a text\r\n.\r\n" in data


async def test_mail_that_one_of_two_gets_is_sent_and_told_of() -> None:
    with served(server := Mail()):
        assert await give(server, "nobody", "root") == "refused: nobody (550 no such user)"
        with pytest.raises(ToolFailed, match="it was not sent") as caught:
            await give(server, "nobody")
    assert "550 no such user" in caught.value.why
    assert len(server.got) == 1


@pytest.mark.parametrize(
    ("greeting", "why"),
    [(b"554 go away\r\n", "it answered 554: go away"), (b"HTTP/1.0 200 OK\r\n\r\n", "it answered")],
)
async def test_a_server_that_is_none_for_us(greeting: bytes, why: str) -> None:
    with served(server := Mail(greeting=greeting)), pytest.raises(ToolFailed) as caught:
        await give(server, "root")
    assert why in caught.value.why


async def test_no_mail_goes_unencrypted_unless_that_is_wished() -> None:
    with served(server := Mail()), pytest.raises(ToolFailed) as caught:
        await give(server, "root", encryption="starttls")
    assert "STARTTLS" in caught.value.why
    assert not server.got


async def test_apprise_is_told_to_be_missing_or_the_url_to_be_unknown() -> None:
    order = {"way": "apprise", "url": "nosuch://S3CRET", "title": "t", "body": "b", "type": "info"}
    with pytest.raises(ToolFailed) as caught:
        await sender.send_message(HostRunner(), order, PATIENCE)
    assert "apprise is not installed" in caught.value.why or "does not know such a URL" in caught.value.why


async def test_a_sender_that_was_taken_over_is_told_as_one_that_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads what other hosts say."""
    program = tmp_path / "sender.py"
    program.write_text("print('[' * 200_000)")
    monkeypatch.setattr(sender, "SENDER_CHILD", program)
    with pytest.raises(ToolFailed, match="it was not sent"):
        await sender.send_message(HostRunner(), {"nothing": 1}, PATIENCE)


async def test_a_sender_that_dies_is_told() -> None:
    with pytest.raises(ToolFailed, match="it was not sent"):
        await sender.send_message(HostRunner(), {"nothing": 1}, PATIENCE)


async def test_sendmail_gets_the_mail_and_no_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "sendmail"
    program.write_text(
        f'#!/bin/sh\necho "$*" > {tmp_path}/argv\nenv > {tmp_path}/env\ncat > {tmp_path}/mail\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S3CRET")
    await sender.send_mail_locally(HostRunner(), "zvault@lab", ["root"], b"Subject: x\n\nhi\n", PATIENCE)
    assert (tmp_path / "argv").read_text() == "-oi -f zvault@lab root\n"
    assert (tmp_path / "mail").read_bytes() == b"Subject: x\n\nhi\n"
    assert "S3CRET" not in (tmp_path / "env").read_text()
    program.write_text("#!/bin/sh\necho 'mailbox on fire' >&2; exit 75\n")
    with pytest.raises(ToolFailed) as caught:
        await sender.send_mail_locally(HostRunner(), "zvault@lab", ["root"], b"x", PATIENCE)
    assert caught.value.why == "sendmail failed: mailbox on fire"


async def test_a_host_without_sendmail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "env").symlink_to("/usr/bin/env")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolFailed) as caught:
        await sender.send_mail_locally(HostRunner(), "zvault@lab", ["root"], b"x", PATIENCE)
    assert "no sendmail" in caught.value.why
    assert caught.value.next
