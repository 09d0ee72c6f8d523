"""Names of one's own for snapshots: what check-config refuses, and what stays known."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from tests.unit.ops.ops_world import snap
from zvault.config.schema import Config
from zvault.ops.replication.listing import make_own_filter

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HEAD = '[daemon]\nhost = "h"\n[vault.cold]\npool = "cold"\n[vault.usb]\npool = "usb"\n'
A = '[backup.a]\nsource = "tank"\nvault = "cold"\n'
B = '[backup.b]\nsource = "tank/data"\nvault = "usb"\n'
WHEN = datetime(2026, 11, 21, 9, 8, 7, tzinfo=UTC)


def test_what_a_backup_made_under_any_of_its_forms_is_its_own(good: Good) -> None:
    table = '{ form = "-%Y%m%d-%H%M%S", timezone = "Etc/GMT-1", former = ["_%s"] }'
    ours = make_own_filter(good(f"{HEAD}{A}snapshot = {table}\n").backup["a"])
    for name in ("zvault-20261121-100807", "zvault_1795252087", "zvault_2026-11-21T09:08:07Z"):
        assert ours(snap(1, name=name))
    for name in ("zvault-20261121", "zvault_x", "other-20261121-100807", "zvault-20261121-100807_hourly"):
        assert not ours(snap(1, name=name))


@pytest.mark.parametrize(
    ("snapshot", "key", "said"),
    [
        ('form = "_%Y%m%d"', "form", "lacks %H %M %S: two moments would give one name"),
        ('form = "_%d%m%Y%H%M%S"', "form", "does not sort as time does"),
        ('form = "-%Y%m%d%H%M%S", timezone = "Europe/Vienna"', "timezone", "when its clocks go back"),
        ('timezone = "Etc/GMT-1"', "timezone", "looks like a time in UTC"),
        ('former = ["_%H"]', "former", "two moments would give one name"),
        ('form = "-%s", timezone = "Europe/Vienna", former = ["-%Y%m%d%H%M%S"]', "former", "clocks go back"),
        ('timezone = "Mars/Olympus"', "timezone", "is not a time zone this host knows"),
    ],
)
def test_refused(problems: Problems, snapshot: str, key: str, said: str) -> None:
    (line,) = problems(f"{HEAD}{A}snapshot = {{ {snapshot} }}\n")
    assert f"backup.a.snapshot.{key}" in line
    assert said in line


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ('form = "-%s"', 'prefix = "zvault"', "by the same prefix in another form"),
        ('form = "-%s"', 'form = "-%s", former = ["_%s"]', "by the same prefix in another form"),
        ('prefix = "x", form = "_y_%s"', 'prefix = "x_y", form = "_%s"', "either would prune it"),
        ('prefix = "x", former = ["_y_%s"]', 'prefix = "x_y", form = "_%s"', "either would prune it"),
        ('prefix = "x", form = "_y_%Y-%m-%dT%H:%M:%SZ"', 'prefix = "x_y"', "either would prune it"),
    ],
)
def test_two_backups_of_a_dataset_know_their_own(
    problems: Problems, good: Good, one: str, other: str, said: str
) -> None:
    first, second = f"{A}snapshot = {{ {one} }}\n", f"{B}snapshot = {{ {other} }}\n"
    (line,) = problems(HEAD + first + second)
    assert said in line
    elsewhere = second.replace("tank/data", "rpool")
    assert set(good(HEAD + first + elsewhere).backup) == {"a", "b"}


def test_names_that_cannot_be_mixed_up_are_taken(good: Good) -> None:
    first, second = A + 'snapshot = { prefix = "x" }\n', B + 'snapshot = { prefix = "x_y", form = "-%s" }\n'
    assert set(good(HEAD + first + second).backup) == {"a", "b"}
