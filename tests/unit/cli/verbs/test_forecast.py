"""zvaultctl run -n: what it shows, what its exit status says, and that it starts nothing."""

import pytest

from tests.unit.cli.verbs.test_prune import verdict


def planned(**changes):
    return {
        "dataset": "tank/home",
        "vault_dataset": "cold/home",
        "action": "incremental",
        "written": 2048,
        "steps": [
            {"kind": "incremental", "from": "a", "to": "b", "bytes": 2048, "reason": "the snapshot after a"}
        ],
        "changes": [],
        "reason": "the newest snapshot both sides share is a",
        "next": "",
        "encryption": "in the clear",
    } | changes


def forecast(**changes):
    return {
        "backup": "home",
        "vault": "cold",
        "prune": [verdict(1)],
        "freed": {"source": 1 << 20},
        "over_limit": [],
        "datasets": [planned()],
        "excluded": [],
        "gone": [],
        "snapshot": "zvault_2026-11-21T09:00:00Z",
        "snapshotted": ["tank/home"],
        "not_snapshotted": [],
        "vault_seen": True,
        "refused": None,
        "not_foreseen": [],
    } | changes


@pytest.fixture
def shown(daemon, ctl):
    def show(*argv, **changes):
        daemon.documents["GET /v1/forecast/home"] = forecast(**changes)
        said = ctl("run", "-n", "home", *argv)
        assert [asked for asked, *_ in daemon.asked if asked.startswith("POST")] == []
        return said

    return show


def test_it_tells_snapshot_sending_and_pruning(shown):
    said = shown()
    assert (said.code, said.err) == (0, "")
    assert said.lines[0] == "a run of home into vault cold would now do this; nothing was touched"
    assert "snapshot: @zvault_2026-11-21T09:00:00Z of 1 dataset" in said.lines
    assert "to send: 2K (1 incremental)" in said.lines
    assert "to prune: 1 snapshot, which frees 1M on the source" in said.lines


def test_a_conflict_is_trouble(shown):
    row = planned(action="conflict", steps=[], reason="no base", next="rename it")
    said = shown(datasets=[row])
    assert said.code == 1
    assert "rename it" in said.out


def test_a_vault_that_is_down_is_unknown(shown):
    row = planned(action="unknown", steps=[])
    said = shown(datasets=[row], vault_seen=False, prune=[], freed={})
    assert said.code == 3
    assert "vault cold is down, so what it has is not known" in said.out
    assert "to prune" not in said.out
    assert "to send" not in said.out


def test_why_no_run_could_start(shown):
    said = shown(refused="run 7 of it is under way")
    assert (said.code, said.err) == (2, "no run could start now: run 7 of it is under way\n")


def test_without_a_snapshot(shown, daemon):
    assert "snapshot: none" in shown("--no-snapshot", snapshot=None, snapshotted=[]).out
    assert daemon.asked[-1][1] == {"snapshot": "0"}


def test_as_a_document(shown):
    said = shown("-j")
    assert said.code == 0
    assert '"snapshotted": ["tank/home"]' in said.out.replace("\n", "").replace("  ", "")
