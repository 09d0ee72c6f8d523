import os
import signal
import time
from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed
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
