from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zvault.config.load_config import load_config, load_profile
from zvault.config.paths import Paths
from zvault.config.profile import MIN_BLOCKS
from zvault.config.schema import Config
from zvault.core.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
Problems = Callable[..., list[str]]


@pytest.mark.parametrize("name", ["blockstore", "local", "nbd-lan", "rbd-hdd", "rbd-ssd", "s3"])
def test_the_profiles_that_come_with_zvault(paths: Paths, name: str) -> None:
    profile = load_profile(paths, name)
    trims = "on" if name == "blockstore" else "off"
    assert profile.pool == {"ashift": "12", "failmode": "continue", "autotrim": trims}
    assert {"canmount": "off", "mountpoint": "none", "atime": "off"}.items() <= profile.dataset.items()
    assert profile.stream.buffer >= MIN_BLOCKS * profile.stream.block


def test_a_lan_wants_large_requests(paths: Paths) -> None:
    queue = load_profile(paths, "nbd-lan").queue
    assert (queue.max_sectors_kb, queue.scheduler, queue.nr_requests, queue.read_ahead_kb) == (
        32768,
        "none",
        None,
        None,
    )


def test_every_figure_has_its_source() -> None:
    """A value stands beside a comment or below one."""
    for file in sorted((ROOT / "config" / "profiles").glob("*.toml")):
        above = ""
        for line in file.read_text().splitlines():
            if "=" in line and not line.startswith("#"):
                assert "#" in line or above.startswith("#") or "#" in above, f"{file.name}: {line}"
            above = line


def test_the_administrators_own_comes_first(paths: Paths) -> None:
    own = paths.etc / "profiles" / "nbd-lan.toml"
    own.parent.mkdir()
    own.write_text(
        '[pool]\nautotrim = true\n"feature@edonr" = "disabled"\n[dataset]\n"org.example:a" = "b"\n'
    )
    profile = load_profile(paths, "nbd-lan")
    assert profile.pool == {"autotrim": "on", "feature@edonr": "disabled"}
    assert profile.dataset == {"org.example:a": "b"}
    assert profile.stream.buffer == 128 << 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[queue]\nmax_sector_kb = 1", '2: queue.max_sector_kb: unknown key; did you mean "max_sectors_kb"?'),
        ("[queue]\nscheduler = 'noop'", '2: queue.scheduler: must be one of "none", "mq-deadline"'),
        ("[queue]\nnr_requests = 0", "2: queue.nr_requests: must be at least 1, not the integer 0"),
        ("\n[pool]\nashift = 1.5", "3: pool.ashift: must be the value of a ZFS property, not the float 1.5"),
        ("[pool]\n'a=b' = 'x'", '2: pool."a=b": "a=b" is not the name of a ZFS property'),
        ("[pool]\n-o = 'x'", '2: pool.-o: "-o" is not the name of a ZFS property'),
        ("[dataset]\natime = ''", "2: dataset.atime: must be the value of a ZFS property"),
        ("[stream]\nblock = '64M'\nbuffer = '128M'", "2: stream.block: mbuffer wants 5 blocks"),
        ("[stream]\nbuffer = '100K'", "1: stream.block: mbuffer wants 5 blocks"),
        ("[queue", "1: is not valid TOML"),
    ],
)
def test_errors_in_a_profile(paths: Paths, problems: Problems, text: str, expected: str) -> None:
    """They are told by whoever loads it, and by the configuration that names it, once."""
    mine = paths.etc / "profiles" / "mine.toml"
    mine.parent.mkdir()
    mine.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_profile(paths, "mine")
    assert expected in caught.value.why
    (line,) = problems(
        '[vault.a]\npool = "a"\nprofile = "mine"\n[vault.b]\npool = "b"\nprofile = "mine"\n',
    )
    assert line == caught.value.why.replace(f"{paths.etc}/", "")


@pytest.mark.parametrize("name", ["nbd-lam", "../zvault", ""])
def test_no_such_profile(paths: Paths, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_profile(paths, name)
    assert "no profile" in caught.value.why


def test_a_dead_link_is_told_of(paths: Paths) -> None:
    (paths.etc / "profiles").mkdir()
    (paths.etc / "profiles" / "local.toml").symlink_to("/nowhere")
    with pytest.raises(ConfigError, match=r"local\.toml: does not exist"):
        load_profile(paths, "local")


def test_a_vault_takes_the_default_profile(paths: Paths, problems: Problems) -> None:
    """Also the one it does not name has to be there."""
    gone = Paths(etc=paths.etc, profiles=paths.etc / "none")
    paths.config_file.write_text('[vault.a]\npool = "a"\n')
    with pytest.raises(ConfigError, match=r"vault\.a\.profile: no profile \"local\" in .*; there is none"):
        load_config(gone)


def test_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Config().vault = {}  # type: ignore[misc]


@pytest.mark.parametrize("name", ["auto", "s3"])
def test_what_may_lie_on_an_object_store_bounds_discards(paths: Paths, name: str) -> None:
    """A store of 4 KiB objects that deletes 500 of them in a second has ended such a one within half a minute."""
    largest = load_profile(paths, name).queue.discard_max_bytes
    assert largest is not None
    assert largest / 4096 / 500 < 30
    assert largest % (1 << 20) == 0, "whole discards, whatever the device's granularity"
