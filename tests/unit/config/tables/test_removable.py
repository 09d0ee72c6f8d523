"""A vault on a disk that is plugged in now and then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config

USB = '[vault.usb]\npool = "usb"\n'


def test_zvault_imports_and_exports_it_and_may_load_its_key(good: Callable[..., Config]) -> None:
    for more, ours in (("", False), ("removable = true\n", True)):
        assert good(USB + more).vault["usb"].is_imported_by_zvault is ours
    vault = good(f'{USB}removable = true\nencryption = {{ key = "/etc/zvault/usb.key" }}\n').vault["usb"]
    assert vault.encryption is not None
    assert vault.encryption.key == "/etc/zvault/usb.key"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ('host = "ssh://attic"\n', "this vault's pool is on another"),
        ('up = "always"\n', "could not be unplugged"),
        ("create = true\n", "needs a device to make the pool on"),
        ('[[vault.usb.device]]\nnbd = "tcp:nas"\n', "by its name on any disk"),
    ],
)
def test_what_does_not_go_with_a_removable_disk(
    problems: Callable[..., list[str]], more: str, why: str
) -> None:
    assert why in " ".join(problems(f"{USB}removable = true\n{more}"))
