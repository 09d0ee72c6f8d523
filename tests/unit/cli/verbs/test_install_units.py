"""Where units may point to: a zvault that those without root's rights can load, too, and that only root may write."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import zvault
from zvault.cli.verbs.install_units import find_closed_folder, find_foreign_code, install_units
from zvault.core.errors import Refused, ToolMissing


@pytest.fixture
def opt() -> Iterator[Path]:
    """A folder that all can enter."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made) / "pipx" / "zvault"
        folder.mkdir(parents=True)
        for one in (folder, folder.parent, folder.parent.parent):
            one.chmod(0o755)
        if find_closed_folder(folder) is not None:
            pytest.skip(f"{tempfile.gettempdir()} is closed")
        yield folder


def test_the_topmost_folder_that_is_closed_is_told(opt: Path) -> None:
    opt.chmod(0o700)
    assert find_closed_folder(Path("/usr"), opt) == opt
    opt.parent.parent.chmod(0o750)
    assert find_closed_folder(opt) == opt.parent.parent


def test_no_units_are_written_for_it(opt: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opt.chmod(0o700)
    monkeypatch.setattr(sys, "prefix", str(opt))
    monkeypatch.setattr(sys, "executable", str(opt / "bin" / "python"))
    with pytest.raises(Refused, match="only root can read"):
        install_units(tmp_path / "etc")
    assert not (tmp_path / "etc").exists()


@pytest.fixture
def venv(opt: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A venv with zvault in it, which nobody but its owner may write."""
    code = opt / "lib" / "zvault"
    code.mkdir(parents=True)
    (code / "__init__.py").touch()
    (opt / "bin").mkdir()
    (opt / "bin" / "python").symlink_to(Path(sys.executable).resolve())
    for one in (opt, *opt.rglob("*")):
        if not one.is_symlink():
            one.chmod(0o755)
    monkeypatch.setattr(sys, "prefix", str(opt))
    monkeypatch.setattr(sys, "executable", str(opt / "bin" / "python"))
    monkeypatch.setattr(sys, "path", ["", str(opt / "lib"), str(opt / "lib" / "none.zip")])
    monkeypatch.setattr(zvault, "__file__", str(code / "__init__.py"))
    return opt


def test_a_venv_of_roots_alone_is_taken(venv: Path) -> None:
    found = find_foreign_code()
    assert found is None or venv not in (found.place, *found.place.parents), str(found)


@pytest.mark.parametrize(
    "place",
    [".", "..", "../..", "bin", "lib", "lib/zvault", "lib/zvault/__init__.py"],
    ids=lambda place: place,
)
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_what_others_may_write_of_it_is_refused_with_the_way_out(
    venv: Path, tmp_path: Path, place: str, mode: int
) -> None:
    at = (venv / place).resolve()
    at.chmod(at.stat().st_mode | mode)
    who = "its group" if mode == 0o020 else "everybody"
    with pytest.raises(Refused) as refused:
        install_units(tmp_path / "etc")
    assert refused.value.why == f"{at} may be written by {who}"
    assert f"'chmod go-w {at}'" in refused.value.next
    assert not (tmp_path / "etc").exists()
    at.chmod(at.stat().st_mode & ~0o022)
    found = find_foreign_code()
    assert found is None or venv not in (found.place, *found.place.parents), "the way out was none"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", [".", "bin", "lib/zvault/__init__.py"])
def test_what_belongs_to_another_is_refused(venv: Path, tmp_path: Path, place: str) -> None:
    os.chown(venv / place, 65534, 0)
    with pytest.raises(Refused) as refused:
        install_units(tmp_path / "etc")
    assert "belongs to nobody" in refused.value.why


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_where_a_link_leads_counts_and_not_who_owns_it(venv: Path, tmp_path: Path) -> None:
    link = venv / "lib" / "other"
    link.symlink_to(tmp_path)
    os.chown(link, 65534, 0, follow_symlinks=False)
    found = find_foreign_code()
    assert found is None or venv not in (found.place, *found.place.parents), str(found)
    tmp_path.chmod(0o777)
    found = find_foreign_code()
    assert found is not None
    assert found.place == tmp_path


def test_code_that_lies_elsewhere_counts(venv: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "zvault").mkdir(parents=True)
    checkout.chmod(0o777)
    for where in ("__file__", "path"):
        with monkeypatch.context() as then:
            if where == "path":
                then.setattr(sys, "path", [*sys.path, str(checkout)])
            else:
                then.setattr(zvault, "__file__", str(checkout / "zvault" / "__init__.py"))
            found = find_foreign_code()
        assert found is not None
        assert found.place == checkout


def test_units_are_removed_whoever_may_write_the_code(venv: Path, tmp_path: Path) -> None:
    (venv / "lib").chmod(0o777)
    (tmp_path / "systemd/system").mkdir(parents=True)
    (tmp_path / "systemd/system/zvaultd.service").touch()
    try:
        install_units(tmp_path, remove=True)
    except ToolMissing:
        pytest.skip("there is no systemctl")
    assert not (tmp_path / "systemd/system/zvaultd.service").exists()
