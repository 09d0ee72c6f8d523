"""Tables, -H, -p, -o and -j, as scripts and people meet them."""

import json

import pytest
from api_documents import trouble

LONG = "tank/projects/customer-archive/2024/a-name-longer-than-any-terminal-is-wide/with/depth"


def dataset(name="tank/home", **changes):
    return {
        "backup": "home",
        "dataset": name,
        "type": "filesystem",
        "vault_dataset": f"filer1/{name}",
        "used": 3 << 29,
        "snapshots_source": 27,
        "snapshots_vault": 90,
        "base": "zvault_2026-11-21T09:00:00Z",
        "lag_seconds": 723.5,
        "pending": 0,
        "resumable": False,
    } | changes


def run(number=42, **changes):
    return {
        "id": number,
        "backup": "home",
        "trigger": "schedule",
        "started": 1_790_000_000.75,
        "ended": 1_790_000_100.0,
        "result": "ok",
        "bytes": 3 << 29,
        "seconds": 99.25,
        "datasets": 3,
        "sent": 2,
        "pruned": 5,
        "error": None,
    } | changes


def test_a_table_is_padded_and_its_numbers_stand_right(daemon, ctl):
    daemon.documents["GET /v1/list"] = {"datasets": [dataset(), dataset("tank", used=1 << 40, pending=12)]}
    said = ctl("list")
    assert said.code == 0
    assert said.lines == [
        "NAME       BACKUP   USED  SNAPS  VAULTED  PENDING     LAG",
        "tank/home  home    1.50G     27       90        0  12m 3s",
        "tank       home       1T     27       90       12  12m 3s",
    ]


def test_scripted_and_exact(daemon, ctl):
    daemon.documents["GET /v1/list"] = {"datasets": [dataset()]}
    assert ctl("list", "-H").out == "tank/home\thome\t1.50G\t27\t90\t0\t12m 3s\n"
    assert ctl("list", "-Hp").out == "tank/home\thome\t1610612736\t27\t90\t0\t723\n"
    assert ctl("list", "-p").lines[1].split() == ["tank/home", "home", "1610612736", "27", "90", "0", "723"]


def test_the_unknown_is_a_dash_and_not_zero(daemon, ctl):
    daemon.documents["GET /v1/list"] = {
        "datasets": [dataset(snapshots_vault=None, lag_seconds=None, base=None)]
    }
    for flags in ("-H", "-Hp"):
        assert ctl("list", flags, "-o", "vaulted,lag,base,pending").out == "-\t-\t-\t0\n"


def test_nothing_is_cut_off(daemon, ctl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    daemon.documents["GET /v1/list"] = {"datasets": [dataset(LONG)]}
    assert LONG in ctl("list").out
    assert ctl("list", "-H").cells[0][0] == LONG


def test_columns_are_chosen_by_name(daemon, ctl):
    daemon.documents["GET /v1/list"] = {"datasets": [dataset()]}
    assert ctl("list", "-o", "into,NAME").lines == ["INTO              NAME", "filer1/tank/home  tank/home"]
    assert len(ctl("list", "-H", "-o", "all").cells[0]) == 11


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("usd", "did you mean 'used'?"), ("snap", "'snaps'"), ("zzz", "Columns: name, backup")],
)
def test_an_unknown_column_is_refused_with_the_nearest(daemon, ctl, wrong, near):
    daemon.documents["GET /v1/list"] = {"datasets": []}
    said = ctl("list", "-o", f"name,{wrong}")
    assert said.code == 2
    assert f"no column '{wrong}'" in said.err
    assert near in " ".join(said.err.split())


