"""The verdict on a vault: known cases, figures as seen in the lab, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.core.diagnosis.doctor_facts import (
    KIB,
    LEAST,
    MERGE,
    MIB,
    MOST,
    TUNED,
    disk,
    flow,
    stages,
    vault,
)
from zvault.core.diagnosis.doctor import diagnose_bottleneck, find_slowest_stage
from zvault.core.diagnosis.observations import (
    DiskRequests,
    ObservedRun,
    StreamFlow,
    StreamStage,
    SyncedGroup,
    TcpPath,
    WriteQueue,
)


def pull(cpu: float = 0.1, way: TcpPath | None = None) -> StreamFlow:
    """A stream that ssh brings from another host; nothing here has to wait for anything else."""
    rest = stages(0.0, 0.0)[1:]
    return StreamFlow(
        "tank", "tank/data", (StreamStage("ssh", "ssh", cpu, host="filer", way=way), *rest), 5e6
    )


def push(way: TcpPath | None = None) -> StreamFlow:
    """A stream that ssh takes to another host, and would take more."""
    ends = (StreamStage("source", "zfs send", 0.1), StreamStage("ssh", "ssh", 0.1, 1.0, "attic", way))
    return StreamFlow("tank", "tank/data", ends, 5e6)


def test_a_stage_with_a_full_input_before_empty_ones_holds_all_up():
    assert find_slowest_stage(flow(1.0, 1.0, 0.0)).kind == "buffer"
    assert find_slowest_stage(flow(1.0, 0.0, 0.0)).kind == "limit"
    assert find_slowest_stage(flow(0.0, 0.0, 0.1)).kind == "source"
    assert find_slowest_stage(flow(0.0, 0.0, 0.9)).kind == "receive"
    ended = flow(0.0, 0.0)
    gone = replace(ended, stages=(replace(ended.stages[0], cpu=None), *ended.stages[1:]))
    assert find_slowest_stage(gone).kind == "receive", "what is left is for the vault to do"


def test_requests_of_128k_that_wait_to_be_merged():
    """As seen of a device of 20 ms with OpenZFS's defaults."""
    verdict = diagnose_bottleneck(vault())
    assert verdict.bound == "request-size"
    assert "2.0 in flight / 22ms x 128K = 11.4M/s" in verdict.sentence
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.now, verdict.knob.value) == (MERGE, "128K", '"4M"')


def test_what_the_kernel_cuts():
    verdict = diagnose_bottleneck(vault(parameters=TUNED, largest=128 * KIB))
    assert verdict.bound == "request-size"
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.now) == ("max_sectors_kb", "128")


def test_what_the_throttle_keeps_from_the_queue():
    verdict = diagnose_bottleneck(vault(parameters={**TUNED, "zio_dva_throttle_enabled": 1}))
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.value) == ("zio_dva_throttle_enabled", "0")


def test_a_queue_that_lets_all_go_at_once():
    """As report A's: 45 active, none pending."""
    seen = vault(parameters=TUNED, queue=WriteQueue(0, 45), disks=(disk(45, 0.44, 128 * KIB),))
    verdict = diagnose_bottleneck(seen)
    assert verdict.bound == "request-size"
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.value) == (MOST, "11")


def test_small_records_that_cannot_be_merged():
    verdict = diagnose_bottleneck(vault(parameters=TUNED, queue=WriteQueue(200, 4), request=64.0 * KIB))
    assert verdict.knob is not None
    assert verdict.knob.name == "recordsize"


def test_one_at_a_time():
    seen = vault(
        parameters={**TUNED, LEAST: 1, MOST: 1},
        disks=(disk(1, 0.028, MIB),),
        request=float(MIB),
        queue=WriteQueue(300, 1),
    )
    verdict = diagnose_bottleneck(seen)
    assert verdict.bound == "queue-depth"
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.now, verdict.knob.value) == (MOST, "1", "4")


def test_a_depth_below_what_the_profile_wants():
    """Another vault that is up wants less, say."""
    large = vault(
        parameters=TUNED,
        wanted={MOST: 16},
        disks=(disk(4, 0.012, MIB),),
        request=float(MIB),
        queue=WriteQueue(90, 4),
    )
    verdict = diagnose_bottleneck(large)
    assert verdict.bound == "queue-depth"
    assert verdict.knob is not None
    assert verdict.knob.value == "16"


GOOD = vault(
    parameters=TUNED,
    wanted=TUNED,
    disks=(disk(4, 0.105, 4 * MIB),),
    request=4.0 * MIB,
    queue=WriteQueue(160, 4),
    groups=(SyncedGroup(70 * MIB, 1.1, 1.0),),
)


def test_a_device_that_is_given_all_it_needs():
    assert diagnose_bottleneck(GOOD).bound == "device"
    assert diagnose_bottleneck(replace(GOOD, store=True)).bound == "object-store"
    knob = diagnose_bottleneck(replace(GOOD, profile="auto")).knob
    assert knob is None, "there is nothing left to turn"


