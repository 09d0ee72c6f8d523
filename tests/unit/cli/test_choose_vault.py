"""Of a backup with several vaults a verb takes the one that is named, the best one, or each, and says which."""

from __future__ import annotations

import pytest

from tests.unit.cli.api_documents import backup, finished, run_events, status, trouble, vault
from zvault.cli.choose_vault import expand_name

SEVERAL = {"reason": "several-vaults", "what": "backup 'home' has several vaults", "next": "name one of them"}
AWAY = trouble(reason="device-gone", what="no such device")


@pytest.fixture
def several(daemon):
    """A daemon whose backup home has three vaults; of each verification it says how it ended."""
    for path in ("verify", "run", "prune"):
        daemon.refuse(f"POST /v1/{path}/home", 409, **SEVERAL)
    daemon.refuse("GET /v1/plan/home", 409, **SEVERAL)
    for name in ("cold", "shelf", "far"):
        daemon.documents[f"POST /v1/verify/home@{name}"] = {"run": name}
        daemon.events[name] = [finished(run=name)]
    return daemon


def of(name: str, lag: float | None):
    return backup(f"home@{name}", vault=name, lag_seconds=lag)


@pytest.mark.parametrize(
    ("lags", "states", "chosen"),
    [
        ({"cold": 7200.0, "shelf": 60.0, "far": None}, {}, "shelf"),
        ({"cold": 7200.0, "shelf": 60.0, "far": None}, {"shelf": {"state": "down"}}, "shelf"),
        (
            {"cold": 7200.0, "shelf": 60.0, "far": None},
            {"shelf": {"state": "down", "error": AWAY}},
            "cold",
        ),
        (
            {"cold": 7200.0, "shelf": 60.0, "far": None},
            {"shelf": {"state": "down", "away": True}},
            "cold",
        ),
        (
            {"cold": 7200.0, "shelf": 60.0, "far": None},
            {"shelf": {"state": "down", "held_by": "other"}},
            "cold",
        ),
        ({"cold": 60.0, "shelf": 60.0, "far": 60.0}, {"cold": {"state": "down"}}, "shelf"),
        ({"cold": None, "shelf": None, "far": 9e9}, {}, "far"),
    ],
    ids=[
        "the newest",
        "down is no hindrance",
        "what is in the way is",
        "a disk in the cupboard is",
        "another host that has it is",
        "up of the same state",
        "any state is better than none",
    ],
)
def test_the_best_vault_is_taken_and_told(several, ctl, lags, states, chosen: str) -> None:
    several.documents["GET /v1/status"] = status(
        *(of(name, lag) for name, lag in lags.items()),
        vaults=[vault(name) | states.get(name, {}) for name in lags],
    )
    said = ctl("verify", "home")
    assert said.code == 0
    assert said.err.startswith(f"vault {chosen} is taken, its newest state is ")
    assert all(f"{name}: " in said.err for name in lags if name != chosen)
    had = {name for name, one in states.items() if one.keys() - {"state"}}
    assert {name for name in lags if f"{name}: 1m old, and not to be had now" in said.err} == had
    assert f"POST /v1/verify/home@{chosen}" in [asked for asked, _, _ in several.asked]


def test_the_one_that_is_named_is_taken_and_nothing_else_asked(several, ctl) -> None:
    for words in (("home@far",), ("home", "--vault", "far"), ("home@far", "--vault", "far")):
        assert ctl("verify", *words).code == 0
    assert {asked for asked, _, _ in several.asked} == {"POST /v1/verify/home@far", "GET /v1/events"}
    assert ctl("verify", "home@far", "--vault", "cold").code == 2


def test_a_run_goes_into_all_and_fails_where_one_does(several, ctl) -> None:
    plain = several.documents.pop("POST /v1/run/home")
    asked = {"run": "1", "runs": {"home@cold": "1", "home@shelf": "2"}, "busy": {}}
    answers = iter([plain, asked] * 3)
    several.documents = _Alternating(several.documents, "POST /v1/run/home", answers)
    several.events |= {"1": run_events(), "2": [finished("failed", run="2", error=AWAY)]}
    said = ctl("run", "home")
    assert said.code == 1
    assert [line for line in said.lines if "has started" in line] == [
        "run 1 of home@cold has started",
        "run 2 of home@shelf has started",
    ]
    assert {"home@cold:", "home@shelf:"} <= set(said.lines)
    bodies = [body for path, _, body in several.asked if path == "POST /v1/run/home"]
    assert bodies == [{}, {"all_vaults": True}]
    said = ctl("run", "home", "--no-wait")
    assert said.code == 0
    assert "run 2 of home@shelf has started; follow it with 'zvaultctl follow home@shelf'" in said.lines
    said = ctl("run", "home", "-j")
    assert (said.code, said.out) == (2, "") or "several-vaults" in said.out, "a document is of one run"


class _Alternating(dict):
    """The documents, of which one is another each time."""

    def __init__(self, documents, key, answers) -> None:
        super().__init__(documents)
        self.key, self.answers = key, answers

    def get(self, key, default=None):
        return next(self.answers) if key == self.key else super().get(key, default)


def test_status_and_lag_of_the_table_show_each_vault(daemon, ctl) -> None:
    daemon.documents["GET /v1/status"] = status(of("cold", 1.0), of("shelf", 1.0), backup("web"))
    assert [row[0] for row in ctl("lag", "home", "-H").cells] == ["home@cold", "home@shelf"]
    assert [row[1] for row in ctl("status", "home", "-H").cells] == ["home@cold", "home@shelf"]
    assert ctl("lag", "hom").code == 2
    daemon.documents["GET /v1/status"] = status(
        of("cold", 1.0), backup("web"), vaults=[vault("home"), vault("cold")]
    )
    assert [row[:2] for row in ctl("status", "home", "-H").cells] == [
        ["backup", "home@cold"],
        ["vault", "home"],
    ]
    assert [row[:2] for row in ctl("status", "cold", "-H").cells] == [["vault", "cold"]]


def test_a_name_means_itself_before_it_means_several() -> None:
    known = ["a", "a@x", "b@x", "b@y", "f:c@x"]
    assert [expand_name(one, known) for one in ("a", "b", "b@y", "f:c", "c", "")] == [
        ["a"],
        ["b@x", "b@y"],
        ["b@y"],
        ["f:c@x"],
        [],
        [],
    ]
