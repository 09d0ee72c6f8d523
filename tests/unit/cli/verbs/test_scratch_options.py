"""What a command needs of memory as long as it works on a block store."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.patience import PATIENCE

SCRIPT = """
import time
from types import SimpleNamespace
from zvault.cli.verbs.blockstore_place import make_scratch_options
with make_scratch_options(SimpleNamespace(spec=SimpleNamespace(lock=None, gc_elsewhere=False))) as options:
    print(options.journal.parent, flush=True)
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_one_that_is_told_to_end_leaves_no_journal_in_memory(number: signal.Signals) -> None:
    """Each that timeout(1) or the end of a terminal had ended left up to 256 MiB, until the host was booted."""
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=pipe, stderr=none, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        try:
            assert folder.is_dir()
            process.send_signal(number)
            assert process.wait(PATIENCE) in {128 + number, -number}
            assert not folder.exists()
        finally:
            process.kill()
            shutil.rmtree(folder, ignore_errors=True)
