"""An S3 that lies: the small one of s3_server.py, whose answers are sound in form and wrong, or never end."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from xml.sax.saxutils import escape

from tests.unit.object_store.memory_store import etag
from tests.unit.object_store.s3_server import S3Server, _Handler
from zvault.object_store.interface import ListedObject

Body = Literal["", "endless", "huge", "truncated", "entities", "entities in UTF-16"]
"""A body without an end; of a length that is announced and never came; cut off, and the connection closed; one whose
XML is a few hundred times as large once its entities are put in."""
RACE = 0.05
"""Seconds between a look at a condition and the put that goes by it."""
PIECE = bytes(1 << 16)

ENTITY = "x" * (1 << 16)
ENTITIES = f'<!DOCTYPE a [<!ENTITY e "{ENTITY}">]><Error>{" " * (1 << 20)}<Code>{"&e;" * 1000}</Code></Error>'
"""1 MiB that becomes 64: less than what expat itself bounds."""
WHOLE: dict[Body, bytes] = {
    "entities": ENTITIES.encode(),
    "entities in UTF-16": b"\xff\xfe" + ENTITIES.encode("utf-16-le"),
}


class HostileS3(S3Server):
    """What each attribute says is what it does wrong; all are off at first."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _HostileHandler
        self.hidden: set[str] = set()
        """Objects that are there and not listed."""
        self.stale: dict[str, bytes] = {}
        """What is read of these objects, whatever they are by now."""
        self.dropped: set[str] = set()
        """Puts of these keys are answered and never carried out."""
        self.late: list[tuple[str, bytes]] | None = None
        """Puts are answered, and gathered here; ``arrive`` carries them out."""
        self.conditions = True
        """Whether a condition of a put is kept to."""
        self.listing: Literal["", "backwards", "elsewhere", "round", "tokens"] = ""
        """In the wrong order; with keys below another prefix; the first page again and again; empty pages for ever."""
        self.objects: Body = ""
        self.lists: Body = ""
        self.errors: Body = ""
        self.has_doctype = False
        """Whether a listing has a document type, which declares nothing."""
        self.long_suffix = True
        """Whether a suffix range longer than the object gets the whole of it; ``rclone serve s3`` answers 416."""
        self.stale_reads = False
        """Whether what was put first is read for ever."""
        self.checks_bytes = True
        """Whether a put is refused whose bytes are not those that were signed."""
        self.races = False
        """Whether conditions are kept one after the other, but not at once: looked at, and put a little later."""
        self.matches = True
        """Whether a right If-Match is right."""
        self.ignores_unquoted = False
        """Whether an If-Match without quotes counts as none."""
        self.without_etag: set[str] = set()
        """Answers about these objects have no ETag, until they are put again."""
        self.sent = 0
        """Bytes of bodies without an end that were taken."""

    def lose(self, *keys: str, etag: bool) -> None:
        """Its power went: these objects are zero bytes of the same length, with an ETag or without one."""
        for key in keys:
            self.store.objects[key] = bytes(len(self.store.objects[key]))
        if not etag:
            self.without_etag.update(keys)

    def arrive(self) -> None:
        """Carry out what was answered."""
        late, self.late = self.late or [], None
        for key, body in late:
            self.store.objects[key] = body


