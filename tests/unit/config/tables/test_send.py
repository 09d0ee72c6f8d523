"""How what is encrypted on the source is sent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config

BACKUP = '[vault.cold]\npool = "cold"\n[backup.tank]\nsource = "tank"\nvault = "cold"\nsend = { %s }\n'


def test_what_is_sent_decrypted_has_no_properties(good: Callable[..., Config]) -> None:
    for words, sent in (("", True), ('encrypted = "decrypted"', False), ('encrypted = "required"', True)):
        send = good(BACKUP % words).backup["tank"].send
        assert (send.properties, send.raw) == (sent, False), words


@pytest.mark.parametrize("key", ["raw", "properties"])
def test_what_does_not_go_decrypted(problems: Callable[..., list[str]], key: str) -> None:
    told = " ".join(problems(BACKUP % f'encrypted = "decrypted", {key} = true'))
    assert f"does not go with {key} = true" in told
    assert f"remove {key}" in told
