"""S3Store against a server of its own that speaks S3 over HTTP; with a real RGW it runs in the lab."""

from __future__ import annotations

import random
import socket
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.unit.object_store.s3_server import BUCKET, S3Server
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ListedObject,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
    Unsupported,
)

pytest.importorskip("boto3")

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from tests.unit.object_store.s3_stores import (
    make,
    no_other_keys,  # noqa: F401
    server_for_test,  # noqa: F401
    store_for_test,  # noqa: F401
)
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_errors import KeysExpired, make_answer_error, translate_s3_errors
from zvault.object_store.s3_settings import S3Settings

DATA = bytes(range(256)) * 40


def test_it_is_an_object_store(store: S3Store) -> None:
    it: ObjectStore = store
    tag = it.put("a/b c+ü", DATA)
    assert it.read("a/b c+ü") == (DATA, tag)
    assert not tag.startswith('"')
    it.delete(["a/b c+ü", "never there"])
    with pytest.raises(ObjectMissing):
        it.read("a/b c+ü")


@pytest.mark.parametrize("ranges", [True, False])
def test_a_part_is_what_a_slice_of_the_object_is(server: S3Server, store: S3Store, ranges: bool) -> None:
    server.ranges = ranges
    store.put("one", DATA)
    store.put("none", b"")
    for start, length in [(0, 1), (5, 10), (0, None), (7, None), (len(DATA) - 3, 99), (3, 0), (len(DATA), 5)]:
        stop = None if length is None else start + length
        assert store.get("one", start, length) == DATA[start:stop], (start, length)
    for length in (1, 30, len(DATA), len(DATA) + 9, 0):
        assert store.tail("one", length) == (DATA[len(DATA) - min(length, len(DATA)) :], len(DATA))
    assert store.get("none", 0, 5) == store.get("none", 9, 5) == b""
    assert store.tail("none", 5) == (b"", 0)


def test_every_buffer_can_be_put(store: S3Store) -> None:
    for data in (DATA, bytearray(DATA), memoryview(DATA)[10:999], b""):
        store.put("one", data)
        assert store.get("one") == bytes(data)


@pytest.mark.parametrize("bare", [False, True])
def test_conditions_hold_whichever_form_of_etag_the_store_compares(
    server: S3Server, store: S3Store, bare: bool
) -> None:
    server.bare = bare
    first = store.put("one", b"1", NO_OBJECT_YET)
    with pytest.raises(PreconditionFailed):
        store.put("one", b"2", NO_OBJECT_YET)
    with pytest.raises(PreconditionFailed):
        store.put("one", b"2", "0" * 32)
    second = store.put("one", b"2", first)
    with pytest.raises(PreconditionFailed):
        store.put("one", b"3", first)
    before = len(server.seen)
    assert store.put("one", b"3", second) == store.read("one")[1]
    with pytest.raises(PreconditionFailed):
        store.put("one", b"4", second)
    assert len(server.seen) - before == 3, "the form is known by now"
    store.delete(["one"])
    with pytest.raises(PreconditionFailed):
        store.put("one", b"4", second)
    assert server.store.objects == {}


def test_of_many_writers_one_wins(store: S3Store) -> None:
    def put(number: int) -> bool:
        try:
            store.put("one", str(number).encode(), NO_OBJECT_YET)
        except PreconditionFailed:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(put, range(24)))
    assert sum(won) == 1
    assert store.get("one") == str(won.index(True)).encode()


def test_a_listing_is_whole_sorted_and_begins_where_it_is_told(server: S3Server, store: S3Store) -> None:
    keys = [f"p/{number:03d} &ä" for number in range(10)]
    for key in [*keys, "o", "q"]:
        store.put(key, b"x" * len(key))
    server.page = 4
    server.seen.clear()
    assert list(store.list("p/")) == [ListedObject(key, len(key)) for key in keys]
    assert len(server.seen) == 3
    assert [item.key for item in store.list("p/", keys[6])] == keys[7:]
    assert list(store.list("p/", keys[9])) == []
    server.seen.clear()
    next(store.list("p/"))
    assert len(server.seen) == 1, "no page before it is wanted"


