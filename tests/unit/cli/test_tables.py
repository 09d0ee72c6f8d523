"""Tables, -H, -p, -o and -j, as scripts and people meet them."""

import json

import pytest

from tests.unit.cli.api_documents import CONFIG, trouble, vault
from zvault.api.backups import PlanDocument
from zvault.cli.options import TableForm
from zvault.cli.tables import TableColumn, choose_columns, format_table
from zvault.core.model import Dataset, Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepDecision
from zvault.core.replication.lag import DatasetLag
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.core.replication.vault_changes import RenameDataset
from zvault.daemon.history import RunHistory
from zvault.ops.list_documents import make_dataset_document, make_snapshot_documents
from zvault.ops.plan_documents import make_gone_document, make_planned_document
from zvault.ops.retention.prune_report import make_verdict_document

TAG = "zvault_2026-11-21T09:00:00Z"
LONG = "tank/projects/customer-archive/2024/a-name-longer-than-any-terminal-is-wide/with/depth"


def snapshots(name, count):
    """So many, of which only the newest has the GUID that another dataset's has."""
    older = [Snapshot(DatasetName(name), f"s{at}", 1000 * count + at, at, at) for at in range(count - 1)]
    return (*older, Snapshot(DatasetName(name), TAG, 1, count, count))


def dataset(name="tank/home", **changes):
    here = Dataset(DatasetName(name), 1, "filesystem", used=3 << 29, snapshots=snapshots(name, 27))
    there = Dataset(DatasetName(f"filer1/{name}"), 2, "filesystem", snapshots=snapshots(f"filer1/{name}", 90))
    lag = DatasetLag(name, there.snapshots[-1], 0)
    return (
        make_dataset_document(
            "home", here, there.name, there, lag, there.snapshots[-1].creation + 723.5, up=True
        )
        | changes
    )


def listed(*datasets, **changes):
    return {"datasets": list(datasets), "gone": [], "gone_unknown": []} | changes


@pytest.fixture
def run(tmp_path):
    history = RunHistory(tmp_path / "history.sqlite")

    def one(number=42, **changes):
        history.begin(str(number), "home", "schedule", 1_790_000_000.75)
        figures = {"bytes": 3 << 29, "datasets": 3, "sent": 2, "pruned": 5}
        history.end(str(number), 1_790_000_100.0, "ok", figures, None)
        return history.runs("home", 1)[0] | changes

    yield one
    history.close()


def test_a_table_is_padded_and_its_numbers_stand_right(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset(), dataset("tank", used=1 << 40, pending=12))
    said = ctl("list")
    assert said.code == 0
    assert said.lines == [
        "NAME       BACKUP   USED  SNAPS  VAULTED  PENDING     LAG",
        "tank/home  home    1.50G     27       90        0  12m 3s",
        "tank       home       1T     27       90       12  12m 3s",
    ]


def test_scripted_and_exact(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset())
    assert ctl("list", "-H").out == "tank/home\thome\t1.50G\t27\t90\t0\t12m 3s\n"
    assert ctl("list", "-Hp").out == "tank/home\thome\t1610612736\t27\t90\t0\t723\n"
    assert ctl("list", "-p").lines[1].split() == ["tank/home", "home", "1610612736", "27", "90", "0", "723"]


def test_the_unknown_is_a_dash_and_not_zero(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset(snapshots_vault=None, lag_seconds=None, base=None))
    for flags in ("-H", "-Hp"):
        assert ctl("list", flags, "-o", "vaulted,lag,base,pending").out == "-\t-\t-\t0\n"


