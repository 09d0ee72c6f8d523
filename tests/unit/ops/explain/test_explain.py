"""What is explained is what planner, retention and selection decide, whatever the two sides hold."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.unit.api.conforms import wrong
from tests.unit.examples import cases
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    context,
    dataset,
    snap,
    snapname,
    tree,
    with_source,
    with_vault,
)
from zvault.api.explain import AccountDocument, ExplainDocument
from zvault.core.errors import HostUnreachable, NotFound
from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.core.integrity.damage import Damage
from zvault.core.model import Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import KEEP_HOLD, hold_tag
from zvault.core.replication.plan_model import Interrupted, sent_by
from zvault.core.replication.sent_reason import blocker
from zvault.ops.context import Context
from zvault.ops.explain.document import explain_document
from zvault.ops.explain.knowledge import NoDaemon, Pruned
from zvault.ops.health import health_document
from zvault.ops.replication.sides_and_plan import look, plan_all
from zvault.ops.retention.prune import without_stuck
from zvault.ops.retention.prune_plan import plan_prune
from zvault.ops.state.pool_health import Condition

POOL = 0xC01D
NAMES = ("tank", "tank/a", "tank/b")


class ReadOnly:
    """A side that can only be looked at; ``held`` are the tags of its snapshots."""

    def __init__(self, there: Tree, held: dict[str, set[str]]) -> None:
        self.host = self
        self.there, self.held = there, held

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        assert argv[1] in {"list", "get"}
        return SimpleNamespace(returncode=0, stdout="")

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        return self.there

    tree_or_none = tree

    async def exists(self, name: str) -> bool:
        return name in self.there.datasets

    async def get(self, _: str, prop: str) -> dict[str, str]:
        return {prop: "1"}

    async def interrupted(self, token: str) -> Interrupted:
        return Interrupted(token, 101)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: set(self.held[name]) for name in names if name in self.held}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}


def world(
    source: Tree, vault: Tree | None, held: dict[str, set[str]] | None = None, **backup: Any
) -> Context:
    """At hour 30."""
    where = context(START + 30 * HOUR, **backup)
    with_source(where, ReadOnly(source, held or {}))

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=POOL) if vault is not None else None

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    return where if vault is None else with_vault(where, ReadOnly(vault, held or {}))


async def explained(where: Context, name: str, knowledge: Any = None) -> ExplainDocument:
    found = await explain_document(where, knowledge or NoDaemon(), name)
    assert list(wrong(found, ExplainDocument)) == []
    return found


def reason(account: AccountDocument, topic: str, side: str | None = None) -> tuple[str, str]:
    (one,) = [one for one in account["reasons"] if (one["topic"], one["side"]) == (topic, side)]
    return one["state"], one["why"]


# Whatever there is: the same decisions, asked of those who make them.

POINTS = st.lists(
    st.tuples(st.integers(1, 25), st.sampled_from(["", "", "", "by-hand-"])),
    max_size=9,
    unique_by=lambda one: one[0],
)
KEEP = st.fixed_dictionaries(
    {}, optional={"last": st.integers(1, 3), "hourly": st.integers(1, 4), "daily": st.integers(1, 2)}
)


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, Tree, dict[str, set[str]]]:
    """Two sides that share some snapshots, with holds on some of them."""
    sources, vaults, held = [], [], {}
    for name in NAMES:
        there = f"cold/host/{name}"
        points = [
            snap(number, name, name=f"{foreign}{number}" if foreign else None)
            for number, foreign in sorted(draw(POINTS))
        ]
        came = [one for one in points if draw(st.booleans())]
        left = [one for one in points if one not in came or draw(st.booleans())]
        sources.append(dataset(name, *left, written=draw(st.sampled_from([0, 4096]))))
        copies = [snap(one.guid - 100, there, name=one.snapname) for one in came]
        if draw(st.integers(0, 4)) == 0:
            copies.append(snap(28, there, name="local"))
        if copies or draw(st.booleans()):
            vaults.append(dataset(there, *copies, written=draw(st.sampled_from([0, 0, 4096]))))
        for one in (*left, *copies):
            if draw(st.integers(0, 5)) == 0:
                held[one.name] = {draw(st.sampled_from(["mine", hold_tag(POOL), KEEP_HOLD]))}
    return tree(*sources), tree(*vaults), held


@settings(max_examples=cases(150))
@given(
    trees(),
    KEEP,
    KEEP,
    st.sampled_from(["all", "newest"]),
    st.sampled_from(["stop", "rollback", "new-dataset"]),
    st.sampled_from([[], ["tank/a"], ["tank/**"]]),
    st.sampled_from([[], ["by-hand-*"]]),
    st.sampled_from(["50%", "100%"]),
)
async def test_what_is_explained_is_what_is_decided(  # noqa: PLR0917
    sides: tuple[Tree, Tree, dict[str, set[str]]],
    here: dict[str, int],
    there: dict[str, int],
    backlog: str,
    on_conflict: str,
    exclude: list[str],
    also: list[str],
    limit: str,
) -> None:
    source, vault, held = sides
    where = world(
        source, vault, held,
        keep={"source": here, "vault": there},
        **{"backlog": backlog, "on_conflict": on_conflict, "exclude": exclude, "also": also, "prune_limit": limit},
    )  # fmt: skip
    backup = where.env.backup("b")
    seen = await look(where, backup, where.clients.vault_of(backup))
    plans = {plan.dataset: plan for plan in await plan_all(where, backup, seen)}
    waiting = {name for name, plan in plans.items() if blocker(plan, plans) is not None}
    verdicts = {}
    for plan in plan_prune(where, backup, seen):
        side = where.clients.source_of(backup) if plan.side == "source" else where.clients.vault_of(backup)
        verdicts |= {one.snapshot.name: one for one in (await without_stuck(side, plan)).verdicts}
    for one in source:
        (account,) = (await explained(where, one.name))["accounts"]
        assert (account["takes"], reason(account, "selected")[0] == "yes") == ((one.name in plans),) * 2
        if (planned := plans.get(one.name)) is not None:
            state, why = reason(account, "sent")
            assert state == planned.action
            assert why.startswith(planned.reason)
            event(state)
        for point in one.snapshots:
            _agrees(
                (await explained(where, point.name))["accounts"][0],
                point,
                planned,
                seen,
                verdicts,
                one,
                waiting,
            )
    for one in vault:
        for point in one.snapshots:
            (account,) = (await explained(where, point.name))["accounts"]
            assert reason(account, "there", "vault")[0] == "yes"
            _judged(account, verdicts.get(point.name), "vault")


def _agrees(
    account: Any, point: Snapshot, planned: Any, seen: Any, verdicts: Any, of: Any, waiting: Any
) -> None:
    _judged(account, verdicts.get(point.name), "source")
    if planned is None:
        return
    copy = seen.counterparts.get(of.name)
    there = copy is not None and any(one.guid == point.guid for one in copy.snapshots)
    goes = any(one.guid == point.guid for step in planned.steps for one in sent_by(step, of.snapshots))
    state, _ = reason(account, "sent")
    assert (state == "there") == there
    assert there or (state == "to be sent") == (goes and of.name not in waiting)
    event(state)


def _judged(account: Any, verdict: Any, side: str) -> None:
    told = [one for one in account["reasons"] if (one["topic"], one["side"]) == ("kept", side)]
    assert [(one["state"] == "kept", one["why"]) for one in told] == (
        [(verdict.keep, verdict.reason)] if verdict is not None else []
    )
    if told:
        event(f"{side}: {told[0]['state']}")


# Single stories


def shared() -> tuple[Tree, Tree]:
    """The vault has hours 1 to 3, the source 2 to 4."""
    vault = dataset("cold/host/tank", *(snap(number, "cold/host/tank") for number in (1, 2, 3)))
    return tree(dataset("tank", *(snap(number) for number in (2, 3, 4)))), tree(vault)


async def test_a_dataset_with_a_lag_and_its_cause() -> None:
    where = world(*shared(), max_lag="3h")
    (account,) = (await explained(where, "tank"))["accounts"]
    assert reason(account, "sent") == (
        "incremental",
        f"the newest snapshot both sides share is {snapname(3)}",
    )
    state, why = reason(account, "lag")
    assert state == "1d 3h (max_lag is 3h)"
    assert f"the vault has @{snapname(3)}" in why
    assert "the source has 1 newer one; it is sent when a run is started by hand" in why
    assert reason(account, "snapshot") == ("yes", "each run makes one of every dataset that it takes")
    assert reason(account, "last run")[0] == "unknown"


async def test_by_its_name_on_the_vault_it_is_the_same_dataset() -> None:
    where = world(*shared())
    here, there = await explained(where, "tank"), await explained(where, "cold/host/tank")
    assert here["accounts"] == there["accounts"]
    assert here["accounts"][0]["dataset"] == "tank"


async def test_what_no_backup_covers() -> None:
    where = world(tree(*shared()[0], dataset("pond")), shared()[1])
    found = await explained(where, "pond")
    assert (found["uncovered"], found["accounts"]) == ("it lies in no backup's source: tank", [])
    with pytest.raises(NotFound, match="there is no dataset or snapshot 'pool/nope'"):
        await explained(where, "pool/nope")
    for odd in ("-x", "", "tank@", "tank@a@b", "tank@a\0b", "tank@a\nb", "tank#mark", "ssh://filer1/tank"):
        with pytest.raises(NotFound, match="is no name"):
            await explained(where, odd)


async def test_an_excluded_dataset_says_by_which_pattern() -> None:
    source, vault = shared()
    where = world(tree(*source, dataset("tank/a", snap(1, "tank/a"))), vault, exclude=["tank/a"])
    found = await explained(where, "tank/a")
    assert found["uncovered"] == "none of the backups that read there takes tank/a"
    assert reason(found["accounts"][0], "selected") == ("no", "'tank/a' in exclude matches it")
    assert reason(found["accounts"][0], "kept", "source")[0] == "all kept"


async def test_who_holds_a_snapshot() -> None:
    source, vault = shared()
    held = {f"tank@{snapname(3)}": {hold_tag(POOL), "mine"}, f"cold/host/tank@{snapname(3)}": {KEEP_HOLD}}
    (account,) = (await explained(world(source, vault, held), f"tank@{snapname(3)}"))["accounts"]
    assert reason(account, "base")[0] == "yes"
    state, why = reason(account, "held", "source")
    assert state == "yes"
    assert "zvault holds it for a vault whose pool has the GUID c01d" in why
    assert f"held by mine ('zfs release mine tank@{snapname(3)}' releases it)" in why
    assert reason(account, "held", "vault") == ("yes", "zvault holds it: the newest of cold/host/tank")


class Told(NoDaemon):
    """A daemon that knows of one pruned snapshot, of a failed dataset, and of a vault that it saw at hour 5."""

    known = True

    def pruned(self, snapshot: str) -> list[Pruned]:
        return [Pruned("r7", "b", "source", START + 6 * HOUR)] if snapshot == f"tank@{snapname(1)}" else []

    def vault_seen(self, _: Any) -> float:
        return START + 5 * HOUR

    def last_run(self, _: Any) -> Any:
        return {"id": "r8", "started": START + 7 * HOUR, "result": "partial", "error": None}

    def failed(self, run: str, name: str) -> Any:
        assert run == "r8"
        return (
            {"reason": "x", "what": "the stream broke", "why": "no route", "next": "mend it"}
            if name
            else None
        )

    def verdicts(self, _: Any) -> Any:
        return [("backup", health_document(judge_backup(BackupFacts("b", "partial"))))]

    def unhealed(self, _: str, damage: Damage) -> str:
        return "nobody has it any more"


async def test_a_snapshot_that_is_gone_is_told_by_the_history() -> None:
    source, vault = shared()
    where = world(source, vault)
    (account,) = (await explained(where, f"tank@{snapname(1)}", Told()))["accounts"]
    assert reason(account, "there", "source")[1] == "run r7 of b pruned it 2026-11-18 17:06: no rule kept it"
    assert reason(account, "there", "vault") == ("yes", f"as cold/host/tank@{snapname(1)}")
    (account,) = (await explained(where, "tank@never", Told()))["accounts"]
    assert reason(account, "there", "source") == ("no", "there is no record of zvault having pruned it")
    assert reason(account, "there", "vault")[0] == "no"


async def test_a_dataset_that_the_last_run_left_out() -> None:
    (account,) = (await explained(world(*shared()), "tank", Told()))["accounts"]
    assert "the last run left it out: the stream broke: no route" in reason(account, "lag")[1]
    assert reason(account, "last run")[0] == "partial"
    assert [one["next"] for one in account["reasons"] if one["topic"] == "last run"] == ["mend it"]
    assert any(one["topic"] == "backup" and one["state"] == "partial" for one in account["reasons"])


async def test_of_a_vault_that_is_down_it_says_what_it_does_not_know_and_since_when() -> None:
    where = world(shared()[0], None)
    (account,) = (await explained(where, "tank", Told()))["accounts"]
    down = "vault cold is down; it was last looked at 2026-11-18 16:06"
    assert (account["vault_seen"], account["vault_seen_at"]) == (False, START + 5 * HOUR)
    assert reason(account, "selected")[0] == "yes"
    assert reason(account, "snapshot")[0] == "yes"
    for topic, side in (("sent", None), ("kept", "source")):
        state, why = reason(account, topic, side)
        assert state == "unknown"
        assert why.startswith(down)
    (account,) = (await explained(where, f"tank@{snapname(2)}", Told()))["accounts"]
    assert reason(account, "there", "source")[0] == "yes"
    assert reason(account, "there", "vault") == ("unknown", down)
    assert reason(account, "sent")[0] == reason(account, "kept", "source")[0] == "unknown"
    (account,) = (await explained(where, "tank"))["accounts"]
    assert "nobody has looked at it yet" in reason(account, "sent")[1]


async def test_a_source_that_cannot_be_listed_leaves_what_the_patterns_say() -> None:
    where = world(*shared(), exclude=["tank/a"])

    async def lost(*_: Any, **__: Any) -> Tree:
        raise HostUnreachable("filer1 does not answer", "no route to host", "mend the network")

    where.clients.source_of(where.env.backup("b")).tree = lost  # type: ignore[method-assign]
    found = await explained(where, "tank")
    assert (found["uncovered"], found["accounts"][0]["takes"]) == ("", None)
    assert reason(found["accounts"][0], "selected") == ("unknown", "filer1 does not answer: no route to host")
    assert reason((await explained(where, "tank/a"))["accounts"][0], "selected")[0] == "no"


async def test_what_is_damaged_and_why_it_stays() -> None:
    where = world(*shared())
    hurt = Damage("cold/host/tank", snapname(2), "/docs/a")
    where.records.conditions._known["cold"] = Condition(START + 8 * HOUR, damages=(hurt,), errors=1)
    (account,) = (await explained(where, f"tank@{snapname(2)}", Told()))["accounts"]
    state, why = reason(account, "damage", "vault")
    assert state == "1 damaged"
    assert why == "/docs/a; as seen 2026-11-18 19:06; nobody has it any more"
    (account,) = (await explained(where, f"tank@{snapname(3)}", Told()))["accounts"]
    assert reason(account, "damage", "vault")[0] == "none known"


async def test_what_only_the_vault_has() -> None:
    source, vault = shared()
    gone = dataset("cold/host/tank/old", snap(1, "cold/host/tank/old"))
    aside = dataset("cold/host/tank/x_zvault-conflict-20261121T090000Z", snap(2, "cold/host/tank/x"))
    where = world(source, tree(*vault, gone, aside), keep={"gone": {"last": 1}})
    (account,) = (await explained(where, "tank/old"))["accounts"]
    assert reason(account, "selected") == (
        "no",
        "its source is gone: what the vault has of it is kept by keep.gone",
    )
    assert reason(account, "kept", "vault")[0] == "1 of 1 kept"
    (account,) = (await explained(where, aside.name))["accounts"]
    assert "set aside" in reason(account, "selected")[1]
    assert account["dataset"] is None
    assert account["vault_dataset"] == DatasetName(aside.name)


async def test_a_backup_without_a_vault_sends_nothing_and_prunes() -> None:
    there = dataset("tank", snap(1, "tank"), snap(2, "tank"), snap(3, "tank"))
    where = world(tree(there), None, snapshots_only=True, keep={"source": {"last": 2}})
    (account,) = (await explained(where, "tank"))["accounts"]
    assert (account["vault"], account["vault_dataset"], account["takes"]) == (None, None, True)
    assert reason(account, "sent") == (
        "no",
        "the backup makes snapshots only (snapshots_only): it sends nothing anywhere",
    )
    assert reason(account, "kept", "source")[0] == "2 of 3 kept"
    assert not [
        one for one in account["reasons"] if one["topic"] in {"lag", "damage"} or one["side"] == "vault"
    ]
    (account,) = (await explained(where, f"tank@{snapname(1)}"))["accounts"]
    assert reason(account, "there", "source")[0] == "yes"
    assert reason(account, "sent")[0] == "no"
    assert reason(account, "kept", "source") == ("to be pruned", "no rule keeps it")
    assert not [one for one in account["reasons"] if one["side"] == "vault"]
    (account,) = (await explained(where, f"tank@{snapname(9)}"))["accounts"]
    assert reason(account, "there", "source")[0] == "no"
    assert not [one for one in account["reasons"] if one["side"] == "vault"]
