"""The page on previous versions gives Samba a format that reads the names of zvault's snapshots, and no others."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from zvault.core.names import make_snapname

PAGE = Path(__file__).parents[3] / "docs/how-to/previous-versions.md"


def find_format() -> str:
    found = re.search(r"^shadow:format = (.+)$", PAGE.read_text(), re.M)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("second", [0, 1_795_000_000, 2_000_000_001])
def test_samba_reads_the_time_of_a_snapshot_from_its_name(second: int) -> None:
    """Samba reads it by strptime(3), as UTC with ``shadow:localtime = no``."""
    when = datetime.fromtimestamp(second, UTC)
    assert time.strptime(make_snapname("zvault", when), find_format())[:6] == when.timetuple()[:6]
    assert "shadow:localtime = no" in PAGE.read_text()


@pytest.mark.parametrize(
    "name", ["autosnap_2026-11-21_09:00:00_hourly", "other_2026-11-21T09:00:00Z", "manual"]
)
def test_what_others_made_is_left_out(name: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        time.strptime(name, find_format())
