"""A backup that is due asks for its turn: what it does then, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.unit.events import split_event
from tests.unit.ops.vaults.shared_world import Bucket, due, host
from zvault.api.events import RunEvent
from zvault.core.errors import HeldElsewhere, Refused, TakenOver, ZvaultError
from zvault.core.policy.cron_schedule import parse_every, parse_schedule
from zvault.core.policy.vault_life import VaultLife
from zvault.core.sharing.run_decision import LeaseHolder
from zvault.core.sharing.shared_note import SharedNote
from zvault.core.sharing.shared_note import SharedRunOutcome as NoteOutcome
from zvault.daemon import host_election as module
from zvault.daemon.active_run import ActiveRun
from zvault.daemon.host_election import HostElection, measure_interval
from zvault.ops.run_outcome import RunOutcome
from zvault.ops.vaults.run_permission import RunPermission
from zvault.ops.vaults.vault import Vaults


class Host:
    """A host with its Turns; ``on_pause`` is what happens while it waits."""

    def __init__(self, bucket: Bucket, name: str) -> None:
        self.bucket = bucket
        self.vault, self.shared = host(bucket, name)
        self.vault.context.env.clock.now = lambda: datetime(2026, 1, 1, tzinfo=UTC)
        self.vault.context.env.zone = UTC
        vaults: Any = {"cold": self.vault}
        self.turns = HostElection(self.vault.context, vaults)
        self.turns._shared["cold"] = self.shared
        self.told: list[tuple[str, str]] = []
        self.turned: list[RunPermission] = []
        self.waits: list[str | None] = []
        self.on_pause: Callable[[int], bool] = lambda _: True
        self.fails: list[Exception] = []

    async def run(self, trigger: str = "schedule") -> RunOutcome:
        task: Any = None
        current, outcome = ActiveRun("r", "tank", trigger, task), RunOutcome()

        async def pause(seconds: float) -> bool:
            self.waits.append(current.turn)
            assert len(self.waits) < 200, "it waits for ever"
            self.bucket.now += seconds
            on = self.on_pause(len(self.waits))
            for _ in range(20):
                await asyncio.sleep(0)
            return on

        async def execute(turn: RunPermission) -> None:
            self.turned.append(turn)
            if self.fails:
                outcome.error = self.fails.pop(0)  # type: ignore[assignment]
                outcome.result = "failed"
                return
            self.vault.up(self.vault.epoch + 1)
            async with turn.taken(lambda: 5.0, lambda: True) as needless:
                if needless is not None:
                    outcome.result = "skipped"
            self.vault.down()

        def emit(event: RunEvent) -> None:
            name, fields = split_event(event)
            self.told.append((name, fields["text"]))

        await self.turns.run(self.shared, current, outcome, emit, pause, execute)
        assert current.turn is None
        return outcome


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


@pytest.fixture
def a(bucket: Bucket) -> Host:
    return Host(bucket, "a")


@pytest.fixture
def b(bucket: Bucket) -> Host:
    return Host(bucket, "b")


async def test_one_runs_and_the_other_skips_what_it_did(a: Host, b: Host):
    assert (await a.run()).result == "ok"
    skipped = await b.run()
    assert (skipped.result, skipped.error) == ("skipped", None)
    assert not b.turned
    assert [text for _, text in b.told if text.startswith("skipped: a made run 1")], b.told
    assert b.turns.claimed_lag("tank") == pytest.approx(5.0, abs=120)
    assert b.turns.lag("tank", None) == b.turns.claimed_lag("tank")
    assert b.turns.lag("tank", 1e6) == b.turns.claimed_lag("tank")
    assert a.turns.lag("tank", 7.0) == 7.0


async def test_only_a_run_that_was_done_counts_as_lag_and_what_was_read_is_kept_apart(
    a: Host, b: Host, bucket: Bucket
):
    await a.run()
    await b.run()
    done = b.turns.done_lag("tank")
    assert done == b.turns.claimed_lag("tank") is not None
    assert done == pytest.approx(5.0, abs=120)
    a.vault.up(9)
    for good in (None, False):  # it is under way, and fails with a lag that nobody can have
        bucket.now += 1800
        if good is None:
            run = a.shared.run(due(bucket), lambda: -1e6, lambda: False, pytest.fail)
            await run.__aenter__()
        else:
            await run.__aexit__(None, None, None)
        await b.shared.look_at_note()
        claim = b.turns.claim("tank")
        assert claim is not None
        assert claim.outcome is (NoteOutcome.RUNNING if good is None else NoteOutcome.FAILED)
        assert b.turns.claimed_lag("tank") is not None
        done = b.turns.done_lag("tank")
        assert done == pytest.approx(bucket.now - 1000, abs=120), "it is that of the run that was done"
        assert b.turns.lag("tank", 1e9) == done
    b.vault.up(10)
    async with b.shared.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        assert b.turns.done_lag("tank") == done
    assert b.turns.done_lag("tank") is None, "what this host did itself it has read"


@pytest.mark.parametrize("lag", [-2.5e11, -1.0, 0.0])
async def test_no_claimed_lag_is_less_than_the_time_since_the_run_ended(b: Host, bucket: Bucket, lag: float):
    note = SharedNote("a", 1).begun("tank", 1.0).finished("tank", 2.0, done=True, lag=lag)
    bucket.data, bucket.etag, bucket.put_at = note.written("a", 1, 1000.0).as_bytes(), "x", bucket.now - 500
    await b.shared.look_at_note()
    assert b.turns.done_lag("tank") == b.turns.claimed_lag("tank") == 1500.0


async def test_the_next_time_is_another_time(a: Host, b: Host, bucket: Bucket):
    for number in range(3):
        assert (await a.run()).result == "ok"
        assert (await b.run()).result == "skipped"
        assert b.turns._settled["tank"].number == number + 1
        bucket.now += 3500


async def test_what_somebody_asks_for_is_made_though_another_did_it(a: Host, b: Host):
    await a.run()
    assert (await b.run("hand")).result == "ok"
    assert len(b.turned) == 1


async def test_it_waits_for_who_has_it_and_tells_that_once(a: Host, b: Host, bucket: Bucket):
    a.vault.up(1)
    taken = a.shared.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail)
    await taken.__aenter__()

    def ends(number: int) -> bool:
        bucket.renewed = bucket.now
        if number == 40:
            asyncio.get_running_loop().create_task(taken.__aexit__(None, None, None))
        return True

    b.on_pause = ends
    assert (await b.run()).result == "skipped"
    assert [text for _, text in b.told if "a has the vault" in text] == ["waits: a has the vault"]
    assert "a has the vault" in b.waits


async def test_who_was_slower_waits_and_asks_again(a: Host, b: Host, bucket: Bucket):
    b.fails = [HeldElsewhere("the device is held by a")]
    assert (await b.run()).result == "ok"
    assert len(b.turned) == 2


async def test_who_was_slower_goes_by_the_lease_however_long_a_look_takes(b: Host, bucket: Bucket):
    """The note says that nobody has the vault: its last writer gave it back, or somebody has it up by hand."""
    bucket.holder, bucket.renewed = LeaseHolder("a", "boot-a", 300.0), bucket.now
    b.fails = [HeldElsewhere("the device is held by a")]
    bucket.seconds = 15.0
    assert (await b.run()).result == "ok"
    assert [turn.of for turn in b.turned] == ["", "boot-a"], "it asked again while another had it"
    assert "waits: a has the vault" in [text for _, text in b.told]


@pytest.mark.parametrize("error", [HeldElsewhere("the device is held by a"), TakenOver("it was another's")])
async def test_a_vault_that_cannot_be_had_is_asked_for_in_peace_and_not_for_ever(
    a: Host, bucket: Bucket, error: ZvaultError
):
    """Whatever note and lease say: where that does not agree with who gets the vault, the run fails in the end."""
    a.fails = [error] * 100
    began = bucket.now
    outcome = await a.run()
    assert (outcome.result, outcome.error) == ("failed", error)
    assert 2 <= len(a.turned) <= 5
    assert bucket.now - began >= 60 * (len(a.turned) - 1), "it asked again at once"


async def test_another_failure_is_the_runs(a: Host):
    a.fails = [Refused("not this")]
    outcome = await a.run()
    assert (outcome.result, len(a.turned)) == ("failed", 1)


async def test_a_store_that_does_not_answer_is_asked_again_and_told_of_once(a: Host, bucket: Bucket):
    bucket.away = True

    def back(number: int) -> bool:
        bucket.away = number < 20
        return True

    a.on_pause = back
    assert (await a.run()).result == "ok"
    assert len([text for _, text in a.told if "it is not known whose turn it is" in text]) == 1
    assert bucket.requests < 20


async def test_who_was_cut_off_waits_until_it_has_cleaned_up(a: Host, bucket: Bucket):
    a.vault.life = VaultLife.LOST

    def cleans(number: int) -> bool:
        assert bucket.requests == 0
        if number == 5:
            a.vault.life = VaultLife.DOWN
        return True

    a.on_pause = cleans
    assert (await a.run()).result == "ok"
    assert len(a.waits) >= 5


async def test_a_new_run_takes_over_from_one_that_waits(a: Host, b: Host, bucket: Bucket):
    a.vault.up(1)
    b.on_pause = lambda _: False
    async with a.shared.run(due(bucket), lambda: 1.0, lambda: True, pytest.fail):
        assert (await b.run()).result == "skipped"
    assert ("message", "skipped: a new run takes over") in b.told


async def test_a_host_that_stopped_is_taken_over_from(a: Host, b: Host, bucket: Bucket):
    a.vault.up(1)

    async def broken_off() -> None:
        async with a.shared.run(due(bucket), lambda: None, lambda: True, pytest.fail):
            await asyncio.sleep(3600)

    run = asyncio.ensure_future(broken_off())
    for _ in range(10):
        await asyncio.sleep(0)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    began = bucket.now
    assert (await b.run()).result == "ok"
    (turn,) = b.turned
    assert turn.of == "boot-a"
    assert bucket.now - began <= 300 + 60
    assert [text for kind, text in b.told if kind == "warning" and "taking vault cold over" in text]


def test_only_vaults_that_hosts_share_have_turns(a: Host):
    assert a.turns.of("home") is None
    assert a.turns.of("nothing") is None
    assert a.turns.lag("home", 3.0) == 3.0
    assert [shared.name for shared in a.turns.all()] == ["cold"]
    assert dict(a.turns.periods()) == {"tank": 3600.0}


@pytest.mark.parametrize(
    ("schedule", "now", "seconds"),
    [
        ("daily", "2026-03-30 12:00", 82800.0),  # the clock went forward
        ("daily", "2026-07-01 12:00", 86400.0),
        ("hourly", "2026-07-01 12:30", 3600.0),
        ("weekly", "2026-07-01 12:00", 7 * 86400.0),
        ("monthly", "2026-07-02 12:00", 30 * 86400.0),
    ],
)
def test_seconds_between_two_due_moments(schedule: str, now: str, seconds: float):
    zone = ZoneInfo("Europe/Berlin")
    at = datetime.fromisoformat(now).replace(tzinfo=zone)
    assert measure_interval(parse_schedule(schedule), at, zone) == seconds


def test_seconds_between_of_an_interval():
    assert measure_interval(parse_every("90m"), datetime(2026, 1, 1, tzinfo=UTC), UTC) == 5400.0


# Snapshots at their own time


@pytest.mark.parametrize(
    ("name", "age", "made"),
    [
        ("a", 3600, True),
        ("a", 10, False),
        ("b", 3600 + module.STAGGER, True),
        ("b", module.STAGGER, False),
        ("b", None, True),
        ("c", 1799, False),
        ("c", 1801, True),
    ],
)
async def test_of_hosts_that_share_a_vault_one_makes_the_snapshots(
    name: str, age: float | None, made: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each a little later than the one before it, and only where none was made meanwhile."""
    waited: list[float] = []
    now = datetime(2026, 1, 1, tzinfo=UTC)

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def last(_: object) -> datetime | None:
        return now - timedelta(seconds=age) if age is not None else None

    backup = SimpleNamespace(snapshot=SimpleNamespace(timetable=parse_schedule("hourly")))
    env = SimpleNamespace(backup=lambda _: backup, clock=SimpleNamespace(now=lambda: now), zone=UTC)
    context: Any = SimpleNamespace(env=env)
    turns = HostElection(context, Vaults(context))
    shared = SimpleNamespace(host=name, vault=SimpleNamespace(config=SimpleNamespace(hosts=["a", "b", "c"])))
    monkeypatch.setattr(turns, "of", lambda _: shared)
    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))
    assert (await turns.snapshot_made("tank", last) is None) == made
    assert waited == [module.STAGGER * "abc".index(name)]
    monkeypatch.setattr(turns, "of", lambda _: None)
    assert await turns.snapshot_made("tank", last) is None, "the vault is this host's alone"
