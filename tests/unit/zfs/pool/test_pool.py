"""The command that makes a pool, and how the state of one is found out."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from zvault.core.errors import Busy, DeadlineExceeded, PoolReadOnly, PoolSuspended, ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool import pool
from zvault.zfs.pool.pool import MultihostSuspended, NewPool, PoolExporting, UnknownFeature, Vdev, Zpool
from zvault.zfs.pool.scrub import Scrubber

HEAD = ["zpool", "create", "-o", "cachefile=none"]


@pytest.mark.parametrize(
    ("vdevs", "words"),
    [
        ([Vdev("data", ("/a",))], "/a"),
        ([Vdev("data", ("/a",)), Vdev("data", ("/b",))], "/a /b"),
        ([Vdev("special", ("/s",)), Vdev("data", ("/a",))], "/a special /s"),
        (
            [Vdev("data", ("/a", "/b")), Vdev("special", ("/s", "/t")), Vdev("data", ("/c", "/d", "/e"))],
            "mirror /a /b mirror /c /d /e special mirror /s /t",
        ),
    ],
)
def test_vdevs(vdevs: list[Vdev], words: str):
    assert NewPool("cold", vdevs, {}, {}).argv() == [*HEAD, "cold", *words.split()]


def test_properties():
    new = NewPool("cold", [Vdev("data", ("/a b",))], {"ashift": "12"}, {"atime": "off"})
    assert new.argv() == [*HEAD, "-o", "ashift=12", "-O", "atime=off", "cold", "/a b"]


class Host:
    """A runner that has these answers, by the program."""

    def __init__(self, **answers: ProcessResult) -> None:
        self.answers = answers

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        return self.answers[argv[0]]


def said(text: str, returncode: int = 0) -> ProcessResult:
    return ProcessResult((), returncode, text, "", 0.0)


def kernel_says(proc: Path, state: str) -> None:
    """The kernel's statistics of the pool."""
    file = proc / "spl/kstat/zfs/cold/state"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{state}\n")


async def test_the_kernel_knows_better_whether_a_pool_is_suspended(tmp_path: Path):
    listed = said("cold\t7\t100\t60\t40\tONLINE\toff\toff\twait\toff\tnone\t-\n")
    for kernel, health in (("ONLINE", "ONLINE"), ("SUSPENDED", "SUSPENDED")):
        kernel_says(tmp_path, kernel)
        state = await Zpool(Host(zpool=listed), tmp_path).state("cold")
        assert state is not None
        assert state.health == health
    assert await Zpool(Host(), tmp_path / "another").state("cold") is None


async def test_a_pool_that_is_kept_on_its_way_out_is_not_asked_for(tmp_path: Path):
    (tmp_path / "12").mkdir()
    (tmp_path / "12" / "cmdline").write_text("zpool\0export\0cold\0")
    kernel_says(tmp_path, "SUSPENDED")
    with pytest.raises(PoolExporting, match="process 12"):
        await Zpool(Host(), tmp_path).state("cold")


def exports(proc: Path, *, seconds: float) -> None:
    """Process 12 has been exporting the pool for so long."""
    (proc / "12").mkdir()
    (proc / "12" / "cmdline").write_text("zpool\0export\0cold\0")
    ticks = round((1000 - seconds) * os.sysconf("SC_CLK_TCK"))
    (proc / "12" / "stat").write_text(f"12 (zpool export) D {' '.join(['0'] * 18)} {ticks} 0 0\n")
    (proc / "uptime").write_text("1000.00 4.2\n")


async def test_a_long_export_is_told_also_while_the_kernel_calls_the_pool_online(tmp_path: Path):
    listed = said("cold\t7\t100\t60\t40\tONLINE\toff\toff\twait\toff\tnone\t-\n")
    exports(tmp_path, seconds=240)
    kernel_says(tmp_path, "ONLINE")
    zpool = Zpool(Host(zpool=listed), tmp_path)
    with pytest.raises(PoolExporting, match="is being exported") as failure:
        await zpool.state("cold")
    assert "began 4m ago" in failure.value.why
    assert "only a reboot helps" in failure.value.next


