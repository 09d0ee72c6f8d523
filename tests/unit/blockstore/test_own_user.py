"""A server that gives up root's rights: what it still reaches, and what it does not. By real processes, as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE
from zvault.blockstore import own_user
from zvault.config.device_specs.blockstore import SERVER_USER_IDS, parse_blockstore

ROOT = Path(own_user.__file__).parents[2]

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or "lacks" in str(own_user.explain_staying_root(0)),
    reason="only root can become somebody else",
)

SCRIPT = """
import json, os, sys
from pathlib import Path
from zvault.blockstore import own_user
from zvault.blockstore.confine import confine_server
from zvault.blockstore.reached_store import make_s3_settings
from zvault.blockstore.serve_options import ServeOptions
from zvault.blockstore.known_position import StorePosition, SeenPosition

words = ServeOptions.of(sys.argv[2:])
own = own_user.prepare_own_user(words, words.user)
confine_server(words)
own.become()
told, outside = {}, Path(sys.argv[1])

def tried(call):
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"

def read(path):
    with os.fdopen(own.opener.read(str(path))) as file:
        return file.read()

spec = own.words.spec
journal, keys = Path(spec.journal), make_s3_settings(spec).keys
told["uid"] = os.getresuid() + os.getresgid()
told["groups"] = os.getgroups()
told["capabilities"] = own_user._capabilities()
old = journal / "000000000001.journal"
told["old"] = old.read_text()
(journal / "new").write_text("x")
old.unlink()
told["named"] = own.names[str(journal)]
told["resolved"] = str(journal.resolve())
told["keys"] = tried(lambda: open(keys))
told["opened"] = read(keys)
new = outside / "next"
told["other"] = tried(lambda: open(outside / "other-keys"))
told["asked"] = tried(lambda: read(outside / "other-keys"))
print("ready", flush=True)
sys.stdin.readline()
told["changed"] = read(keys)
seen = SeenPosition(words.seen, bytes(16), own.opener.write)
seen.note(StorePosition(1, 2, 3), durable=True)
told["trouble"] = seen.trouble
told["again"] = tried(lambda: own.opener.write(bytes([1] * 16)))
told["positions"] = tried(lambda: open(words.seen / ("00" * 16), "r+"))
told["back"] = tried(lambda: os.setuid(0))
told["planted"] = os.stat(outside / "planted").st_uid if os.access(outside, os.X_OK) else None
print(json.dumps(told))
"""


def test_it_reaches_its_own_and_nothing_of_root_or_of_another(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    outside, own = tmp_path / "outside", tmp_path / "own"
    journal, seen = own / "journal", tmp_path / "seen"
    journal.mkdir(parents=True, mode=0o700)
    # As a server that ran as root left it; and a name of a file elsewhere, which must stay whose it is.
    (journal / "000000000001.journal").write_text("of root's")
    outside.mkdir()
    (outside / "planted").write_text("the host's")
    os.link(outside / "planted", journal / "link")
    (journal / "symlink").symlink_to(outside / "planted")
    (outside / "other-keys").write_text("of another store")
    keys = outside / "keys"
    keys.write_text("first")
    keys.chmod(0o600)
    spec = parse_blockstore(f"b/k journal={journal} keys={keys}")
    words = ["bucket=b", "key=k", *spec.settings, f"status={own / 'store' / 'status'}", f"seen={seen}"]
    argv = [sys.executable, "-c", SCRIPT, str(outside), *words, f"user={spec.user}"]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": str(ROOT)}
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        assert server.stdout.readline() == "ready\n"
        fresh = outside / "new"
        fresh.write_text("second")
        fresh.chmod(0o600)
        fresh.replace(keys)
        out, _ = server.communicate("go\n", timeout=60)
    told = json.loads(out)
    assert told == {
        "uid": [spec.user] * 6,
        "groups": [],
        "capabilities": 0,
        "old": "of root's",
        "named": str(journal),
        "resolved": str(journal),
        "keys": "PermissionError",
        "opened": "first",
        "other": "PermissionError",
        "asked": "PermissionError",
        "changed": "second",
        "trouble": None,
        "again": "PermissionError",
        "positions": "PermissionError",
        "back": "PermissionError",
        "planted": None,
    }
    assert (outside / "planted").stat().st_uid == 0
    assert (journal / "new").stat().st_uid == spec.user
    assert [path.name for path in seen.iterdir()] == ["00" * 16]
    assert (seen / ("00" * 16)).stat().st_uid == 0


def test_a_folder_goes_from_one_user_to_the_next(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "lost+found").mkdir(parents=True)
    (cache / "frames").touch()
    (cache / "index").touch()
    os.chown(cache / "index", 1000, 1000)
    for uid in (SERVER_USER_IDS[1], SERVER_USER_IDS[2]):
        os.close(int(Path(own_user._give(cache, uid)).name))
        assert {path.stat().st_uid for path in (cache, cache / "frames")} == {uid}
        assert (cache / "index").stat().st_uid == 1000
        assert (cache / "lost+found").stat().st_uid == 0


def test_a_folder_that_has_something_else_in_it_stays_roots(tmp_path: Path) -> None:
    for name in ("000000000001.journal", "1.spare", "begin.new", "lost+found"):
        (tmp_path / name).touch()
    assert own_user.find_shared_folder({"journal": str(tmp_path), "cache": str(tmp_path / "none")}) is None
    (tmp_path / "photographs").mkdir()
    told = own_user.find_shared_folder({"journal": str(tmp_path)})
    assert told is not None
    assert "photographs" in told
    # What a server has already, root cannot look into without the capability for that.
    os.chown(tmp_path, SERVER_USER_IDS[1], SERVER_USER_IDS[1])
    assert own_user.find_shared_folder({"journal": str(tmp_path)}) is None


def test_a_server_that_was_killed_starts_again_without_the_rights_of_root_over_files(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.mkdir(mode=0o700)
    script = """
