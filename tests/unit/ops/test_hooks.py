"""Hooks as real processes around something that works, fails, is cancelled, or is cut off by a crash."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.hooks_world import (
    World,
    world_for_test,  # noqa: F401
)
from tests.unit.patience import FOR_EVER, eventually
from tests.unit.system.process.deadline import Deadline
from zvault.config.tables.hooks import Hook, Hooks
from zvault.core.errors import HookFailed, Refused
from zvault.ops import hooks as module
from zvault.ops.hooks import list_cut_off_backups, recover_hooks
from zvault.system.record_store import RecordStore


async def test_order_and_environment(it: World) -> None:
    see = "log $ZVAULT_HOOK $ZVAULT_BACKUP $ZVAULT_RUN $ZVAULT_SOURCE $ZVAULT_VAULT [$ZVAULT_SNAPSHOT] "
    around = Hooks(
        before=[it.hook(see + "$MINE", environment={"MINE": "x"}), it.hook("log second")],
        after=[it.hook(see + "$ZVAULT_RESULT [$ZVAULT_ERROR]")],
    )
    async with it.hooks.around("snapshot", around):
        assert it.leases == ["hooks/snapshot/b/run-1"]
        it.hooks.snapname = "zvault_now"
        it.log.open("a").write("the snapshot\n")
    assert it.lines == [
        "before-snapshot b run-1 tank cold [] x",
        "second",
        "the snapshot",
        "after-snapshot b run-1 tank cold [zvault_now] ok []",
    ]
    assert it.leases == []
    assert it.blamed == []
    assert [fields["hook"] for _, fields in it.events] == ["before-snapshot"] * 2 + ["after-snapshot"]


async def test_the_result_of_a_run_is_told(it: World) -> None:
    around = Hooks(after=[it.hook("log $ZVAULT_HOOK $ZVAULT_RESULT $ZVAULT_ERROR")])
    async with it.hooks.around("run", around, lambda: ("partial", "tank/a: full")):
        assert list_cut_off_backups(it.store) == {"b"}
    assert it.lines == ["after-run partial tank/a: full"]
    assert list_cut_off_backups(it.store) == set()


async def test_output_is_passed_on_with_its_hook(it: World) -> None:
    async with it.hooks.around("run", Hooks(before=[it.hook("echo one; echo two >&2")])):
        pass
    assert it.events[:2] == [
        ("hook-output", {"hook": "before-run", "program": "sh", "text": "one"}),
        ("hook-output", {"hook": "before-run", "program": "sh", "text": "two"}),
    ]
    assert it.said("message")[0].startswith("the hook 'sh' before the run ended well, in ")


async def test_a_program_gone_wild(it: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HOOK_LINES", 10)
    with pytest.raises(HookFailed) as caught:
        async with it.hooks.around("run", Hooks(before=[it.hook("seq 1000; exit 1")])):
            pass
    assert it.said("hook-output") == [*map(str, range(1, 11)), "… and 990 lines more, which are not kept"]
    assert caught.value.why == "exit status 1; it said: 998 / 999 / 1000"


async def test_before_fails(it: World) -> None:
    around = Hooks(
        before=[it.hook("log lock"), it.hook("echo no such table >&2; exit 7"), it.hook("log never")],
        after=[it.hook("log unlock $ZVAULT_RESULT: $ZVAULT_ERROR")],
    )
    with pytest.raises(HookFailed) as caught:
        async with it.hooks.around("snapshot", around):
            raise AssertionError("no snapshot may be made")
    assert caught.value.what == "the hook 'sh' before the snapshot (2 of 3) failed"
    assert caught.value.why == "exit status 7; it said: no such table"
    assert "HOOK=before-snapshot" in caught.value.next
    assert caught.value.reason == "hook"
    assert it.lines[0] == "lock"
    assert it.lines[1].startswith("unlock failed: the hook 'sh' before the snapshot (2 of 3) failed: exit st")
    assert len(it.lines) == 2
    assert it.leases == []


async def test_before_may_fail(it: World) -> None:
    async with it.hooks.around("run", Hooks(before=[it.hook("exit 1", on_failure="go-on")])):
        it.log.write_text("done\n")
    assert it.lines == ["done"]
    assert it.said("warning") == [
        "the hook 'sh' before the run failed: exit status 1, without a word. "
        "Next: 'journalctl -t zvaultd HOOK=before-run' has all it said; its on_failure is go-on"
    ]
    assert it.blamed == []


async def test_every_after_runs_though_one_fails(it: World) -> None:
    around = Hooks(
        after=[
            it.hook("log first; exit 1"),
            it.hook("log second; exit 2", on_failure="go-on"),
            it.hook("log third"),
        ]
    )
    async with it.hooks.around("run", around):
        pass
    assert it.lines == ["first", "second", "third"]
    assert [error.what for error in it.blamed] == ["the hook 'sh' after the run (1 of 3) failed"]
    assert len(it.said("warning")) == 2
    assert it.leases == []


async def test_a_program_that_is_not_there(it: World) -> None:
    with pytest.raises(HookFailed, match="'hook' before the run failed: /nowhere/hook is not installed"):
        async with it.hooks.around("run", Hooks(before=[Hook(run=["/nowhere/hook"])])):
            pass


async def test_a_timeout(it: World, monkeypatch: pytest.MonkeyPatch) -> None:
    it.heard = Deadline(monkeypatch, 0.3).over
    around = Hooks(before=[it.hook(f"echo waiting for a lock; sleep {FOR_EVER}", timeout="300ms")])
    with pytest.raises(HookFailed) as caught:
        async with it.hooks.around("snapshot", around):
            pass
    assert caught.value.why == "sh did not end within 0.3 s: it was killed; it said: waiting for a lock"


async def test_what_it_stands_around_fails(it: World) -> None:
    with pytest.raises(Refused):
        async with it.hooks.around("snapshot", Hooks(after=[it.hook("log $ZVAULT_RESULT $ZVAULT_ERROR")])):
            raise Refused("no room", "the pool is full")
    assert it.lines == ["failed no room: the pool is full"]


async def test_what_another_host_said_is_told_whatever_is_in_it(it: World) -> None:
    with pytest.raises(Refused):
        async with it.hooks.around("snapshot", Hooks(after=[it.hook('log "$ZVAULT_ERROR"')])):
            raise Refused("no room", "a\0b\x1b[2J\u202e")
    assert it.lines == [r"no room: a\x00b\x1b[2J\u202e"]


async def started(it: World, word: str) -> None:
    await eventually(lambda: word in it.lines)


@pytest.mark.parametrize("where", ["before", "within", "after"])
async def test_cancelled(it: World, where: str) -> None:
    pause = "sleep 600" if where == "before" else ""
    slow = "sleep 0.5; " if where == "after" else ""
    around = Hooks(
        before=[it.hook(f"log locked; {pause}")],
        after=[it.hook(f"log unlocking; {slow}log unlocked $ZVAULT_RESULT")],
    )

    async def run() -> None:
        async with it.hooks.around("snapshot", around):
            it.log.open("a").write("within\n")
            if where == "within":
                await asyncio.sleep(FOR_EVER)

    task = asyncio.create_task(run())
    await started(it, {"before": "locked", "within": "within", "after": "unlocking"}[where])
    task.cancel()
    await asyncio.sleep(0.05)
    task.cancel()  # an impatient one
    with pytest.raises(asyncio.CancelledError):
        await task
    assert it.lines[-1] == f"unlocked {'ok' if where == 'after' else 'interrupted'}"
    assert it.lines.count("unlocking") == 1
    assert it.leases == []


async def test_nothing_is_started_that_cannot_be_written_down(it: World, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("in the way")
    around = Hooks(before=[it.hook("log lock")], after=[it.hook("log unlock")])
    with pytest.raises(HookFailed, match="cannot be written down"):
        async with it.hooks.around("snapshot", around):
            pass
    assert it.lines == []


async def crashed(it: World, *after: Hook) -> None:
    """Leave the lease as a crash would, between the hooks before and after."""
    store = it.store
    kept: dict[str, Any] = {}
    async with it.hooks.around("snapshot", Hooks(after=list(after))):
        kept = store.get("hooks/snapshot/b/run-1") or {}
    it.log.write_text("")
    it.blamed.clear()
    it.events.clear()
    store.put("hooks/snapshot/b/run-1", {key: kept[key] for key in ("about", "hooks")})


async def test_after_a_crash(it: World) -> None:
    await crashed(
        it,
        it.hook("log $ZVAULT_HOOK $ZVAULT_RUN $ZVAULT_SOURCE $ZVAULT_RESULT", timeout="2m"),
        it.hook("echo broken; exit 1"),
        it.hook("log third $MINE", environment={"MINE": "x"}),
    )
    patience: list[float] = []
    assert await recover_hooks(it.store, lambda run, backup: it.emit, "run") == []
    assert it.leases
    wrong = await recover_hooks(it.store, lambda run, backup: it.emit, "snapshot", patience.append)
    assert it.lines == ["after-snapshot run-1 tank interrupted", "third x"]
    assert [error.what for error in wrong] == ["the hook 'sh' after the snapshot (2 of 3) failed"]
    assert it.said("warning")[0] == (
        "run run-1 was cut off before its hooks after the snapshot: running them now"
    )
    assert patience == [180.0 + 30]
    assert it.leases == []
    assert await recover_hooks(it.store, lambda run, backup: it.emit, "snapshot") == [], "once"
    assert len(it.lines) == 2


async def test_a_crash_between_two_hooks_after(it: World) -> None:
    """Only what has not ended is run again."""
    store = it.store
    left: list[int] = []

    async def look() -> None:
        await started(it, "second")
        left.append(len((store.get("hooks/run/b/run-1") or {})["hooks"]))

    looking = asyncio.create_task(look())
    async with it.hooks.around("run", Hooks(after=[it.hook("log first"), it.hook("log second; sleep 0.3")])):
        pass
    await looking
    assert left == [1]


async def test_a_lease_that_cannot_be_read_is_told(it: World) -> None:
    folder = it.store.directory / "hooks" / "snapshot" / "b"
    folder.mkdir(parents=True)
    (folder / "run-0").write_text("{")
    wrong = await recover_hooks(it.store, lambda run, backup: it.emit, "snapshot")
    assert len(wrong) == 1
    assert "cannot be read" in str(wrong[0])


async def test_where_a_lease_stays_the_hooks_of_the_others_are_run_all_the_same(
    it: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a state directory that is read-only zvaultd did not start, and each try ran the same hook again."""

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    await crashed(it, it.hook("log first"))
    kept = it.store.get("hooks/snapshot/b/run-1") or {}
    it.store.put("hooks/snapshot/c/run-2", {key: kept[key] for key in ("about", "hooks")})
    monkeypatch.setattr(RecordStore, "drop", refuse)
    monkeypatch.setattr(RecordStore, "put", refuse)
    assert await recover_hooks(it.store, lambda run, backup: it.emit, "snapshot") == []
    assert it.lines == ["first", "first"]
    assert [text for text in it.said("warning") if "Read-only file system" in text] == [
        "that this hook has run cannot be written down, and the next start runs it again:"
        " [Errno 30] Read-only file system"
    ] * 2
