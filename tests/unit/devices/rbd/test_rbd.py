"""rbd's argv, what its answers mean, and which of its words is which error."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from zvault.config.device_specs.rbd import RbdImage, parse_rbd
from zvault.config.tables.device import Device
from zvault.core.errors import Busy, DeviceGone, NotFound, ToolFailed, ZvaultError
from zvault.devices.layer import DeviceSlot, FoundLayer
from zvault.devices.rbd import image as rbd
from zvault.devices.rbd import image_owners
from zvault.devices.rbd import mapping as rbd_map
from zvault.devices.rbd.cluster import CephCluster
from zvault.devices.rbd.image import ImageLayout
from zvault.devices.rbd.image_lease import make_cluster
from zvault.devices.rbd.image_owners import ImageOwner
from zvault.devices.rbd.source import RbdSource, make_image_layout
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits

COLD = RbdImage("rbd_meta", "", "cold")
ATTIC = CephCluster("/etc/ceph/attic.conf", "zvault", "/etc/ceph/z.keyring")
TIMEOUT = "--client-mount-timeout=10"

# From Ceph 18.2.7.
INFO = """{"name":"s","id":"102f306d3e62","size":2147483648,"objects":2048,"order":20,"object_size":1048576,
"snapshot_count":0,"data_pool":"data","block_name_prefix":"rbd_data.1.102f306d3e62","format":2,"features":["layering",
"striping","exclusive-lock","data-pool"],"op_features":[],"flags":[],"stripe_unit":65536,"stripe_count":4}"""
STATUS = '{"watchers":[{"address":"10.0.0.1:0/3889681724","client":4125,"cookie":18446462598732840961}]}'
LOCKS = '[{"id":"auto 18446462598732840961","locker":"client.4125","address":"10.0.0.1:0/3889681724"}]'


@pytest.mark.parametrize(
    ("text", "image"),
    [("rbd_meta/cold", COLD), ("p/ns/i.1", RbdImage("p", "ns", "i.1")), ("p/ü", RbdImage("p", "", "ü"))],
)
def test_images(text: str, image: RbdImage):
    assert parse_rbd(text) == image
    assert str(image) == text


@pytest.mark.parametrize("text", ["", "cold", "a//b", "a/b/c/d", "a/-b", "a/b@s", "a/b c", "/a", "a/b\n"])
def test_no_images(text: str):
    with pytest.raises(ValueError, match=r"pool/image|no name"):
        parse_rbd(text)


def test_argv():
    assert rbd.rbd_argv(ATTIC, "info", "a/b") == [
        *("rbd", "info", "a/b", "--conf", "/etc/ceph/attic.conf", "--id", "zvault"),
        *("--keyring", "/etc/ceph/z.keyring", TIMEOUT),
    ]
    full = ImageLayout(90 << 40, "data", 8 << 20, 64 << 10, 8, ("exclusive-lock", "object-map"))
    assert rbd.create_image_argv(COLD, full, CephCluster()) == [
        *("rbd", "create", "rbd_meta/cold", "--size", "98956046499840B", "--data-pool", "data"),
        *("--object-size", "8388608B", "--stripe-unit", "65536B", "--stripe-count", "8"),
        *("--image-feature", "exclusive-lock,object-map", TIMEOUT),
    ]
    assert rbd.create_image_argv(COLD, ImageLayout(1 << 30), CephCluster()) == [
        *("rbd", "create", "rbd_meta/cold", "--size", "1073741824B", TIMEOUT)
    ]
    assert rbd_map.map_argv(COLD, CephCluster(), exclusive=True, timeout=90.0) == [
        *("rbd", "device", "map", "rbd_meta/cold"),
        *("-o", "osd_request_timeout=90,exclusive,lock_timeout=20", TIMEOUT),
    ]
    assert "osd_request_timeout=1" in rbd_map.map_argv(COLD, CephCluster(), exclusive=False, timeout=0.2)
    assert rbd_map.rbd_nbd_argv(COLD, CephCluster(user="z"), exclusive=True, timeout=90.0, number=3) == [
        *("rbd-nbd", "map", "rbd_meta/cold", "--foreground", "--io-timeout", "90"),
        *("--reattach-timeout", "1", "--exclusive"),
        *("--device", "/dev/nbd3", "--id", "z", TIMEOUT, "--rbd-cache=false"),
    ]
    plain = rbd_map.rbd_nbd_argv(COLD, CephCluster(), exclusive=False, timeout=90.0, number=None)
    assert not {"--exclusive", "--device"} & set(plain)


def test_the_fence_comes_before_the_lock_is_taken():
    owner = ImageOwner("10.0.0.1:0/38", "client.4125", "auto 1844", True)
    fence, unlock = image_owners.fence_argvs(COLD, owner, CephCluster())
    assert fence == [
        "ceph",
        "--connect-timeout",
        "10",
        "osd",
        "blocklist",
        "add",
        "10.0.0.1:0/38",
        "31536000",
    ]
    assert unlock == ["rbd", "lock", "rm", "rbd_meta/cold", "auto 1844", "client.4125"]
    busy = image_owners.make_in_use_error(COLD, [owner])
    assert busy.why == "client.4125 at 10.0.0.1:0/38 holds its exclusive lock"
    assert "'zvaultctl vault take'" in busy.next
    named = replace(owner, host="filer1, since noon")
    assert named.words() == "filer1, since noon (client.4125 at 10.0.0.1:0/38)"


def test_info():
    image = rbd.parse_image_info(INFO)
    assert image.id == "102f306d3e62"
    assert image.shape == ImageLayout(
        2 << 30, "data", 1 << 20, 64 << 10, 4, ("layering", "striping", "exclusive-lock", "data-pool")
    )
    plain = rbd.parse_image_info('{"id":"1","size":1024,"object_size":4194304,"features":[]}').shape
    assert (plain.data_pool, plain.stripe_unit, plain.stripe_count) == (None, 4 << 20, 1)


def test_differences():
    found = rbd.parse_image_info(INFO).shape
    assert ImageLayout().differences(found) == []
    assert ImageLayout(size=2 << 30, data_pool="data", features=("exclusive-lock",)).differences(found) == []
    assert ImageLayout(1 << 30, "other", features=("object-map",)).differences(found) == [
        "size is 2G, not 1G",
        "data_pool is data, not other",
        "it has no object-map",
    ]
    assert ImageLayout(data_pool="data").differences(ImageLayout()) == ["data_pool is none, not data"]


def test_owners():
    address, lock = "10.0.0.1:0/3889681724", "auto 18446462598732840961"
    assert image_owners.parse_owners(STATUS, LOCKS) == [ImageOwner(address, "client.4125", lock, True)]
    assert image_owners.parse_owners(STATUS, "[]") == [ImageOwner(address, "client.4125", None, True)]
    assert image_owners.parse_owners('{"watchers":[]}', LOCKS) == [
        ImageOwner(address, "client.4125", lock, False)
    ]


def mapping(bus: Path, number: int, **files: str) -> None:
    folder = bus / str(number)
    folder.mkdir()
    told = {
        "pool": "rbd_meta",
        "pool_ns": "",
        "name": "cold",
        "current_snap": "-",
        "image_id": "10",
        "client_addr": "10.0.0.1:0/38",
        "size": "1024",
    }
    for name, text in (told | files).items():
        (folder / name).write_text(f"{text}\n")


def test_mapped(tmp_path: Path):
    assert rbd_map.find_mapping(COLD, bus=tmp_path) is None
    mapping(tmp_path, 0, current_snap="yesterday")
    mapping(tmp_path, 1, pool_ns="ns")
    mapping(tmp_path, 2, image_id="20")
    mapping(tmp_path, 3)
    (tmp_path / "4").mkdir()
    found = rbd_map.find_mapping(COLD, "10", tmp_path)
    assert found is not None
    assert (found.path, found.size, found.client) == ("/dev/rbd3", 1024, "10.0.0.1:0/38")
    assert rbd_map.find_mapping(COLD, "30", tmp_path) is None
    inside = rbd_map.find_mapping(RbdImage("rbd_meta", "ns", "cold"), bus=tmp_path)
    assert inside is not None
    assert inside.number == 1
    mapping(tmp_path, 5, client_addr="10.0.0.1:0/39")
    assert [one.number for one in rbd_map.list_mappings(COLD, "10", tmp_path)] == [3, 5]


def test_served_by(tmp_path: Path):
    for number, pid in ((0, "77"), (3, "78")):
        (tmp_path / f"nbd{number}").mkdir()
        (tmp_path / f"nbd{number}" / "pid").write_text(f"{pid}\n")
    assert rbd_map.find_served_device(78, tmp_path) == 3
    assert rbd_map.find_served_device(79, tmp_path) is None


@pytest.mark.parametrize(
    ("code", "said", "kind", "why"),
    [
        (110, "rbd: couldn't connect to the cluster!", DeviceGone, "no monitor of Ceph answered"),
        (2, "rbd: couldn't connect to the cluster!", DeviceGone, r"does not let client\.admin in"),
        (2, "rbd: error opening pool 'rbd_meta': (2) No such file", NotFound, "no pool 'rbd_meta'"),
        (2, "rbd: namespace '' does not exist.", NotFound, "in pool 'rbd_meta'"),
        (1, "global_init: unable to open config file from search list /x", NotFound, "configuration at None"),
        (
            6,
            'feature set mismatch. You can disable features with "rbd feature disable rbd_meta/cold journaling".',
            ToolFailed,
            "lacks a feature of it: journaling",
        ),
        (
            5,
            "2026-11-21T19:05:48.210 42 -1 librbd: x\nrbd: map failed: (5) Input/output",
            ToolFailed,
            "map fail",
        ),
    ],
)
def test_what_went_wrong(code: int, said: str, kind: type[ZvaultError], why: str):
    error = rbd.make_rbd_error("it failed", ProcessResult(("rbd",), code, "", said, 0.1), COLD, CephCluster())
    assert type(error) is kind
    with pytest.raises(kind, match=why):
        raise error


def test_a_device_of_the_configuration():
    device = Device.model_validate(
        {
            "rbd": "rbd_meta/cold",
            "size": "1T",
            "data_pool": "data",
            "object_size": "8M",
            "features": ["exclusive-lock"],
            "ceph": {"user": "zvault"},
        }
    )
    assert (device.layers, device.spec) == (("rbd",), "rbd:rbd_meta/cold")
    assert make_image_layout(device) == ImageLayout(1 << 40, "data", 8 << 20, features=("exclusive-lock",))
    assert make_cluster(device) == CephCluster(user="zvault")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"nbd": "tcp:h"}, "cannot stand beside rbd"),
        ({"object_size": "3M"}, "power of two"),
        ({"object_size": "64M"}, "power of two"),
        ({"stripe_unit": "8M"}, "more than object_size"),
        ({"stripe_count": 4}, "needs stripe_unit"),
        ({"features": ["fast"]}, "none of layering"),
        ({"features": ["object-map"]}, 'needs "exclusive-lock"'),
        ({"features": ["layering"]}, 'needs "exclusive-lock" among'),
    ],
)
def test_devices_that_cannot_be(extra: dict[str, object], message: str):
    with pytest.raises(ValueError, match=message):
        Device.model_validate({"rbd": "rbd_meta/cold", **extra})


def test_an_nbd_server_has_no_data_pool():
    with pytest.raises(ValueError, match="is for an RBD image"):
        Device.model_validate({"nbd": "tcp:h", "data_pool": "data"})


def test_what_a_lost_or_unfinished_image_looks_like(tmp_path: Path):
    runner = HostRunner()
    source = RbdSource(runner, SystemdUnits(runner))
    slot = DeviceSlot("cold", 0, tmp_path)
    data = {"image": "no/such", "image_id": "1", "map": "krbd", "cluster": {}, "mapped": False}
    assert source.look(slot, data, None) == FoundLayer(
        "partial", "it is being brought up, or was when zvault stopped", present=True
    )
    assert source.look(slot, data | {"mapped": True}, None).state == "gone"
    assert source.look(slot, None, None) == FoundLayer()
    served = data | {"map": "rbd-nbd", "mapped": True, "number": 4096, "pid": 1}
    assert source.unit(slot, served, None) == "zvault-rbd@cold-0.service"
    dead = UnitState("zvault-rbd@cold-0.service", True, "failed", "signal", 0)
    assert source.look(slot, served, dead).state == "gone"
    assert source.leftover(data) is None
    assert source.leftover(served) == "nbd4096"


class Cephs:
    """Answers as ``rbd`` of a cluster where another host has just locked the image: its note comes a little later."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        if "image-meta" in argv:
            note = self.notes.pop(0) if len(self.notes) > 1 else self.notes[0]
            return ProcessResult(tuple(argv), 0 if note else 2, note, "", 0.1)
        return ProcessResult(tuple(argv), 0, STATUS if "status" in argv else LOCKS, "", 0.1)


