"""Following a run: its events as lines, its end as exit status; and what happens when the stream ends early."""

import json

import pytest

from tests.unit.cli.api_documents import backup, event, finished, run_events, status, transfer, trouble
from zvault.cli.event_text import narrate_event
from zvault.cli.progress import ProgressLines


@pytest.fixture
def started(daemon):
    daemon.documents["POST /v1/run/home"] = {"run": "42"}
    daemon.events["42"] = run_events()
    return daemon


def test_a_run_is_told_in_a_few_lines(started, ctl):
    said = ctl("run", "home")
    assert said.code == 0
    assert said.lines == [
        "run 42 of home (by hand)",
        "vault cold: pool coldpool imported from /dev/nbd0",
        "inhibitor: sleep waits for the run",
        "snapshot: @zvault_2026-11-21T09:00:00Z of 3 datasets",
        "plan: 1 full, 1 incremental, 1 nothing; 2G to send",
        "sent: tank/home  1G in 10s (100M/s)",
        "sent: tank/home/a  1G in 10s (100M/s)",
        "pruned: 2 snapshots on the source",
        "home ok: 2G in 20s (100M/s)",
    ]
    assert said.err == ""


def test_quiet_says_nothing_when_all_went_well(started, ctl):
    said = ctl("run", "home", "-q")
    assert (said.code, said.out, said.err) == (0, "", "")


def test_a_run_that_is_under_way_is_offered_to_be_followed(started, ctl, monkeypatch):
    started.refuse("POST /v1/run/home", 409, reason="busy", what="backup 'home' is already running")
    started.documents["GET /v1/status"] = status(backup(run="42"))
    asked = []

    def confirm(text: str, *, default: bool) -> bool:
        asked.append((text, default))
        return wants

    monkeypatch.setattr("typer.confirm", confirm)
    wants = True
    said = ctl("run", "home")
    assert (said.code, asked) == (1, []), "nobody is at a terminal"
    assert "'zvaultctl follow home' shows it to its end" in said.err
    monkeypatch.setattr("zvault.cli.verbs.run._is_at_a_terminal", lambda: True)
    assert ctl("run", "home", "-q").code == 1
    assert asked == []
    said = ctl("run", "home")
    assert said.code == 0
    assert "home ok" in said.out
    ((text, default),) = asked
    assert text.startswith("backup 'home' is already running")
    assert default
    wants = False
    assert ctl("run", "home").code == 1


@pytest.mark.parametrize("result", ["partial", "failed"])
@pytest.mark.parametrize("flags", [(), ("-q",)])
def test_a_failure_is_told_once_with_what_why_and_next(started, ctl, result, flags):
    failed = event("dataset-failed", dataset="tank/home/b", error=trouble(), again=False)
    started.events["42"] = run_events(result, error=trouble(), middle=[failed])
    said = ctl("run", "home", *flags)
    assert said.code == 1
    assert said.err.splitlines() == [
        "failed: tank/home/b: the stream broke",
        "   why: zfs receive: out of space",
        "  next: make room",
        f"home {result}: 2G in 20s (100M/s)",
    ]


def test_a_failure_of_the_run_itself(started, ctl):
    error = trouble("device-gone", "no server")
    end = finished("failed", bytes=0, datasets=0, sent=0, pruned=0, seconds=0.5, error=error)
    started.events["42"] = [event("run-started", trigger="hand"), end]
    said = ctl("run", "home")
    assert said.code == 1
    assert said.err.splitlines()[:2] == ["home failed: 0B in 500ms", "  no server"]


def test_warnings_go_to_stderr(started, ctl):
    started.events["42"] = run_events(middle=[event("warning", text="no mbuffer")])
    said = ctl("run", "home", "-q")
    assert (said.code, said.err) == (0, "warning: no mbuffer\n")


def test_json_leaves_stdout_to_the_document(started, ctl):
    said = ctl("run", "home", "-j")
    document = json.loads(said.out)
    assert document["output_version"]["command"] == "zvaultctl run"
    assert document["run"] == {
        "id": "42",
        "backup": "home",
        "result": "ok",
        "bytes": 2 << 30,
        "seconds": 20.48,
        "error": None,
    }
    assert "plan:" in said.err


def test_no_wait(started, ctl):
    said = ctl("run", "home", "--no-wait")
    assert said.out == "run 42 of home has started; follow it with 'zvaultctl follow home'\n"
    assert json.loads(ctl("run", "home", "--no-wait", "-j").out)["run"] == {"id": "42", "backup": "home"}