def test_a_device_that_gives_what_was_measured_whatever_the_rest_looks_like():
    rate = GOOD.disks[0].rate
    rounds = replace(GOOD, disks=(replace(GOOD.disks[0], rounds=0.6),))
    assert diagnose_bottleneck(replace(rounds, measured=rate / 0.8)).bound == "device"
    assert diagnose_bottleneck(replace(rounds, measured=rate / 0.5)).bound == "txg-sync"


def test_transaction_groups_that_end_too_often():
    small = replace(GOOD, disks=(replace(GOOD.disks[0], rounds=0.6),))
    verdict = diagnose_bottleneck(
        replace(small, parameters={**TUNED, "zfs_dirty_data_max": 256 * MIB}, memory=4 << 30)
    )
    assert verdict.bound == "txg-sync"
    assert verdict.knob is not None
    assert (verdict.knob.name, verdict.knob.value) == ("zfs_dirty_data_max", '"512M"')
    by_the_clock = diagnose_bottleneck(replace(small, groups=(SyncedGroup(70 * MIB, 5.1, 1.0),)))
    assert by_the_clock.knob is not None
    assert (by_the_clock.knob.name, by_the_clock.knob.value) == ("zfs_txg_timeout", "30")
    earlier = (SyncedGroup(31 * MIB, 4.24, 1.59), SyncedGroup(30 * MIB, 1.65, 1.49))
    for groups in ((), earlier):
        by_space = diagnose_bottleneck(replace(small, waits={"dmu_tx_quota": 7}, groups=groups))
        assert by_space.knob is not None
        assert by_space.knob.name == "size"
    # As counted: the one group of two seconds was open for as long as the one before it was written.
    behind = replace(
        small, waits={"dmu_tx_assigned": 30, "dmu_tx_quota": 1}, groups=(SyncedGroup(31 * MIB, 4.06, 1.7),)
    )
    assert (knob := diagnose_bottleneck(behind).knob) is not None
    assert knob.name == "size"
    rarely = replace(behind, groups=(SyncedGroup(70 * MIB, 5.1, 1.0), SyncedGroup(70 * MIB, 5.0, 1.0)))
    assert (knob := diagnose_bottleneck(rarely).knob) is not None
    assert knob.name == "zfs_txg_timeout"
    at_the_most = diagnose_bottleneck(
        replace(small, parameters={**TUNED, "zfs_dirty_data_max": 1 << 30}, memory=4 << 30)
    )
    assert at_the_most.knob is not None
    assert (at_the_most.knob.name, at_the_most.knob.value) == ("zfs_dirty_data_sync_percent", "40")


def test_metadata_that_has_to_be_read():
    assert (
        diagnose_bottleneck(replace(GOOD, disks=(replace(GOOD.disks[0], reads=900, read_time=40.0),))).bound
        == "reads"
    )


def test_small_writes_that_wait_for_metadata_are_no_end_of_a_transaction_group():
    """As measured: 220 reads of 63 ms and 1184 writes of 14 ms in 2 s, the writes behind the reads in the server."""
    device = DiskRequests("nbd0", 2.03, 1184, 33325056, 16.88, 220, 10981376, 13.81, busy=0.98, rounds=0.78)
    assert diagnose_bottleneck(replace(GOOD, disks=(device,))).bound == "reads"
    few = replace(device, reads=16, read_time=1.36)
    assert diagnose_bottleneck(replace(GOOD, disks=(few,))).bound == "txg-sync"


def test_threads_and_processors():
    assert diagnose_bottleneck(replace(GOOD, threads={"receive_writer": 0.97})).bound == "receive"
    busy = replace(GOOD, idle=0.01, disks=(disk(0.1, 0.0002, MIB, busy=0.2),))
    assert diagnose_bottleneck(busy).bound == "processor"
    assert diagnose_bottleneck(busy).knob is None, "blocks are sent as they are on disk already"
    off = replace(busy, flows=(replace(busy.flows[0], send_off=("compressed",)),))
    knob = diagnose_bottleneck(off).knob
    assert knob is not None
    assert (knob.name, knob.value) == ("send", "{ compressed = true }")
    packing = diagnose_bottleneck(replace(busy, threads={"z_wr_iss": 0.9}))
    assert packing.bound == "processor"
    assert "a thread that compresses and checksums blocks takes 90% of one" in packing.sentence
    starved = replace(GOOD, idle=0.01)
    assert diagnose_bottleneck(starved).bound == "device"
    assert diagnose_bottleneck(replace(starved, threads={"z_wr_iss": 0.9})).bound == "processor"