NOTE = '{"host": "attic", "client": "10.0.0.1:0/3889681724", "boot": "b", "since": 1790000000}'


async def test_a_host_that_has_just_locked_an_image_is_named():
    with pytest.raises(Busy, match=r"attic, since 2026\S+ \S+ UTC \(client\.4125"):
        await image_owners.refuse_if_owned(COLD, None, CephCluster(), Cephs(["", NOTE]))


async def test_one_that_leaves_no_note_is_told_by_its_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(image_owners, "NOTE_TIMEOUT", 0.5)
    with pytest.raises(Busy, match=r"client\.4125 at 10\.0\.0\.1:0/3889681724 holds its exclusive lock"):
        await image_owners.refuse_if_owned(COLD, None, CephCluster(), Cephs([""]))


class Trash:
    """A cluster whose trash has these images."""

    def __init__(self, out: str, code: int = 0) -> None:
        self.out, self.code = out, code
        self.asked: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.asked.append(argv)
        return ProcessResult(tuple(argv), self.code, self.out, "", 0.0)


async def test_an_image_in_the_trash_is_told_with_what_restores_it():
    # From Ceph 18.2.7.
    trash = Trash(
        '[{"id":"1030a4f5a1b2","name":"cold","source":"USER","deleted_at":"Fri Nov 27 06:00:00 2026"}]'
    )
    with pytest.raises(NotFound, match="is in the trash") as told:
        await rbd.refuse_if_in_trash(COLD, ATTIC, trash)
    assert "rbd trash restore" in told.value.next
    assert "rbd_meta/1030a4f5a1b2" in told.value.next
    assert list(trash.asked[0][:5]) == ["rbd", "trash", "ls", "--format", "json"]
    await rbd.refuse_if_in_trash(RbdImage("rbd_meta", "", "attic"), ATTIC, trash)


@pytest.mark.parametrize(("out", "code"), [("", 1), ("[]", 0), ("no JSON", 0), ('[{"id": 1}]', 0)])
async def test_a_trash_that_says_nothing_of_it_is_no_error(out: str, code: int):
    await rbd.refuse_if_in_trash(COLD, ATTIC, Trash(out, code))