def test_many_objects_are_removed_a_thousand_at_once(server: S3Server, store: S3Store) -> None:
    keys = [f"{number:04d}" for number in range(2100)]
    server.store.objects.update(dict.fromkeys(keys, b"x"))
    store.delete(keys[:2050])
    assert sorted(server.store.objects) == keys[2050:]
    assert len(server.seen) == 3
    store.delete([])
    assert len(server.seen) == 3


def test_an_object_that_is_not_removed_is_told_of(server: S3Server, store: S3Store) -> None:
    server.store.objects.update({"a": b"", "b kept": b""})
    with pytest.raises(StoreDenied, match="b kept"):
        store.delete(["a", "b kept"])
    assert set(server.store.objects) == {"b kept"}


PASSING = [
    "SlowDown",
    "InternalError",
    "ServiceUnavailable",
    "TooManyRequests",
    "RequestTimeout",
    "BadGateway",
]


@pytest.mark.parametrize("fault", [*PASSING, "OperationAborted", "reset", "lost", "html"])
def test_what_may_pass_is_unreachable_and_is_tried_once(server: S3Server, store: S3Store, fault: str) -> None:
    store.put("one", DATA)
    calls = (
        lambda: store.get("one", 3, 9),
        lambda: store.tail("one", 9),
        lambda: store.put("two", DATA),
        lambda: store.put("three", DATA, NO_OBJECT_YET),
        lambda: list(store.list("")),
        lambda: store.delete(["one"]),
    )
    for call in calls:
        server.faults, before = [fault], len(server.seen)
        with pytest.raises(StoreUnreachable):
            call()
        assert len(server.seen) == before + 1
    assert ("two" in server.store.objects) == (fault == "lost")
    assert ("one" in server.store.objects) == (fault != "lost")


def test_a_body_that_breaks_off_is_no_data(server: S3Server, store: S3Store) -> None:
    store.put("one", DATA)
    for call in (lambda: store.get("one"), lambda: store.get("one", 3, 900), lambda: store.tail("one", 900)):
        for fault in ("cut", "less") if call() != DATA else ("cut",):
            server.faults = [fault]
            with pytest.raises(StoreUnreachable):
                call()
    for fault in ("cut", "cut"):
        server.faults = [fault]
        with pytest.raises(StoreUnreachable):
            list(store.list(""))
    assert store.get("one") == DATA


def test_a_put_whose_answer_has_no_etag_has_it_read(server: S3Server, store: S3Store) -> None:
    tag = store.put("one", DATA)
    server.faults = ["no etag"]
    assert store.put("one", b"other", tag) == store.read("one")[1]
    server.faults = ["no etag"]
    with pytest.raises(ObjectDamaged, match="without an ETag"):
        store.read("one")
    server.faults = ["no etag"]
    assert store.get("one", 1, 2) == b"th", "whoever verifies the bytes needs none"


def test_what_was_changed_on_its_way_is_refused(server: S3Server, store: S3Store) -> None:
    server.faults = ["flip"]
    with pytest.raises(StoreUnreachable, match="XAmzContentSHA256Mismatch"):
        store.put("one", DATA)
    assert server.store.objects == {}


def test_nothing_is_sent_that_only_amazon_understands(server: S3Server, store: S3Store) -> None:
    store.put("one", DATA)
    store.delete(["one"])
    for _, _, headers in server.seen:
        names = {name.lower() for name in headers}
        assert not any("checksum" in name or "trailer" in name for name in names)
        assert headers.get("Content-Encoding") is None


