"""check-config shows each backup with what it inherits."""

from __future__ import annotations

from pathlib import Path

from tests.unit.cli.conftest import Ctl

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
