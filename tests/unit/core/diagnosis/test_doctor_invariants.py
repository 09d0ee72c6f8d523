"""What holds for every verdict on a vault, whatever was seen of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.core.diagnosis.doctor_facts import DEFAULTS
from zvault.core.diagnosis.doctor import diagnose_bottleneck
from zvault.core.diagnosis.doctor_text import BottleneckKind
from zvault.core.diagnosis.observations import (
    DiskRequests,
    Observations,
    ObservedRun,
    StreamFlow,
    StreamStage,
    SyncedGroup,
    TcpPath,
    WriteQueue,
)

shares = st.one_of(st.none(), st.floats(0, 1))
counts = st.integers(0, 1 << 40)
times = st.integers(0, 10**9).map(lambda ms: ms / 1000)
windows = st.integers(0, 60_000).map(lambda ms: ms / 1000)
disks = st.builds(
    DiskRequests,
    name=st.just("nbd0"),
    seconds=windows,
    writes=counts,
    written=counts,
    write_time=times,
    reads=counts,
    read=counts,
    read_time=times,
    busy=st.floats(0, 1),
    rounds=st.floats(0, 1),
)
a_stage = st.builds(
    StreamStage,
    st.sampled_from(["source", "limit", "ssh", "codec", "buffer", "receive"]),
    st.just("one"),
    shares,
    shares,
    st.just("filer"),
    st.one_of(st.none(), st.builds(TcpPath, st.floats(0, 1), counts, counts, times, st.floats(0, 1))),
)
flows = st.builds(
    StreamFlow,
    st.just("b"),
    st.just("d"),
    st.lists(a_stage, min_size=1, max_size=5).map(tuple),
    st.floats(0, 1e10),
    st.one_of(st.none(), st.integers(1, 1 << 40)),
    st.one_of(st.none(), st.tuples(st.integers(0, 100), st.integers(0, 100))),
)
anything = st.builds(
    Observations,
    vault=st.just("cold"),
    pool=st.just("cold"),
    profile=st.sampled_from(["auto", "s3"]),
    seconds=windows,
    health=st.sampled_from([None, "ONLINE", "SUSPENDED"]),
    flows=st.lists(flows, max_size=2).map(tuple),
    disks=st.lists(disks, max_size=2).map(tuple),
    source_disks=st.lists(disks, max_size=1).map(tuple),
    queue=st.one_of(st.none(), st.builds(WriteQueue, st.floats(0, 1e4), st.floats(0, 1e4))),
    request=st.one_of(st.none(), st.floats(1, 1e8)),
    largest=st.one_of(st.none(), st.integers(1 << 12, 1 << 26)),
    rotational=st.booleans(),
    store=st.booleans(),
    measured=st.one_of(st.none(), st.floats(0, 1e10)),
    groups=st.lists(st.builds(SyncedGroup, counts, times, times), max_size=3).map(tuple),
    threads=st.dictionaries(st.sampled_from(["receive_writer", "z_wr_iss"]), st.floats(0, 1)),
    idle=shares,
    waits=st.dictionaries(st.just("dmu_tx_quota"), counts),
    memory=st.one_of(st.none(), counts),
    parameters=st.dictionaries(st.sampled_from(sorted(DEFAULTS)), counts),
    wanted=st.dictionaries(st.sampled_from(sorted(DEFAULTS)), counts),
    last=st.one_of(st.none(), st.builds(ObservedRun, st.just("b"), counts, times)),
)


@given(anything)
def test_there_is_always_one_verdict_in_one_sentence(seen: Observations):
    verdict = diagnose_bottleneck(seen)
    assert verdict.bound in get_args(BottleneckKind)
    assert "vault cold" in verdict.sentence
    assert not re.search(r"[.!] |\n", verdict.sentence), "one sentence"


def longer(disk: DiskRequests, times: int) -> DiskRequests:
    """The same device, watched for longer."""
    return replace(
        disk,
        seconds=disk.seconds * times,
        writes=disk.writes * times,
        written=disk.written * times,
        write_time=disk.write_time * times,
        reads=disk.reads * times,
        read=disk.read * times,
        read_time=disk.read_time * times,
    )


@given(anything, st.sampled_from([2, 4, 16]))
def test_to_watch_for_longer_changes_nothing(seen: Observations, times: int):
    more = replace(
        seen,
        seconds=seen.seconds * times,
        disks=tuple(longer(one, times) for one in seen.disks),
        source_disks=tuple(longer(one, times) for one in seen.source_disks),
    )
    assert diagnose_bottleneck(more).bound == diagnose_bottleneck(seen).bound
    assert diagnose_bottleneck(more).knob == diagnose_bottleneck(seen).knob


@given(disks.filter(lambda one: one.seconds > 0 and one.writes > 0))
def test_littles_law_holds(one: DiskRequests):
    if one.write_time > 0:
        assert one.latency
        assert one.in_flight / one.latency * (one.size or 0) == pytest.approx(one.rate, rel=1e-6)


def test_every_verdict_has_its_place_in_the_documentation():
    page = (Path(__file__).parents[4] / "docs/how-to/why-is-my-backup-slow.md").read_text(encoding="utf-8")
    assert re.findall(r"^## `(.+?)`", page, re.M) == list(get_args(BottleneckKind))
