"""Configurations and profiles: each is taken, or every problem is told in words."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.unit.fuzz.mutation import WORDS, mutated, seed
from tests.unit.fuzz.target import MIB, target
from zvault.config.load_config import load_config, load_profile
from zvault.config.paths import Paths
from zvault.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = (ROOT / "config" / "zvault.toml").read_bytes()
TOML_WORDS = (
    *WORDS,
    *(
        b"[[vault]]",
        b"[vault.cold]",
        b"[backup]",
        b"a.b.c = 1",
        b"= {",
        b'"""',
        b"'''",
        b"1979-05-27T07:32:00Z",
    ),
    *(
        b"0o17",
        b"1e400",
        b"-0",
        b"[[",
        b"]]",
        b"\\u005",
        b"\\UFFFFFFFF",
        b'"1h 5d"',
        b'"-5G"',
        b"99999999999999999999",
    ),
    *(
        b'"nbd:"',
        b'"zvault:"',
        b'"ssh://"',
        b'"{host}{host}"',
        b'"*-*-* 25:00"',
        b'"80M 08:00-"',
        b"not = toml",
    ),
)


def paths(folder: Path) -> Paths:
    (folder / "etc").mkdir()
    return Paths(folder / "etc", folder / "run", folder / "state", ROOT / "config" / "profiles")


def told(error: ConfigError) -> None:
    assert error.what
    assert "Traceback" not in error.why
    assert "pydantic" not in error.why


@target(
    mutated([seed("toml", "all.toml"), seed("toml", "inline.toml"), SAMPLE], words=TOML_WORDS, most=3),
    ConfigError,
    cap=32 * MIB,
)
def test_configurations(data: bytes) -> None:
    """A whole configuration."""
    with tempfile.TemporaryDirectory() as folder:
        where = paths(Path(folder))
        (where.etc / "zvault.toml").write_bytes(data)
        try:
            load_config(where)
        except ConfigError as error:
            told(error)


@target(mutated([seed("toml", "profile.toml")], words=TOML_WORDS, most=3), ConfigError, cap=32 * MIB)
def test_profiles(data: bytes) -> None:
    """A profile."""
    with tempfile.TemporaryDirectory() as folder:
        where = paths(Path(folder))
        for place in where.profile_dirs[:1]:
            place.mkdir(parents=True, exist_ok=True)
            (place / "mine.toml").write_bytes(data)
        try:
            load_profile(where, "mine")
        except ConfigError as error:
            told(error)