async def test_a_short_one_is_waited_for(tmp_path: Path):
    listed = said("cold\t7\t100\t60\t40\tONLINE\toff\toff\twait\toff\tnone\t-\n")
    exports(tmp_path, seconds=2)
    kernel_says(tmp_path, "ONLINE")
    state = await Zpool(Host(zpool=listed), tmp_path).state("cold")
    assert state is not None
    assert state.health == "ONLINE"


class Hung(Host):
    """``zpool`` never answers."""

    async def run(self, argv: Sequence[str], **more: object) -> ProcessResult:
        if argv[0] == "zpool":
            raise DeadlineExceeded(f"{argv[1]} did not end", "it hangs", "look")
        return await super().run(argv, **more)


@pytest.mark.parametrize(("kernel", "kind"), [("SUSPENDED", PoolSuspended), ("ONLINE", DeadlineExceeded)])
async def test_a_suspended_pool_that_answers_nothing_is_told_as_one(tmp_path: Path, kernel: str, kind: type):
    kernel_says(tmp_path, kernel)
    with pytest.raises(kind):
        await Zpool(Hung(), tmp_path).state("cold")


class Counting(Host):
    """A runner that notes each command."""

    def __init__(self, **answers: ProcessResult) -> None:
        super().__init__(**answers)
        self.ran: list[Sequence[str]] = []

    async def run(self, argv: Sequence[str], **more: object) -> ProcessResult:
        self.ran.append(argv)
        return await super().run(argv, **more)


@pytest.mark.parametrize("multihost", ["on", "off"])
async def test_a_suspended_pool_with_multihost_on_is_never_cleared(tmp_path: Path, multihost: str):
    """The clear would wait in the kernel with a lock that every other zpool command needs (OpenZFS issue 19036)."""
    host = Counting(zpool=said(f"cold\t7\t100\t60\t40\tONLINE\toff\t{multihost}\twait\toff\tnone\t-\n"))
    zpool = Zpool(host, tmp_path)
    kernel_says(tmp_path, "ONLINE")
    seen = await zpool.state("cold")
    assert seen is not None
    assert (seen.multihost, seen.failmode) == (multihost == "on", "wait")
    await zpool.clear("cold")
    kernel_says(tmp_path, "SUSPENDED")
    host.ran.clear()
    if multihost == "off":
        await zpool.clear("cold")
        assert host.ran == [["zpool", "clear", "cold"]]
        return
    with pytest.raises(MultihostSuspended, match="suspended for good") as refused:
        await zpool.clear("cold")
    assert host.ran == []
    assert "reboot this host" in refused.value.next
    assert not refused.value.retryable


UNKNOWN = """cannot import 'cold': unsupported version or feature
This pool uses the following feature(s) not supported by this system:
\torg.example:unknown (test)
"""
ONLY_WRITES = """All unsupported features are only required for writing to the pool.
The pool can be imported using '-o readonly=on'.
"""


@pytest.mark.parametrize(("more", "readable"), [("", False), (ONLY_WRITES, True)])
async def test_a_feature_that_is_not_known_here_is_named(more: str, readable: bool):
    zpool = Zpool(Host(zpool=ProcessResult((), 1, "", UNKNOWN + more, 0.0)))
    with pytest.raises(UnknownFeature) as unknown:
        await zpool.import_("cold", ["/dev/nbd0"])
    assert unknown.value.why == "org.example:unknown"
    assert unknown.value.readable == readable
    assert "update OpenZFS" in unknown.value.next


