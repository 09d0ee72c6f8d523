"""verify, find and restore as a person calls them: what is asked of the daemon, and what is shown."""

from functools import partial

import pytest

from tests.unit.cli.api_documents import backup, event, finished
from zvault.cli.health_text import find_proven_time, find_state_word, is_well
from zvault.core.address import Source
from zvault.core.integrity.file_versions import FileVersion
from zvault.core.integrity.verification import TreeEntry
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.replication.restore_order import Restoration, RestoreStream
from zvault.ops.restore.find_files import make_version_document
from zvault.ops.restore.plan_restore import DatasetWork, RestorePlan, RestoreRequest
from zvault.ops.restore.restore_files import FilesPlan, FilesRequest

S1, S3 = (Snapshot(DatasetName("cold/tank/home"), f"s{number}", number, number, number) for number in (1, 3))
THESIS = TreeEntry(1, "f", "644", "root", 9 << 20, "1790000000.5", b"docs/thesis.pdf")
VERSION = make_version_document("home", "tank/home", FileVersion(THESIS.path, THESIS, S1, S3, 3))

HOME = Dataset(DatasetName("cold/tank/home"), 1, "filesystem", snapshots=(S1,))
RESTORATION = Restoration(HOME, "tank/home_zvault-restore", (RestoreStream(S1),))
PLAN = RestorePlan(
    Source("tank/home"),
    (DatasetWork(RESTORATION, RESTORATION.streams, (1 << 20,), "resume"),),
    skipped=("cold/tank/home/new",),
    available=5 << 30,
    lost=("tank/home: 9M, of it 1M written since @s1",),
).document()


def test_find(daemon, ctl):
    daemon.documents["POST /v1/find"] = {"versions": [VERSION], "unread": {}}
    said = ctl("find", "home", "thesis*", "--at", "2026-11-21T09:30:00.5Z")
    assert said.code == 0
    assert said.lines[1].split()[:3] == ["tank/home", "docs/thesis.pdf", "9M"]
    assert daemon.asked[0][2] == {
        "backup": "home",
        "pattern": "thesis*",
        "dataset": None,
        "at": 1_795_253_400.5,
    }
    assert ctl("find", "home", "x", "-Hpo", "size,last").out == f"{9 << 20}\ts3\n"
    daemon.documents["POST /v1/find"] = {"versions": [], "unread": {"tank/secret": "its key is not loaded"}}
    said = ctl("find", "home", "nothing")
    assert said.code == 1
    assert "tank/secret was not searched: its key is not loaded" in said.err


def test_a_replacement_is_shown_and_wants_a_yes(daemon, ctl):
    daemon.documents["POST /v1/restore/plan"] = PLAN
    said = ctl("restore", "home", "tank/home@s1", "tank/home", "--replace")
    assert said.code == 1
    assert [asked for asked, _, _ in daemon.asked] == ["POST /v1/restore/plan"]
    assert "nothing was done" in said.err
    assert said.lines[1].split() == ["cold/tank/home", "s1", "tank/home_zvault-restore", "resume", "1M"]
    assert said.lines[2] == "1M to send; 5G are free there"
    assert said.lines[3] == "left out: cold/tank/home/new: it has no such snapshot"
    assert "  tank/home: 9M, of it 1M written since @s1" in said.lines
    assert ctl("restore", "home", "tank/home@s1", "tank/home", "--replace", "-n").code == 0


TAKES = {
    "seconds": 100.0,
    "bytes": 1 << 20,
    "rate": 1e6,
    "measured": 1_790_000_000.0,
    "measured_by": "drill",
    "measured_bytes": 1 << 30,
    "told": "1m 40s at 1M/s, by the drill of 3d ago",
}


