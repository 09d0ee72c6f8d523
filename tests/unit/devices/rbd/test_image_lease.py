"""The lease, note and epoch beside an RBD image: what librados answers, what is put, what a host does without."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.config.device_specs.rbd import RbdImage
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, DeviceGone, Refused, TakenOver, ToolFailed
from zvault.devices.layer import DeviceSlot
from zvault.devices.rbd import image_lease, keeper, throw_away_copy
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.cluster import CephCluster, is_shut_out, may_blocklist
from zvault.devices.rbd.keeper import raise_epoch
from zvault.devices.rbd.objects import RadosObjects, parse_lock_ends
from zvault.devices.rbd.place import ImagePlace
from zvault.devices.rbd.source import ImageRecord, RbdSource
from zvault.object_store.interface import NO_OBJECT_YET, ObjectDamaged, ObjectMissing, PreconditionFailed
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

# From Ceph 18.2.7: the answer to get_info about a lock that client.4124 holds with the cookie "abc".
ANSWER = bytes.fromhex(
    "01015400000001000000010110000000081c100000000000000300000061"
    "626301012f0000001079076b406357050101011c000000010000007e9a28"
    "2610000000020000007f0000010000000000000000000000000100000000"
)
PLACE = ImagePlace(RbdImage("rbd_meta", "", "cold"), CephCluster(user="zvault"))
UNIT = "zvault-rbd-lease@cold-0.service"
MAPPING = rbd_map.ImageMapping(3, PLACE.image, "10", "10.0.0.1:0/38", 1024)


def test_when_a_lock_ends_is_read_from_the_answer_of_ceph() -> None:
    assert parse_lock_ends(ANSWER) == {"abc": pytest.approx(1795651856.089613, abs=1e-3)}


@given(st.binary(max_size=200) | st.integers(0, len(ANSWER)).map(lambda cut: ANSWER[:cut]))
def test_any_other_answer_is_damaged_or_read(answer: bytes) -> None:
    try:
        ends = parse_lock_ends(answer)
    except ObjectDamaged:
        return
    assert all(isinstance(end, float) for end in ends.values())


@pytest.mark.parametrize(
    "place",
    [
        PLACE,
        ImagePlace(RbdImage("p", "ns", "i=1"), CephCluster("/etc/ceph/a.conf", "z", "/etc/ceph/z.keyring")),
        ImagePlace(RbdImage("p", "", "i"), CephCluster()),
    ],
)
def test_a_place_is_read_back_from_a_command_line(place: ImagePlace) -> None:
    assert ImagePlace.of(place.params) == place


def test_a_place_needs_pool_and_image() -> None:
    with pytest.raises(Refused, match="no lease"):
        ImagePlace.of(["pool=rbd"])


class Numbers(RadosObjects):
    """One object in memory that keeps to conditions; ``meanwhile`` is what another host puts before the next put."""

    def __init__(self, data: bytes | None = None, meanwhile: list[bytes] | None = None) -> None:
        self.data, self.version, self.meanwhile = data, 1, meanwhile or []

    def read_aged(self, key: str) -> tuple[bytes, str, float]:
        if self.data is None:
            raise ObjectMissing("none", "")
        return self.data, str(self.version), 0.0

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        if self.meanwhile:
            self.data, self.version = self.meanwhile.pop(0), self.version + 1
        if condition != (NO_OBJECT_YET if self.data is None else str(self.version)):
            raise PreconditionFailed("another", "")
        self.data, self.version = data, self.version + 1
        return str(self.version)


def test_each_host_that_gets_the_lease_has_a_greater_epoch() -> None:
    objects = Numbers()
    assert [raise_epoch(PLACE, objects) for _ in range(3)] == [1, 2, 3]


def test_an_epoch_that_another_host_raised_meanwhile_is_passed() -> None:
    assert raise_epoch(PLACE, Numbers(b"4", [b"5", b"6"])) == 7


def test_an_epoch_that_is_raised_all_the_time_is_given_up() -> None:
    with pytest.raises(Busy):
        raise_epoch(PLACE, Numbers(b"4", [str(number).encode() for number in range(5, 50)]))


@pytest.mark.parametrize("data", [b"", b"x", b"-1", b"9" * 5000, "٣".encode()])
def test_what_is_no_epoch_is_refused(data: bytes) -> None:
    with pytest.raises(ToolFailed, match="epoch of rbd_meta/cold"):
        raise_epoch(PLACE, Numbers(data))


def device(**more: object) -> Device:
    return Device.model_validate({"rbd": "rbd_meta/cold", "ceph": {"user": "zvault"}, **more})


def test_an_image_has_a_lease_only_where_it_is_set() -> None:
    assert device().lease_bound is None
    assert device(lease="1m").lease_bound == 60.0


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"map": "rbd-nbd"}, 'needs map = "krbd"'),
        ({"exclusive": False}, "exclusive = false"),
        ({"lease": "5s"}, "at least 10s"),
    ],
)
def test_a_lease_needs_krbd_and_the_lock(more: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        device(**{"lease": "1m", **more})


def test_the_keeper_is_told_where_its_lease_is() -> None:
    argv = image_lease.keeper_argv(device(lease="1m"), "take", "--of=b")
    assert argv[-4:] == ["--", "pool=rbd_meta", "image=cold", "user=zvault"]
    assert argv[2:6] == ["-m", keeper.__name__, "take", "--of=b"]


def test_an_image_with_a_lease_is_mapped_by_a_client_of_its_own() -> None:
    argv = rbd_map.map_argv(PLACE.image, CephCluster(), exclusive=True, timeout=9.0, own_client=True)
    assert "osd_request_timeout=9,exclusive,lock_timeout=20,noshare" in argv


@pytest.mark.parametrize("text", ["", "{", "[]", '{"epoch": 0}', '{"epoch": "7"}', '{"epoch": true}'])
def test_what_tells_no_epoch_is_none(tmp_path: Path, text: str) -> None:
    slot = DeviceSlot("cold", 0, tmp_path)
    assert image_lease.read_lease_epoch(slot) is None
    (tmp_path / "cold-0.held").write_text(text)
    assert image_lease.read_lease_epoch(slot) is None
    (tmp_path / "cold-0.held").write_text('{"epoch": 7}')
    assert image_lease.read_lease_epoch(slot) == 7


def test_a_mapping_whose_lease_nobody_keeps_is_gone_without_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner, slot = HostRunner(), DeviceSlot("cold", 0, tmp_path)
    source = RbdSource(runner, SystemdUnits(runner))
    monkeypatch.setattr(rbd_map, "find_mapping", lambda *_: MAPPING)
    data = {"image": "rbd_meta/cold", "image_id": "10", "map": "krbd", "cluster": {}, "mapped": True}
    leased = data | {"leased": True}
    assert source.unit(slot, leased, None) == UNIT == source.unit(slot, None, device(lease="1m"))
    assert source.unit(slot, data, None) is source.unit(slot, None, device()) is None
    runs, failed = (UnitState(UNIT, True, state, "success", 4) for state in ("active", "failed"))
    assert source.look(slot, data, None).state == source.look(slot, leased, runs).state == "up"
    gone = source.look(slot, leased, failed)
    assert (gone.state, gone.path, gone.present) == ("gone", None, True)
    said = {"kind": "Busy", "what": "this host may not write", "why": "b has it", "next": ""}
    (tmp_path / "cold-0.why").write_text(json.dumps(said))
    assert source.look(slot, leased, failed).detail == "this host may not write: b has it"


class Answers:
    """Answers as ``ceph`` does."""

    def __init__(self, code: int, said: str, out: str = "") -> None:
        self.code, self.said, self.out, self.asked = code, said, out, list[list[str]]()

    async def run(self, argv: list[str], **_: object) -> ProcessResult:
        self.asked.append(argv)
        return ProcessResult(tuple(argv), self.code, self.out, self.said, 0.1)


def test_whether_a_user_may_shut_others_out_is_tried_on_an_address_that_nobody_has() -> None:
    may = Answers(0, "")
    assert asyncio.run(may_blocklist(CephCluster(user="z"), may))
    assert may.asked[0][-4:] == ["blocklist", "add", "192.0.2.1:0/1", "1"]
    assert not asyncio.run(may_blocklist(CephCluster(), Answers(13, "Error EACCES: access denied")))
    with pytest.raises(DeviceGone):
        asyncio.run(may_blocklist(CephCluster(), Answers(1, "monclient: timed out")))


@pytest.mark.parametrize("client", ["10.0.0.1:0/38", "10.0.0.1:0/3"])
def test_a_client_is_shut_out_if_it_is_on_the_blocklist_itself(client: str) -> None:
    said = [{"addr": "10.0.0.1:0/38", "until": "2027-11-26T01:00:00.000000+0000"}]
    runs = Answers(0, "", f"\n{json.dumps(said)}[]")  # the second is that of ranges
    assert asyncio.run(is_shut_out(client, CephCluster(), runs)) == (client == "10.0.0.1:0/38")


def test_a_mapping_that_was_shut_out_is_set_aside_for_the_copy_and_put_back(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rbd_map, "MAPPING_SYS_BLOCK", tmp_path / "block")
    monkeypatch.setattr(Path, "is_block_device", lambda path: path.is_file())
    dev = tmp_path / "dev"
    (tmp_path / "block/rbd0").mkdir(parents=True)
    dev.mkdir()
    path = dev / "rbd0"
    path.write_text("mapping")
    for to in ("/dev/nbd0", "/dev/nbd1"):  # the second after a crash
        throw_away_copy._lead(path, to)
        assert str(path.readlink()) == to
    throw_away_copy._lead(path, None)
    assert [(one.name, one.read_text()) for one in dev.iterdir()] == [("rbd0", "mapping")]
    throw_away_copy._lead(path, "/dev/nbd0")
    (tmp_path / "block/rbd0").rmdir()
    throw_away_copy._lead(path, None)
    assert list(dev.iterdir()) == []


async def test_a_mapping_that_a_pool_has_open_stays(tmp_path: Path) -> None:
    busy = cast(Any, Answers(16, "rbd: sysfs write failed\nrbd: unmap failed: (16) Device or resource busy"))
    source = RbdSource(busy, SystemdUnits(busy))
    said: list[str] = []
    await throw_away_copy.release_mapping(MAPPING, CephCluster(), source.nbd, said.append)
    assert said == ["/dev/rbd3 stays mapped: a pool has it open, or a process"]
    assert "/dev/rbd3" in busy.asked[0]


BUSY = "rbd: sysfs write failed\nrbd: unmap failed: (16) Device or resource busy"


class Unmapping(Answers):
    """A cluster whose blocklist has ``client``, and a kernel that unmaps a device unless it is ``busy``."""

    def __init__(self, client: str, *, busy: bool) -> None:
        super().__init__(0, "", json.dumps([{"addr": client, "until": "2027"}]))
        self.busy = busy

    async def run(self, argv: list[str], **_: object) -> ProcessResult:
        result = await super().run(argv)
        return replace(result, returncode=16, stderr=BUSY) if self.busy and "unmap" in argv else result


@pytest.mark.parametrize("busy", [True, False])
@pytest.mark.parametrize("client", [MAPPING.client, "10.0.0.9:0/1"])
async def test_a_mapping_that_the_cluster_refuses_is_unmapped_or_not_gone_on_with(
    client: str, busy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rbd_map, "find_mapping", lambda *_: MAPPING)
    runs = cast(Any, Unmapping(client, busy=busy))
    source = RbdSource(runs, SystemdUnits(runs))
    record = ImageRecord("rbd_meta/cold", "10", "krbd", {}, leased=True)
    refusing = source._refuse_if_shut_out(record, CephCluster(), lambda _: None)
    if busy and client == MAPPING.client:
        with pytest.raises(TakenOver, match="refuses this host's mapping"):
            await refusing
    else:
        await refusing
    assert any("unmap" in argv for argv in runs.asked) == (client == MAPPING.client)


async def test_a_copy_is_down_once_its_mappings_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, by_hand, of_copy = MAPPING, replace(MAPPING, number=4), replace(MAPPING, number=5, read_only=True)
    there = [old, by_hand, of_copy]
    monkeypatch.setattr(rbd_map, "list_mappings", lambda *_: list(there))
    monkeypatch.setattr(throw_away_copy, "_lead", lambda *_: None)
    runs = cast(Any, Unmapping(MAPPING.client, busy=True))
    source, slot = RbdSource(runs, SystemdUnits(runs)), DeviceSlot("cold", 0, tmp_path)

    async def down(path: str) -> None:
        await throw_away_copy.remove_copy(
            slot, {"path": path}, MAPPING.image, "10", CephCluster(), source.nbd, lambda _: None
        )

    with pytest.raises(DeviceGone, match=r"/dev/rbd3.* stays mapped"):
        await down(old.path)
    unmapped = [word for argv in runs.asked for word in argv if word.startswith("/dev/")]
    assert unmapped == ["/dev/rbd3", "/dev/rbd4", "/dev/rbd5"], "each is tried"
    there.remove(old)
    with pytest.raises(DeviceGone, match=r"/dev/rbd5.* stays mapped"):
        await down(old.path)
    there.remove(of_copy)
    await down(old.path)  # another mapping of the image, which is in use, may stay
    runs.busy = False
    there.clear()
    await down(old.path)


def test_what_is_mapped_read_only_is_no_device_of_a_vault(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    files = {"pool": "rbd_meta", "name": "cold", "current_snap": "-", "image_id": "10", "size": "1024"}
    files |= {"client_addr": "10.0.0.1:0/38", "pool_ns": ""}
    for number, read_only in ((0, "1"), (1, "0")):
        (tmp_path / f"bus/{number}").mkdir(parents=True)
        for name, text in files.items():
            (tmp_path / f"bus/{number}/{name}").write_text(f"{text}\n")
        (tmp_path / f"block/rbd{number}").mkdir(parents=True)
        (tmp_path / f"block/rbd{number}/ro").write_text(f"{read_only}\n")
    monkeypatch.setattr(rbd_map, "MAPPING_SYS_BLOCK", tmp_path / "block")
    assert [one.number for one in rbd_map.list_mappings(PLACE.image, "10", tmp_path / "bus")] == [0, 1]
    found = rbd_map.find_mapping(PLACE.image, "10", tmp_path / "bus")
    assert found is not None
    assert found.number == 1


async def test_a_copy_waits_for_its_cluster_longer_than_the_vault_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []

    async def mapping(_: object, argv: list[str], *__: object, **___: object) -> None:
        asked.extend(argv)

    monkeypatch.setattr(rbd_map, "map_krbd", mapping)
    monkeypatch.setattr(rbd_map, "list_mappings", lambda *_: [])
    source, job = (
        RbdSource(HostRunner(), SystemdUnits(HostRunner())),
        cast(Any, SimpleNamespace(device=device())),
    )
    with pytest.raises(DeviceGone, match="the kernel does not have the mapping"):
        await throw_away_copy.make_copy(job, "/dev/rbd3", "10", CephCluster(), source.nbd, lambda _: None)
    (options,) = (word for word in asked if "osd_request_timeout=" in word)
    assert {"osd_request_timeout=120", "noshare", "ro"} <= set(options.split(","))
    assert (
        Device.model_validate({"rbd": "a/b", "timeout": throw_away_copy.COPY_TIMEOUT_WORD}).timeout > 2 * 120
    )
