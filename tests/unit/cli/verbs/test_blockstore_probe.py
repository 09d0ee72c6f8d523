"""zvaultctl blockstore probe, on a small S3 of its own: what it says, keeps and leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.object_store.hostile_s3 import HostileS3, lying
from tests.unit.object_store.s3_server import BUCKET
from zvault.config import paths

pytest.importorskip("boto3")

from tests.unit.object_store.s3_stores import no_other_keys  # noqa: F401


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HostileS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    monkeypatch.setattr(paths.Paths.__init__, "__defaults__", (tmp_path, tmp_path, tmp_path, tmp_path))
    with lying() as it:
        yield it


def place(server: HostileS3) -> str:
    return f"zvault:{BUCKET}/cold endpoint={server.endpoint} style=path"


def test_a_sound_store_is_told_kept_and_left_as_it_was(server: HostileS3, ctl):
    said = ctl("blockstore", "probe", place(server), "--quick")
    assert said.code == 0
    good = [line.split()[0] for line in said.out.split("WHY")[1].splitlines() if line.strip()]
    assert good[:3] == ["yes", "yes", "yes"]
    assert not server.store.objects
    assert ctl("blockstore", "create", place(server), "--size", "1G", "-q").code == 0
    told = ctl("blockstore", "info", place(server))
    assert "good for one host, several hosts, history" in told.out


def test_a_store_that_ignores_conditions_is_good_for_nothing_and_says_why(server: HostileS3, ctl):
    server.conditions = False
    said = ctl("blockstore", "probe", place(server), "--quick", "-j")
    assert said.code == 1
    found = json.loads(said.out)
    assert not any(one["good"] for one in found["verdicts"])
    assert "If-None-Match" in found["verdicts"][0]["why"]
    refused = ctl("blockstore", "create", place(server), "--size", "1G")
    assert refused.code == 2
    assert "no place for a block store" in refused.err
    assert not server.store.objects