def test_snapshots(daemon, ctl):
    daemon.documents["GET /v1/list"] = {
        "datasets": [dataset()],
        "snapshots": [
            {
                "backup": "home",
                "dataset": "tank/home",
                "tag": "zvault_x",
                "guid": "18446744073709551615",
                "creation": 1_790_000_000,
                "on_source": True,
                "on_vault": False,
                "base": False,
            }
        ],
    }
    assert ctl("list", "home", "-t", "snapshot", "-Hp").out == "tank/home@zvault_x\tyes\tno\tno\t1790000000\n"
    assert daemon.asked[-1][1] == {"backup": "home", "snapshots": "1"}
    assert ctl("list", "-t", "snapshot", "-H", "-o", "guid").out == "18446744073709551615\n"


def test_json_has_the_version_openzfs_prints(daemon, ctl):
    daemon.documents["GET /v1/list"] = {"datasets": [dataset()]}
    document = json.loads(ctl("list", "-j").out)
    assert document["output_version"] == {"command": "zvaultctl list", "vers_major": 0, "vers_minor": 1}
    assert document["datasets"] == [dataset()]
    assert json.loads(ctl("list", "-j", "-o", "name,lag").out)["datasets"] == [
        {"dataset": "tank/home", "lag_seconds": 723.5}
    ]


def test_names_and_messages_cannot_break_a_line_or_steer_a_terminal(daemon, ctl):
    daemon.documents["GET /v1/history"] = {"runs": [run(error=trouble(what="a\tb\nc\x1b[2J"))]}
    assert ctl("history", "-H", "-o", "run,error").out == "42\ta b c [2J\n"
    assert "\x1b" not in ctl("history").out


def test_history(daemon, ctl):
    failed = run(41, result="failed", error=trouble())
    daemon.documents["GET /v1/history"] = {"runs": [run(43, result=None, ended=None), run(), failed]}
    said = ctl("history", "home", "--limit", "3")
    assert daemon.asked[-1][1] == {"backup": "home", "limit": "3"}
    assert said.lines[0].split() == [
        *("RUN", "BACKUP", "TRIGGER", "STARTED", "TOOK", "RESULT", "SENT", "BYTES", "PRUNED")
    ]
    assert "running" in said.lines[1]
    assert said.lines[-1] == "    the stream broke: zfs receive: out of space"
    exact = ctl("history", "-Hp").cells
    assert exact[1] == ["42", "home", "schedule", "1790000000", "99", "ok", "2", "1610612736", "5", "-"]
    assert exact[2][-1] == "the stream broke"
    assert ctl("history", "-l", "0").code == 2


def test_an_empty_list_says_so_to_people_only(daemon, ctl):
    daemon.documents["GET /v1/history"] = {"runs": []}
    assert ctl("history").err == "no runs\n"
    said = ctl("history", "-H")
    assert (said.code, said.out, said.err) == (0, "", "")


def step(before, after, size=1 << 30, reason=""):
    return {
        "kind": "incremental" if before else "full",
        "from": before,
        "to": after,
        "bytes": size,
        "reason": reason,
    }


def planned(name, action="incremental", steps=(), reason="shares a base", next="", changes=()):
    return {
        "dataset": name,
        "vault_dataset": f"filer1/{name}",
        "action": action,
        "written": 3 << 20,
        "changes": list(changes),
        "steps": list(steps),
        "reason": reason,
        "next": next,
    }


def plan(*datasets):
    verdicts = [
        {
            "side": "source",
            "snapshot": "tank@old",
            "keep": False,
            "reason": "no rule keeps it",
            "bytes": 1 << 20,
        },
        {
            "side": "vault",
            "snapshot": "filer1/tank@new",
            "keep": True,
            "reason": "one of the last 3",
            "bytes": None,
        },
    ]
    return {
        "backup": "home",
        "vault": "cold",
        "datasets": list(datasets),
        "gone": [],
        "prune": verdicts,
        "freed": {"source": 1 << 20, "vault": 0},
        "over_limit": [],
    }


