"""Versions of OpenZFS, and what is told of one that zvault was not tested with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from zvault.core.zfs_version import TESTED_VERSIONS, format_version, parse_version, warn_if_untested

PROJECT = Path(__file__).parents[3]


@pytest.mark.parametrize("text", ["2.3.9-0+deb13u1", "2.4.4-1~bpo13+1", "zfs-2.3.0-rc1", "2.4"])
def test_nothing_is_told_of_those_it_was_tested_with(text: str) -> None:
    assert warn_if_untested(parse_version(text)) is None


def test_another_host_may_print_any_number_of_digits() -> None:
    assert warn_if_untested(parse_version("2." + "9" * 5000))
    assert warn_if_untested(parse_version("9" * 5000))


@pytest.mark.parametrize(
    ("text", "name"), [("2.2.7-1", "2.2.7"), ("2.5.0", "2.5.0"), ("3.4.0", "3.4.0"), ("of my own", "unknown")]
)
def test_any_other_is_told_by_its_name(text: str, name: str) -> None:
    told = warn_if_untested(parse_version(text)) or ""
    assert name in told
    for one in TESTED_VERSIONS:
        assert format_version(one) in told


def test_the_lab_has_exactly_those() -> None:
    spec = importlib.util.spec_from_file_location("cache", PROJECT / "tests/lab/cache.py")
    assert spec
    assert spec.loader
    cache = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cache)
    assert {parse_version(version) for version in cache.SUITES} == set(TESTED_VERSIONS)