def test_a_store_that_is_silent_or_gone_is_unreachable(server: S3Server, store: S3Store) -> None:
    server.store.objects["one"] = DATA
    quick = make(server, read_seconds=0.2)
    server.faults = ["silent"]
    with pytest.raises(StoreUnreachable):
        quick.get("one")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        nobody = make(server, endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(StoreUnreachable):
            nobody.get("one")


def test_a_put_that_another_one_crossed_is_not_decided(server: S3Server, store: S3Store) -> None:
    for condition in (NO_OBJECT_YET, "0" * 32):
        server.faults = ["ConditionalRequestConflict"]
        with pytest.raises(StoreUnreachable):
            store.put("one", b"", condition)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.IncompleteReadError(actual_bytes=1, expected_bytes=2), StoreUnreachable),
        (boto.ConnectTimeoutError(endpoint_url="x"), StoreUnreachable),
        (boto.ProxyConnectionError(proxy_url="x"), StoreUnreachable),
        (boto.SSLError(endpoint_url="x", error="UNEXPECTED_EOF_WHILE_READING"), StoreUnreachable),
        (boto.SSLError(endpoint_url="x", error="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed"), StoreDenied),
        (ResponseParserError("no XML"), StoreUnreachable),
        (ConnectionResetError(), StoreUnreachable),
        (boto.CredentialRetrievalError(provider="x", error_msg="y"), KeysExpired),
        (boto.PartialCredentialsError(provider="x", cred_var="y"), StoreDenied),
        (boto.ParamValidationError(report="x"), StoreDenied),
    ],
)
def test_errors_of_boto3_itself(error: Exception, kind: type[StoreError]) -> None:
    def fail() -> None:
        with translate_s3_errors("one cannot be read", "read"):
            raise error

    with pytest.raises(kind) as seen:
        fail()
    assert type(seen.value) is kind
    assert seen.value.why
    assert seen.value.next


def test_settings_of_a_servers_words() -> None:
    words = {"bucket": "b", "endpoint": "http://h:9/", "style": "virtual", "region": "", "mode": "strict"}
    assert S3Settings.of_words(words, "/keys") == S3Settings("b", "http://h:9", style="virtual", keys="/keys")
    plugin = {"bucket": "b", "endpoint-url": "http://h", "access-key": "K", "secret-key": "+/s"}
    wanted = S3Settings("b", "http://h", access_key="K", secret_key="+/s")
    assert S3Settings.of_words(plugin, None) == wanted


def test_the_age_of_an_object_is_by_the_stores_clock(server: S3Server, store: S3Store) -> None:
    tag = store.put("one", b"1")
    server.ahead = 90.0
    data, found, age = store.read_aged("one")
    assert (data, found) == (b"1", tag)
    assert 89 <= age <= 95
    with pytest.raises(ObjectMissing):
        store.read_aged("none")


def test_a_new_object_is_stored_as_it_is_told(server: S3Server, store: S3Store) -> None:
    told = make(server, storage_class="STANDARD_IA", sse="aws:kms", sse_kms_key_id="key-1")
    told.put("one", b"1", NO_OBJECT_YET)
    headers = {name.lower(): value for name, value in server.seen[-1][2].items()}
    assert headers["x-amz-storage-class"] == "STANDARD_IA"
    assert headers["x-amz-server-side-encryption"] == "aws:kms"
    assert headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"


def test_the_bucket_may_stand_in_the_hosts_name(
    server: S3Server, store: S3Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _host, *rest, **more: real("127.0.0.1", *rest, **more))
    virtual = make(server, endpoint=f"http://s3.example.org:{server.server_port}", style="virtual")
    virtual.put("one", b"1")
    assert server.seen[-1][2]["Host"] == f"{BUCKET}.s3.example.org:{server.server_port}"
    assert store.get("one") == b"1"


def test_settings_that_cannot_be_used_are_denied(server: S3Server, store: S3Store) -> None:
    for wrong in ({"endpoint": "nonsense"}, {"region": "no region"}, {"bucket": "no/bucket at all"}):
        with pytest.raises(StoreDenied):
            make(server, **wrong).get("one")


def test_connections_are_kept_and_shared(server: S3Server, store: S3Store) -> None:
    store.put("one", DATA)
    for number in range(10):
        assert store.get("one", number, 50) == DATA[number : number + 50]
        with pytest.raises(ObjectMissing):
            store.get("two")
    assert server.connections == 1
    gate = threading.Barrier(4)

    def read(number: int) -> bytes:
        gate.wait()
        return b"".join(store.get("one", start, 10) for start in range(number, 1000, 40))

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(read, (0, 10, 20, 30)))
    assert found == [b"".join(DATA[s : s + 10] for s in range(n, 1000, 40)) for n in (0, 10, 20, 30)]
    assert server.connections <= 5