def test_plan_tells_steps_reasons_and_what_is_pruned(daemon, ctl):
    daemon.documents["GET /v1/plan/home"] = plan(
        planned("tank", steps=[step("a", "b"), step("b", "c", None)]),
        planned("tank/new", "full", [step(None, "c", reason="nothing is there yet")], reason=""),
        planned("tank/same", "nothing", reason="the newest is there"),
    )
    said = ctl("plan", "home")
    assert said.code == 0
    assert said.lines == [
        "backup home into vault cold",
        "",
        "DATASET    ACTION       BYTES  WRITTEN",
        "tank       incremental      -       3M",
        "  send: incremental @a -> @b, 1G",
        "        incremental @b -> @c, size not known",
        "   why: shares a base",
        "tank/new   full            1G       3M",
        "  send: full @c: nothing is there yet",
        "tank/same  nothing          -       3M",
        "   why: the newest is there",
        "",
        "to send: at least 1G (1 full, 1 incremental, 1 nothing)",
        "a run makes a snapshot first; 9M written since the last one would go with it",
        "",
        "to prune: 1 snapshot, which frees 1M on the source",
        "SIDE    SNAPSHOT  BYTES  REASON",
        "source  tank@old     1M  no rule keeps it",
        "to keep: 1 snapshot (-v shows them with the reasons)",
    ]
    assert "one of the last 3" in ctl("plan", "home", "-v").out


def test_a_conflict_is_told_with_what_to_do(daemon, ctl):
    daemon.documents["GET /v1/plan/home"] = plan(
        planned("tank", "conflict", reason="no base", next="rename it")
    )
    said = ctl("plan", "home")
    assert said.code == 1
    assert "  next: rename it" in said.lines


GONE = {
    "backup": "home",
    "vault_dataset": "filer1/tank/old",
    "state": "gone",
    "used": 1 << 20,
    "snapshots_vault": 7,
    "newest": 1_790_000_000,
}


def test_what_changes_on_the_vault_first_and_what_is_gone_from_the_source(daemon, ctl):
    renamed = "rename filer1/a to filer1/b: it follows tank/b"
    made = plan(planned("tank/b", steps=[step("a", "b")], changes=[renamed]))
    daemon.documents["GET /v1/plan/home"] = made | {"gone": [GONE]}
    lines = ctl("plan", "home").lines
    assert lines[4:6] == [f"  first: {renamed}", "   send: incremental @a -> @b"]
    assert lines[lines.index("on the vault, and followed by nothing:") + 2].split()[:3] == [
        "filer1/tank/old",
        "gone",
        "7",
    ]
    cells = ctl("plan", "home", "-Hp").cells
    assert ["change", "tank/b", renamed] in cells
    assert ["gone", "filer1/tank/old", "gone", "7", "1790000000"] in cells


def test_list_of_what_is_gone(daemon, ctl):
    daemon.documents["GET /v1/list"] = {"datasets": [dataset()], "gone": [GONE]}
    assert ctl("list", "-t", "gone", "-Hp").cells == [
        ["filer1/tank/old", "home", "gone", "1048576", "7", "1790000000"]
    ]


def test_plan_for_scripts(daemon, ctl):
    daemon.documents["GET /v1/plan/home"] = plan(
        planned("tank", steps=[step("a", "b"), step("b", "c", None)]), planned("tank/same", "nothing")
    )
    assert ctl("plan", "home", "-Hp", "-v").cells == [
        ["send", "tank", "filer1/tank", "incremental", "a", "b", "1073741824", "shares a base", "-"],
        ["send", "tank", "filer1/tank", "incremental", "b", "c", "-", "shares a base", "-"],
        ["send", "tank/same", "filer1/tank/same", "nothing", "-", "-", "-", "shares a base", "-"],
        ["prune", "source", "tank@old", "1048576", "no rule keeps it"],
        ["keep", "vault", "filer1/tank@new", "-", "one of the last 3"],
    ]
    assert [verdict["keep"] for verdict in json.loads(ctl("plan", "home", "-j").out)["prune"]] == [False]
