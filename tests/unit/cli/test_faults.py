"""What a user sees when it does not work: what, why, next; an exit status; never a traceback."""

import fcntl
import json
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.unit.cli.api_documents import backup, status, vault
from tests.unit.patience import PATIENCE
from zvault import __version__
from zvault.cli import daemon_client
from zvault.config.paths import Paths
from zvault.daemon.app import _note_start

ROOT = Path(__file__).parents[3]
VERBS = [
    ["status"],
    ["list"],
    ["plan", "home"],
    ["run", "home"],
    ["run", "home", "--no-wait"],
    ["follow", "home"],
    ["history"],
    ["restore", "home", "tank", "tank/x"],
    ["vault", "up", "cold"],
    ["vault", "status"],
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_no_daemon(ctl, tmp_path, monkeypatch, verb):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "none"))
    said = ctl(*verb)
    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        "zvaultctl: zvaultd is not running",
        f"   why: there is no socket {tmp_path / 'none'}",
        "  next: start it with 'systemctl start zvaultd'; if it does not stay up, see 'journalctl -u zvaultd'",
    ]


def test_a_daemon_that_starts_is_not_called_down(ctl, tmp_path, monkeypatch):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "none"))
    note = tmp_path / "zvaultd.starting"
    with _note_start(note):
        said = ctl("status")
    assert said.code == 2
    assert said.err.splitlines()[0] == "zvaultctl: zvaultd is starting"
    assert f"process {os.getpid()} looks after what an earlier zvaultd left" in said.err
    assert "try again in a moment" in said.err
    # One that was killed leaves the file, and another process may have its ID: it says nothing.
    for left in (f"{os.getpid()}\n", f"{2**22 + 1}\n", "", "x"):
        note.write_text(left)
        assert "zvaultctl: zvaultd is not running" in ctl("status").err


def test_what_a_daemon_that_was_killed_left_keeps_the_next_from_nothing(ctl, tmp_path, monkeypatch):
    """Not even where somebody who may read it has it locked."""
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "none"))
    note = tmp_path / "zvaultd.starting"
    note.write_text("1\n")
    with note.open() as left:
        fcntl.flock(left, fcntl.LOCK_EX)
        with _note_start(note):
            assert f"process {os.getpid()} looks after" in ctl("status").err
        assert not note.exists()
        assert "zvaultctl: zvaultd is not running" in ctl("status").err


@pytest.mark.parametrize("verb", [*VERBS, ["holds"], ["tune", "show"], ["find", "home", "x"]], ids=" ".join)
def test_an_error_is_a_document_where_one_is_asked_for(ctl, tmp_path, monkeypatch, verb):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "none"))
    said = ctl(*verb, "-j")
    assert said.code == 2
    document = json.loads(said.out)
    words = [word for word in verb if word in {"vault", "up", "status", "tune", "show"}] or verb[:1]
    assert document["output_version"]["command"] == f"zvaultctl {' '.join(words)}"
    assert document["error"] == {
        "reason": "unreachable",
        "what": "zvaultd is not running",
        "why": f"there is no socket {tmp_path / 'none'}",
        "next": "start it with 'systemctl start zvaultd'; if it does not stay up, see 'journalctl -u zvaultd'",
    }
    assert "zvaultctl: zvaultd is not running" in said.err
    # What one call asked for is nothing to the next.
    assert ctl(*verb).out == ""


def test_the_daemons_error_is_a_document_too(daemon, ctl):
    daemon.refuse("GET /v1/plan/home", 409, reason="busy", what="no", why="because", next="do this")
    said = ctl("plan", "home", "-j")
    assert said.code == 1
    assert json.loads(said.out)["error"] == {
        "reason": "busy",
        "what": "no",
        "why": "because",
        "next": "do this",
    }


def test_a_defect_is_a_document_too(daemon, ctl):
    daemon.documents["GET /v1/vaults"] = {"surprise": True}
    daemon.unchecked = True
    said = ctl("vault", "status", "-j")
    assert said.code == 2
    error = json.loads(said.out)["error"]
    assert error["reason"] == "failed"
    assert error["what"] == "unexpected error: KeyError: 'vaults'"


def test_a_socket_nobody_listens_on(ctl, tmp_path, monkeypatch):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / "s"))
    left.close()
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "s"))
    said = ctl("status")
    assert said.code == 2
    assert "nobody listens" in said.err


def test_a_socket_one_may_not_open(ctl, tmp_path, monkeypatch):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "s"))

    def refused(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    # root may open every socket, and tests may run as root
    monkeypatch.setattr("zvault.cli.unix_http.connect_socket", refused)
    said = ctl("status")
    assert said.code == 2
    assert "the group zvault" in said.err
    assert "adduser USER zvault" in said.err


def test_a_daemon_that_is_silent(ctl, tmp_path, monkeypatch):
    monkeypatch.setenv("ZVAULT_SOCKET", str(tmp_path / "s"))
    monkeypatch.setattr(daemon_client, "DOCUMENT_DEADLINE", 0.2)
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "s"))
        mute.listen()
        said = ctl("status")
    assert said.code == 2
    assert "zvaultd does not answer" in said.err