def test_errors_say_what_why_and_next(server: S3Server, store: S3Store) -> None:
    server.faults = ["SlowDown"]
    with pytest.raises(StoreError) as seen:
        store.get("seg/1")
    assert str(seen.value) == (
        "seg/1 cannot be read: the store answers 503 SlowDown: so it is."
        " Next: see that the store is up and the network reaches it"
    )


def test_a_put_copies_nothing(store: S3Store) -> None:
    data = memoryview(bytearray(random.Random(1).randbytes(1 << 20) * 24))[: (24 << 20) - 7]
    store.put("first", b"it imports what it needs")
    seen: list[int] = []
    put = threading.Thread(target=lambda: seen.append(len(store.put("large", data))))
    tracemalloc.start()
    try:
        client = store._clients.get()
        client.meta.events.register(
            "before-send.s3.PutObject", lambda **_: seen.append(tracemalloc.get_traced_memory()[1])
        )
        put.start()
        put.join()
    finally:
        tracemalloc.stop()
    assert seen[0] < 1 << 20
    assert store.get("large") == data


def test_a_put_that_boto3_sends_again_has_its_body_again(store: S3Store) -> None:
    """As it does where the bucket turns out to be in another region."""
    again = [0]
    client = store._clients.get()
    client.meta.events.register_first("needs-retry.s3.PutObject", lambda **_: again.pop() if again else None)
    data = memoryview(bytearray(b"0123456789"))[2:7]
    store.put("key", data)
    assert not again
    assert store.get("key") == b"23456"


def test_an_answer_that_says_it_is_short_and_does_not_end_is_not_read_to_its_end(
    store: S3Store,
) -> None:
    """Where an answer comes in chunks, http.client goes by them, and not by its Content-Length."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sent = [0]

        def answer() -> None:
            with listener.accept()[0] as client:
                client.recv(1 << 16)
                head = 'HTTP/1.1 206 Partial Content\r\nETag: "e"\r\nContent-Range: bytes 0-99/100\r\n'
                head += "Content-Length: 100\r\nTransfer-Encoding: chunked\r\n\r\n"
                chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
                with suppress(OSError):
                    client.sendall(head.encode())
                    while sent[0] < 256:
                        client.sendall(chunk)
                        sent[0] += 1

        thread = threading.Thread(target=answer)
        thread.start()
        host, port = listener.getsockname()
        liar = S3Store(replace(store.settings, endpoint=f"http://{host}:{port}"))
        with pytest.raises(StoreError):
            liar.get("one", 0, 100)
        thread.join()
    assert sent[0] < 16


def test_what_a_store_says_of_a_failure_is_bounded_and_controls_nothing() -> None:
    error = {"Code": "Bad\x1b[2J\u202e", "Message": "no\nsuch\x07" + "x" * 100_000}
    found = make_answer_error("it", "read", {"ResponseMetadata": {"HTTPStatusCode": 400}, "Error": error})
    assert found.why.startswith(r"the store answers 400 Bad\x1b[2J\u202e: no such\x07xx")
    assert found.why.isprintable()
    assert len(found.why) < 600


def test_an_endpoint_of_another_protocol_is_not_waited_for(server: S3Server) -> None:
    store = make(
        server, endpoint=server.endpoint.replace("http:", "https:"), access_key="KEY", secret_key="S"
    )
    with pytest.raises(Unsupported, match="WRONG_VERSION_NUMBER") as error:
        store.read("one")
    assert "http://" in error.value.next


def test_what_a_store_does_not_know_is_unsupported(server: S3Server, store: S3Store) -> None:
    server.faults = ["NotImplemented"]
    with pytest.raises(Unsupported, match="501"):
        store.put("one", DATA, NO_OBJECT_YET)
