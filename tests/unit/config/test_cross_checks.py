"""Whether vaults and backups fit each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.cross_checks import find_short_locks
from zvault.config.schema import Config

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HEAD = '[daemon]\nhost = "h"\n[vault.cold]\npool = "cold"\n[vault.other]\npool = "other"\n'


def backup(name: str, source: str, *lines: str, vault: str = "cold") -> str:
    return "\n".join([f'[backup.{name}]\nsource = "{source}"\nvault = "{vault}"', *lines, ""])


def test_one_pool_for_two_vaults(problems: Problems) -> None:
    (line,) = problems(HEAD + '[vault.twin]\npool = "cold"\n')
    assert line == 'zvault.toml:8: vault.twin.pool: the pool "cold" is that of vault "cold" too'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("nbdkit:file /a.img", "nbdkit:file filter=delay file=/x/../a.img"),
        ("unix:/s", "unix:/s"),
        ("tcp:nas/x", "tcp:NAS:10809/x"),
        ("nbdkit:S3 bucket=b key=k", "nbdkit:S3 key=k bucket=b"),
    ],
)
def test_one_device_twice(problems: Problems, one: str, other: str) -> None:
    (line,) = problems(
        HEAD + f'[[vault.cold.device]]\nnbd = "{one}"\n[[vault.other.device]]\nnbd = "{other}"\n',
    )
    assert line == "zvault.toml:10: vault.other.device[0].nbd: the same as vault.cold.device[0].nbd"


@pytest.mark.parametrize(
    "text",
    [
        backup("a", "tank") + backup("b", "tank", vault="other"),
        backup("a", "tank") + backup("b", "tank2"),
        backup("a", "tank") + backup("b", "tank", 'into = "again/{dataset}"', vault="other"),
        backup("a", "tank") + backup("b", "ssh://root@filer/tank"),
        backup("a", "tank", 'exclude = ["tank/home", "tank/home/**"]')
        + backup("b", "tank/home", 'into = "again/{dataset}"'),
        backup("a", "tank", 'exclude = ["tank/home", "tank/home/**"]') + backup("b", "tank/home"),
        backup("a", "tank", 'exclude = ["**/home", "**/home/**"]') + backup("b", "tank/home"),
        backup("a", "cold/data"),
        backup("a", "cold", 'exclude = ["cold/h/**", "cold/h"]'),
        backup("a", "tank", "keep.source.last = 3") + backup("b", "rpool", "keep.source.last = 5"),
        backup("a", "tank", "keep.source.last = 3")
        + backup("b", "tank", "keep.source.last = 5", 'snapshot.prefix = "b"', vault="other"),
    ],
)
def test_fits(good: Good, text: str) -> None:
    assert good(HEAD + text)


APART = 'into = "again/{dataset}"'


@pytest.mark.parametrize(
    "text",
    [
        backup("a", "tank", 'include = ["tank/a/**"]')
        + backup("b", "tank", 'include = ["tank/b/**"]', APART),
        backup("a", "tank", 'include = ["tank/a"]', "keep.source.last = 3")
        + backup("b", "tank", 'include = ["tank/b"]', "keep.source.last = 5", vault="other"),
        backup("a", "tank", 'include = ["tank/*"]', 'exclude = ["tank/a"]') + backup("b", "tank/a", APART),
        backup("a", "tank", 'include = ["tank/a/**"]') + backup("b", "tank/b"),
    ],
)
def test_parts_of_a_pool_that_are_included_by_one_backup_only(good: Good, text: str) -> None:
    assert good(HEAD + text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            backup("a", "tank", 'include = ["tank/*a"]') + backup("b", "tank", 'include = ["tank/b*"]', APART),
            'b.vault: backups a and b both take "tank" into vault cold',
        ),
        (
            backup("a", "tank", 'include = ["tank/home/**"]') + backup("b", "tank/home/me"),
            'b.into: backups a and b would both write "cold/h/tank/home/me"',
        ),
        (
            backup("a", "tank", 'include = ["tank/x"]', "keep.source.last = 3")
            + backup("b", "tank/x", vault="other"),
            'b.keep.source: backup a, of "tank/x" too, makes and prunes snapshots of the same datasets by other rules',
        ),
        (
            backup("a", "tank", 'select = "a:b"') + backup("b", "tank", vault="other"),
            'b.select: backup a, of "tank" too, makes snapshots of datasets that this one may take as well',
        ),
        (backup("a", "tank", 'select = "backup"'), "a.select: 'backup' is no name of a user property"),
        (backup("a", "tank", 'include = ["pool/x"]'), 'a.include: "pool/x" names nothing below the source "tank"'),
        (
            backup("a", "tank") + backup("b", "tank"),
            'b.into: backups a and b would both write "cold/h/tank": give one of them another into',
        ),
        (
            backup("a", "tank") + backup("b", "tank/home"),
            'b.into: backups a and b would both write "cold/h/tank/home": give one of them another into, '
            'or exclude "tank/home" and "tank/home/**" in a',
        ),
        (backup("a", "tank/home") + backup("b", "tank"), 'b.into: backups b and a would both write "cold/h/tank/home"'),
        (
            backup("a", "tank", 'exclude = ["tank/home"]') + backup("b", "tank/home"),
            "b.into: backups a and b would both write",
        ),
        (
            backup("a", "tank", 'exclude = ["tank/home/**"]') + backup("b", "tank/home"),
            "b.into: backups a and b would both write",
        ),
        (
            backup("a", "tank", 'into = "x/{dataset}"') + backup("b", "tank2", 'into = "{pool}/{dataset}"')
            + backup("c", "x/tank", 'into = "{dataset}"', vault="other")
            + backup("d", "tank", 'into = "x/{dataset}"', vault="other"),
            'd.into: backups c and d would both write "other/x/tank"',
        ),
        (
            backup("a", "tank") + backup("b", "tank", 'into = "again/{dataset}"'),
            'b.vault: backups a and b both take "tank" into vault cold, and zvault protects one base of a dataset',
        ),
        (
            backup("a", "tank/home", 'snapshot.prefix = "a"') + backup("b", "tank", 'into = "again/{dataset}"'),
            'b.vault: backups a and b both take "tank/home" into vault cold',
        ),
        (
            backup("a", "tank", 'exclude = ["tank/home"]') + backup("b", "tank/home", 'into = "again/{dataset}"'),
            'b.vault: backups a and b both take "tank/home" into vault cold',
        ),
        (backup("a", "cold"), 'a.into: the vault\'s dataset "cold/h/cold" lies within the source: use a vault on'),
        (backup("a", "cold/h"), 'a.into: the vault\'s dataset "cold/h/cold/h" lies within the source'),
        (backup("a", "tank", f'into = "{"x" * 249}/{{dataset}}"'), "a.into: the dataset name"),
        (
            backup("a", "tank", "snapshot.skip_unchanged = true") + backup("b", "tank/home", vault="other"),
            'b.snapshot.skip_unchanged: backup a, of "tank/home" too, makes snapshots of the same datasets, and prunes',
        ),
        (
            backup("a", "tank", "keep.source.last = 3") + backup("b", "tank/home", vault="other"),
            'b.keep.source: backup a, of "tank/home" too, makes and prunes snapshots of the same datasets by other',
        ),
    ],
)  # fmt: skip
def test_does_not_fit(problems: Problems, text: str, expected: str) -> None:
    (line,) = problems(HEAD + text)
    assert expected in line


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (('exclude = ["tank/x", "tank/x/**"]',), ("tank/x", "")),
        (('exclude = ["tank/x/**"]',), ("tank/x", 'exclude = ["tank/x"]')),
        (('exclude = ["tank/x*", "tank/x*/**"]',), ("tank", 'include = ["tank/x*", "tank/x*/**"]')),
        (('include = ["tank/a", "tank/a/**"]',), ("tank", 'exclude = ["tank/a", "tank/a/**"]')),
    ],
    ids=["the upper all of it", "each its part", "one excludes, the other includes", "the reverse"],
)
def test_backups_that_share_no_dataset_may_keep_what_they_like(
    good: Good, one: tuple[str], other: tuple[str, str], swapped: bool
) -> None:
    """Whichever of the two excludes what the other takes."""
    source, line = other
    texts = [
        backup("a", "tank", *one, "keep.source.last = 3"),
        backup("b", source, line, "keep.source.last = 9", vault="other"),
    ]
    good(HEAD + "".join(reversed(texts) if swapped else texts))


def test_checks_go_as_far_as_they_can_beside_other_errors(problems: Problems) -> None:
    found = problems(
        HEAD + backup("a", "tank", "x = 1") + backup("b", "rpool", vault="colt") + backup("c", "cold")
    )
    assert [line.split(": ")[1] for line in found] == ["backup.a.x", "backup.b.vault", "backup.c.into"]


def test_a_past_that_reaches_back_for_longer_than_it_is_locked() -> None:
    def doubts(history: str, lock: str) -> list[str]:
        nbd = f"zvault:b/k size=1G history={history} lock=compliance:{lock} lease-bucket=l"
        config = Config.model_validate({"vault": {"cold": {"pool": "cold", "device": [{"nbd": nbd}]}}})
        return [found.message for found in find_short_locks(config.vault)]

    assert doubts("hourly:24,daily:30", "30d") == []
    (told,) = doubts("hourly:24,daily:30,monthly:6", "30d")
    assert told.startswith("its past reaches back ")
    assert "and is locked for " in told
