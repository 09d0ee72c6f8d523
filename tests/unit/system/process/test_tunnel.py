import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE
from zvault.core.errors import ToolFailed, ToolMissing
from zvault.system.process import tunnel
from zvault.system.process.tunnel import Tunnel


def test_a_program_that_does_not_end_when_told_to_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunnel, "TUNNEL_END_TIME", 0.1)
    ready = tmp_path / "ready"
    stubborn = f"trap '' TERM; echo $$ >{ready}.new; mv {ready}.new {ready}; while :; do sleep 0.05; done"
    way = Tunnel(["sh", "-c", stubborn], tmp_path / "socket", lambda said: ToolFailed("no way", said, "none"))
    while not ready.exists():
        time.sleep(0.01)
    pid = int(ready.read_text())
    way.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def test_it_ends_with_who_started_it_also_where_that_one_is_killed(tmp_path: Path) -> None:
    """'timeout 60 zvaultctl --hosts a,b' left an ssh for each host, for ever."""
    ready = tmp_path / "ready"
    program = f"echo $$ >{ready}.new; mv {ready}.new {ready}; exec sleep 1000"
    script = f"""if True:
        import time
        from pathlib import Path
        from zvault.system.process.tunnel import Tunnel
        way = Tunnel(["sh", "-c", {program!r}], Path("/nowhere"), ValueError)
        time.sleep(1000)
    """
    with subprocess.Popen([sys.executable, "-c", script]) as starter:
        try:
            until = time.monotonic() + PATIENCE
            while not ready.exists() and time.monotonic() < until:
                time.sleep(0.01)
            pid = int(ready.read_text())
        finally:
            starter.kill()
    try:
        until = time.monotonic() + PATIENCE
        while _sleeps(pid) and time.monotonic() < until:
            time.sleep(0.01)
        assert not _sleeps(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _sleeps(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def test_a_program_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ToolMissing, match="no-such-program"):
        Tunnel(["no-such-program"], tmp_path / "socket", lambda said: ToolFailed("no way", said, "none"))
