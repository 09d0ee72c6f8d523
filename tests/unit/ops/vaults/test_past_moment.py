"""A vault as it was: what has no past, which moment is opened, and what is written down of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.ops.ops_world import START
from tests.unit.ops.vaults.past_world import STORE
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.kept_moments import find_moment_up_to as find
from zvault.config.schema import Vault
from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.core.name_rules import check_dataset_name
from zvault.ops.vaults.past_moment import find_past_device, look_up_moment
from zvault.ops.vaults.past_record import (
    PastVault,
    find_past_up_to,
    list_past_vaults,
    list_unreadable_leases,
    make_past_pool_name,
)
from zvault.system.process.runner import ProcessResult
from zvault.system.record_store import RecordStore


def vault(**table: Any) -> Vault:
    return Vault.model_validate({"pool": "cold", **table}).named("cold")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"host": "ssh://zvault@attic"}, "it is on ssh://zvault@attic"),
        ({}, "no device of zvault's"),
        ({"device": [{"nbd": "nbdkit:file /x"}]}, "nbdkit:file /x is no block store"),
        ({"device": [{"rbd": "p/i"}]}, "rbd:p/i is no block store"),
        ({"device": [{"nbd": STORE}, {"nbd": "zvault:zv/other size=1G"}]}, "it has 2 devices"),
        ({"device": [{"nbd": STORE, "cache": {"bcache": "/dev/x"}}]}, "its device has a cache"),
    ],
)
def test_vaults_that_have_no_past(table: dict[str, Any], why: str):
    with pytest.raises(Refused) as refused:
        find_past_device(vault(**table))
    assert why in refused.value.why
    assert refused.value.next


# Which moment


class Bucket:
    """A runner whose program says this."""

    def __init__(self, out: str, returncode: int = 0) -> None:
        self.out, self.code = out, returncode
        self.argv: list[str] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.argv = list(argv)
        return ProcessResult(tuple(argv), self.code, self.out, "it failed", 0.0)


async def look(out: str, *, keeps: bool = True) -> PastVault:
    config = vault(device=[{"nbd": f"{STORE} history=last:9" if keeps else STORE}])
    runner: Any = Bucket(out)
    return await look_up_moment(runner, config, find_past_device(config)[1], START)


async def test_a_moment():
    found = await look('{"epoch": 3, "number": 120, "taken": 1794999999.5}')
    assert (found.at, found.name, found.lease) == ("3-120", "cold:3-120", "past/cold/3-120")
    assert found.pool == "cold_zvault-at-20261118T110639Z"


@pytest.mark.parametrize(
    ("keeps", "following"), [(True, "blockstore history cold"), (False, "history=hourly")]
)
async def test_no_moment(keeps: bool, following: str):
    error = {"kind": "NotFound", "what": "nothing", "why": "no moment of its past is kept", "next": "x"}
    with pytest.raises(NotFound) as found:
        await look(json.dumps({"error": error}), keeps=keeps)
    assert found.value.why == "no moment of its past is kept"
    assert following in found.value.next


@given(
    st.one_of(
        st.text(),
        st.recursive(
            st.none() | st.floats() | st.integers() | st.text(max_size=5),
            lambda inner: st.dictionaries(st.sampled_from(["epoch", "number", "taken", "error"]), inner),
        ).map(json.dumps),
    )
)
def test_whatever_the_program_says_is_a_moment_or_an_error_in_words(out: str):
    with contextlib.suppress(ZvaultError):
        found = asyncio.run(look(out))
        check_dataset_name(found.pool)
        assert re.fullmatch(r"past/cold/\d{1,20}-\d{1,20}", found.lease)


async def test_a_program_that_was_taken_over_is_told_as_one_that_fails():
    """It parses what the bucket says."""
    with pytest.raises(ToolFailed, match="cannot be looked up"):
        await look("[" * 200_000)


@pytest.mark.parametrize("wrong", ["-1", "1e3", "true", "9" * 30, "null", '"1"'])
async def test_numbers_that_no_checkpoint_has(wrong: str):
    with pytest.raises(ToolFailed, match="cannot be looked up"):
        await look(f'{{"epoch": {wrong}, "number": 1, "taken": 1}}')


@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 4e9))), st.floats(-1, 4e9))
def test_the_last_one_up_to_a_time_is_the_one_that_the_store_finds(made: list[tuple[int, float]], at: float):
    """Whatever clocks said: so 'close --at' means what 'open --at' opened."""
    found = [PastVault("cold", epoch, number, taken, "p") for number, (epoch, taken) in enumerate(made)]
    moments = [KeptMoment(one.epoch, one.number, one.taken, 1, 1) for one in found]
    try:
        expected = find(moments, at, "here")
    except NotFound:
        assert find_past_up_to(found, at) is None
        return
    last = find_past_up_to(found, at)
    assert last is not None
    assert (last.epoch, last.number) == (expected.epoch, expected.number)
    assert 0 < last.taken <= at


@pytest.mark.parametrize("taken", [0, -1, START + 1, '"x"', "NaN"])
async def test_a_time_that_is_unknown_or_not_up_to_the_one_asked_for(taken: object):
    with pytest.raises(ToolFailed, match="cannot be looked up"):
        await look(f'{{"epoch": 1, "number": 1, "taken": {taken}}}')


@given(st.floats(0, 2.5e11))
def test_the_pool_is_a_name_of_a_pool(taken: float):
    check_dataset_name(make_past_pool_name("cold", taken))


def test_what_is_written_down_is_read_back(tmp_path: Path):
    leases = RecordStore(tmp_path, boot_id="this")
    made = [
        PastVault("cold", 1, 2, 9.5, "p", "somebody", 2**64 - 1, opened=True),
        PastVault("attic", 3, 4, 1.0, "q"),
    ]
    for one in made:
        leases.put(one.lease, one.as_lease())
    assert list_past_vaults(leases) == [made[1], made[0]]
    assert list_past_vaults(leases, "cold") == [made[0]]


WHOLE = PastVault("cold", 1, 2, 9.5, "p", "somebody", 77, opened=True).as_lease()


def put_raw(folder: Path, data: object) -> None:
    path = folder / "past/cold/1-2"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"boot_id": "this", "time": 1, "data": data}))


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        *({key: value for key, value in WHOLE.items() if key != gone} for gone in WHOLE),
        *(
            {**WHOLE, "taken": taken}
            for taken in ("x", None, [1], float("nan"), float("inf"), 1e300, -1, True)
        ),
        *({**WHOLE, "guid": guid} for guid in ("x", None, 1.5, -1, 2**64, True)),
        {**WHOLE, "pool": None},
        {**WHOLE, "pool": "-f"},
        {**WHOLE, "pool": "p/home"},
        {**WHOLE, "user": 5},
        {**WHOLE, "opened": "no"},
        {**WHOLE, "pinned": 1},
    ],
)
def test_a_lease_that_tells_of_nothing_known_is_told_and_passed_over(
    tmp_path: Path, wrong: dict[str, object]
):
    leases = RecordStore(tmp_path, boot_id="this")
    other = PastVault("cold", 3, 4, 1.0, "q")
    leases.put(other.lease, other.as_lease())
    put_raw(tmp_path, wrong)
    assert list_past_vaults(leases) == [other]
    (told,) = list_unreadable_leases(leases)
    assert "past/cold/1-2" in told


def test_a_lease_whose_name_is_no_moment_is_told(tmp_path: Path):
    leases = RecordStore(tmp_path, boot_id="this")
    leases.put("past/cold/x", WHOLE)
    assert list_past_vaults(leases) == []
    (told,) = list_unreadable_leases(leases)
    assert "past/cold/x" in told


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(st.dictionaries(st.sampled_from(sorted(WHOLE)), json_values))
def test_whatever_a_lease_holds_it_is_read_or_told(data: dict[str, Any]):
    with tempfile.TemporaryDirectory() as folder:
        put_raw(Path(folder), {**WHOLE, **data})
        leases = RecordStore(Path(folder), boot_id="this")
        found = list_past_vaults(leases)
        assert len(found) + len(list_unreadable_leases(leases)) == 1
        for one in found:
            assert one.when.endswith("UTC")
            check_dataset_name(one.pool)