def test_a_plan_of_thousands_of_datasets_arrives_whole(started, ctl):
    datasets = [
        {"dataset": f"tank/{i:0100}", "action": "nothing", "bytes": 0, "reason": "same"} for i in range(3000)
    ]
    events = run_events()
    events[4] = event("plan", datasets=datasets, bytes_total=0)
    started.events["42"] = events
    assert "plan: 3000 nothing; 0B to send" in ctl("run", "home").lines


def test_a_stream_that_breaks_off_is_no_success(started, ctl):
    started.events["42"] = run_events()[:6]
    said = ctl("run", "home")
    assert said.code == 2
    assert "plan:" in said.out
    assert said.err.splitlines()[0] == "zvaultctl: the connection to zvaultd broke off"
    assert "journalctl -u zvaultd" in said.err


def test_a_run_under_way_is_not_started_twice(started, ctl):
    started.refuse("POST /v1/run/home", 409, reason="busy", what="home is running", why="run 41", next="")
    said = ctl("run", "home")
    assert said.code == 1
    assert "zvaultctl: home is running" in said.err
    assert "zvaultctl follow home" in said.err


def test_follow_by_backup_and_by_number(started, ctl):
    started.documents["GET /v1/status"] = status(backup(run="42", state="running"))
    assert ctl("follow", "home").lines[-1] == "home ok: 2G in 20s (100M/s)"
    assert ctl("follow", "42").code == 0
    assert ctl("follow", "99").code == 2


def test_follow_what_does_not_run(started, ctl):
    started.documents["GET /v1/status"] = status(backup())
    said = ctl("follow", "home")
    assert said.code == 2
    assert "home is not running" in said.err
    assert "zvaultctl history home" in said.err


def test_restore(daemon, ctl):
    daemon.documents["POST /v1/restore"] = {"run": "r7"}
    daemon.events["r7"] = [
        event("restored", dataset="tank/back", mountpoint="/tank/back", why="", snapshot="zvault_x"),
        finished(trigger="restore", bytes=1 << 20, datasets=1, sent=1, pruned=0, seconds=1.0),
    ]
    said = ctl("restore", "home", "tank/home@zvault_x", "tank/back")
    assert said.code == 0
    assert said.lines[0] == "restored: tank/back from @zvault_x, mounted at /tank/back"
    assert daemon.asked[0][2] == {
        "backup": "home",
        "dataset": "tank/home",
        "snapshot": "zvault_x",
        "to": "tank/back",
    }
    document = json.loads(ctl("restore", "home", "tank/home", "tank/back", "-j").out)
    assert document["restored"] == {
        "dataset": "tank/back",
        "mountpoint": "/tank/back",
        "why": "",
        "snapshot": "zvault_x",
    }
    assert daemon.asked[-2][2]["snapshot"] is None


def test_files_are_restored_into_a_folder_and_nothing_is_mounted(daemon, ctl):
    daemon.documents["POST /v1/restore"] = {"run": "r7"}
    daemon.events["r7"] = [
        event("restored", dataset="/rescue", mountpoint="/rescue", why="", snapshot="c/h@s", files=12),
        event(
            "compared", result="same", datasets=0, files=12, bytes=9, differences=0, unread={}, commands=[]
        ),
        finished(),
    ]
    said = ctl("restore", "home", "tank/home", "/rescue", "--no-compare")
    assert said.lines[0] == "restored: 12 files from c/h@s in /rescue"
    assert said.lines[1] == "compared: 12 files and pieces of 9B: the same as in the snapshot"
    assert daemon.asked[0][2]["compare"] is False


def test_what_could_not_be_compared_is_told_with_the_reason():
    unread = {"tank/a": "its key is not loaded", "tank/b": "its key is not loaded"}
    told = event(
        "compared", result="same", datasets=0, files=0, bytes=0, differences=0, unread=unread, commands=[]
    )
    assert narrate_event(told) == (
        "compared: nothing that was compared differs; the contents of tank/a and of 1 dataset more were not"
        " compared: its key is not loaded"
    )


