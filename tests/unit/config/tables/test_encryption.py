"""The key that a vault's pool is encrypted with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config

DEVICE = '[[vault.cold.device]]\nnbd = "tcp:nas.example.org:10809/cold"\n'


def vault(encryption: str, device: str = DEVICE) -> str:
    return f'[vault.cold]\npool = "cold"\nencryption = {encryption}\n{device}'


@pytest.mark.parametrize(
    "words",
    ['{ key = "/etc/zvault/cold.key" }', '{ credential = "zvault.cold" }', '{ command = "/bin/key" }'],
)
def test_one_source_of_a_key(good: Callable[..., Config], words: str) -> None:
    table = good(vault(words)).vault["cold"].encryption
    assert table is not None
    assert [one for one in (table.key, table.credential, table.command) if one]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("{}", "needs one of key, credential and command"),
        ('{ key = "/a", command = "/b" }', "needs one of"),
        ('{ key = "a" }', "path"),
        ('{ passphrase = "secret" }', "passphrase"),
    ],
)
def test_what_names_no_key(problems: Callable[..., list[str]], words: str, why: str) -> None:
    assert why in " ".join(problems(vault(words)))


def test_a_pool_that_zvault_does_not_bring_up_has_no_key_here(problems: Callable[..., list[str]]) -> None:
    assert "no [[vault.NAME.device]]" in " ".join(problems(vault('{ key = "/a" }', "")))


BACKUP = '[backup.tank]\nsource = "tank"\nvault = "cold"\nsend = { %s }\n'


@pytest.mark.parametrize(
    ("send", "flags"),
    [
        ("", (True, True, False, False)),
        ("compressed = false", (True, False, False, False)),
        ("raw = true, compressed = false", (True, True, False, False)),
    ],
)
def test_streams_have_nothing_that_an_encrypted_vault_cannot_receive(
    good: Callable[..., Config], send: str, flags: tuple[bool, ...]
) -> None:
    backup = good(vault('{ key = "/a" }') + BACKUP % send).backup["tank"]
    found = backup.send
    assert (found.large_blocks, found.compressed, found.embedded, found.raw) == flags
    assert backup.name == "tank"
    plain = (
        good(vault('{ key = "/a" }').replace("encryption", "#encryption") + BACKUP % send).backup["tank"].send
    )
    assert plain.embedded
