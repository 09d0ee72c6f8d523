"""A configuration that others than root may write is refused: whoever may write it can have root run programs."""

import os
from pathlib import Path

import pytest

from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.core.errors import ConfigError


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    made = Paths(etc=tmp_path / "etc")
    (made.etc / "conf.d").mkdir(parents=True)
    made.config_file.write_text("[daemon]\n")
    (made.etc / "conf.d" / "more.toml").write_text("")
    for place in (made.etc, made.etc / "conf.d"):
        place.chmod(0o755)
    return made


def refused(paths: Paths) -> list[str]:
    try:
        load_config(paths)
    except ConfigError as error:
        return error.why.splitlines()
    return []


def test_one_that_only_its_owner_may_write_is_taken(paths: Paths):
    assert refused(paths) == []
    paths.config_file.chmod(0o600)
    paths.etc.chmod(0o700)
    assert refused(paths) == []


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
@pytest.mark.parametrize("place", ["zvault.toml", ".", "conf.d", "conf.d/more.toml"])
def test_one_that_others_may_write_is_refused(paths: Paths, place: str, mode: int):
    folder = 0o111 if (paths.etc / place).is_dir() else 0
    (paths.etc / place).chmod(mode | folder)
    (found,) = refused(paths)
    who = "everybody" if mode & 0o002 else "its group"
    assert found.startswith(f"{(paths.etc / place)}: may be written by {who}, ")
    assert "as root, by hooks" in found
    assert f"'chmod go-w {paths.etc / place}'" in found


def test_an_empty_folder_to_which_others_may_add_is_refused(paths: Paths):
    (paths.etc / "conf.d" / "more.toml").unlink()
    (paths.etc / "conf.d").chmod(0o777)
    (found,) = refused(paths)
    assert found.startswith(f"{paths.etc / 'conf.d'}: may be written by everybody")


def test_what_a_link_leads_to_counts_and_its_folder(paths: Paths, tmp_path: Path):
    home = tmp_path / "home"
    home.mkdir()
    real = paths.config_file.rename(home / "mine.toml")
    paths.config_file.symlink_to(real)
    assert refused(paths) == []
    home.chmod(0o777)
    (found,) = refused(paths)
    assert found.startswith(f"{home}: may be written by everybody")


def test_each_folder_on_the_way_counts_but_one_in_which_nobody_can_rename_what_is_not_his(
    paths: Paths, tmp_path: Path
):
    tmp_path.chmod(0o777)
    (found,) = refused(paths)
    assert found.startswith(f"{tmp_path}: may be written by everybody")
    tmp_path.chmod(0o1777)
    assert refused(paths) == []
    tmp_path.chmod(0o755)


def test_a_profile_of_ones_own_counts(paths: Paths):
    paths.config_file.write_text('[vault.cold]\npool = "cold"\nprofile = "mine"\n')
    (paths.etc / "profiles").mkdir(mode=0o755)
    mine = paths.etc / "profiles" / "mine.toml"
    mine.write_text("")
    mine.chmod(0o644)
    assert refused(paths) == []
    mine.chmod(0o664)
    (found,) = refused(paths)
    assert found.startswith(f"{mine}: may be written by its group, ")
    assert "sets parameters of the kernel" in found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_one_that_belongs_to_another_is_refused(paths: Paths):
    os.chown(paths.config_file, 65534, 0)
    (found,) = refused(paths)
    assert found.startswith(f"{paths.config_file}: belongs to nobody, ")
    assert f"'chown root {paths.config_file}'" in found