def test_a_dry_run_says_how_long_it_takes(daemon, ctl):
    daemon.documents["POST /v1/restore/plan"] = PLAN | {"time": TAKES}
    assert "time to restore: 1m 40s at 1M/s, by the drill of 3d ago" in ctl("restore", *HERE, "-n").lines
    unknown = TAKES | {"seconds": None, "rate": None, "told": "unknown: 'zvaultctl verify home' measures it"}
    daemon.documents["POST /v1/restore/plan"] = PLAN | {"time": unknown}
    said = ctl("restore", *HERE, "-n").lines
    assert "time to restore: unknown: 'zvaultctl verify home' measures it" in said
    # Where all is there already nothing takes any time.
    daemon.documents["POST /v1/restore/plan"] = PLAN | {"time": TAKES | {"bytes": 0}}
    assert not [line for line in ctl("restore", *HERE, "-n").lines if line.startswith("time to")]


HERE = ("home", "tank/home@s1", "tank/home")


def test_files_go_into_folders_only(daemon, ctl):
    daemon.documents["POST /v1/restore/plan"] = FilesPlan(S1, (b"docs", b"a"), (b"a",), 3, 10, 1, 4).document(
        FilesRequest(RestoreRequest("home", "tank/home", None, "/rescue"), ("docs", "a"))
    )
    said = ctl("restore", "home", "tank/home", "/rescue", "--file", "docs", "--file", "a", "-n")
    assert said.code == 0
    assert said.lines[:3] == [
        "3 files, 10B, from cold/tank/home@s1 to /rescue",
        "  1 file there already, as in the snapshot: only compared",
        "  is there already: a",
    ]
    assert daemon.asked[0][2]["files"] == ["docs", "a"]
    assert ctl("restore", "home", "tank/home", "tank/new", "--file", "a").code == 2
    assert ctl("restore", "home", "tank/home@s1", "tank/new", "--at", "2d ago").code == 2


@pytest.mark.parametrize("empty", [("--at", ""), ("--vault-at", ""), ("--at", " ")])
def test_an_empty_time_is_not_taken_for_none(daemon, ctl, empty):
    for words in (
        ("restore", "home", "tank/home", "/rescue"),
        ("mount", "home", "tank/home", "/mnt/x"),
        ("find", "home", "x"),
    ):
        if words[0] == "find" and empty[0] == "--vault-at":
            continue
        said = ctl(*words, *empty)
        assert said.code == 2
        assert "is not a time" in said.err
    assert daemon.asked == []


def test_an_empty_snapshot_goes_to_the_daemon_which_refuses_it(daemon, ctl):
    daemon.documents["POST /v1/restore/plan"] = PLAN
    assert ctl("restore", "home", "tank/home@", "tank/new", "-n").code == 0
    assert daemon.asked[0][2]["snapshot"] == ""
    assert ctl("restore", "home", "tank/home@", "tank/new", "--at", "2d ago").code == 2


@pytest.mark.parametrize(
    ("result", "code", "told"), [("ok", 0, "the same on both"), ("differs", 1, "NOT the same")]
)
def test_verify(daemon, ctl, result, code, told):
    daemon.documents["POST /v1/verify/home"] = {"run": "r8"}
    error = {"reason": "differs", "what": "found 1 difference", "why": "a: source 1, vault 2", "next": "look"}
    end = finished if result == "ok" else partial(finished, "failed", error=error)
    daemon.events["r8"] = [
        event("run-started", trigger="verify"),
        event("verified", level="full", result=result, datasets=2, files=7, bytes=1 << 20, unproven={}),
        end(trigger="verify", bytes=1 << 20, seconds=2.0, datasets=2, sent=0, pruned=0),
    ]
    said = ctl("verify", "home", "--level", "full")
    assert said.code == code
    assert daemon.asked[0][2] == {"level": "full"}
    assert f"verified (full): 2 datasets, 7 files and pieces of 1M: {told} " in said.lines[1]


def test_what_differs_needs_attention_and_ages_are_of_contents():
    proof = {"proven": 5.0, "tried": 9.0, "result": "ok", "max_age": None, "told": ""}
    row = backup(proofs={"guids": {**proof, "proven": 8.0}, "full": proof})
    assert (find_state_word(row), find_proven_time(row)) == ("ok", 5.0)
    row = backup(proofs={**row["proofs"], "sample": {**proof, "proven": None, "result": "differs"}})
    assert find_state_word(row) == "differs"
    assert not is_well(row)
    assert backup()["proofs"] is None
    assert (find_state_word(backup()), find_proven_time(backup())) == ("ok", None)
