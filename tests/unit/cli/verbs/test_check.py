"""check-config shows each backup with what it inherits."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Ctl
from zvault.config import paths

TEXT = """
[vault.cold]
pool = "cold"
[defaults]
vault = "cold"
schedule = "daily"
[template.servers]
every = "1h"
[backup.web]
source = "tank/web"
template = "servers"
"""


def test_each_backup_is_shown_with_what_it_inherits(ctl: Ctl, tmp_path: Path) -> None:
    file = tmp_path / "draft.toml"
    file.write_text(TEXT)
    said = ctl("check-config", str(file), "--offline", "-v")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        f"OK: {file}: 1 vault (cold), 1 backup (web)",
        "",
        "[backup.web]",
        'vault = "cold"  # [defaults]',
        'every = "1h"  # [template.servers]',
        'source = "tank/web"',
        'template = "servers"',
        "",
    ]
    assert "[backup.web]" not in ctl("check-config", str(file), "--offline").out


def test_without_a_configuration_it_says_how_to_begin(
    ctl: Ctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "Paths", partial(paths.Paths, etc=tmp_path))
    said = ctl("check-config", "--offline")
    assert said.code == 2
    assert said.err.splitlines()[1:] == [
        f"{tmp_path}/zvault.toml: does not exist",
        "  next: begin with the sample ('cp /usr/share/doc/zvault/zvault.toml /etc/zvault/'), or, where another tool"
        " made a replica, with what 'zvaultctl adopt SOURCE REPLICA' prints",
    ]
    # A name that was mistyped, and a configuration that is wrong, need no beginning.
    assert "next:" not in ctl("check-config", str(tmp_path / "other.toml"), "--offline").err
    (tmp_path / "zvault.toml").write_text("[vault.cold]\npool = 3\n")
    assert "next:" not in ctl("check-config", "--offline").err
