"""What a run tries again, how often, and what it says in the end."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.events import split_event
from tests.unit.ops.ops_world import context
from tests.unit.ops.vaults.shared_world import Bucket, due, host
from zvault.core.errors import (
    Conflict,
    DeviceGone,
    DiskAway,
    HostUnreachable,
    NotFound,
    PoolSuspended,
    Refused,
    SnapshotRefused,
    Stalled,
    VaultFull,
    ZvaultError,
)
from zvault.core.names import DatasetName
from zvault.core.sharing.run_decision import RunAction
from zvault.core.sharing.shared_note import SharedNote
from zvault.core.sharing.shared_note import SharedRunOutcome as NoteOutcome
from zvault.ops.hooks import RunHooks
from zvault.ops.run import BackupRun
from zvault.ops.run_outcome import RunOutcome, make_datasets_failed
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.vault import Vaults

Try = Callable[[BackupRun], None]


class Played(BackupRun):
    """A run whose tries are given: each does something to it, or raises."""

    tries: list[Try]
    said: list[tuple[str, dict[str, Any]]]
    waits: list[float]

    async def _try(self) -> None:
        await asyncio.sleep(0)
        self.outcome.datasets = 3
        self.tries.pop(0)(self)


def lost(error: ZvaultError) -> Try:
    def one(run: BackupRun) -> None:
        raise error

    return one


def datasets(**failed: ZvaultError) -> Try:
    def one(run: BackupRun) -> None:
        run.results.begin_try()
        for name, error in failed.items():
            run._note(name, error)

    return one


async def play(
    *tries: Try,
    retries: int = 3,
    going_on: bool = True,
    kind: type[Played] = Played,
    turn: RunPermission | None = None,
) -> Played:
    world = context(retries=retries, retry_wait="10s")
    said: list[tuple[str, dict[str, Any]]] = []
    waits: list[float] = []

    async def pause(seconds: float) -> bool:
        waits.append(seconds)
        return going_on

    run = kind(
        world,
        Vaults(world),
        "b",
        lambda event: said.append(split_event(event)),
        RunOutcome(),
        pause=pause,
        turn=turn,
    )
    run.tries, run.said, run.waits = list(tries), said, waits
    await run.execute()
    return run


@pytest.fixture(autouse=True)
def no_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunHooks, "around", lambda *_: contextlib.nullcontext())


def retries(run: Played) -> list[int]:
    return [fields["number"] for event, fields in run.said if event == "retry"]


async def test_what_goes_well_is_not_tried_again() -> None:
    run = await play(datasets())
    assert (run.outcome.result, run.outcome.error, run.waits) == ("ok", None, [])


async def test_a_host_that_comes_back_is_no_failure() -> None:
    run = await play(lost(HostUnreachable("filer1")), lost(DeviceGone("nbd0")), datasets())
    assert (run.outcome.result, run.outcome.error) == ("ok", None)
    assert retries(run) == [1, 2]
    assert [round(wait / 10) for wait in run.waits] == [1, 2]
    assert [fields["error"]["what"] for event, fields in run.said if event == "retry"] == ["filer1", "nbd0"]


def sent_and_lost(error: ZvaultError) -> Try:
    """All of it is on the vault; then something happens."""

    def one(run: BackupRun) -> None:
        run.results.begin_try()
        run.all_sent = True
        raise error

    return one


async def test_a_vault_that_goes_away_after_all_was_sent_undoes_nothing_of_it() -> None:
    run = await play(sent_and_lost(DeviceGone("nbd0")), lost(PoolSuspended("cold")), retries=1)
    assert (run.outcome.result, run.outcome.error, retries(run)) == ("ok", None, [1])
    (warning,) = [fields["text"] for event, fields in run.said if event == "warning"]
    assert "all of it was sent" in warning
    assert "cold" in warning


async def test_what_else_fails_after_all_was_sent_fails_the_run() -> None:
    run = await play(sent_and_lost(Refused("no")))
    assert (run.outcome.result, str(run.outcome.error)) == ("failed", "no")


async def test_in_the_end_the_last_trouble_is_told() -> None:
    run = await play(*[lost(HostUnreachable(str(number))) for number in range(4)])
    assert run.outcome.result == "failed"
    assert run.outcome.error is not None
    assert run.outcome.error.what == "3"
    assert retries(run) == [1, 2, 3]


@pytest.mark.parametrize("error", [Refused("no"), Conflict("no"), VaultFull("no")])
async def test_what_waiting_does_not_repair_is_not_tried_again(error: ZvaultError) -> None:
    run = await play(lost(error))
    assert (run.outcome.result, run.outcome.error, retries(run)) == ("failed", error, [])


async def test_no_retries_at_all() -> None:
    run = await play(lost(DeviceGone("gone")), retries=0)
    assert (run.outcome.result, retries(run)) == ("failed", [])


async def test_only_what_may_go_better_is_tried_again_and_the_rest_is_told() -> None:
    run = await play(datasets(a=Conflict("a", "its own way", "repair"), b=Stalled("b")), datasets())
    assert run.outcome.result == "partial"
    assert retries(run) == [1]
    assert run.results.settled == {"a"}
    error = run.outcome.error
    assert error is not None
    assert (error.what, error.why, error.next) == ("1 of 3 datasets failed", "a (a: its own way)", "repair")
    assert error.reason == "conflict"
    failed = [(f["dataset"], f["again"]) for event, f in run.said if event == "dataset-failed"]
    assert failed == [("a", False), ("b", True)]


class InTurn(Played):
    """The same on a vault that hosts share: each try has it, and gives it back."""

    async def _try(self) -> None:
        assert self.turn is not None
        vault: Any = self.turn.shared.vault
        vault.up(vault.epoch + 1)
        try:
            async with self._in_turn() as needless:
                assert needless is None
                await super()._try()
        finally:
            vault.down()


async def played_in_turn(*tries: Try, going_on: bool = True) -> SharedNote:
    """The note after a run with two retries."""
    bucket = Bucket()
    _, shared = host(bucket, "a")
    turn = RunPermission(shared, due(bucket), "", lambda _: None, pytest.fail)
    await play(*tries, retries=2, going_on=going_on, kind=InTurn, turn=turn)
    assert bucket.data is not None
    return SharedNote.of_bytes(bucket.data)


@pytest.mark.parametrize("fails", [lost(DeviceGone("gone")), datasets(b=Stalled("b"))])
async def test_all_tries_of_a_run_are_one_run_for_the_other_hosts(fails: Try) -> None:
    note = await played_in_turn(fails, fails, fails)
    last = note.runs["tank"]
    assert (last.number, last.outcome, last.failures) == (1, NoteOutcome.FAILED, 1)


async def test_a_run_that_waits_for_its_next_try_is_one_that_another_host_may_go_on_with() -> None:
    note = await played_in_turn(lost(DeviceGone("gone")), going_on=False)
    assert (note.holding, note.runs["tank"].outcome) == (False, NoteOutcome.RUNNING)


async def test_what_is_not_tried_again_has_failed_at_once() -> None:
    note = await played_in_turn(lost(Refused("no")))
    assert (note.runs["tank"].outcome, note.runs["tank"].failures) == (NoteOutcome.FAILED, 1)


class OvertakenInTurn(InTurn):
    """The first try loses a dataset; before the second another host makes the run."""

    times_up = 0
    bucket: Bucket

    async def _try(self) -> None:
        assert self.turn is not None
        vault: Any = self.turn.shared.vault
        if self.times_up == 1:
            self.bucket.now += 60
            there, other = host(self.bucket, "b")
            there.up(9)
            async with other.run(due(self.bucket), lambda: 1.0, lambda: True, pytest.fail) as decision:
                assert decision.action is RunAction.RUN
            there.down()
        self.times_up += 1
        vault.up(vault.epoch + 20)
        async with self._in_turn() as needless:
            if needless is None:
                await Played._try(self)
            else:
                self._skip(needless)
        vault.down()


async def test_a_run_that_another_host_made_between_two_tries_is_skipped_and_nothing_failed() -> None:
    OvertakenInTurn.bucket = bucket = Bucket()
    _, shared = host(bucket, "a")
    turn = RunPermission(shared, due(bucket), "", lambda _: None, pytest.fail)
    run = await play(datasets(b=Stalled("b")), retries=2, kind=OvertakenInTurn, turn=turn)
    assert (run.outcome.result, run.outcome.error) == ("skipped", None)
    assert retries(run) == [1]


async def test_on_the_last_try_nothing_is_promised() -> None:
    run = await play(datasets(b=Stalled("b")), datasets(b=Stalled("b")), retries=1)
    assert [f["again"] for event, f in run.said if event == "dataset-failed"] == [True, False]
    assert run.outcome.result == "partial"
    assert run.outcome.error is not None
    assert run.outcome.error.reason == "stalled"


async def test_a_run_that_is_told_to_end_ends_with_what_it_has() -> None:
    run = await play(lost(DeviceGone("gone")), going_on=False)
    assert (run.outcome.result, len(run.waits)) == ("failed", 1)
    run = await play(datasets(a=Stalled("a"), b=Stalled("b"), c=Stalled("c")), going_on=False)
    assert run.outcome.result == "failed"
    assert run.outcome.error is not None
    assert run.outcome.error.what == "3 of 3 datasets failed"


def test_many_failures_are_told_in_one_line() -> None:
    failed = {f"tank/{number}": Stalled("stood still") for number in range(40)}
    error = make_datasets_failed(failed, 100)
    assert error.what == "40 of 100 datasets failed"
    assert error.why.startswith("tank/0 (stood still), tank/1")
    assert error.why.endswith("and 30 more")
    second = ZvaultError("b cannot be sent", "no key", "load its key")
    assert make_datasets_failed({"a": ZvaultError("a failed"), "b": second}, 2).next == "load its key"
    one = make_datasets_failed({"tank": Conflict("tank cannot follow", "it has gone its own way")}, 1)
    assert (one.what, one.why) == ("1 of 1 dataset failed", "tank (cannot follow: it has gone its own way)")
    assert type(error).reason == "failed"


async def test_a_run_that_misses_what_include_names_is_not_ok():
    def one(run: BackupRun) -> None:
        run._missing = NotFound("there is no dataset 'tank/mail'")

    run = await play(one)
    assert (run.outcome.result, str(run.outcome.error)) == ("partial", "there is no dataset 'tank/mail'")

    def also_failed(run: BackupRun) -> None:
        one(run)
        datasets(a=Conflict("a cannot follow"))(run)

    run = await play(also_failed)
    assert (run.outcome.result, run.waits) == ("partial", [])
    assert "1 of 3 datasets failed" in str(run.outcome.error)


async def test_a_run_whose_disk_is_in_the_cupboard_is_skipped_and_not_tried_again() -> None:
    away = DiskAway("the disk of vault 'usb' is not there")
    run = await play(lost(away))
    assert (run.outcome.result, run.outcome.error, retries(run)) == ("skipped", away, [])


@pytest.mark.parametrize("sent", [True, False], ids=["had sent some", "one had failed"])
async def test_a_run_whose_disk_is_pulled_out_on_the_way_is_not_said_to_be_skipped(sent: bool) -> None:
    away = DiskAway("the disk of vault 'usb' is not there")

    def begun(run: BackupRun) -> None:
        if sent:
            run.meter.finished = 1
        else:
            run._note("tank/a", DeviceGone("it went away"))
        raise away

    run = await play(begun)
    assert (run.outcome.result, run.outcome.error) == ("failed", away)


async def test_a_source_that_cannot_be_snapshotted_while_the_disk_is_away_fails_the_run() -> None:
    def refused(run: BackupRun) -> None:
        run.snapshots.refused = {DatasetName("tank/full"): SnapshotRefused("it is full")}
        raise DiskAway("usb")

    run = await play(refused)
    assert run.outcome.result == "partial"
    assert "tank/full (it is full)" in str(run.outcome.error)