import ctypes, os, struct, sys
from pathlib import Path
from zvault.blockstore import own_user
kept = sum(1 << number for number in own_user.NEEDED_CAPABILITIES.values())
header, data = struct.pack("<Ii", 0x20080522, 0), struct.pack("<6I", kept, kept, 0, 0, 0, 0)
assert ctypes.CDLL(None).capset(header, data) == 0
folder = sys.argv[1]
for _ in range(2):
    assert own_user.find_shared_folder({"journal": folder}) is None
    own_user._give(Path(folder), own_user.SERVER_USER_IDS[1])
assert os.stat(folder).st_uid == own_user.SERVER_USER_IDS[1]
"""
    subprocess.run([sys.executable, "-c", script, str(journal)], check=True, env={"PYTHONPATH": str(ROOT)})


def test_the_process_that_opens_has_no_capability_and_ends_with_the_other(tmp_path: Path) -> None:
    script = """
import os, sys, time
from pathlib import Path
from zvault.system import opener
it = opener.start_opener(["/etc/hostname"], None)
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
assert len(children) == 1, children
status = Path(f"/proc/{children[0]}/status")
for _ in range(1000):
    told = dict(line.split(":", 1) for line in status.read_text().splitlines())
    if int(told["CapEff"], 16) == 0:
        break
    time.sleep(0.02)
assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == 0, told
assert {os.readlink(f"/proc/{children[0]}/fd/{n}").split(":")[0] for n in os.listdir(f"/proc/{children[0]}/fd")
        if int(n) > 2} == {"socket"}
print(children[0])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    pid = Path("/proc", done.stdout.strip(), "cmdline")
    give_up = time.monotonic() + PATIENCE
    while pid.exists() and pid.read_bytes():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def test_a_file_for_which_there_is_no_room_is_an_error_with_words(tmp_path: Path) -> None:
    """The kernel drops the descriptor on its way: the answer alone says that all went well."""
    script = """
import os, resource
from zvault.system import opener
it = opener.start_opener(["/etc/hostname"], None)
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, hard))
try:
    it.read("/etc/hostname")
except OSError as error:
    print(error.strerror)
"""
    argv = [sys.executable, "-c", script]
    done = subprocess.run(argv, env={"PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.stdout == "Too many open files\n"


def test_who_cannot_become_another_says_why_and_stays(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(own_user, "_for_root_alone", lambda _: None)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/root/config")
    assert "AWS_CONFIG_FILE: boto3 reads that itself" in str(
        own_user.explain_staying_root(SERVER_USER_IDS[0])
    )
    monkeypatch.setattr(own_user, "_for_root_alone", lambda _: Path("/root"))
    assert "/root is for root alone" in str(own_user.explain_staying_root(SERVER_USER_IDS[0]))
    monkeypatch.setattr(own_user, "_capabilities", lambda: 1)
    assert "lacks CAP_SETGID, CAP_SETUID" in str(own_user.explain_staying_root(SERVER_USER_IDS[0]))
    assert own_user._is_mapped(SERVER_USER_IDS[0], "         0          0 4294967295\n")
    assert not own_user._is_mapped(SERVER_USER_IDS[0], "         0     100000      65536\n")
