"""The helper process, with a libzfs_core in place of the real one that behaves as it does (zfs 2.3.9)."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE, eventually
from zvault.core.errors import DeadlineExceeded, NotFound, ToolFailed, ToolMissing
from zvault.system.process import json_child
from zvault.zfs.changes import NamesGone
from zvault.zfs.lzc import MOST_IDLE, Lzc, LzcFailure

ROOT = Path(__file__).parents[3]

FAKE = '''
"""All or none, as dsl_sync_task has it; what is told by exceptions, and what is not."""
import json, os, pathlib, sys, time
from libzfs_core import exceptions as e

FILE = pathlib.Path(os.environ["FAKE_STATE"])

def _state():
    return json.loads(FILE.read_text())

def _keep(state):
    FILE.write_text(json.dumps(state))

def lzc_snapshot(names, props):
    state = _state()
    there = [e.SnapshotExists(n) for n in names if n.decode() in state["snaps"]]
    if there:
        raise e.SnapshotFailure(there, 0)
    state["snaps"] += [n.decode() for n in names]
    _keep(state)

def lzc_hold(holds):
    state = _state()
    # The first that is held ends it; those that are gone are told of until then, by their dataset.
    gone = []
    for n in sorted(holds):
        if n.decode() not in state["snaps"]:
            gone.append(n)
        elif n.decode() in state["held"]:
            lost = [e.FilesystemNotFound(one.partition(b"@")[0]) for one in gone]
            raise e.HoldFailure([*lost, e.HoldExists(n)], 0)
    if len(gone) == len(holds):
        raise e.HoldFailure([e.FilesystemNotFound(one.partition(b"@")[0]) for one in gone], 0)
    state["held"] += [n.decode() for n in holds if n not in gone]
    _keep(state)
    return gone

def lzc_get_holds(name):
    state = _state()
    if name.decode() not in state["snaps"]:
        raise e.SnapshotNotFound(name)
    return {b"other": 1, **({b"t": 2} if name.decode() in state["held"] else {})}

def lzc_bookmark(marks):
    state = _state()
    errors = [e.BookmarkExists(m) for m in marks if m.decode() in state["marks"]]
    errors += [e.SnapshotNotFound(m) for m, s in marks.items() if s.decode() not in state["snaps"]]
    if errors:
        raise e.BookmarkFailure(errors, 0)
    state["marks"] += [m.decode() for m in marks]
    _keep(state)

def lzc_destroy_snaps(names, defer):
    state = _state()
    held = [e.SnapshotIsHeld(n) for n in names if n.decode() in state["held"]]
    if held:
        raise e.SnapshotDestructionFailure(held, 0)

def lzc_release(holds):
    return []

def lzc_destroy_bookmarks(names):
    return None

def lzc_send_space(name, base, flags):
    if name == b"chatty@s":
        sys.stderr.write("a warning nobody reads\\n" * 40_000)
    if name == b"slow@s":
        time.sleep(60)
    if name == b"crash@s":
        raise RuntimeError("a bug in the binding")
    if name == b"long@s":
        raise e.ZFSGenericError(36, "Failed to estimate", name)  # as pyzfs calls it, against its own signature
    if name == b"print@s":
        print("somebody prints to stdout")
    return 63033200
'''

EXCEPTIONS = """
import errno

class ZFSError(Exception):
    errno = None
    message = None
    name = None

class MultipleOperationsFailure(ZFSError):
    def __init__(self, errors, suppressed_count):
        self.errno = errors[0].errno
        self.errors = errors
        self.suppressed_count = suppressed_count

for _name in ("Snapshot", "Hold", "Bookmark", "SnapshotDestruction"):
    globals()[_name + "Failure"] = type(_name + "Failure", (MultipleOperationsFailure,), {})

def _single(name, number, text):
    def init(self, name):
        self.name = name
    globals()[name] = type(name, (ZFSError,), {"errno": number, "message": text, "__init__": init})

