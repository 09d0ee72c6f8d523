"""zvaultctl prune: what it shows, that it does nothing unasked, and what it leaves in its exit status."""

import json

import pytest

from tests.unit.cli.api_documents import event, finished
from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.prune_limit import PruneExcess
from zvault.core.policy.retention import KeepDecision
from zvault.ops.retention.prune_report import make_excess_document, make_verdict_document

HELD_BACK = make_excess_document("vault", PruneExcess("cold/home", 40, 60, 30))


def verdict(number, side="source", keep=False, **changes):
    snapshot = Snapshot(
        DatasetName("tank/home") if side == "source" else DatasetName("cold/home"),
        f"s{number}",
        number,
        number,
        number,
    )
    judged = KeepDecision(snapshot, keep, "one of the last 3" if keep else "no rule keeps it")
    return make_verdict_document(side, judged, None if keep else 1 << 20) | changes


def prunes(*verdicts, **changes):
    return {
        "backup": "home",
        "vault": "cold",
        "prune": list(verdicts),
        "freed": {"source": 3 << 20, "vault": 0},
        "over_limit": [],
    } | changes


@pytest.fixture
def planned(daemon):
    daemon.documents["GET /v1/prune/home"] = prunes(verdict(1), verdict(2), verdict(3, keep=True))
    daemon.documents["POST /v1/prune/home"] = {"run": "7"}
    daemon.events["7"] = [
        event("run-started", trigger="prune", run="7"),
        event("pruned", side="source", count=2, snapshots=[]),
        finished(run="7", trigger="prune", bytes=0, datasets=0, sent=0, pruned=2, seconds=1.25),
    ]
    return daemon


def posts(daemon):
    return [(asked, body) for asked, _, body in daemon.asked if asked.startswith("POST")]


def test_a_dry_run_shows_reasons_and_what_would_be_freed(planned, ctl):
    said = ctl("prune", "-n", "home")
    assert (said.code, said.err) == (0, "")
    assert said.lines == [
        "to prune: 2 snapshots, which frees 3M on the source",
        "SIDE    SNAPSHOT      BYTES  REASON",
        "source  tank/home@s1     1M  no rule keeps it",
        "source  tank/home@s2     1M  no rule keeps it",
        "to keep: 1 snapshot (-v shows them with the reasons)",
    ]
    assert "tank/home@s3  one of the last 3" in ctl("prune", "-nv", "home").out
    assert posts(planned) == []


def test_without_yes_nothing_happens_and_it_says_how(planned, ctl):
    said = ctl("prune", "home")
    assert said.code == 2
    assert said.err == "nothing was pruned: 'zvaultctl prune home --yes' does it\n"
    assert "'zvaultctl prune home --yes --over-limit' does it" in ctl("prune", "home", "--over-limit").err
    assert posts(planned) == []


def test_dry_run_wins_over_yes(planned, ctl):
    assert ctl("prune", "-n", "--yes", "home").code == 0
    assert posts(planned) == []


def test_with_yes_it_shows_the_plan_and_follows_the_run(planned, ctl):
    said = ctl("prune", "--yes", "home")
    assert said.code == 0
    assert said.lines[-3:] == [
        "run 7 of home (prune)",
        "pruned: 2 snapshots on the source",
        "prune of home ok: 2 snapshots pruned in 1s",
    ]
    assert said.lines[0].startswith("to prune: 2 snapshots")
    assert posts(planned) == [("POST /v1/prune/home", {"over_limit": False})]


def test_over_limit_is_passed_on(planned, ctl):
    ctl("prune", "--yes", "--over-limit", "home")
    assert planned.asked[0][1] == {"over_limit": "1"}
    assert posts(planned) == [("POST /v1/prune/home", {"over_limit": True})]


def test_nothing_to_prune_is_fine_and_starts_nothing(planned, ctl):
    planned.documents["GET /v1/prune/home"] = prunes(verdict(3, keep=True))
    for flags in ((), ("--yes",), ("-n",)):
        said = ctl("prune", "home", *flags)
        assert (said.code, said.lines[0]) == (0, "to prune: nothing")
    assert posts(planned) == []


@pytest.mark.parametrize("flags", [("-n",), ("--yes",)])
def test_what_is_held_back_is_told_and_leaves_1(planned, ctl, flags):
    planned.documents["GET /v1/prune/home"] |= {"over_limit": [HELD_BACK]}
    said = ctl("prune", "home", *flags)
    assert said.code == 1
    assert "prune_limit holds some back for the next runs (--over-limit prunes all):" in said.lines
    assert "  vault  cold/home: 40 of 60 snapshots would go, one run may prune 30" in said.lines


def test_an_unknown_size_is_not_called_nothing(planned, ctl):
    planned.documents["GET /v1/prune/home"] = prunes(
        verdict(1, "vault", bytes=None), freed={"source": 0, "vault": None}
    )
    said = ctl("prune", "-n", "home")
    assert said.lines[0] == "to prune: 1 snapshot, which frees not known how much on the vault"
    assert said.lines[2].split()[2] == "-"


def test_for_scripts(planned, ctl):
    assert ctl("prune", "-nHp", "home").cells[0] == [
        "prune",
        "source",
        "tank/home@s1",
        "1048576",
        "no rule keeps it",
    ]
    assert [row[0] for row in ctl("prune", "-nHv", "home").cells] == ["prune", "prune", "keep"]
    document = json.loads(ctl("prune", "-nj", "home").out)
    assert document["output_version"]["command"] == "zvaultctl prune"
    assert [row["keep"] for row in document["prune"]] == [False, False]
    assert document["freed"] == {"source": 3 << 20, "vault": 0}


def test_json_of_a_run_is_one_document(planned, ctl):
    document = json.loads(ctl("prune", "--yes", "-j", "home").out)
    assert document["run"]["result"] == "ok"
