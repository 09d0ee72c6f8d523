"""What systemctl prints, as it printed it."""

from pathlib import Path

import pytest

from zvault.system.process.runner import HostRunner
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import SystemdUnits, parse_show

# systemd 257: a unit whose process was killed, and one that does not exist.
SHOWN = """\
MainPID=0
Result=signal
Id=zvault-device@cold-0.service
LoadState=loaded
ActiveState=failed

MainPID=0
Result=success
Id=zvault-device@zz.service
LoadState=not-found
ActiveState=inactive

MainPID=259
Result=success
Id=zvault-device@cold-1.service
LoadState=loaded
ActiveState=active
"""


def test_parse_show():
    assert parse_show(SHOWN) == [
        UnitState("zvault-device@cold-0.service", True, "failed", "signal", 0),
        UnitState("zvault-device@zz.service", False, "inactive", "success", 0),
        UnitState("zvault-device@cold-1.service", True, "active", "success", 259),
    ]
    assert [state.running for state in parse_show(SHOWN)] == [False, False, True]
    assert parse_show("") == []


@pytest.mark.parametrize("says", ["stopping", "running", "degraded", "offline"])
async def test_whether_the_host_goes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str):
    systemctl = tmp_path / "systemctl"
    # Its exit status is 1 for all but the second.
    systemctl.write_text(f"#!/bin/sh\n[ $* = is-system-running ] && echo {says}; exit 1\n")
    systemctl.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert await SystemdUnits(HostRunner()).host_goes_down() is (says == "stopping")
