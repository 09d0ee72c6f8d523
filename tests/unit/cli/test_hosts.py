"""Several hosts' daemons asked as one: names are HOST:NAME, and a host that cannot be asked is told, not left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.cli.api_documents import backup, status
from zvault.cli import hosts
from zvault.cli.daemon_client import HttpClient
from zvault.cli.hosts import SeveralDaemons, parse_hosts
from zvault.core.errors import ConfigError, HostUnreachable
from zvault.system import ssh

LOST = HostUnreachable("cannot reach ssh://b", "no route to host", "see the network")


@pytest.fixture
def two(daemon, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What -H asks is the fake daemon as host a, and a host b that is not there, unless another daemon is given."""

    def ask(b: Path | HostUnreachable = LOST) -> None:
        other = b if isinstance(b, HostUnreachable) else HttpClient(b)
        made = SeveralDaemons({"a": HttpClient(daemon.socket), "b": other})
        monkeypatch.setattr(hosts, "open_hosts", lambda *_: made)

    ask()
    return ask


def test_what_a_host_has_is_named_by_it_and_one_that_cannot_be_asked_is_not_known_to_be_well(
    daemon, ctl, two
) -> None:
    daemon.documents["GET /v1/status"] = status(backup("tank"))
    said = ctl("--hosts", "a,b", "status")
    assert said.code == 3
    assert "b could not be asked" in said.lines[0]
    assert any(line.startswith("a: zvaultd ") for line in said.lines)
    assert any("b: cannot reach ssh://b: no route to host" in line for line in said.lines)
    assert any(line.startswith("a:tank ") for line in said.lines)
    found = json.loads(ctl("--hosts", "a,b", "status", "-j").out)
    assert [(one["name"], one["daemon"] is None) for one in found["hosts"]] == [("a", False), ("b", True)]


def test_all_that_answer_are_in_one_table(daemon, ctl, two) -> None:
    two(daemon.socket)
    daemon.documents["GET /v1/status"] = status(backup("tank"))
    said = ctl("--hosts", "a,b", "lag", "-H")
    assert said.code == 0
    assert [row[0] for row in said.cells] == ["a:tank", "b:tank"]


def test_where_none_answers_it_is_an_error(daemon, ctl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "open_hosts", lambda *_: SeveralDaemons({"b": LOST}))
    said = ctl("--hosts", "b", "status")
    assert said.code == 2
    assert "cannot reach ssh://b\n   why: no route to host" in said.err


def test_a_verb_asks_the_host_that_its_name_says(daemon, ctl, two) -> None:
    daemon.documents["POST /v1/run/tank"] = {"run": "r1"}
    assert ctl("--hosts", "a,b", "run", "a:tank", "--no-wait").code == 0
    assert daemon.asked[-1][0] == "POST /v1/run/tank"
    daemon.documents["POST /v1/find"] = {"versions": [], "unread": {}}
    assert "nothing in the vault of a:tank" in ctl("--hosts", "a,b", "find", "a:tank", "*.pdf").err
    assert daemon.asked[-1][2]["backup"] == "tank"
    lost = ctl("--hosts", "a,b", "run", "b:tank", "--no-wait")
    assert (lost.code, "no route to host" in lost.err) == (2, True)
    unnamed = ctl("--hosts", "a,b", "run", "tank", "--no-wait")
    assert unnamed.code == 2
    assert "it is not said on which host" in unnamed.err
    assert "as in a:NAME" in unnamed.err


@pytest.mark.parametrize("verb", ["browse", "check-config", "diff", "mount", "restore", "blockstore"])
def test_what_works_on_files_here_is_refused(ctl, verb: str) -> None:
    said = ctl("--hosts", "a,b", verb, "create")
    assert said.code == 2
    assert f"ssh HOST zvaultctl {verb}" in said.err


def test_the_next_command_asks_this_host_again(daemon, ctl, two) -> None:
    daemon.documents["GET /v1/status"] = status(backup("tank"))
    ctl("--hosts", "a,b", "status")
    assert any(line.startswith("tank ") for line in ctl("status").lines)


@pytest.mark.parametrize(
    ("text", "why"), [("a,a", "named twice"), ("a,", "no address"), ("-oProxyCommand=x", "no address")]
)
def test_hosts_that_are_none_are_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        parse_hosts(text)


def test_the_way_leads_to_the_socket_over_there_and_is_nobody_elses() -> None:
    (address,) = parse_hosts("root@b").values()
    argv = ssh.forward_argv(address, Path("/tmp/x/0"), Path("/run/zvault/zvaultd.sock"))
    assert argv[-6:] == ["-L", "/tmp/x/0:/run/zvault/zvaultd.sock", "-l", "root", "--", "b"]
    assert {"ExitOnForwardFailure=yes", "StreamLocalBindMask=0177", "BatchMode=yes"} <= set(argv)
    assert "ClearAllForwardings=yes" not in argv
