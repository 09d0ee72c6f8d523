"""What bcache-super-show prints, which commands make a bcache, and what the kernel's files say of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from zvault.config.schema import Device
from zvault.core.errors import DeviceGone
from zvault.devices.bcache import layer as bcache
from zvault.devices.bcache import sysfs as files
from zvault.devices.bcache.layer import Bcache
from zvault.devices.bcache.superblock import (
    BcacheSuperblock,
    format_bcache,
    make_bcache_argvs,
    parse_superblock,
)
from zvault.devices.layer import Data, DeviceSlot, FoundLayer, LayerJob
from zvault.system.process.runner import HostRunner, ProcessResult

# From bcache-tools 1.0.8 and Linux 7.2.
BACKING = """\
sb.magic		ok
sb.first_sector		8 [match]
sb.csum			8FBEF1E227A5251A [match]
sb.version		1 [backing device]

dev.label		(empty)
dev.uuid		6d0905fe-e8cf-42ac-9045-e8c3e044f0fb
dev.sectors_per_block	1
dev.sectors_per_bucket	1024
dev.data.first_sector	16
dev.data.cache_mode	1 [writeback]
dev.data.cache_state	2 [dirty]

cset.uuid		0b437643-165c-4aed-b6de-dea3e0656060
"""
CACHE = """\
sb.magic		ok
sb.version		0 [cache device]
dev.uuid		5d01d332-9814-46cc-872d-b54364ad0fdc
dev.cache.discard	no
cset.uuid		dce15b3c-3b91-457c-8b47-d851153f5972
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (BACKING, BcacheSuperblock("backing device", "0b437643-165c-4aed-b6de-dea3e0656060", "dirty")),
        (CACHE, BcacheSuperblock("cache device", "dce15b3c-3b91-457c-8b47-d851153f5972", "")),
        ("sb.magic		bad magic\nInvalid superblock (bad magic)\n", None),
        ("", None),
    ],
)
def test_superblocks(text: str, found: BcacheSuperblock | None):
    assert parse_superblock(text) == found


class Broken:
    """A backing device in that state, whose cache answers each read with an error, or has been wiped."""

    def __init__(self, state: str) -> None:
        self.backing = BACKING.replace("2 [dirty]", state)
        self.ran: list[str] = []

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.ran.append(argv[0])
        shown = self.backing if argv[-1] == "/dev/nbd0" else ""
        return ProcessResult(tuple(argv), 0 if shown else 1, shown, "", 0.0)


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    ("state", "why"), [("2 [dirty]", "damaged without it"), ("1 [clean]", "all was written back")]
)
async def test_a_cache_that_broke_is_told_as_that_and_nothing_is_made_in_its_place(
    tmp_path: Path, *, create: bool, state: str, why: str
) -> None:
    device = Device.model_validate({"nbd": "tcp:nas:10809/cold", "cache": {"bcache": "/dev/x"}})
    job = LayerJob(DeviceSlot("cold", 0, tmp_path), device, "/dev/nbd0", {}, create, lambda _: None, print)
    host: Any = Broken(state)
    assert device.cache is not None
    with pytest.raises(DeviceGone, match="the cache /dev/x of /dev/nbd0 cannot be read") as gone:
        await format_bcache(job, device.cache, host)
    assert why in gone.value.why
    assert set(host.ran) == {"bcache-super-show"}


def test_data_begin_where_an_object_does():
    assert make_bcache_argvs("/dev/nbd0", "/dev/x") == [
        ["make-bcache", "-B", "--data-offset", "8192", "/dev/nbd0"],
        ["make-bcache", "-C", "/dev/x"],
    ]
    assert make_bcache_argvs(None, "/dev/x") == [["make-bcache", "-C", "/dev/x"]]
    assert make_bcache_argvs(None, None) == []


SLOT = DeviceSlot("cold", 0, Path("/run/zvault/device"))
BEGUN: Data = {"below": "/dev/nbd0", "cache": "/dev/x"}
DONE: Data = {**BEGUN, "device": "bcache0"}


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(files, "BCACHE_SYS_BLOCK", tmp_path)
    return tmp_path


def registered(kernel: Path, state: str, *, runs: bool = True, io_disable: str = "0") -> None:
    folder = kernel / "nbd0" / "bcache"
    folder.mkdir(parents=True)
    (folder / "state").write_text(f"{state}\n")
    (folder / "io_disable").write_text(io_disable)
    if runs:
        (folder / "dev").symlink_to("../../bcache0")
        (kernel / "bcache0" / "slaves" / "nbd0").mkdir(parents=True)
        (kernel / "bcache0" / "size").write_text("8\n")


def look(data: Data | None) -> tuple[str, str | None, bool, bool]:
    found = Bcache(HostRunner()).look(SLOT, data, None)
    return found.state, found.path, found.usable, found.present


@pytest.mark.parametrize("state", ["clean", "dirty"])
def test_with_its_cache_it_is_up(kernel: Path, state: str):
    registered(kernel, state)
    assert look(DONE) == look(BEGUN) == ("up", "/dev/bcache0", True, True)
    assert Bcache(HostRunner()).look(SLOT, DONE, None).size == 4096


def test_without_its_cache_only_one_that_had_it_is_used(kernel: Path):
    registered(kernel, "no cache")
    assert look(DONE) == ("partial", "/dev/bcache0", True, True)
    assert look(BEGUN) == look({"below": "/dev/nbd0"}) == ("partial", None, False, True)


def test_waiting_for_its_cache(kernel: Path):
    registered(kernel, "no cache", runs=False)
    assert look(BEGUN) == ("partial", None, False, True)


def test_given_up_after_errors(kernel: Path):
    registered(kernel, "dirty", io_disable="1")
    assert look(DONE) == ("gone", "/dev/bcache0", False, True)


def test_what_was_told_to_stop_is_there_until_it_is_closed(kernel: Path):
    (kernel / "bcache0" / "slaves" / "nbd0").mkdir(parents=True)
    assert look(DONE) == ("gone", "/dev/bcache0", False, True)
    (kernel / "bcache0" / "slaves" / "nbd0").rmdir()
    assert look(DONE) == ("gone", None, False, False)
    assert look(BEGUN) == look(None) == look({}) == ("down", None, False, False)


@pytest.mark.parametrize("hurried", [False, True])
async def test_a_host_that_goes_down_does_not_wait_for_the_write_back(
    kernel: Path, monkeypatch: pytest.MonkeyPatch, hurried: bool
):
    registered(kernel, "dirty")
    (kernel / "nbd0" / "bcache" / "dirty_data").write_text("5.5M\n")
    monkeypatch.setattr(bcache, "FLUSH_POLL", 0.01)
    told: list[str] = []

    class Stopped(Exception):
        """As far as it goes without a kernel."""

    async def write(_: object, file: Path, value: str) -> None:
        if file.name == "stop":
            raise Stopped
        if file.name == "writeback_delay" and not hurried:
            (file.parent / "state").write_text("clean\n")

    monkeypatch.setattr(files, "write_bcache_file", write)
    layer = Bcache(HostRunner(), lambda: hurried)
    with pytest.raises(Stopped):
        await layer.down(SLOT, DONE | {"cset": "x"}, FoundLayer(), lost=False, say=told.append)
    assert told == (["5.5M stay in the cache /dev/x: nbd0 does not have them yet"] if hurried else [])