def test_nothing_is_cut_off(daemon, ctl, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    daemon.documents["GET /v1/list"] = listed(dataset(LONG))
    assert LONG in ctl("list").out
    assert ctl("list", "-H").cells[0][0] == LONG


def test_columns_are_chosen_by_name(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset())
    assert ctl("list", "-o", "into,NAME").lines == ["INTO              NAME", "filer1/tank/home  tank/home"]
    assert len(ctl("list", "-H", "-o", "all").cells[0]) == 11


@pytest.mark.parametrize(
    ("wrong", "near"),
    [("usd", "did you mean 'used'?"), ("snap", "'snaps'"), ("zzz", "Columns: name, backup")],
)
def test_an_unknown_column_is_refused_with_the_nearest(daemon, ctl, wrong, near):
    daemon.documents["GET /v1/list"] = listed()
    said = ctl("list", "-o", f"name,{wrong}")
    assert said.code == 2
    assert f"no column '{wrong}'" in said.err
    assert near in " ".join(said.err.split())


def test_snapshots(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(
        dataset(),
        snapshots=make_snapshot_documents(
            "home",
            Dataset(
                DatasetName("tank/home"),
                1,
                "filesystem",
                snapshots=(Snapshot(DatasetName("tank/home"), "zvault_x", (1 << 64) - 1, 1, 1_790_000_000),),
            ),
            None,
            True,
        ),
    )
    assert ctl("list", "home", "-t", "snapshot", "-Hp").out == "tank/home@zvault_x\tyes\tno\tno\t1790000000\n"
    assert daemon.asked[-1][1] == {"backup": "home", "snapshots": "1"}
    assert ctl("list", "-t", "snapshot", "-H", "-o", "guid").out == "18446744073709551615\n"


def test_json_has_the_version_openzfs_prints(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset())
    document = json.loads(ctl("list", "-j").out)
    assert document["output_version"] == {"command": "zvaultctl list", "vers_major": 0, "vers_minor": 1}
    assert document["datasets"] == [dataset()]
    assert json.loads(ctl("list", "-j", "-o", "name,lag").out)["datasets"] == [
        {"dataset": "tank/home", "lag_seconds": 723.5}
    ]


def test_names_and_messages_cannot_break_a_line_or_steer_a_terminal(daemon, ctl, run):
    daemon.documents["GET /v1/history"] = {"runs": [run(error=trouble(what="a\tb\nc\x1b[2J"))]}
    assert ctl("history", "-H", "-o", "run,error").out == "42\ta b c [2J\n"
    assert "\x1b" not in ctl("history").out


def test_history(daemon, ctl, run):
    failed = run(41, result="failed", error=trouble())
    daemon.documents["GET /v1/history"] = {
        "runs": [run(43, result=None, ended=None, seconds=None), run(), failed]
    }
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
    base = Snapshot(DatasetName("tank"), before, 1, 1, 1) if before else None
    kind = TransferAction.INCREMENTAL if before else TransferAction.FULL
    return TransferStep(kind, Snapshot(DatasetName("tank"), after, 2, 2, 2), base, reason=reason), size


def planned(name, action="incremental", steps=(), reason="shares a base", next="", changes=()):
    plan = TransferPlan(
        name,
        f"filer1/{name}",
        TransferAction(action),
        reason,
        tuple(step for step, _ in steps),
        next=next,
        changes=tuple(changes),
    )
    return make_planned_document(plan, 3 << 20, [size for _, size in steps])


def plan(*datasets) -> PlanDocument:
    old = KeepDecision(Snapshot(DatasetName("tank"), "old", 1, 1, 1), False, "no rule keeps it")
    new = KeepDecision(Snapshot(DatasetName("filer1/tank"), "new", 2, 2, 2), True, "one of the last 3")
    return {
        "backup": "home",
        "vault": CONFIG.backup["home"].vault,
        "datasets": list(datasets),
        "excluded": [],
        "makes_snapshot": True,
        "not_snapshotted": [],
        "gone": [],
        "prune": [make_verdict_document("source", old, 1 << 20), make_verdict_document("vault", new, None)],
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


def test_plan_tells_how_datasets_lie_only_where_something_is_encrypted(daemon, ctl):
    plain = [
        planned(name, steps=[step("a", "b")]) | {"encryption": "in the clear"} for name in ("tank", "tank/a")
    ]
    daemon.documents["GET /v1/plan/home"] = plan(*plain)
    assert "lies" not in ctl("plan", "home").out
    raw = planned("tank/b", steps=[step("a", "b")]) | {"encryption": "raw, with its source's key"}
    daemon.documents["GET /v1/plan/home"] = plan(*plain, raw)
    told = ctl("plan", "home").out
    assert told.count("lies:") == 3
    assert "raw, with its source's key" in told


def test_plan_of_a_backup_that_makes_no_snapshot_says_so(daemon, ctl):
    found = plan(planned("tank", steps=[step("a", "b")]))
    daemon.documents["GET /v1/plan/home"] = {**found, "makes_snapshot": False}
    lines = ctl("plan", "home").lines
    assert "a run makes no snapshot: it sends those that are there" in lines
    assert not any("makes a snapshot first" in line for line in lines)


def test_a_conflict_is_told_with_what_to_do(daemon, ctl):
    daemon.documents["GET /v1/plan/home"] = plan(
        planned("tank", "conflict", reason="no base", next="rename it")
    )
    said = ctl("plan", "home")
    assert said.code == 1
    assert "  next: rename it" in said.lines


GONE = make_gone_document(
    "home",
    Dataset(
        DatasetName("filer1/tank/old"),
        1,
        "filesystem",
        used=1 << 20,
        snapshots=tuple(
            Snapshot(DatasetName("filer1/tank/old"), str(n), n, n, 1_790_000_000) for n in range(7)
        ),
    ),
    "gone",
)


def test_what_changes_on_the_vault_first_and_what_is_gone_from_the_source(daemon, ctl):
    rename = RenameDataset("filer1/a", "filer1/b", "it follows tank/b")
    renamed = "rename filer1/a to filer1/b: it follows tank/b"
    made = plan(planned("tank/b", steps=[step("a", "b")], changes=[rename]))
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
    daemon.documents["GET /v1/list"] = listed(dataset(), gone=[GONE])
    assert ctl("list", "-t", "gone", "-Hp").cells == [
        ["filer1/tank/old", "home", "gone", "1048576", "7", "1790000000"]
    ]


def test_what_cannot_be_listed_is_named_beside_the_rest(daemon, ctl):
    why = "tank/bad cannot be listed (I/O error)"
    row = {"backup": "home", "dataset": "tank/bad", "why": why}
    daemon.documents["GET /v1/list"] = listed(dataset(), unlisted=[row], gone_unknown=["home"])
    for words in (("list",), ("list", "-t", "snapshot"), ("list", "-t", "gone")):
        assert f"not all of backup home is known: {why}" in ctl(*words).err
    assert "besides is not known: not all can be listed" in ctl("list", "-t", "gone").err
    assert "it is down" not in ctl("list", "-t", "gone").err
    assert json.loads(ctl("list", "-j").out)["unlisted"] == [row]


def test_what_a_vault_that_is_down_has_besides_is_unknown_and_not_none(daemon, ctl):
    daemon.documents["GET /v1/list"] = listed(dataset(), gone_unknown=["home"])
    told = ctl("list", "-t", "gone")
    assert told.out == ""
    assert told.err.startswith("what the vault of home has besides is not known: it is down")
    assert json.loads(ctl("list", "-t", "gone", "-j").out)["gone_unknown"] == ["home"]
    daemon.documents["GET /v1/list"] = listed(dataset(), gone=[GONE], gone_unknown=["home"])
    told = ctl("list", "-t", "gone")
    assert "filer1/tank/old" in told.out
    assert "not known" in told.err
    daemon.documents["GET /v1/list"] = listed(dataset())
    assert ctl("list", "-t", "gone").err == "no gone\n"


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


@pytest.mark.parametrize(
    ("room", "shown"),
    [(None, "abcd"), (26, "abcd"), (25, "abd"), (20, "abd"), (19, "bd"), (9, "bd")],
    ids=["no terminal", "all fit", "the first", "exactly", "and the second", "no more can go"],
)
def test_a_narrow_terminal_shows_a_table_without_what_can_be_spared(monkeypatch, room, shown) -> None:
    monkeypatch.setattr("zvault.cli.tables.find_width", lambda _: room)
    columns = [TableColumn(name, spare=spare) for name, spare in (("a", 1), ("b", 0), ("c", 2), ("d", 0))]
    row = {"a": "a123", "b": "b1234567", "c": "c123", "d": "d123"}
    lines = list(format_table(columns, [row], TableForm()))
    assert [line.split() for line in lines] == [list(shown.upper()), [row[name] for name in shown]]
    assert list(format_table(columns, [row], TableForm(tabs=True))) == ["\t".join(row.values())]
    chosen = choose_columns(columns, "a,c,b,d", ())
    assert all(name in next(format_table(chosen, [row], TableForm())) for name in "ABCD"), (
        "whoever names it sees it"
    )


def test_a_disk_that_is_not_plugged_in_is_told_in_words(daemon, ctl) -> None:
    away = {"state": "down", "away": True, "health": None}
    daemon.documents["GET /v1/vaults"] = {"vaults": [vault("usb") | away]}
    assert (
        "state: away: its disk is not plugged in; what is due runs once it is"
        in ctl("vault", "status", "usb").out
    )
