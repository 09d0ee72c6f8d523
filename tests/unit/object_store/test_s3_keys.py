"""The keys of S3Store: of a profile, of a file that changes, told by the caller, and where there are none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.object_store.s3_server import S3Server
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    StoreDenied,
)

pytest.importorskip("boto3")

from tests.unit.object_store.s3_stores import (
    make,
    no_other_keys,  # noqa: F401
    server_for_test,  # noqa: F401
    store_for_test,  # noqa: F401
)
from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_errors import KeysExpired


def keys_file(path: Path, access: str, section: str = "default") -> None:
    path.write_text(f"[{section}]\naws_access_key_id = {access}\naws_secret_access_key = S%EC/RET\n")


def test_what_wants_a_person_is_denied(server: S3Server, store: S3Store) -> None:
    for fault in ("AccessDenied", "NotImplemented"):
        server.faults = [fault] * 2
        calls: list[Callable[[], object]] = [
            lambda: store.get("one"),
            lambda: store.put("one", b"", NO_OBJECT_YET),
        ]
        for call in calls:
            with pytest.raises(StoreDenied) as seen:
                call()
            assert not seen.value.retryable
            assert seen.value.next
    other = make(server, bucket="another")
    calls = [
        lambda: other.get("one"),
        lambda: other.put("one", b"", NO_OBJECT_YET),
        lambda: list(other.list("")),
    ]
    for call in calls:
        with pytest.raises(StoreDenied, match="NoSuchBucket"):
            call()


def test_keys_that_ran_out_may_be_renewed(server: S3Server, store: S3Store) -> None:
    for fault in ("ExpiredToken", "RequestTimeTooSkewed"):
        server.faults = [fault]
        with pytest.raises(KeysExpired) as seen:
            store.get("one")
        assert seen.value.retryable


def test_no_keys_are_denied_and_looked_for_again(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make(server)
    with pytest.raises(StoreDenied, match="redentials"):
        store.put("one", b"1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    store.put("one", b"1")


def test_keys_of_a_profile(server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys_file(tmp_path / "none", "KEY", "cold")
    make(server, profile="cold").put("one", b"1")
    with pytest.raises(StoreDenied, match="warm"):
        make(server, profile="warm").put("one", b"1")


def test_keys_of_a_file_are_read_again_when_it_changed(server: S3Server, tmp_path: Path) -> None:
    path = tmp_path / "keys"
    keys_file(path, "KEY")
    store = make(server, keys=str(path))
    store.put("one", b"1")
    client = store._clients.get()
    assert store._clients.get() is client
    server.keys = {"OTHER"}
    with pytest.raises(StoreDenied):
        store.put("one", b"2")
    keys_file(path, "OTHER")
    store.put("one", b"2")
    keys_file(path, "KEY")  # before the old ones are refused
    server.keys = {"KEY"}
    store.put("one", b"3")
    assert store.get("one") == b"3"


def test_keys_of_a_file_that_is_not_there_yet(server: S3Server, tmp_path: Path) -> None:
    store = make(server, keys=str(tmp_path / "s3"), profile="cold")
    with pytest.raises(StoreDenied, match="No such file"):
        store.put("one", b"1")
    keys_file(tmp_path / "s3", "KEY", "cold")
    store.put("one", b"1")


def test_keys_that_are_told_come_before_all_others(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "OTHER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "OTHER")
    secret = tmp_path / "secret"
    store = make(server, access_key="KEY", secret_key=f"+{secret}")
    with pytest.raises(StoreDenied, match=f"{secret} cannot be read: No such file"):
        store.put("one", b"1")
    secret.write_text("SECRET\nand a note\n")
    store.put("one", b"1")
    assert "SECRET" not in repr(make(server, access_key="KEY", secret_key="SECRET").settings)


@pytest.mark.parametrize(
    "text",
    [
        "SECRET",
        "[other]\naws_secret_access_key=SECRET",
        "[default]\naws_secret_access_key = SECRET",
        "[default\nSECRET",
    ],
)
def test_a_file_without_keys_is_told_of_and_its_text_is_not(
    server: S3Server, tmp_path: Path, text: str
) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(StoreDenied) as seen:
        make(server, keys=str(path)).get("one")
    assert "SECRET" not in str(seen.value)
    assert str(path) in str(seen.value)
