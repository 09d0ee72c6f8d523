"""What a probe finds of each server of server_faults.py, over real HTTP; and that it leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.object_store.hostile_s3 import HostileS3, lying
from tests.unit.object_store.s3_server import BUCKET
from tests.unit.object_store.server_faults import LOSSLESS, UNLOCKED, Fault

pytest.importorskip("boto3")

from tests.unit.object_store.s3_stores import (
    make,
    no_other_keys,  # noqa: F401
)
from zvault.object_store.interface import StoreDenied, StoreUnreachable
from zvault.object_store.probe import ProbeReport, Speed, Try, judge_tries, probe_store
from zvault.object_store.s3_settings import S3Settings


@pytest.fixture(name="server")
def server_for_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileS3]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    with lying() as it:
        yield it


def probed(server: HostileS3, **more: object) -> ProbeReport:
    settings = make(server, **more).settings
    return probe_store(settings, "v.probe/", rounds=1, speed=False, sleep=lambda _: None)


def good_for(report: ProbeReport) -> set[str]:
    return {one.use for one in report.verdicts() if one.good}


@pytest.mark.parametrize("fault", LOSSLESS.values(), ids=LOSSLESS.keys())
def test_a_sound_store_is_good_for_hosts_and_nothing_is_left(server: HostileS3, fault: Fault) -> None:
    fault(server)
    report = probed(server)
    assert good_for(report) == {"one host", "several hosts", "history"}, report.tries
    assert (report.left, server.store.objects) == ([], {})
    assert "versions" in next(one.why for one in report.verdicts() if one.use == "recover")


@pytest.mark.parametrize("fault", UNLOCKED.values(), ids=UNLOCKED.keys())
def test_a_store_that_would_lose_writes_is_not_good_for_them(server: HostileS3, fault: Fault) -> None:
    fault(server)
    report = probed(server)
    assert good_for(report) == ({"one host", "history"} if server.races else set()), report.tries
    assert all(one.why for one in report.verdicts() if not one.good)
    assert server.store.objects == {}


def test_it_says_what_kind_of_reads_it_met(server: HostileS3) -> None:
    server.long_suffix = False
    assert any("416" in one.came for one in probed(server).tries)
    server.ranges = False
    assert any("whole object for each part" in one.came for one in probed(server).tries)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ("stale reads", "overwrite"),
        ("listings in another order", "list"),
        ("changed bytes are taken", "refuses changed bytes"),
    ],
)
def test_what_loses_data_is_found(server: HostileS3, wrong: str, name: str) -> None:
    if wrong == "stale reads":
        server.stale_reads = True
    elif wrong == "listings in another order":
        server.listing = "backwards"
    else:
        server.checks_bytes = False
    report = probed(server)
    assert next(one for one in report.tries if one.name == name).held is False, report.tries
    assert ("one host" in good_for(report)) == (wrong == "changed bytes are taken"), "https sees to these"


def test_the_style_is_found_by_trying(server: HostileS3) -> None:
    server.virtual = False
    endpoint = server.endpoint.replace("127.0.0.1", "localhost")
    assert probed(server, style="virtual", endpoint=endpoint).style == "path"


def test_a_place_that_does_not_answer_is_told_with_its_first_error(server: HostileS3) -> None:
    with pytest.raises(StoreUnreachable):
        probe_store(S3Settings(BUCKET, "http://127.0.0.1:1", style="path"), "v.probe/", speed=False)
    server.keys = set()
    with pytest.raises(StoreDenied, match="InvalidAccessKeyId"):
        probed(server)


def test_speed_is_measured_and_the_depth_follows_from_it(
    server: HostileS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zvault.object_store import probe as module

    monkeypatch.setattr(module, "LARGE", 1 << 16)
    monkeypatch.setattr(module, "DEPTHS", (1, 2))
    report = probe_store(make(server).settings, "v.probe/", rounds=1, sleep=lambda _: None)
    assert [(one.kind, one.depth) for one in report.speeds] == [
        ("put", 1),
        ("put", 2),
        ("get", 1),
        ("get", 2),
    ]
    assert all(one.rate > 0 for one in report.speeds)
    assert report.put_seconds is not None
    assert server.store.objects == {}
    report.speeds = [Speed("put", 1, 10.0), Speed("put", 4, 39.0), Speed("put", 16, 41.0)]
    assert report.best_depth() == 4


def test_what_was_not_tried_is_no_yes() -> None:
    assert not any(one.good for one in judge_tries([]))
    assert next(one.why for one in judge_tries([Try("answers", False, "no")])) == "answers: no"
