"""Version, date and maintainer of a release are the same wherever they are written."""

from __future__ import annotations

import re
import tomllib
from email.utils import parsedate_to_datetime
from pathlib import Path

import zvault

ROOT = Path(__file__).parents[3]


def test_both_changelogs_have_the_version_and_its_date() -> None:
    debian = (ROOT / "debian/changelog").read_text()
    first = re.search(r"^zvault \(([^-)]+)-\d+\) (\w+);", debian, re.M)
    signed = re.search(r"^ -- (.+ <.+>)  (.+)$", debian, re.M)
    newest = re.search(r"^## \[([^\]]+)\](?: - (\S+))?$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert first is not None
    assert signed is not None
    assert newest is not None
    assert first[1] == zvault.__version__
    if newest[1] == "Unreleased":
        assert first[2] == "UNRELEASED"
        return
    assert first[2] != "UNRELEASED"
    assert newest[1] == zvault.__version__
    assert newest[2] == parsedate_to_datetime(signed[2]).date().isoformat()


def test_the_maintainer_is_the_same_everywhere() -> None:
    control = re.search(r"^Maintainer: (.+)$", (ROOT / "debian/control").read_text(), re.M)
    signed = re.search(r"^ -- (.+ <.+>)  ", (ROOT / "debian/changelog").read_text(), re.M)
    assert control is not None
    assert signed is not None
    assert control[1] == signed[1]
    (author,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["authors"]
    assert control[1].startswith(f"{author['name']} <")
