"""Configurations in a folder of their own, with the project's profiles."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    etc = tmp_path / "etc"
    etc.mkdir()
    return Paths(
        etc=etc, run=tmp_path / "run", state=tmp_path / "state", profiles=ROOT / "config" / "profiles"
    )


@pytest.fixture
def write(paths: Paths) -> Callable[..., None]:
    """Write the main file, and others by their names below it: ``write("…", **{"conf.d/a.toml": "…"})``."""

    def write(main: str | bytes, **others: str | bytes) -> None:
        for name, text in {"zvault.toml": main, **others}.items():
            file = paths.etc / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(text.encode() if isinstance(text, str) else text)

    return write


@pytest.fixture
def good(paths: Paths, write: Callable[..., None]) -> Callable[..., Config]:
    def good(main: str | bytes, **others: str | bytes) -> Config:
        write(main, **others)
        return load_config(paths)

    return good


@pytest.fixture
def problems(paths: Paths, write: Callable[..., None]) -> Callable[..., list[str]]:
    """Every line of the error, without the folder: ``zvault.toml:3: vault.cold.pool: …``."""

    def problems(main: str | bytes, **others: str | bytes) -> list[str]:
        write(main, **others)
        with pytest.raises(ConfigError) as caught:
            load_config(paths)
        assert caught.value.what
        assert caught.value.next
        return caught.value.why.replace(f"{paths.etc}/", "").splitlines()

    return problems