def test_what_was_not_put_back_is_named_and_the_commands_are_told(daemon, ctl):
    daemon.documents["POST /v1/restore"] = {"run": "r7"}
    told = [
        {"dataset": "tank/back", "path": f"f{n}", "what": "mode", "wanted": "4755", "found": "0755"}
        for n in range(25)
    ]
    daemon.events["r7"] = [
        event("differs", differences=told[:15]),
        event("differs", differences=told[15:]),
        event(
            "compared",
            result="differs",
            datasets=1,
            files=30,
            bytes=9,
            differences=25,
            unread={},
            commands=["zfs set quota=5 tank/back"],
        ),
        finished("partial", error=trouble("differs", "25", "", "")),
    ]
    said = ctl("restore", "home", "tank/home", "tank/back")
    assert said.code == 1
    assert said.err.count("differs: tank/back: f") == 20
    assert "differs: tank/back: f0: mode: 0755, was 4755" in said.err
    assert "and 5 more differences" in said.err
    assert "  zfs set quota=5 tank/back" in said.err
    assert "25 NOT the same" in said.out
    said = ctl("restore", "home", "tank/home", "tank/back", "-j")
    document = json.loads(said.out)
    assert document["differences"] == told
    assert document["commands"] == ["zfs set quota=5 tank/back"]
    assert document["compared"]["files"] == 30


@pytest.mark.parametrize(
    ("mountpoint", "why", "told"),
    [
        ("/dev/zvol/tank/back", "", "at /dev/zvol/tank/back"),
        (None, "load its key with 'zfs load-key x'", "not mounted: load its key with 'zfs load-key x'"),
    ],
)
def test_restored_but_not_mounted(daemon, ctl, mountpoint, why, told):
    daemon.documents["POST /v1/restore"] = {"run": "7"}
    daemon.events["7"] = [
        event("restored", dataset="tank/x", mountpoint=mountpoint, why=why, snapshot="s"),
        finished(trigger="restore", bytes=1, datasets=1, sent=1, pruned=0, seconds=1.0),
    ]
    assert ctl("restore", "home", "tank", "tank/x").lines[0] == f"restored: tank/x from @s, {told}"


def test_what_is_tried_again_is_no_failure_of_the_run(started, ctl):
    stalled = trouble("stalled", "the stream stood still", "no byte moved for 15m", "")
    middle = [
        event("dataset-failed", dataset="tank/home/b", error=stalled, again=True),
        event("retry", wait=31.7, number=1, retries=3, error=stalled),
    ]
    started.events["42"] = run_events(middle=middle)
    said = ctl("run", "home")
    assert said.code == 0
    assert said.err == "failed for now: tank/home/b: the stream stood still\n"
    assert "trying again in 31s (1 of 3): the stream stood still: no byte moved for 15m" in said.lines
    assert json.loads(ctl("run", "home", "-j").out)["failed"] == []


def test_what_failed_for_good_is_named_at_the_end(started, ctl):
    failed = event("dataset-failed", dataset="tank/home/b", error=trouble(), again=False)
    end = trouble(what="1 of 3 datasets failed", why="tank/home/b (the stream broke: out of space)")
    started.events["42"] = run_events("partial", error=end, middle=[failed])
    said = ctl("run", "home", "-q")
    assert said.code == 1
    assert said.err.splitlines()[-3:] == [
        "  1 of 3 datasets failed",
        "   why: tank/home/b (the stream broke: out of space)",
        "  next: make room",
    ]


def progress(dataset: str, run_bytes: int) -> dict:
    return event(
        "progress",
        dataset=dataset,
        bytes=1 << 20,
        total=1 << 30,
        rate=float(10 << 20),
        buffer=None,
        run_bytes=run_bytes,
        run_total=4 << 30,
        run_rate=float(100 << 20),
    )


def test_without_a_terminal_a_line_now_and_then_tells_how_far_it_is():
    now, said = [0.0], []
    lines = ProgressLines(said.append, lambda: now[0])
    for name in ("tank/a", "tank/b"):
        lines.see(transfer(name, 0)[0])
    for now[0] in (20.0, 59.0, 61.0, 62.0, 119.0):
        lines.see(progress("tank/a", 1 << 30))
    lines.see(transfer("tank/a", 0)[-1])
    now[0] = 125.0
    lines.see(progress("tank/b", (4 << 30) - 1))
    assert said == [
        "25%, 1G of 4G, 100M/s, eta 30s; sending tank/a, tank/b",
        "99%, 4.00G of 4G, 100M/s, eta 1s; sending tank/b",
    ]
