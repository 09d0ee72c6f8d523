"""What is explained of a dataset or a snapshot, case by case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.unit.ops.explain.explain_world import POOL, explained, reason, world
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    dataset,
    snap,
    snapname,
    tree,
)
from zvault.core.errors import HostUnreachable, NotFound
from zvault.core.health.backup import BackupFacts, judge_backup
from zvault.core.integrity.damage import DamagedFile
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import KEEP_HOLD, make_hold_tag
from zvault.ops.explain.knowledge import NoDaemon, PrunedSnapshot
from zvault.ops.state.pool_health import PoolCondition
from zvault.ops.vault_facts import make_health_document


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


async def test_what_cannot_be_listed_is_not_said_to_be_absent() -> None:
    cut = {DatasetName("tank/bad"): "I/O error"}
    source, vault = shared()
    where = world(replace(source, unlisted=cut), vault)
    for name in ("tank/bad", "tank/bad/below", "cold/host/tank/bad"):
        found = await explained(where, name)
        (account,) = found["accounts"]
        assert (account["takes"], found["uncovered"]) == (None, "")
        state, why = reason(account, "selected")
        assert (state, "tank/bad cannot be listed (I/O error)" in why) == ("unknown", True)
    assert reason((await explained(where, "tank"))["accounts"][0], "sent")[0] == "incremental"
    source = tree(*source, dataset("tank/bad", snap(1, "tank/bad")))
    where = world(source, replace(vault, unlisted={DatasetName("cold/host/tank/bad"): "I/O error"}))
    for name in ("tank/bad", "cold/host/tank/bad"):
        state, why = reason((await explained(where, name))["accounts"][0], "selected")
        assert (state, "cold/host/tank/bad on the vault cannot be listed" in why) == ("unknown", True)


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
    held = {
        f"tank@{snapname(3)}": {make_hold_tag(POOL), "mine"},
        f"cold/host/tank@{snapname(3)}": {KEEP_HOLD},
    }
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

    def pruned(self, snapshot: str) -> list[PrunedSnapshot]:
        return (
            [PrunedSnapshot("r7", "b", "source", START + 6 * HOUR)]
            if snapshot == f"tank@{snapname(1)}"
            else []
        )

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
        return [("backup", make_health_document(judge_backup(BackupFacts("b", "partial"))))]

    def unhealed(self, _: str, damage: DamagedFile) -> str:
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


async def test_of_a_disk_that_is_away_it_says_that_it_has_to_be_plugged_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zvault.ops.removable_disk.has_label_link", lambda _: False)
    where = world(shared()[0], None)
    config = where.env.config
    usb = config.vault["cold"].model_copy(update={"removable": True})
    where.env.reconfigure(config.model_copy(update={"vault": {"cold": usb}}))
    (account,) = (await explained(where, "tank", Told()))["accounts"]
    (sent,) = (one for one in account["reasons"] if one["topic"] == "sent")
    assert sent["why"].startswith("vault cold is away, its disk unplugged; it was last looked at ")
    assert sent["next"] == "plug its disk in, then 'zvaultctl plan b' brings it up to look"


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
    hurt = DamagedFile("cold/host/tank", snapname(2), "/docs/a")
    where.records.conditions._known["cold"] = PoolCondition(START + 8 * HOUR, damages=(hurt,), errors=1)
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
