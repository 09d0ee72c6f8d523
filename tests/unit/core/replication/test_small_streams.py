"""Which streams go without programs: small ones, within this host, that bring nothing but data."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.model import Snapshot, VaultProperty
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.plan_model import TransferAction, TransferStep
from zvault.core.replication.small_streams import (
    SMALL_STREAM,
    explain_use_of_programs,
    leaves_properties_unchanged,
)

OLD = Snapshot(DatasetName("tank/a"), "old", 1, 1, 1)
NEW = Snapshot(DatasetName("tank/a"), "new", 2, 2, 2)
STEP = TransferStep(TransferAction.INCREMENTAL, NEW, OLD)
KEPT_OUT = ("mountpoint", "quota", "checksum")


def why(step: TransferStep = STEP, size: int | None = SMALL_STREAM, **facts: bool) -> str:
    return explain_use_of_programs(step, size, **{"here": True, "limited": False, "alike": True, **facts})


def test_a_small_increment_within_this_host_needs_no_programs() -> None:
    assert why() == ""
    assert why(replace(STEP, intermediates=True), 0) == ""


@pytest.mark.parametrize(
    ("words", "step", "size", "facts"),
    [
        ("another host", STEP, 1, {"here": False}),
        ("follow on", TransferStep(TransferAction.FULL, NEW), 1, {}),
        ("follow on", TransferStep(TransferAction.RESUME, NEW, token="1-2-3"), 1, {}),
        ("follow on", replace(STEP, origin=SnapshotName("cold/x@s")), 1, {}),
        ("follow on", replace(STEP, over=True), 1, {}),
        ("not known", STEP, None, {}),
        ("large", STEP, SMALL_STREAM + 1, {}),
        ("limit", STEP, 1, {"limited": True}),
        ("properties", STEP, 1, {"alike": False}),
    ],
)
def test_all_others_go_through_programs_and_say_why(
    words: str, step: TransferStep, size: int | None, facts: dict[str, bool]
) -> None:
    assert words in why(step, size, **facts)


def received(value: str) -> VaultProperty:
    """A property that came with a stream and is overridden on the vault."""
    return VaultProperty("other", value, "local")


NAMES = st.sampled_from(["compression", "recordsize", "com.x:y", "mountpoint", "checksum", "canmount"])
VALUES = st.sampled_from(["on", "off", "1M"])


@given(st.dictionaries(NAMES, VALUES), st.dictionaries(NAMES, VALUES))
def test_they_are_alike_when_the_vault_received_exactly_what_the_source_has(
    sent: dict[str, str], came: dict[str, str]
) -> None:
    there = {key: received(value) for key, value in came.items()}
    there["atime"] = VaultProperty("on", "-", "default")
    assert leaves_properties_unchanged(sent, there, KEPT_OUT) == (sent == came)


def test_limits_are_put_on_record_in_another_way() -> None:
    assert leaves_properties_unchanged(
        {"quota": "5", "refreservation": "7"}, {"quota": VaultProperty("0", "-", "default")}, KEPT_OUT
    )


def test_labels_are_never_received_and_need_no_programs_each_time() -> None:
    """ZFS keeps nothing of a label that a receive leaves out: it cannot be inherited."""
    assert leaves_properties_unchanged(
        {"context": "user_u"}, {"context": VaultProperty("none", "-", "default")}, KEPT_OUT
    )


@pytest.mark.parametrize("key", ["keylocation", "volsize"])
def test_what_is_not_received_counts_by_its_value(key: str) -> None:
    assert leaves_properties_unchanged(
        {key: "prompt"}, {key: VaultProperty("prompt", "-", "local")}, KEPT_OUT
    )
    assert not leaves_properties_unchanged(
        {key: "prompt"}, {key: VaultProperty("none", "-", "local")}, KEPT_OUT
    )
    assert not leaves_properties_unchanged({key: "prompt"}, {}, KEPT_OUT)


def test_what_must_not_be_in_force_and_is_has_zfs_receive_take_it_out() -> None:
    sent = {"mountpoint": "/x"}
    assert not leaves_properties_unchanged(
        sent, {"mountpoint": VaultProperty("/x", "/x", "received")}, KEPT_OUT
    )
    assert leaves_properties_unchanged(
        sent, {"mountpoint": VaultProperty("/cold", "/x", "inherited from cold")}, KEPT_OUT
    )
