"""A vault that hosts share: what each writes into the note, and what the others make of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.vaults.shared_world import BOUND, CONFIG, HOUR, Bucket, HostVault, due, host
from tests.unit.patience import PATIENCE
from zvault.config.schema import Config
from zvault.core.errors import Busy, DeviceGone, Refused, TakenOver
from zvault.core.sharing.run_decision import LeaseHolder, RunAction
from zvault.core.sharing.shared_note import SharedNote, SharedRunOutcome
from zvault.devices.layer import DeviceSlot
from zvault.devices.shared_note import NoteClient
from zvault.ops.vaults import shared_vault as module
from zvault.ops.vaults.shared_vault import SharedVault


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def noted(bucket: Bucket) -> SharedNote:
    assert bucket.data is not None
    return SharedNote.of_bytes(bucket.data)


async def makes_a_run(
    bucket: Bucket, vault: HostVault, shared: SharedVault, epoch: int, lag: float = 60.0
) -> None:
    vault.up(epoch)
    async with shared.run(due(bucket), lambda: lag, lambda: True, pytest.fail) as decision:
        assert decision.action is RunAction.RUN
        bucket.now += 100
        bucket.renewed = bucket.now
    vault.down()


async def test_who_has_it_says_so_and_the_other_waits_and_then_skips(bucket: Bucket):
    (vault, a), (_, b) = host(bucket, "a"), host(bucket, "b")
    assert (await a.decide(due(bucket))).action is RunAction.RUN
    vault.up(1)
    theirs = due(bucket)
    async with a.run(due(bucket), lambda: 60.0, lambda: True, pytest.fail) as decision:
        assert decision.action is RunAction.RUN
        bucket.now += 100
        bucket.renewed = bucket.now
        waits = await b.decide(theirs)
        assert (waits.action, waits.reason) == (RunAction.WAIT, "a has the vault")
        assert (a.holder(), b.holder()) == ("a", "a")
    vault.down()
    bucket.now += 60
    skips = await b.decide(theirs)
    assert skips.action is RunAction.SKIP
    assert skips.settled is not None
    assert skips.settled.number == 1
    claim = b.claim("tank")
    assert claim is not None
    assert (claim.host, claim.outcome) == ("a", SharedRunOutcome.DONE)
    assert claim.lag_now(bucket.now + 5) == pytest.approx(60 + 60 + 5)
    assert a.claim("tank") is None
    assert (a.holder(), b.holder()) == (None, None)


async def test_a_backup_that_gets_another_name_during_its_run_goes_on_in_the_note(bucket: Bucket):
    """Its run was dropped from the note as one of no backup, and the others were not told how it ended."""
    (vault, a), (other, b) = host(bucket, "a"), host(bucket, "b")
    await makes_a_run(bucket, vault, a, 1)
    bucket.now += HOUR
    vault.up(2)
    config = Config.model_validate({**CONFIG, "backup": {"tank@cold": CONFIG["backup"]["tank"]}})
    async with a.run(due(bucket), lambda: 60.0, lambda: True, pytest.fail):
        vault.context.env.config = config
        vault.context.env.current_name = lambda _: "tank@cold"
        await a._write(lambda note: note)
        assert {name: run.number for name, run in noted(bucket).runs.items()} == {"tank@cold": 2}
    vault.down()
    assert noted(bucket).runs["tank@cold"].outcome is SharedRunOutcome.DONE
    other.context.env.config = config
    await b.look_at_note()
    claim = b.claim("tank@cold")
    assert claim is not None
    assert claim.outcome is SharedRunOutcome.DONE


async def test_a_skip_costs_one_request(bucket: Bucket):
    (vault, a), (_, b) = host(bucket, "a"), host(bucket, "b")
    await makes_a_run(bucket, vault, a, 1)
    bucket.now += 60
    bucket.requests = 0
    late = replace(due(bucket), at=bucket.now - 60)
    assert (await b.decide(late)).action is RunAction.SKIP
    assert bucket.requests == 1


async def test_what_was_broken_off_is_gone_on_with_under_its_number(bucket: Bucket):
    (vault, a), (other, b) = host(bucket, "a"), host(bucket, "b")
    vault.up(1)

    async def broken_off() -> None:
        async with a.run(due(bucket), lambda: None, lambda: True, pytest.fail):
            await asyncio.sleep(3600)

    run = asyncio.ensure_future(broken_off())
    for _ in range(10):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    assert noted(bucket).runs["tank"].outcome is SharedRunOutcome.RUNNING
    theirs = due(bucket)
    bucket.now += BOUND + 100  # nobody renews the lease
    taken = await b.decide(theirs)
    assert (taken.action, taken.of) == (RunAction.TAKE_OVER, "boot-a")
    assert "begun by a, was not finished" in taken.reason
    other.up(2)
    async with b.run(theirs, lambda: 1.0, lambda: True, pytest.fail) as decision:
        assert decision.action is RunAction.RUN
    assert (noted(bucket).runs["tank"].number, noted(bucket).runs["tank"].host) == (1, "b")


async def test_who_was_shut_out_writes_no_note(bucket: Bucket):
    (vault, a), (other, b) = host(bucket, "a"), host(bucket, "b")
    vault.up(1)
    told: list[str] = []
    async with a.run(due(bucket), lambda: 1.0, lambda: True, told.append):
        other.up(2)
        async with b.run(due(bucket), lambda: 2.0, lambda: True, pytest.fail):
            before = bucket.data
        ended = bucket.data
    assert before != ended
    assert bucket.data == ended, "the note of the host that took over was written over"
    (said,) = told
    assert "epoch 2, after this host's, 1" in said
    with pytest.raises(TakenOver, match="is another host's"):
        async with a.run(replace(due(bucket), asked=True), lambda: 1.0, lambda: True, pytest.fail):
            pytest.fail("it may not run")


async def test_a_note_of_an_epoch_that_the_store_never_had_is_replaced_by_who_has_the_lease(bucket: Bucket):
    """The store was made anew under the same key, or somebody wrote the note who never had the vault."""
    vault, a = host(bucket, "a")
    there = SharedNote("b", (1 << 32) - 1).begun("tank", 1.0).finished("tank", 2.0, done=True, lag=3.0)
    bucket.data, bucket.etag, bucket.put_at = there.as_bytes(), "x", bucket.now - 2 * HOUR
    vault.up(1)
    async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail) as decision:
        assert decision.action is RunAction.RUN
        assert (noted(bucket).host, noted(bucket).epoch) == ("a", 1)
        assert noted(bucket).runs["tank"].lag is None, "what it claims of another store's run is kept"
    assert (noted(bucket).runs["tank"].number, noted(bucket).runs["tank"].lag) == (2, 1.0)


async def test_who_does_not_have_the_lease_leaves_such_a_note_and_names_it(bucket: Bucket):
    vault, a = host(bucket, "a")
    there = SharedNote("b", 9).as_bytes()
    for holder in (
        None,
        LeaseHolder("a", "boot-of-another-a", BOUND),
        LeaseHolder("a", "boot-a", BOUND, held=False),
    ):
        vault.up(1)
        bucket.data, bucket.etag, bucket.holder = there, "x", holder
        with pytest.raises(TakenOver) as raised:
            async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
                pytest.fail("it may not run")
        assert bucket.data == there
        assert "remove the object bucket/cold.note" in raised.value.next


async def test_another_run_of_the_same_host_keeps_the_note_holding(bucket: Bucket):
    vault, a = host(bucket, "a")
    names = ("tank", "more")
    backups = {name: {"source": f"ssh://root@nas/{name}", "vault": "cold", "every": "1h"} for name in names}
    vault.context.env.config = Config.model_validate({**CONFIG, "backup": backups})
    vault.up(1)
    async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        async with a.run(replace(due(bucket), backup="more"), lambda: 1.0, lambda: True, pytest.fail):
            assert noted(bucket).holding
        assert noted(bucket).holding
    assert not noted(bucket).holding
    assert {run.outcome for run in noted(bucket).runs.values()} == {SharedRunOutcome.DONE}


async def test_backups_that_are_due_together_are_all_in_the_note(bucket: Bucket):
    vault, a = host(bucket, "a")
    names = [f"tank{number}" for number in range(8)]
    backups = {name: {"source": f"ssh://root@nas/{name}", "vault": "cold", "every": "1h"} for name in names}
    vault.context.env.config = Config.model_validate({**CONFIG, "backup": backups})
    vault.up(1)
    bucket.slow = True
    together = asyncio.Barrier(len(names))

    async def runs(name: str) -> None:
        async with a.run(replace(due(bucket), backup=name), lambda: 1.0, lambda: True, pytest.fail):
            await together.wait()

    await asyncio.gather(*map(runs, names))
    assert {name: run.outcome for name, run in noted(bucket).runs.items()} == dict.fromkeys(
        names, SharedRunOutcome.DONE
    )
    assert not noted(bucket).holding


@pytest.mark.parametrize(("lost", "outcome"), [(False, "failed"), (True, "running")])
async def test_a_run_that_fails_is_told_but_not_by_a_host_that_lost_the_vault(
    bucket: Bucket, lost: bool, outcome: str
):
    vault, a = host(bucket, "a")
    vault.up(1)

    async def fails() -> None:
        async with a.run(due(bucket), lambda: None, lambda: True, pytest.fail):
            vault.lost = lost
            raise DeviceGone("gone")

    with pytest.raises(DeviceGone):
        await fails()
    assert noted(bucket).runs["tank"].outcome == outcome


async def test_a_note_that_is_none_is_replaced_and_a_newer_one_is_left_alone(bucket: Bucket):
    (vault, a), (_, b) = host(bucket, "a"), host(bucket, "b")
    bucket.data, bucket.etag = b"\xff[", "x"
    await makes_a_run(bucket, vault, a, 1)
    assert noted(bucket).runs["tank"].outcome is SharedRunOutcome.DONE
    newer = json.dumps({"version": 99}).encode()
    bucket.data, bucket.etag = newer, "y"
    bucket.now += HOUR
    stands = await b.decide(replace(due(bucket), at=bucket.now - 60))
    assert stands.action is RunAction.STAND_BY
    assert bucket.data == newer


async def test_a_store_that_answers_late_is_asked_once_for_note_and_lease(bucket: Bucket):
    (vault, a), (_, b) = host(bucket, "a"), host(bucket, "b")
    vault.up(1)
    theirs = due(bucket)
    async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        bucket.now += BOUND + 60
        bucket.renewed, bucket.requests, bucket.seconds = bucket.now, 0, 15.0
        waits = await asyncio.wait_for(b.decide(theirs), PATIENCE)
        assert (waits.action, waits.reason, bucket.requests) == (RunAction.WAIT, "a has the vault", 2)
        bucket.seconds = 0.0


async def test_a_note_that_was_looked_at_before_it_was_this_hosts_turn_to_begin_counts(bucket: Bucket):
    (vault, a), (_, b) = host(bucket, "a"), host(bucket, "b")
    vault.up(1)
    async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        bucket.now += BOUND + 60
        theirs = due(bucket)
        begins = bucket.now + b.me.stagger
        bucket.now = begins - 3
        await b.look_at_note()
        bucket.now, bucket.renewed = begins + 3, begins
        assert (await b.decide(theirs)).reason == "a has the vault"


async def test_a_put_that_was_overtaken_is_made_again_on_what_is_there(bucket: Bucket):
    vault, a = host(bucket, "a")
    vault.up(3)

    def other() -> None:
        bucket.data, bucket.etag = SharedNote("b", 2).begun("gone", 1.0).as_bytes(), "z"

    bucket.before_put = other
    async with a.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        assert (noted(bucket).host, noted(bucket).sequence) == ("a", 2)
    assert set(noted(bucket).runs) == {"tank"}, "a backup that is not configured stays in it"


async def test_a_host_that_is_not_named_is_refused(bucket: Bucket):
    _, c = host(bucket, "c")
    with pytest.raises(Refused, match="its hosts are a, b, and this one is c"):
        await c.decide(due(bucket))


async def test_a_lease_that_changed_hands_is_not_taken(bucket: Bucket, monkeypatch: pytest.MonkeyPatch):
    _, b = host(bucket, "b")
    taken: list[object] = []

    async def look(_: object) -> list[Any]:
        fence = (SimpleNamespace(argv=["guard", "take", "--of=boot-c"]),)
        return [
            SimpleNamespace(
                slot=DeviceSlot("cold", 0, Path("/run")), holder=SimpleNamespace(who="c", fence=fence)
            )
        ]

    async def take(*words: object) -> None:
        taken.append(words)

    monkeypatch.setattr(module, "list_holders", look)
    monkeypatch.setattr(module, "fence_holders", take)
    assembly: Any = None
    with pytest.raises(Busy, match="changed hands"):
        await b.shut_out(assembly, "boot-a", pytest.fail)
    assert not taken
    b.vault.context.records.undo = SimpleNamespace(drop=taken.append)
    await b.shut_out(assembly, "boot-c", lambda _: None)
    assert len(taken) == 2


class Answers:
    """Stands for the process that asks the store."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.argv: list[list[str]] = []

    async def run(self, argv: list[str], **given: Any) -> Any:
        self.argv.append(argv)
        answer = self.answers.pop(0)
        said = answer if isinstance(answer, str) else json.dumps(answer)
        return SimpleNamespace(stdout=said, complaint=lambda: "no boto3")