@pytest.mark.parametrize(
    ("http", "reason", "code"),
    [
        (404, "not-found", 2),
        (403, "refused", 2),
        (409, "busy", 1),
        (500, "vault-full", 1),
        (500, "new-kind", 1),
    ],
)
def test_the_daemons_own_errors_are_passed_on(daemon, ctl, http, reason, code):
    daemon.refuse("GET /v1/plan/home", http, reason=reason, what="no", why="because", next="do this")
    said = ctl("plan", "home")
    assert said.code == code
    assert said.err.splitlines() == ["zvaultctl: no", "   why: because", "  next: do this"]


def test_an_answer_that_is_no_error_of_ours(daemon, ctl):
    said = ctl("status")
    assert said.code == 1
    assert "zvaultd answered 404 to GET /v1/status" in said.err
    assert "different versions" in said.err


def test_a_defect_is_one_line_and_a_way_to_the_details(daemon, ctl, monkeypatch):
    daemon.documents["GET /v1/status"] = {"surprise": True}
    daemon.unchecked = True
    said = ctl("status")
    assert said.code == 2
    assert said.err.startswith("zvaultctl: unexpected error: KeyError")
    assert "ZVAULT_DEBUG=1" in said.err
    assert "Traceback" not in said.err
    monkeypatch.setenv("ZVAULT_DEBUG", "1")
    assert "Traceback" in ctl("status").err


@pytest.mark.parametrize("wrong", [["statsu"], ["status", "--no"], ["run"], ["list", "-t", "cats"]])
def test_wrong_usage(ctl, wrong):
    said = ctl(*wrong)
    assert said.code == 2
    assert "Usage: zvaultctl" in said.err


def test_version(ctl):
    assert ctl("--version").out == f"zvault {__version__}\n"


GOOD = """
[vault.cold]
pool = "cold"
[[vault.cold.device]]
nbd = "unix:/run/server.sock"

[backup.home]
source = "tank/home"
vault = "cold"
"""


def test_check_config(ctl, tmp_path, monkeypatch):
    monkeypatch.setattr("zvault.config.paths.Paths", partial(Paths, profiles=ROOT / "config" / "profiles"))
    file = tmp_path / "zvault.toml"
    file.write_text(GOOD)
    said = ctl("check-config", str(file))
    assert (said.code, said.out) == (0, f"OK: {file}: 1 vault (cold), 1 backup (home)\n")
    file.write_text(GOOD.replace("pool", "pol").replace("source", "sorce"))
    said = ctl("check-config", str(file))
    assert (said.code, said.out) == (2, "")
    assert [line for line in said.err.splitlines() if line.startswith(f"{file}:3:") and "pool" in line]
    assert [line for line in said.err.splitlines() if line.startswith(f"{file}:8:") and "source" in line]
    said = ctl("check-config", "-j", str(file))
    assert said.code == 2
    assert '"ok": false' in said.out


def test_check_config_warns_of_timeouts_that_end_too_late(ctl, tmp_path, monkeypatch):
    """OpenZFS's own bound may be another on the host; what the profile sets is sure."""
    profiles = tmp_path / "profiles"
    profiles.mkdir()
    monkeypatch.setattr("zvault.config.paths.Paths", partial(Paths, profiles=profiles))
    file, profile = tmp_path / "zvault.toml", profiles / "local.toml"
    profile.touch()
    file.write_text(GOOD.replace('server.sock"', 'server.sock"\nconnections = 4'))
    said = ctl("check-config", str(file))
    assert said.code == 0
    assert said.out.startswith("OK: ")
    assert said.err.startswith(
        "warning: vault.cold.device[0].timeout: a request may take 6m, on 4 connections"
    )
    assert 'make it "67s" or less' in said.err
    assert json.loads(ctl("check-config", "-j", str(file)).out)["warnings"]

    plain = GOOD.replace("unix:/run/server.sock", "zvault:zv/cold size=1T endpoint=http://s3.example.org")
    file.write_text(plain)
    said = ctl("check-config", str(file))
    assert said.code == 0
    assert "http://s3.example.org is not encrypted" in said.err
    file.write_text(plain.replace("http://", "https://"))
    assert "not encrypted" not in ctl("check-config", str(file)).err

    profile.write_text("[module]\nzfs_deadman_ziotime_ms = 60000\n")
    file.write_text(GOOD)
    said = ctl("check-config", str(file))
    assert (said.code, said.out) == (2, "")
    assert f"{file}:4: vault.cold.device[0].timeout: a request may take 1m 30s, and" in said.err
    assert 'after 1m (zfs_deadman_ziotime_ms, in profile "local"): make it "54s" or less' in said.err

    profile.write_text("[module]\nzfs_deadman_ziotime_ms = 400000\n")
    file.write_text(GOOD.replace('server.sock"', 'server.sock"\nconnections = 4'))
    said = ctl("check-config", "--offline", str(file))
    assert (said.code, said.err) == (0, "")
    said = ctl("check-config", str(file))
    assert said.code == 0, "what is not there is no fault of the configuration"
    assert "backup.home.source: " in said.err
    assert "vault.cold.device[0]: the server unix:/run/server.sock cannot be reached" in said.err


