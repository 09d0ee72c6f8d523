"""Where units may point to: a zvault that those without root's rights can load, too."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.cli.verbs.install_units import closed, install_units
from zvault.core.errors import Refused


@pytest.fixture
def opt() -> Iterator[Path]:
    """A folder that all can enter."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "pipx" / "zvault"
        folder.mkdir(parents=True)
        for one in (folder, folder.parent, folder.parent.parent):
            one.chmod(0o755)
        if closed(folder) is not None:
            pytest.skip(f"{tempfile.gettempdir()} is closed")
        yield folder


def test_the_topmost_folder_that_is_closed_is_told(opt: Path) -> None:
    opt.chmod(0o700)
    assert closed(Path("/usr"), opt) == opt
    opt.parent.parent.chmod(0o750)
    assert closed(opt) == opt.parent.parent


def test_no_units_are_written_for_it(opt: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opt.chmod(0o700)
    monkeypatch.setattr(sys, "prefix", str(opt))
    monkeypatch.setattr(sys, "executable", str(opt / "bin" / "python"))
    with pytest.raises(Refused, match="only root can read"):
        install_units(tmp_path / "etc")
    assert not (tmp_path / "etc").exists()
