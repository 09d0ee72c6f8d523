"""S3Store on a server of its own that speaks S3 over HTTP."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.object_store.s3_server import BUCKET, S3Server, serving

pytest.importorskip("boto3")

from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings


@pytest.fixture(name="_no_other_keys", autouse=True)
def no_other_keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture(name="server")
def server_for_test() -> Iterator[S3Server]:
    with serving() as it:
        yield it


@pytest.fixture(name="store")
def store_for_test(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    return make(server)


def make(server: S3Server, **settings: object) -> S3Store:
    given = {"bucket": BUCKET, "endpoint": server.endpoint, "style": "path"} | settings
    return S3Store(S3Settings(**given))  # type: ignore[arg-type]
