"""What a write costs is counted out; the published figures come out as they were published."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.cost.prices import StorePrices
from zvault.core.diagnosis.txg_overhead import estimate_group_requests
from zvault.core.tuning.alignment import (
    GIBIBYTE,
    PoolLayout,
    SentDataset,
    StorageGeometry,
    TuningAdvice,
    advise_on_datasets,
    count_storage_units,
    fit_dataset,
    measure_on_disk,
    measure_record,
)

KIB = 1 << 10
MIB = 1 << 20
S3 = StorePrices(put=0.005, get=0.0004)
"""Amazon's list price of its standard class, per thousand requests."""


def store(unit: int | None, largest: int = 32 * MIB, **more: object) -> StorageGeometry:
    return replace(StorageGeometry("device", largest, unit), **more)  # type: ignore[arg-type]


def layout(unit: int | None, merge: int = 128 * KIB, sector: int = 4 * KIB, **more: object) -> PoolLayout:
    return replace(PoolLayout(sector, merge, store(unit, prices=S3)), **more)  # type: ignore[arg-type]


powers = st.integers(12, 24).map(lambda power: 1 << power)


@given(sectors=st.integers(1, 300), unit=powers, sector=st.sampled_from([512, 4 * KIB, 8 * KIB]))
def test_units_are_what_one_counts_over_all_beginnings(sectors: int, unit: int, sector: int) -> None:
    request, step = sectors * sector, min(sector, unit)
    starts = range(0, unit, step) if unit // step <= 512 else None
    if starts is None:
        return
    touched = whole = 0
    for start in starts:
        first, last = start // unit, (start + request - 1) // unit
        touched += last - first + 1
        whole += max(0, (start + request) // unit - -(-start // unit))
    count = len(starts)
    assert count_storage_units(request, unit, sector) == pytest.approx(
        (touched / count, (touched - whole) / count)
    )


@given(record=powers, ratio=st.floats(0.5, 30), sector=st.sampled_from([512, 4 * KIB]), large=st.booleans())
def test_a_block_is_whole_sectors_and_no_larger_than_its_record(
    record: int, ratio: float, sector: int, large: bool
) -> None:
    sent = SentDataset("tank", record, ratio=ratio, large_blocks=large)
    block = measure_on_disk(sent, sector)
    assert sector <= block <= measure_record(sent) <= record
    assert block % sector == 0
    assert block * max(1.0, ratio) > measure_record(sent) - 1 - sector * max(1.0, ratio)


@given(record=powers, merge=powers, unit=st.none() | powers, largest=powers, ratio=st.floats(1, 20))
def test_all_bytes_are_sent_and_nothing_is_moved_for_less(
    record: int, merge: int, unit: int | None, largest: int, ratio: float
) -> None:
    found = fit_dataset(
        SentDataset("tank", record, ratio=ratio), PoolLayout(4 * KIB, merge, store(unit, largest))
    )
    assert found.request <= largest
    assert found.request <= max(merge, found.block)
    assert found.puts >= found.gets >= 0
    assert found.moved >= found.block / record - 1e-9
    assert found.puts * found.request >= GIBIBYTE * found.block / record - 1


def test_a_gigabyte_in_blocks_of_4_kib_costs_what_the_s3_report_paid() -> None:
    found = fit_dataset(SentDataset("tank", 4 * KIB), layout(4 * KIB, merge=4 * KIB))
    assert found.cost == pytest.approx(1.31, abs=0.005)
    assert found.gets == 0


def test_4_kib_into_an_object_of_512_are_amplified_as_in_the_s3_report() -> None:
    # The report counts what is moved besides the bytes themselves: 255 times.
    assert fit_dataset(SentDataset("tank", 4 * KIB), layout(512 * KIB, merge=4 * KIB)).moved == 256


def test_a_compressed_record_begins_anywhere() -> None:
    assert count_storage_units(MIB, 4 * MIB, 4 * KIB)[0] == pytest.approx(1.25, abs=0.01)
    assert count_storage_units(MIB, MIB, 4 * KIB)[0] == pytest.approx(2, abs=0.01)


def test_what_merges_goes_in_fewer_requests() -> None:
    alone = fit_dataset(SentDataset("tank", 128 * KIB), layout(4 * MIB, merge=128 * KIB))
    merged = fit_dataset(SentDataset("tank", 128 * KIB), layout(4 * MIB, merge=4 * MIB))
    assert (alone.request, merged.request) == (128 * KIB, 4 * MIB)
    assert merged.puts < alone.puts / 15
    cut = fit_dataset(
        SentDataset("tank", 128 * KIB),
        replace(layout(4 * MIB, merge=4 * MIB), data=store(4 * MIB, 1280 * KIB)),
    )
    assert cut.request == 1280 * KIB


def test_small_blocks_go_to_the_special_device() -> None:
    both = layout(4 * MIB, special=StorageGeometry("fast", MIB, None), small=32 * KIB)
    assert fit_dataset(SentDataset("db", 16 * KIB), both).store == "fast"
    assert fit_dataset(SentDataset("db", 16 * KIB), both).moved == 1
    assert fit_dataset(SentDataset("files", 128 * KIB), both).store == "device"


def test_what_is_merged_need_not_be_written_anew_at_the_source() -> None:
    old = SentDataset("tank/old", 128 * KIB)
    (advice,) = advise_on_datasets([old], layout(MIB))
    assert (
        "18368 requests for each GiB of tank/old; with adjacent writes merged up to 4M it is 1789"
        in advice.why
    )
    assert advise_on_datasets([old], layout(MIB, merge=4 * MIB)) == []
    small = layout(MIB, data=store(MIB, 1280 * KIB))
    assert "max_sectors_kb = 4096" in advise_on_datasets([old], small)[0].what


def about(advice: list[TuningAdvice]) -> dict[str, tuple[str, ...]]:
    return {one.what.split(",")[0]: one.about for one in advice}


GOOD = SentDataset("tank/files", MIB)


def test_what_fits_needs_no_advice() -> None:
    assert (
        advise_on_datasets(
            [GOOD, SentDataset("tank/db", 16 * KIB), SentDataset("tank/vm", 16 * KIB, volume=True)],
            layout(4 * MIB, merge=8 * MIB),
        )
        == []
    )
    assert advise_on_datasets([GOOD, SentDataset("tank/old", 128 * KIB)], layout(None)) == []


@pytest.mark.parametrize(
    ("sent", "where", "what"),
    [
        (replace(GOOD, large_blocks=False), layout(4 * MIB), "set send = { large_blocks = true }"),
        (GOOD, layout(512 * KIB), "take larger objects for device"),
        (
            SentDataset("tank/old", 128 * KIB),
            layout(None, data=store(4 * MIB, kind="stripe")),
            "set recordsize=1M at the source",
        ),
        (
            SentDataset("tank/old", 128 * KIB),
            layout(MIB),
            'set zfs_vdev_aggregation_limit_non_rotating = "4M"',
        ),
        (
            SentDataset("tank/old", 128 * KIB),
            layout(8 * MIB),
            'set zfs_vdev_aggregation_limit_non_rotating = "16M"',
        ),
        (GOOD, layout(4 * MIB, merge=4 * MIB, data=store(4 * MIB, MIB)), "raise max_sectors_kb to 4096"),
        (GOOD, layout(4 * MIB, special=store(None)), "set special_small_blocks"),
        (GOOD, layout(4 * MIB, special=store(None), small=MIB), "lower special_small_blocks below 1M"),
        (replace(GOOD, encrypted=True), layout(None, encryption=True), "leave encryption to one"),
        (replace(GOOD, ratio=2.0), layout(None, compression=True), "turn off compression in the storage"),
        (GOOD, layout(3 * KIB), "make its objects a power of two"),
    ],
)
def test_each_misfit_is_told_and_its_cure(sent: SentDataset, where: PoolLayout, what: str) -> None:
    advice = advise_on_datasets([sent], where)
    assert any(one.what.startswith(what) for one in advice), advice
    assert all(one.why and one.about for one in advice)


def test_a_store_that_gathers_puts_by_bytes_whatever_the_writes() -> None:
    gathers = store(None, prices=S3, gathers=8 * MIB)
    for record, merge in ((16 * KIB, 0), (MIB, MIB)):
        found = fit_dataset(SentDataset("tank", record), PoolLayout(4 * KIB, merge, gathers))
        assert (found.puts, found.gets, found.moved) == (128, 0, 1)
        assert found.cost == pytest.approx(128 * S3.put / 1000)
    assert estimate_group_requests(PoolLayout(4 * KIB, 128 * KIB, gathers)).puts == 2, (
        "the metadata's, and the labels'"
    )