class _HostileHandler(_Handler):
    server: HostileS3

    def read(self, body: bytes) -> None:
        suffix = re.fullmatch(r"bytes=-([0-9]+)", self.headers.get("Range", ""))
        if suffix and not self.server.long_suffix:
            there = self.server.store.objects.get(self.key)
            if there is not None and len(there) < int(suffix[1]):
                return self.refuse(416, "InvalidRange")
        if self.key in self.server.stale:
            kept = self.server.store.objects.get(self.key)
            self.server.store.objects[self.key] = self.server.stale[self.key]
            try:
                return super().read(body)
            finally:
                if kept is not None:
                    self.server.store.objects[self.key] = kept
        return super().read(body)

    def intact(self, body: bytes) -> bool:
        return super().intact(body) if self.server.checks_bytes else True

    def put(self, body: bytes) -> None:
        if self.server.stale_reads:
            self.server.stale.setdefault(self.key, self.server.store.objects.get(self.key, body))
        if not self.server.conditions:
            for name in ("If-None-Match", "If-Match"):
                del self.headers[name]
        unquoted = not self.headers.get("If-Match", '"').startswith('"')
        if unquoted and self.server.ignores_unquoted:
            del self.headers["If-Match"]
        if not self.server.matches and "If-Match" in self.headers:
            return self.refuse(412, "PreconditionFailed")
        if self.server.races and self.keeps_condition():
            threading.Event().wait(RACE)
            for name in ("If-None-Match", "If-Match"):
                del self.headers[name]
        if self.key in self.server.dropped:
            return self.answer(200, b"", ETag='"0"')
        if self.server.late is not None:
            self.server.late.append((self.key, body))
            return self.answer(200, b"", ETag='"0"')
        return super().put(body)

    def keeps_condition(self) -> bool:
        """Whether the object is, at this moment, as the condition of the put wants it."""
        there = self.server.store.objects.get(self.key)
        if "If-None-Match" in self.headers:
            return there is None
        return there is not None and self.headers.get("If-Match", "").strip('"') == etag(there)

    def list(self) -> None:
        how, prefix = self.server.listing, self.query["prefix"]
        found = [one for one in self.server.store.list(prefix) if one.key not in self.server.hidden]
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        found = [one for one in found if one.key > after or how == "round"]
        token = "again" if how in ("round", "tokens") else ""
        if how == "backwards":
            found.reverse()
        elif how == "elsewhere":
            found = [ListedObject(f"other/{one.key}", one.size) for one in found]
        elif how == "tokens":
            found = []
        items = "".join(
            f"<Contents><Key>{escape(one.key)}</Key><Size>{one.size}</Size></Contents>" for one in found
        )
        more = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        declared = "<!DOCTYPE ListBucketResult>" if self.server.has_doctype else ""
        cut = f"<IsTruncated>{'true' if token else 'false'}</IsTruncated>"
        self.mangle(self.server.lists) or self.answer(
            200,
            f"{declared}<ListBucketResult>{cut}{more}{items}</ListBucketResult>".encode(),
            type="application/xml",
        )

    def refuse(self, status: int, code: str) -> None:
        self.mangle(self.server.errors, status) or super().refuse(status, code)

    def answer(self, status: int, body: bytes, type: str = "binary/octet-stream", **headers: str) -> None:
        if self.command == "PUT" and status == 200:
            self.server.without_etag.discard(self.key)
        elif self.key in self.server.without_etag:
            headers.pop("ETag", None)
        is_object = self.command == "GET" and bool(self.key) and status < 300
        if not (is_object and self.mangle(self.server.objects, status, **headers)):
            super().answer(status, body, type, **headers)

    def mangle(self, how: Body, status: int = 200, **headers: str) -> bool:
        """Send a body that is none; whether that was asked for."""
        if not how:
            return False
        if how in WHOLE:
            super().answer(status, WHOLE[how], "application/xml")
            return True
        self.close_connection = True
        self.send_response(status)
        length = {"huge": str(1 << 50), "truncated": "1000"}
        for name, value in {**headers, **({"Content-Length": length[how]} if how in length else {})}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        if how == "truncated":
            self.wfile.write(bytes(10))
            return True
        try:
            while self.server.sent < 1 << 30:
                self.wfile.write(PIECE)
                self.server.sent += len(PIECE)
        except OSError:
            return True  # whoever asked has had enough
        return True


@contextmanager
def lying() -> Iterator[HostileS3]:
    """A server that runs until the end."""
    with HostileS3() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
