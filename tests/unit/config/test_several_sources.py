"""Several datasets of one pool as the source of one backup."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config
from zvault.core.address import parse_sources

Good = Callable[..., Config]
Problems = Callable[..., list[str]]
HEAD = '[vault.cold]\npool = "cold"\n[vault.other]\npool = "other"\n'


def backup(source: str, *lines: str, name: str = "a", vault: str = "cold") -> str:
    return "\n".join([f'[backup.{name}]\nsource = {source}\nvault = "{vault}"', *lines, ""])


def test_they_are_taken_with_all_below_them_and_nothing_else(good: Good) -> None:
    it = good(HEAD + backup('["tank/x/a", "tank/x/b b/c"]', 'exclude = ["tank/x/a/tmp"]')).backup["a"]
    assert (it.source.dataset, it.source.pool, str(it.source)) == ("tank/x", "tank", "tank/x/a, tank/x/b b/c")
    taken = ["tank/x/a", "tank/x/a/one", "tank/x/b b/c", "tank/x/b b/c/one/two"]
    assert [name for name in taken if it.takes(name)] == taken
    left = ["tank", "tank/x", "tank/x/ab", "tank/x/b b", "tank/x/c", "tank/x/a/tmp"]
    assert [name for name in left if it.takes(name)] == []
    assert it.choice("tank/x/a/one").reason == "'tank/x/a/**' in source matches it, and nothing in exclude"
    assert it.choice("tank/x").reason == "nothing in source matches it"


def test_on_another_host(good: Good) -> None:
    source = good(HEAD + backup('["ssh://root@nas/tank/a", "ssh://root@nas/tank/b"]')).backup["a"].source
    assert str(source) == "ssh://root@nas/tank/a, ssh://root@nas/tank/b"
    assert str(source.whole) == "ssh://root@nas/tank"


def test_one_in_an_array_is_one(good: Good) -> None:
    one, alone = (good(HEAD + backup(text)).backup["a"] for text in ('["tank/a"]', '"tank/a"'))
    assert (one.source, one.include) == (alone.source, alone.include)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (backup('["tank/a", "pool/b"]'), 'a.source: "tank/a" and "pool/b" are not in one pool'),
        (backup('["tank/a", "ssh://nas/tank/b"]'), "are not in one pool"),
        (backup('["ssh://root@nas/tank/a", "ssh://nas/tank/b"]'), "are not in one pool"),
        (backup('["tank/a", "tank/a/b"]'), 'a.source: "tank/a/b" is taken with "tank/a": leave it out'),
        (backup('["tank/a", "tank/a"]'), 'a.source: "tank/a" is taken with "tank/a": leave it out'),
        (backup("[]"), "a.source: names no dataset"),
        (backup('["tank/a", 3]'), "a.source: must have strings only"),
        (backup('["tank/a", "tank/b@c"]'), "'@' at character 7"),
        (backup('["tank/a", "tank/b"]', 'include = ["tank/a"]'), "a.include: stands beside several sources"),
        (
            backup('["tank/a", "tank/b"]') + backup('"tank/b/c"', name="b"),
            'b.into: backups a and b would both write "cold/h/tank/b/c"',
        ),
        (backup('["cold/a", "cold/h"]'), "lies within the source"),
    ],
)
def test_what_one_backup_cannot_take(problems: Problems, text: str, told: str) -> None:
    found = problems('[daemon]\nhost = "h"\n' + HEAD + text)
    assert any(told in line for line in found), found


def test_backups_may_have_parts_of_one_pool_each(good: Good) -> None:
    apart = backup('["tank/c", "tank/d"]', 'into = "again/{dataset}"', name="b")
    assert good(HEAD + backup('["tank/a", "tank/b"]') + apart)


def test_above_is_the_nearest() -> None:
    assert parse_sources(["t/a/b/c", "t/a/b/d", "t/a/b/e/f"]).dataset == "t/a/b"
    assert parse_sources(["t/ab", "t/a"]).dataset == "t"
