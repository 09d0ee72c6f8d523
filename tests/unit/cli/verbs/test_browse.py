"""zvaultctl browse and diff without a terminal: what they ask for, their tables, and what is told beside them."""

from __future__ import annotations

import json

import pytest

from tests.unit.cli.test_browser import DIFF, FILE, FOLDER


@pytest.fixture
def looking(daemon):
    daemon.lines["POST /v1/browse"] = [{"text": "vault cold is kept up"}, {"answer": FILE}]
    daemon.lines["POST /v1/diff"] = [{"text": "looking into x"}, {"answer": DIFF}]
    return daemon


def test_a_path_is_absolute_unless_its_dataset_is_named(looking, ctl, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ctl("browse", "home", "a/../b").code == 0
    assert looking.asked[-1][2] == {"backup": "home", "dataset": None, "path": f"{tmp_path}/b"}
    ctl("browse", "home", "-d", "tank/home", "docs", "--side", "vault")
    assert looking.asked[-1][2] == {
        "backup": "home",
        "dataset": "tank/home",
        "path": "docs",
        "side": "vault",
    }
    ctl("browse", "home")
    assert looking.asked[-1][2]["path"] == str(tmp_path)
    ctl("browse", "home", "-d", "tank/home")
    assert looking.asked[-1][2]["path"] == ""


def test_the_table_of_versions(looking, ctl):
    said = ctl("browse", "home", "/x", "-H", "-p", "-o", "state,size,from,source,vault,last")
    assert said.cells[0] == ["changed", "4", "300", "0", "1", "s3"]
    assert len(said.cells) == 3
    assert said.err == "vault cold is kept up\n"


def test_the_table_of_names_and_a_folder_s_own_versions(looking, ctl):
    looking.lines["POST /v1/browse"] = [{"answer": FOLDER}]
    said = ctl("browse", "home", "/x", "-H", "-o", "name,state,versions,kind")
    assert said.cells[0] == ["\\x1b]0;owned\\x07\\n\\xff", "vanished", "2", "file"]
    own = ctl("browse", "home", "/x", "--itself", "-H", "-o", "state,kind")
    assert own.cells == [["changed", "folder"]]


def test_what_was_not_looked_into_is_told(looking, ctl):
    unread = {**FILE, "unread": {"vault": "its key\x1b[2J is not loaded"}}
    looking.lines["POST /v1/browse"] = [{"answer": unread}]
    said = ctl("browse", "home", "/x")
    assert said.code == 1
    assert "vault was not looked into: its key [2J is not loaded" in said.err
    assert json.loads(ctl("browse", "home", "/x", "-j").out)["unread"] == unread["unread"]


def test_wrong_usage(looking, ctl):
    assert ctl("browse", "home", "/x", "--side", "middle").code == 2
    assert ctl("browse", "home", "/x", "-o", "nothing").code == 2
    assert ctl("diff", "home", "a@1").code == 2


def test_the_table_of_changes(looking, ctl):
    said = ctl("diff", "home", "tank/a@1", "tank/a@2", "docs", "-H")
    assert said.code == 1
    assert said.cells[0] == ["renamed", "file", "\\x1b]0;owned\\x07\\n\\xff", "b", "mode"]
    assert "and 7 changes more" in said.err
    assert looking.asked[-1][2] == {"backup": "home", "old": "tank/a@1", "new": "tank/a@2", "path": "docs"}


@pytest.mark.parametrize(
    ("state", "lines", "code", "told"),
    [
        ("same", [], 0, "the content is the same"),
        ("differs", ["+a\x1b[2J\tb"], 1, "+a\\x1b[2J"),
        ("binary", [], 1, "it is no text"),
        ("unknown", [], 2, "is not compared: too large"),
    ],
)
def test_the_content_of_a_file(looking, ctl, state, lines, code, told):
    content = {"state": state, "why": "too large", "lines": lines, "more": 0}
    answer = {**DIFF, "by": "content", "changes": [], "more": 0, "content": content}
    looking.lines["POST /v1/diff"] = [{"answer": answer}]
    said = ctl("diff", "home", "tank/a@1", "tank/a@2", "docs/file")
    assert said.code == code
    assert told in said.out
    assert "\x1b" not in said.out


def test_nothing_differs(looking, ctl):
    looking.lines["POST /v1/diff"] = [{"answer": {**DIFF, "changes": [], "more": 0}}]
    said = ctl("diff", "home", "tank/a@1", "tank/a@2")
    assert (said.code, said.out) == (0, "nothing differs from cold/a@s1 to cold/a@s2\n")
