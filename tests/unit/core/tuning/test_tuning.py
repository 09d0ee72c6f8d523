"""Which module parameters are set for which vaults, and what is said of the rest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.tuning import (
    AGGREGATION_LIMITS,
    KernelParameter,
    ParameterDecision,
    TunedHost,
    TuningRequest,
    decide_parameters,
    find_default,
    list_modprobe_options,
)
from zvault.core.zfs_version import parse_version

GIB = 1 << 30
FLASH, DISK = AGGREGATION_LIMITS[False], AGGREGATION_LIMITS[True]
DEPTH = "zfs_vdev_async_write_max_active"
LEAST = "zfs_vdev_async_write_min_active"
DIRTY = "zfs_dirty_data_max"
LOADED = "zfs_dirty_data_max_max"
PARAMETERS = {
    DISK: KernelParameter("1048576", True),
    FLASH: KernelParameter("131072", True),
    DEPTH: KernelParameter("10", True),
    LEAST: KernelParameter("2", True),
    DIRTY: KernelParameter("400000000", True),
    LOADED: KernelParameter(str(GIB), False),
    "zfs_txg_timeout": KernelParameter("5", True),
    "zio_dva_throttle_enabled": KernelParameter("1", True),
    "zfs_deadman_failmode": KernelParameter("wait", True),
}
HOST = TunedHost((2, 4, 1), 8 * GIB, PARAMETERS)
SPINS, STILL = frozenset({True}), frozenset({False})


def only(*requests: TuningRequest, host: TunedHost = HOST) -> ParameterDecision:
    (verdict,) = decide_parameters(requests, host)
    return verdict


def test_one_vault_gets_what_it_wants():
    assert only(TuningRequest("cold", {DEPTH: "4"})) == ParameterDecision(
        DEPTH, {"cold": "4"}, "4", "wanted by cold"
    )


@pytest.mark.parametrize(
    ("name", "one", "other", "value"),
    [
        (FLASH, "1048576", "4194304", "4194304"),
        (DEPTH, "4", "16", "4"),
        ("zio_dva_throttle_enabled", "1", "0", "0"),
    ],
)
def test_two_vaults_are_reconciled_by_the_parameters_rule(name: str, one: str, other: str, value: str):
    verdict = only(TuningRequest("a", {name: one}), TuningRequest("b", {name: other}))
    assert verdict.value == value
    assert f"a wants {one}, b wants {other}; the " in verdict.why
    assert KNOWN_PARAMETERS[name].because in verdict.why


def test_where_there_is_no_rule_nobody_gets_it():
    waits, panics = ({"zfs_deadman_failmode": mode} for mode in ("wait", "panic"))
    verdict = only(TuningRequest("a", waits), TuningRequest("b", panics))
    assert (verdict.value, verdict.fate, verdict.trouble) == (None, "conflict", True)
    assert "a wants wait, b wants panic, and no rule" in verdict.why


@pytest.mark.parametrize(
    ("version", "name", "said"),
    [
        ("2.4.0-1", "zfs_vdev_queue_depth_pct", "this OpenZFS 2.4.0 has no zfs_vdev_queue_depth_pct: 2.4 removed it"),
        ("2.3.9", "zfs_recv_defer_batch_size", "this OpenZFS 2.3.9 has no zfs_recv_defer_batch_size: 2.5 added it"),
        ("2.3.9", "zfs_txg_timeuot", "zvault does not know it; is zfs_txg_timeout meant?"),
        ("", "zfs_vdev_queue_depth_pct", "this OpenZFS of unknown version has no zfs_vdev_queue_depth_pct"),
    ],
)  # fmt: skip
def test_what_this_openzfs_lacks_is_told_and_no_trouble(version: str, name: str, said: str):
    host = TunedHost(parse_version(version), GIB, PARAMETERS)
    verdict = only(TuningRequest("cold", {name: "1"}), host=host)
    assert (verdict.value, verdict.fate, verdict.trouble) == (None, "absent", False)
    assert said in verdict.why


def test_what_counts_only_at_load_is_a_trouble_unless_it_is_so_already():
    request = TuningRequest("cold", {LOADED: str(2 * GIB)})
    verdict = only(request)
    assert (verdict.value, verdict.fate, verdict.trouble) == (None, "load-time", True)
    assert "only when it is loaded" in verdict.why
    assert list_modprobe_options([request], HOST) == [(LOADED, str(2 * GIB), "wanted by cold")]
    assert only(TuningRequest("cold", {LOADED: str(GIB)})).value == str(GIB)
    assert list_modprobe_options([TuningRequest("cold", {DEPTH: "4"})], HOST) == []


@pytest.mark.parametrize(("rotational", "counts"), [(STILL, FLASH), (SPINS, DISK)])
@pytest.mark.parametrize("named", [FLASH, DISK])
def test_the_aggregation_limit_is_that_of_the_devices_that_are_there(
    rotational: frozenset[bool], counts: str, named: str
):
    verdicts = {
        one.name: one
        for one in decide_parameters([TuningRequest("cold", {named: "4194304"}, rotational)], HOST)
    }
    assert verdicts[counts].value == "4194304"
    if named != counts:
        assert "so this limit applies" in verdicts[counts].why
        assert (verdicts[named].value, verdicts[named].fate) == (None, "unused")
    assert len(verdicts) == (1 if named == counts else 2)


def test_devices_of_both_kinds_and_unknown_ones():
    both = decide_parameters([TuningRequest("cold", {FLASH: "4194304"}, SPINS | STILL)], HOST)
    assert {one.name: one.value for one in both} == {FLASH: "4194304", DISK: "4194304"}
    assert [one.name for one in decide_parameters([TuningRequest("cold", {FLASH: "4194304"})], HOST)] == [
        FLASH
    ]


def test_a_limit_one_vault_has_no_use_for_is_still_the_others():
    verdicts = decide_parameters(
        [TuningRequest("a", {FLASH: "1"}, SPINS), TuningRequest("b", {FLASH: "2"}, STILL)], HOST
    )
    assert {one.name: one.value for one in verdicts} == {DISK: "1", FLASH: "2"}


@pytest.mark.parametrize(
    ("memory", "wanted", "value"),
    [(8 * GIB, 4 * GIB, GIB), (2 * GIB, GIB, GIB // 2), (8 * GIB, GIB // 2, GIB // 2)],
)
def test_dirty_data_stays_within_memory(memory: int, wanted: int, value: int):
    verdict = only(TuningRequest("cold", {DIRTY: str(wanted)}), host=TunedHost((2, 3, 9), memory, PARAMETERS))
    assert verdict.value == str(value)
    assert ("memory allows" in verdict.why) == (value != wanted)


def test_defaults_are_openzfs_own():
    assert find_default(FLASH, HOST) == "131072"
    assert find_default(DIRTY, HOST) == str(8 * GIB // 10)
    assert find_default("zfs_nonsense", HOST) is None


names = st.sampled_from([*PARAMETERS, "zfs_vdev_queue_depth_pct", "zfs_nonsense"])
modules = st.dictionaries(names, st.integers(0, 1 << 40).map(str), max_size=6)
requests = st.lists(
    st.builds(TuningRequest, st.sampled_from("abcd"), modules, st.frozensets(st.booleans())),
    unique_by=lambda request: request.vault,
    max_size=4,
)
hosts = st.builds(TunedHost, st.just((2, 4, 1)), st.integers(GIB, 1 << 40), st.just(PARAMETERS))


@given(requests, hosts, st.randoms())
def test_whatever_is_wanted(found: list[TuningRequest], host: TunedHost, random: object):
    verdicts = {one.name: one for one in decide_parameters(found, host)}
    shuffled = sorted(found, key=lambda request: random.random())  # type: ignore[attr-defined]
    assert list(verdicts.values()) == decide_parameters(shuffled, host), (
        "the order of coming up counts for nothing"
    )
    asked = {value for request in found for value in request.module.values()}
    for name, verdict in verdicts.items():
        assert verdict.wanted
        assert verdict.why
        if verdict.value is None:
            continue
        here = host.parameters[name]
        assert here.writable or here.value == verdict.value, "what cannot be set is not set"
        if name == DIRTY:
            assert int(verdict.value) <= min(host.memory // 4, GIB)
        elif name == LEAST:
            top = verdicts[DEPTH].value if DEPTH in verdicts else host.parameters[DEPTH].value
            assert int(verdict.value) <= int(top or 0)
        else:
            assert verdict.value in asked
    for request in found:
        for name in request.module:
            assert request.vault in verdicts[name].wanted, "nothing that is wanted goes without a word"
