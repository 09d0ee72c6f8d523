"""The block store's server in its own folders: it still serves, by real requests to a real HTTP server."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.object_store.s3_server import BUCKET, serving
from zvault.blockstore import server
from zvault.system import landlock

PLUGIN = Path(server.__file__).with_name("nbdkit_plugin.py")
ROOT = PLUGIN.parents[2]

SCRIPT = """
import importlib.util, json, os, sys, types
nbdkit = types.ModuleType("nbdkit")
nbdkit.__dict__.update(THREAD_MODEL_PARALLEL=3, FUA_NONE=0, FUA_NATIVE=2, FLAG_FUA=2, shutdown=None)
sys.modules["nbdkit"] = nbdkit
found = importlib.util.spec_from_file_location("plugin", sys.argv[1])
plugin = importlib.util.module_from_spec(found)
found.loader.exec_module(plugin)
for word in sys.argv[3:]:
    plugin.config(*word.split("=", 1))
plugin.config_complete()
plugin.after_fork()
device = plugin.open(False)
for number in range(600):
    plugin.pwrite(device, os.urandom(1 << 16), number << 16, 0)
plugin.pwrite(device, b"zvault" * 1024, 8192, 2)
plugin.flush(device, 0)
back = bytearray(6144)
plugin.pread(device, back, 8192, 0)
try:
    there = open(sys.argv[2]).read()
except PermissionError:
    there = None
try:
    open(os.path.join(os.path.dirname(sys.argv[2]), "new"), "w")
    made = True
except PermissionError:
    made = False
threads = [open(f"/proc/self/task/{one}/status").read() for one in os.listdir("/proc/self/task")]
assert len(threads) > 2
assert all("NoNewPrivs:\\t1" in one for one in threads), "each of them is restricted"
plugin.cleanup()
print(json.dumps({"back": back.decode(), "outside": there, "made": made}))
"""


@pytest.mark.skipif(landlock.read_landlock_version() < 1, reason="this kernel has no Landlock")
@pytest.mark.parametrize("mode", ["strict", "writeback"])
def test_it_serves_and_reaches_nothing_else(disk: Path, mode: str) -> None:
    outside = disk / "elsewhere" / "secret"
    outside.parent.mkdir()
    outside.write_text("of the host")
    keys = disk / "keys" / "s3"
    keys.parent.mkdir()
    keys.write_text("[default]\naws_access_key_id = KEY\naws_secret_access_key = SK\n")
    with serving() as s3:
        words = {
            "bucket": BUCKET, "key": "cold", "size": "64M", "create": "yes", "endpoint": s3.endpoint, "style": "path",
            "region": "us-east-1", "keys": keys, "mode": mode, "journal": disk / "own" / "journal",
            "journal-size": "64M", "cache": disk / "own" / "cache", "cache-size": "64M",
            "status": disk / "own" / "store" / "status", "seen": disk / "own" / "seen",
        }  # fmt: skip
        argv = [sys.executable, "-c", SCRIPT, str(PLUGIN), str(outside)]
        argv += [f"{name}={value}" for name, value in words.items()]
        env = {"HOME": str(disk), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
        done = subprocess.run(argv, cwd="/", env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{shlex.join(argv)}\n{done.stderr}"
    assert json.loads(done.stdout) == {"back": "zvault" * 1024, "outside": None, "made": False}
    assert "kept to its own folders" in done.stderr.splitlines()
    status = json.loads((disk / "own" / "store" / "status").read_text())
    assert (status["closed"], status["error"]) == (True, None)
    assert [*(disk / "own" / "seen").iterdir()] != []


def test_a_kernel_without_it_serves_too_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from zvault.blockstore import confine
    from zvault.blockstore.serve_options import ServeOptions

    monkeypatch.setattr(landlock, "read_landlock_version", lambda: 0)
    words = ServeOptions.of(
        ["bucket=b", "key=k", f"journal={tmp_path / 'j'}", f"status={tmp_path / 's' / 'status'}"]
    )
    assert "no Landlock" in confine.confine_server(words)
    assert confine.list_own_folders(words) == [tmp_path / "j", tmp_path / "s"]


def test_a_file_with_keys_may_be_replaced_by_another(tmp_path: Path) -> None:
    from zvault.blockstore import confine
    from zvault.blockstore.serve_options import ServeOptions

    keys = tmp_path / "deep" / "keys"
    words = ServeOptions.of(["bucket=b", "key=k", "readonly=yes", f"keys={keys}"])
    assert {keys, keys.parent} <= set(confine.list_read_paths(words))
    assert Path("/") not in confine.list_read_paths(words)
    assert confine.list_own_folders(words) == []
