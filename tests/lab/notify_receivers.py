"""A web server and a mail server with TLS and a password, which keep what zvaultd sends them."""

from __future__ import annotations

import base64
import email.policy
import http.server
import json
import socketserver
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from world import sh

SCRATCH = Path("/run/notify-test")
PASSWORD, TOKEN, ADDRESS = "S3CRETpassword", "S3CRETtoken", "S3CRETaddress"


class Web(http.server.ThreadingHTTPServer):
    """Takes what it is sent, by path; ``statuses`` are answered where they are not 200, while ``answers`` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), WebHandler)
        self.got: list[tuple[str, dict[str, str], str]] = []
        self.statuses: dict[str, int] = {}
        self.users: set[str] = set()
        self.answers = threading.Event()
        self.answers.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bodies(self, path: str) -> list[str]:
        return [body for asked, _, body in self.got if asked == path]

    def titles(self, path: str) -> list[str]:
        return [json.loads(body)["title"].partition(": ")[2] for body in self.bodies(path)]


class WebHandler(http.server.BaseHTTPRequestHandler):
    server: Web

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self.server.users |= senders()
        self.server.answers.wait()
        if self.path == "/hang":
            time.sleep(60)
            return
        status = self.server.statuses.get(self.path, 200)
        if status == 200:
            self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(status)
        if status == 302:
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(b"x" * (10 << 20) if self.path == "/big" else b"an answer\n")

    do_GET = do_POST

    def log_message(self, *_: Any) -> None:
        pass


def senders() -> set[str]:
    """The users of the processes that send at this moment, with their command lines and capabilities."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            argv = (folder / "cmdline").read_text()
            if "sender_child.py" in argv:
                lines = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines())
                environment = (folder / "environ").read_text().count("\0")
                found.add(f"{lines['Uid'].split()[1]} {int(lines['CapEff'], 16)} {environment} {argv}")
    return found


class Mail(socketserver.ThreadingTCPServer):
    """A mail server that takes mail from one user only, after STARTTLS (RFC 3207) and AUTH PLAIN (RFC 4954)."""

    allow_reuse_address, daemon_threads = True, True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), MailHandler)
        self.context = context
        self.got: list[tuple[list[str], bytes]] = []

    def subjects(self) -> list[str]:
        mails = [email.message_from_bytes(data, policy=email.policy.default) for _, data in self.got]
        return [str(mail["Subject"]).partition(": ")[2] for mail in mails]


class MailHandler(socketserver.StreamRequestHandler):
    server: Mail

    def handle(self) -> None:
        with suppress(OSError):
            self.talk()

    def say(self, line: str) -> None:
        self.wfile.write(line.encode() + b"\r\n")

    def talk(self) -> None:
        safe = known = False
        recipients: list[str] = []
        self.say("220 lab ESMTP")
        while line := self.rfile.readline().decode().strip():
            word, _, rest = line.partition(" ")
            match word.upper():
                case "EHLO":
                    self.say("250-lab\r\n250 AUTH PLAIN" if safe else "250-lab\r\n250 STARTTLS")
                case "STARTTLS":
                    self.say("220 go on")
                    wrapped = self.server.context.wrap_socket(self.connection, server_side=True)
                    self.rfile, self.wfile = wrapped.makefile("rb"), wrapped.makefile("wb", buffering=0)
                    safe = True
                case "AUTH":
                    given = base64.b64decode(rest.split()[1]).split(b"\0")[1:]
                    known = safe and given == [b"zvault", PASSWORD.encode()]
                    self.say("235 welcome" if known else "535 no")
                case "MAIL" if not known:
                    self.say("530 who are you")
                case "RCPT":
                    recipients.append(line.partition("<")[2].partition(">")[0])
                    self.say("250 fine")
                case "DATA":
                    self.say("354 go on")
                    data = b""
                    while not data.endswith(b"\r\n.\r\n"):
                        data += self.rfile.readline()
                    self.server.got.append((recipients, data))
                    self.say("250 fine")
                case "QUIT":
                    self.say("221 bye")
                    return
                case _:
                    self.say("250 fine")


def certificate() -> ssl.SSLContext:
    """A certificate for localhost that this host trusts."""
    (SCRATCH / "template").write_text('cn = "localhost"\ndns_name = "localhost"\nca\nexpiration_days = 20\n')
    key, cert = SCRATCH / "key.pem", SCRATCH / "cert.pem"
    sh("certtool", "--generate-privkey", "--key-type", "ecdsa", "--outfile", str(key))
    made = ("--generate-self-signed", "--load-privkey", str(key), "--template", str(SCRATCH / "template"))
    sh("certtool", *made, "--outfile", str(cert))
    Path(ssl.get_default_verify_paths().openssl_cafile).write_text(cert.read_text())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context