@pytest.mark.parametrize(
    ("text", "trims"),
    [
        ("nbd0  ONLINE  0 0 0  (3% trimmed, started at Fri Nov 27 06:09:53 2026)", True),
        ("nbd0  ONLINE  0 0 0  (100% trimmed, completed at Fri Nov 27 06:09:53 2026)", False),
        ("nbd0  ONLINE  0 0 0  (3% trimmed, suspended, started at Fri Nov 27 06:09:53 2026)", False),
        ("nbd0  ONLINE  0 0 0  (untrimmed)", False),
        ("nbd0  ONLINE  0 0 0  (trim unsupported)", False),
    ],
)
async def test_whether_a_trim_is_under_way(tmp_path: Path, text: str, trims: bool):
    assert await Zpool(Host(env=said(f"  pool: cold\n{text}\n")), tmp_path).is_trimming("cold") == trims


async def test_one_that_answers_nothing_is_known_by_what_was_seen_before(tmp_path: Path):
    host: Any = Host(zpool=said("cold\t7\t100\t60\t40\tONLINE\toff\ton\twait\toff\tnone\t-\n"))
    zpool = Zpool(host, tmp_path)
    kernel_says(tmp_path, "ONLINE")
    await zpool.state("cold")
    zpool.runner = Hung()
    kernel_says(tmp_path, "SUSPENDED")
    with pytest.raises(MultihostSuspended):
        await zpool.state("cold")


async def test_whatever_waits_for_an_export_says_so(tmp_path: Path):
    exports(tmp_path, seconds=1)
    kernel_says(tmp_path, "ONLINE")
    zpool = Zpool(Hung(), tmp_path)
    for waiting in (
        zpool.state("cold"),
        zpool.sync("cold"),
        zpool.devices("cold"),
        zpool.export("cold", 1.0),
    ):
        with pytest.raises(PoolExporting, match="is being exported"):
            await waiting


async def test_a_pool_that_went_away_while_it_was_asked_for_is_not_there(tmp_path: Path):
    listed = said("cold\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\t-\n")  # as zpool prints it in the middle of an export
    kernel_says(tmp_path, "ONLINE")
    assert await Zpool(Host(zpool=listed), tmp_path).state("cold") is None


class InUse(Host):
    """Every export is refused, and so much of the pool has leaked."""

    def __init__(self, leaked: int) -> None:
        self.leaked = leaked

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        if argv[1] == "export":
            return ProcessResult((), 1, "", "cannot export 'cold': pool is busy\n", 0.0)
        return said(f"{self.leaked}\n")


@pytest.mark.parametrize("leaked", [0, 5 << 20])
async def test_a_pool_that_leaked_is_told_to_be_kept_open_by_zfs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaked: int
):
    monkeypatch.setattr(pool, "BUSY_POOL_PATIENCE", 0.0)
    with pytest.raises(Busy, match="cannot export") as refused:
        await Zpool(InUse(leaked), tmp_path).export("cold")
    assert ("5M of it have leaked" in refused.value.next) == bool(leaked)


@pytest.mark.parametrize(
    "said", ["", "cold\t1\n", "cold\t1\t2\t3\t4\tONLINE\toff\toff\twait\toff\tnone\t-\tmore\n"]
)
async def test_a_state_that_no_zpool_prints_is_told_as_that(said: str) -> None:
    class Tools:
        async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
            return ProcessResult(tuple(argv), 0, said, "", 0.0)

    with pytest.raises(ToolFailed, match="the state of the pool 'cold' cannot be understood"):
        await Zpool(Tools()).state("cold")  # type: ignore[arg-type]


async def test_a_pool_that_was_imported_read_only_is_known_and_has_nothing_to_sync(tmp_path: Path):
    kernel_says(tmp_path, "ONLINE")
    state = await Zpool(
        Host(zpool=said("cold\t7\t100\t60\t40\tONLINE\ton\toff\twait\toff\tnone\t-\n")), tmp_path
    ).state("cold")
    assert state is not None
    assert state.readonly
    refused = ProcessResult(("zpool",), 1, "", "sync 'cold' failed: pool is read-only\n", 0.1)
    await Zpool(Host(zpool=refused), tmp_path).sync("cold")
    with pytest.raises(PoolReadOnly, match="cannot be scrubbed"):
        await Scrubber(Host(zpool=said("on\n"))).start("cold")