class ZFSGenericError(ZFSError):
    def __init__(self, errno, name, message):
        self.errno = errno
        self.message = message
        self.name = name

_single("SnapshotExists", errno.EEXIST, "Snapshot already exists")
_single("SnapshotNotFound", errno.ENOENT, "Snapshot not found")
_single("FilesystemNotFound", errno.ENOENT, "Filesystem not found")
_single("SnapshotIsHeld", errno.EBUSY, "Snapshot is held")
_single("HoldExists", errno.EEXIST, "Hold with a given tag already exists on snapshot")
_single("BookmarkExists", errno.EEXIST, "Bookmark already exists")
"""


class Pool:
    """What the stand-in keeps between calls."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "state.json"
        self.file.write_text('{"snaps": [], "held": [], "marks": []}')

    def read(self, key: str) -> list[str]:
        import json

        return list(json.loads(self.file.read_text())[key])


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    package = tmp_path / "libzfs_core"
    package.mkdir()
    (package / "__init__.py").write_text(FAKE)
    (package / "exceptions.py").write_text(EXCEPTIONS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv("FAKE_STATE", str(tmp_path / "state.json"))
    return Pool(tmp_path)


@pytest.fixture
async def lzc(pool: Pool) -> AsyncIterator[Lzc]:
    lzc = Lzc()
    yield lzc
    await lzc.close()


async def test_names_with_spaces_arrive_as_they_are(lzc: Lzc, pool: Pool) -> None:
    await lzc.snapshot(["tank/my data@s1", "tank@s1"], {"org.zvault:run": "1"})
    assert pool.read("snaps") == ["tank/my data@s1", "tank@s1"]


async def test_a_hold_that_is_there_already_does_not_keep_the_others_from_being_made(
    lzc: Lzc, pool: Pool
) -> None:
    await lzc.snapshot(["tank@s1", "tank@s2"], {})
    await lzc.hold(["tank@s1"], "zvault:1f")
    await lzc.hold(["tank@s1", "tank@s2"], "zvault:1f")
    assert pool.read("held") == ["tank@s1", "tank@s2"]


async def test_which_snapshots_a_tag_holds_and_none_that_is_gone(lzc: Lzc) -> None:
    await lzc.snapshot(["tank@s1", "tank@s2"], {})
    await lzc.hold(["tank@s2"], "t")
    names = ["tank@s1", "tank@s2", "tank@gone"]
    assert await lzc.tagged(names, "t") == ["tank@s2"]
    assert await lzc.tagged(names, "other") == ["tank@s1", "tank@s2"]


async def test_a_snapshot_that_is_gone_cannot_be_held_and_that_is_told(lzc: Lzc, pool: Pool) -> None:
    await lzc.snapshot(["tank@s1"], {})
    with pytest.raises(NotFound) as failure:
        await lzc.hold(["tank@s1", "tank@gone"], "zvault:1f")
    assert "tank@gone" in str(failure.value)
    assert pool.read("held") == ["tank@s1"]


async def test_one_that_is_held_beside_some_that_are_gone_is_no_error_and_the_rest_is_held(
    lzc: Lzc, pool: Pool
) -> None:
    await lzc.snapshot(["tank@s2", "tank@s4", "tank@s5"], {})
    await lzc.hold(["tank@s4"], "zvault:1f")
    with pytest.raises(NamesGone) as failure:
        await lzc.hold(["tank@s1", "tank@s2", "tank@s3", "tank@s4", "tank@s5"], "zvault:1f")
    assert failure.value.names == {"tank@s1", "tank@s3"}
    assert failure.value.retryable
    assert sorted(pool.read("held")) == ["tank@s2", "tank@s4", "tank@s5"]
    with pytest.raises(NamesGone) as failure:
        await lzc.hold(["tank@s1", "tank@s4", "tank/x@s1"], "zvault:1f")
    assert failure.value.names == {"tank@s1", "tank/x@s1"}


async def test_a_bookmark_of_what_is_gone_keeps_no_other_from_being_made(lzc: Lzc, pool: Pool) -> None:
    await lzc.snapshot(["tank@s1", "tank@s2"], {})
    await lzc.bookmark({"tank#a": "tank@s1"})
    with pytest.raises(NamesGone) as failure:
        await lzc.bookmark({"tank#a": "tank@s1", "tank#b": "tank@s2", "tank#c": "tank@gone"})
    assert failure.value.names == {"tank@gone"}
    assert pool.read("marks") == ["tank#a", "tank#b"]


async def test_a_bookmark_that_is_there_already_does_not_keep_the_others_from_being_made(
    lzc: Lzc, pool: Pool
) -> None:
    await lzc.snapshot(["tank@s1", "tank@s2"], {})
    await lzc.bookmark({"tank#a": "tank@s1"})
    await lzc.bookmark({"tank#a": "tank@s1", "tank#b": "tank@s2"})
    await lzc.bookmark({"tank#a": "tank@s1", "tank#b": "tank@s2"})
    assert pool.read("marks") == ["tank#a", "tank#b"]
    with pytest.raises(NotFound):
        await lzc.bookmark({"tank#c": "tank@gone"})


async def test_a_failure_names_each_snapshot_and_its_kind(lzc: Lzc) -> None:
    await lzc.snapshot(["tank@s1", "tank@s2"], {})
    await lzc.hold(["tank@s1"], "zvault:1f")
    with pytest.raises(LzcFailure) as failure:
        await lzc.destroy(["tank@s1", "tank@s2"])
    assert failure.value.errors == [("tank@s1", "SnapshotIsHeld", 16)]
    assert failure.value.why == "tank@s1: Snapshot is held"


async def test_a_failure_of_thousands_of_datasets_still_fits_an_answer(lzc: Lzc) -> None:
    # A line of more than 64 KiB is beyond what an asyncio stream takes by itself.
    names = [f"tank/{'d' * 100}{number}@zvault_2026-11-21T09:00:00Z" for number in range(3000)]
    await lzc.snapshot(names, {})
    with pytest.raises(LzcFailure) as failure:
        await lzc.snapshot(names, {})
    assert len(failure.value.errors) == 3000
    assert await lzc.send_space("tank@s1", None, []) == 63033200


async def test_a_child_that_says_much_on_stderr_is_not_held_up(lzc: Lzc) -> None:
    for _ in range(3):
        assert await asyncio.wait_for(lzc.send_space("chatty@s", None, []), PATIENCE) == 63033200


async def test_an_error_that_pyzfs_does_not_know_is_told_with_its_name_and_ends_nothing(lzc: Lzc) -> None:
    with pytest.raises(LzcFailure) as failure:
        await lzc.send_space("long@s", None, [])
    assert failure.value.errors == [("long@s", "ZFSGenericError", 36)]
    assert failure.value.why == "long@s: Failed to estimate: File name too long"
    assert await lzc.send_space("tank@s1", None, []) == 63033200


@pytest.mark.parametrize("name", ["crash@s", "print@s"])
async def test_after_a_child_failed_the_next_call_gets_a_new_one(lzc: Lzc, name: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        await lzc.send_space(name, None, [])
    assert failure.value.why
    assert await lzc.send_space("tank@s1", None, []) == 63033200


async def test_an_answer_that_comes_after_a_cancellation_is_nobodys(lzc: Lzc) -> None:
    await lzc.send_space("tank@s1", None, [])
    asking = asyncio.create_task(lzc.send_space("slow@s", None, []))
    await asyncio.sleep(0.1)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert await lzc.send_space("tank@s1", None, []) == 63033200


async def test_a_call_that_is_cancelled_twice_is_still_known_to_be_in_the_kernel(
    lzc: Lzc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is put down, and again as zvaultd stops: nobody waits for the end of the child any more."""
    closing = asyncio.Event()

    async def hangs(process: asyncio.subprocess.Process) -> bool:
        closing.set()
        await asyncio.Event().wait()
        return False

    await lzc.send_space("tank@s1", None, [])
    (child,) = lzc._idle
    asking = asyncio.create_task(lzc.send_space("slow@s", None, []))
    await asyncio.sleep(0.1)
    with monkeypatch.context() as patch:
        patch.setattr(json_child, "kill_process", hangs)
        asking.cancel()
        await asyncio.wait_for(closing.wait(), PATIENCE)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    with pytest.raises(DeadlineExceeded, match="has not answered since"):
        await lzc.send_space("slow@s", None, [])
    await child.close()


async def test_calls_made_at_once_get_each_its_own_answer(lzc: Lzc, pool: Pool) -> None:
    await asyncio.gather(*(lzc.snapshot([f"tank@s{number}"], {}) for number in range(10)))
    assert sorted(pool.read("snaps")) == [f"tank@s{number}" for number in range(10)]


async def test_a_call_that_hangs_on_one_pool_holds_up_no_call_on_another(lzc: Lzc) -> None:
    hanging = asyncio.create_task(lzc.send_space("slow@s", None, []))
    behind = asyncio.create_task(lzc.send_space("slow@after", None, []))
    for _ in range(3):
        assert await asyncio.wait_for(lzc.send_space("tank@s1", None, []), PATIENCE) == 63033200
    assert not hanging.done(), "it takes ten"
    assert not behind.done(), "it is of the same pool"
    behind.cancel()
    hanging.cancel()
    await asyncio.wait({hanging, behind})


async def test_of_many_pools_that_have_had_calls_at_once_few_children_are_left(
    lzc: Lzc, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[json_child.JsonChild] = []
    start = json_child.JsonChild.start

    async def noted(argv: list[str]) -> json_child.JsonChild:
        started.append(await start(argv))
        return started[-1]

    monkeypatch.setattr(json_child.JsonChild, "start", noted)
    await asyncio.gather(*(lzc.send_space(f"p{number}@s", None, []) for number in range(4)))
    assert len(started) == 4
    assert sum(child.runs for child in started) == MOST_IDLE
    await lzc.send_space("tank@s1", None, [])
    assert len(started) == 4, "one that was left was asked"
    await lzc.close()
    assert not any(child.runs for child in started)


async def test_children_that_were_killed_while_nobody_asked_are_not_asked(lzc: Lzc) -> None:
    await asyncio.gather(*(lzc.send_space(f"p{number}@s", None, []) for number in range(2)))
    for child in lzc._idle:
        os.kill(child.pid, signal.SIGKILL)
        await child._process.wait()
    assert await lzc.send_space("tank@s1", None, []) == 63033200


async def test_a_child_at_work_ends_after_its_answer_where_the_client_was_closed_meanwhile(lzc: Lzc) -> None:
    await lzc.send_space("tank@s1", None, [])
    (child,) = lzc._idle
    asking = asyncio.create_task(lzc.send_space("tank@s1", None, []))
    while lzc._idle:
        await asyncio.sleep(0)
    await lzc.close()
    assert await asking == 63033200
    assert not child.runs


async def test_without_the_binding_one_is_told_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "libzfs_core.py").write_text("raise ImportError('no libzfs_core here')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    with pytest.raises(ToolMissing) as failure:
        await Lzc().hold(["tank@s1"], "t")
    assert "no libzfs_core here" in failure.value.why
    assert "python3-pyzfs" in failure.value.next


async def test_a_cancelled_start_leaves_no_child(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[json_child.JsonChild] = []
    start = json_child.JsonChild.start

    async def slow(argv: list[str]) -> json_child.JsonChild:
        started.append(await start([sys.executable, "-c", "import time; time.sleep(600)"]))
        return started[-1]

    monkeypatch.setattr(json_child.JsonChild, "start", slow)
    asking = asyncio.create_task(Lzc().hold(["tank@s1"], "t"))
    await eventually(lambda: bool(started))
    await asyncio.sleep(0.05)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert started[0]._process.returncode is not None
