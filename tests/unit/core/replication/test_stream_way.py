"""Which streams go without programs: small ones, within this host, that bring nothing but data."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Snapshot
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.plan_model import Action, Step
from zvault.core.replication.stream_way import SMALL, Setting, alike, why_programs

OLD = Snapshot(DatasetName("tank/a"), "old", 1, 1, 1)
NEW = Snapshot(DatasetName("tank/a"), "new", 2, 2, 2)
STEP = Step(Action.INCREMENTAL, NEW, OLD)
KEPT_OUT = ("mountpoint", "quota", "checksum")


def why(step: Step = STEP, size: int | None = SMALL, **facts: bool) -> str:
    return why_programs(step, size, **{"here": True, "limited": False, "alike": True, **facts})


def test_a_small_increment_within_this_host_needs_no_programs() -> None:
    assert why() == ""
    assert why(replace(STEP, intermediates=True), 0) == ""


@pytest.mark.parametrize(
    ("words", "step", "size", "facts"),
    [
        ("another host", STEP, 1, {"here": False}),
        ("follow on", Step(Action.FULL, NEW), 1, {}),
        ("follow on", Step(Action.RESUME, NEW, token="1-2-3"), 1, {}),
        ("follow on", replace(STEP, origin=SnapshotName("cold/x@s")), 1, {}),
        ("follow on", replace(STEP, over=True), 1, {}),
        ("not known", STEP, None, {}),
        ("large", STEP, SMALL + 1, {}),
        ("limit", STEP, 1, {"limited": True}),
        ("properties", STEP, 1, {"alike": False}),
    ],
)
def test_all_others_go_through_programs_and_say_why(
    words: str, step: Step, size: int | None, facts: dict[str, bool]
) -> None:
    assert words in why(step, size, **facts)


def received(value: str) -> Setting:
    """A property that came with a stream and is overridden on the vault."""
    return Setting("other", value, "local")


NAMES = st.sampled_from(["compression", "recordsize", "com.x:y", "mountpoint", "checksum", "canmount"])
VALUES = st.sampled_from(["on", "off", "1M"])


@given(st.dictionaries(NAMES, VALUES), st.dictionaries(NAMES, VALUES))
def test_they_are_alike_when_the_vault_received_exactly_what_the_source_has(
    sent: dict[str, str], came: dict[str, str]
) -> None:
    there = {key: received(value) for key, value in came.items()}
    there["atime"] = Setting("on", "-", "default")
    assert alike(sent, there, KEPT_OUT) == (sent == came)


def test_limits_are_put_on_record_in_another_way() -> None:
    assert alike({"quota": "5", "refreservation": "7"}, {"quota": Setting("0", "-", "default")}, KEPT_OUT)


def test_labels_are_never_received_and_need_no_programs_each_time() -> None:
    """ZFS keeps nothing of a label that a receive leaves out: it cannot be inherited."""
    assert alike({"context": "user_u"}, {"context": Setting("none", "-", "default")}, KEPT_OUT)


@pytest.mark.parametrize("key", ["keylocation", "volsize"])
def test_what_is_not_received_counts_by_its_value(key: str) -> None:
    assert alike({key: "prompt"}, {key: Setting("prompt", "-", "local")}, KEPT_OUT)
    assert not alike({key: "prompt"}, {key: Setting("none", "-", "local")}, KEPT_OUT)
    assert not alike({key: "prompt"}, {}, KEPT_OUT)


def test_what_must_not_be_in_force_and_is_has_zfs_receive_take_it_out() -> None:
    sent = {"mountpoint": "/x"}
    assert not alike(sent, {"mountpoint": Setting("/x", "/x", "received")}, KEPT_OUT)
    assert alike(sent, {"mountpoint": Setting("/cold", "/x", "inherited from cold")}, KEPT_OUT)
