"""What a process that keeps a lease leaves behind when it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zvault.core.errors import Busy
from zvault.devices.s3_lease.answers import report_lease_error

LOST = Busy("it is lost", "another has it", "nothing")


def test_why_it_ended_is_where_zvaultd_looks_for_it(tmp_path: Path) -> None:
    assert report_lease_error(LOST, tmp_path / "why") == 1
    said = json.loads((tmp_path / "why").read_text())
    assert said == {"kind": "Busy", "what": "it is lost", "why": "another has it", "next": "nothing"}


def test_where_that_cannot_be_written_it_goes_on_to_what_others_wait_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As where /run is full: the guard still says that its server has stopped, or another host waits for the bound."""
    assert report_lease_error(LOST, tmp_path / "gone" / "why") == 1
    said = capsys.readouterr().err
    assert "it is lost: another has it" in said
    assert "why cannot be written" in said