def zvaultctl(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from zvault.cli.app import main; main()", *arguments]
    return subprocess.run(command, cwd=ROOT, text=True, stderr=subprocess.PIPE, timeout=PATIENCE, **options)


def test_a_reader_that_leaves_early_is_no_error(daemon):
    daemon.documents["GET /v1/status"] = status(*(backup(f"b{i}") for i in range(3)))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as gone:
        assert zvaultctl("status", stdout=gone).stderr == ""


def test_a_full_disk_under_the_output_is_told(daemon):
    daemon.documents["GET /v1/status"] = status(backup())
    with Path("/dev/full").open("w") as full:
        done = zvaultctl("status", stdout=full)
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


NOT_NEEDED = (
    *("aiohttp", "asyncio", "concurrent.futures", "email", "http.client", "logging", "pydantic"),
    *(
        "rich",
        "ssl",
        "subprocess",
        "tempfile",
        "zvault.config.load_config",
        "zvault.config.schema",
        "zvault.ops",
    ),
)
"""What takes long to import, and what no verb needs that only asks the daemon."""

TYPER = """
import sys, zvault.cli, typer
bare = typer.Typer()
@bare.command()
def command(flag: bool = False) -> None: pass
try: bare([])
except SystemExit: pass
before = set(sys.modules)
"""
"""A command that does nothing: what typer imports by itself (newer ones: pydantic, and what that imports)."""


def imported(code: str, **environment: str | None) -> list[str]:
    """What some code prints, and last what it imports of NOT_NEEDED."""
    report = f"print([m for m in {NOT_NEEDED} if m in sys.modules and m not in before])"
    changed = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", f"{TYPER}{code}\n{report}"],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        timeout=PATIENCE,
        env={key: value for key, value in changed.items() if value is not None},
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "verb", [["--help"], ["status"], ["status", "-j"], ["vault", "status"]], ids=" ".join
)
def test_no_verb_waits_for_what_it_does_not_need(daemon, verb):
    daemon.documents["GET /v1/status"] = status(backup())
    daemon.documents["GET /v1/vaults"] = {"vaults": [vault()]}
    code = (
        f"sys.argv = {['zvaultctl', *verb]}\nfrom zvault.cli.app import main\n"
        "try: main()\nexcept SystemExit as left: assert not left.code"
    )
    assert imported(code)[-1] == "[]"


def test_where_the_socket_is_is_known_without_reading_the_configuration():
    code = "from zvault.cli.daemon_client import find_socket_path\nprint(find_socket_path())"
    assert imported(code, ZVAULT_SOCKET=None) == ["/run/zvault/zvaultd.sock", "[]"]


@pytest.mark.parametrize(
    "verb", [["run", os.fsdecode(b"caf\xe9")], ["explain", os.fsdecode(b"tank/caf\xe9")]]
)
def test_a_name_of_any_bytes_is_asked_for(daemon, ctl, verb):
    said = ctl(*verb)
    assert "unexpected error" not in said.err
    assert daemon.asked


@pytest.mark.parametrize("verb", [["run"], ["plan"], ["explain"], ["doctor"], ["vault", "up"]], ids=" ".join)
def test_an_empty_name_is_wrong_usage(daemon, ctl, verb):
    said = ctl(*verb, "")
    assert (said.code, said.out) == (2, "")
    assert "is empty" in said.err
    assert daemon.asked == []


@pytest.mark.parametrize(
    ("closed", "code"), [("<&-", 0), ("2>&-", 0), (">&-", 1), ("<&- >&- 2>&-", 1), (">/dev/full", 1)]
)
def test_standard_streams_that_are_closed(tmp_path, closed, code):
    """Results that cannot be written are a failure, and nothing is a defect of zvaultctl."""
    shell = f"{sys.executable} -c 'from zvault.cli.app import main; main()' --version {closed}"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == code
    assert "unexpected error" not in done.stderr
    assert "Traceback" not in done.stderr
    if code and "2>&-" not in closed:
        assert "could not continue" in done.stderr