def test_a_source_that_gets_no_processor_is_not_what_is_slow():
    """As seen where gzip-9 took what one processor had: every pipe is empty, since nobody gets to fill it."""
    starved = vault(flows=(flow(0.0, 0.0),), idle=0.0, threads={"z_wr_iss": 0.31})
    assert diagnose_bottleneck(starved).bound == "processor"
    assert diagnose_bottleneck(replace(starved, idle=0.3)).bound == "source"
    assert diagnose_bottleneck(replace(starved, threads={})).bound == "source", "others have the processors"


def test_the_stream_before_the_vault():
    assert diagnose_bottleneck(vault(flows=(flow(0.0, 0.0),))).bound == "source"
    decompressing = replace(
        flow(0.0, 0.0), stages=(StreamStage("source", "zfs send", 0.99), *flow(0.0, 0.0).stages[1:])
    )
    assert diagnose_bottleneck(vault(flows=(decompressing,))).knob is None, "nothing is advised that is set"
    knob = diagnose_bottleneck(
        vault(flows=(replace(decompressing, send_off=("compressed", "large_blocks")),))
    ).knob
    assert knob is not None
    assert knob.value == "{ compressed = true, large_blocks = true }"
    assert diagnose_bottleneck(vault(flows=(flow(1.0, 0.0, 0.0, limit=8 << 20),))).bound == "limit"
    assert diagnose_bottleneck(vault(flows=(flow(0.3, 0.4, marks=(0, 100)),))).bound == "buffer"
    assert diagnose_bottleneck(vault(flows=(pull(cpu=0.98),))).bound == "ssh"
    assert diagnose_bottleneck(vault(flows=(pull(),))).bound == "source"


FULL_WAY = TcpPath(unsent=0.9, flying=256 * KIB, segment=1448, rtt=0.05)


def test_another_host_that_is_read_and_the_network_to_it_are_told_apart():
    network = diagnose_bottleneck(vault(flows=(pull(way=FULL_WAY),)))
    assert network.bound == "ssh"
    assert "the network from filer" in network.sentence
    assert "181.0 in flight / 50ms x 1.41K = 5M/s, and 90% of the time more bytes wait" in network.sentence
    assert network.knob is not None
    assert (network.knob.name, network.knob.where) == ("compression", "[host.filer]")
    far = pull(way=FULL_WAY)
    packed = replace(far, stages=(*far.stages[:1], StreamStage("codec", "zstd", 0.1, 0.0), *far.stages[1:]))
    other = diagnose_bottleneck(vault(flows=(packed,), transfers=4)).knob
    assert other is not None
    assert (other.name, other.now, other.value) == ("transfers", "4", "5")

    idle = diagnose_bottleneck(vault(flows=(pull(way=replace(FULL_WAY, unsent=0.1)),)))
    assert idle.bound == "source"
    assert (
        "filer delivers 4.77M/s, and 90% of the time its TCP has no bytes waiting to be sent" in idle.sentence
    )
    assert idle.knob is not None
    assert idle.knob.name == "schedule"


def test_another_host_that_is_written_and_the_network_to_it_are_told_apart():
    assert "the network to attic" in diagnose_bottleneck(vault(flows=(push(FULL_WAY),))).sentence
    unknown = diagnose_bottleneck(vault(flows=(push(),)))
    assert unknown.bound == "ssh"
    assert "the network to attic or that host" in unknown.sentence
    for way, told in (
        (replace(FULL_WAY, unsent=0.2), "80% of the time TCP has no bytes waiting to be sent"),
        (replace(FULL_WAY, closed=0.8), "80% of the time its TCP receive window is full"),
    ):
        there = diagnose_bottleneck(vault(flows=(push(way),)))
        assert there.bound == "device"
        assert told in there.sentence
        assert "'zvaultctl doctor' on attic" in there.why


def test_of_a_stream_between_two_other_hosts_each_way_is_looked_at():
    fetched, brought = pull(way=replace(FULL_WAY, unsent=0.0)).stages[0], push(FULL_WAY).stages[1]
    both = StreamFlow("tank", "tank/data", (fetched, brought), 5e6)
    assert "the network to attic" in diagnose_bottleneck(vault(flows=(both,))).sentence
    waits = replace(both, stages=(fetched, replace(brought, full=0.0)))
    assert "filer delivers" in diagnose_bottleneck(vault(flows=(waits,))).sentence


def test_nothing_and_a_pool_that_hangs():
    last = ObservedRun("tank", 1 << 30, 16.0)
    verdict = diagnose_bottleneck(vault(flows=(), disks=(), last=last))
    assert verdict.bound == "nothing"
    assert "backup tank, moved 1G in 16s (64M/s)" in verdict.sentence
    assert diagnose_bottleneck(vault(health="SUSPENDED")).bound == "suspended"


def test_a_receive_that_is_not_zvaults_is_told_too():
    assert diagnose_bottleneck(vault(flows=())).bound == "request-size"