async def test_the_store_is_asked_by_a_process_and_each_request_counts():
    config = Config.model_validate(CONFIG)
    runner: Any = Answers(
        {"data": None, "etag": "", "age": None, "asked": {"get": 1}},
        {
            "lease": {"host": "a", "boot": "x", "bound": 20.0, "held": True, "ours": False},
            "etag": "l",
            "age": 3.0,
            "asked": {"get": 1},
        },
        {"etag": None, "asked": {"put": 1}},
        {
            "error": {"kind": "StoreUnreachable", "what": "no answer", "why": "", "next": ""},
            "asked": {"get": 1},
        },
        "Traceback",
    )
    counted: list[dict[str, int]] = []
    note = NoteClient(
        DeviceSlot("cold", 0, Path("/run")), config.vault["cold"].device[0], runner, counted.append
    )
    assert (await note.read()).data is None
    holder = (await note.read_lease()).holder
    assert holder is not None
    assert (holder.host, holder.held) == ("a", True)
    assert await note.put(b"{}", "e1") is None
    with pytest.raises(DeviceGone, match="no answer"):
        await note.read()
    with pytest.raises(Exception, match="cannot be had"):
        await note.read()
    assert counted == [{"get": 1}, {"get": 1}, {"put": 1}, {"get": 1}]
    assert [argv[4] for argv in runner.argv] == ["note", "lease", "put", "note", "note"]
    assert "--etag=e1" in runner.argv[2]
