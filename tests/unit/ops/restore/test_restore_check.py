"""What a restore could not compare: without a key that is told, else the restore is not known to be whole."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.unit.ops.ops_world import context, dataset, snap
from zvault.core.errors import ToolFailed
from zvault.ops.restore.restore_check import RestoreCheck


async def checked(folder: Path, *, keystatus: str, problem: str) -> RestoreCheck:
    """One encrypted dataset compared, whose key is loaded or not, and which cannot be mounted."""

    async def get(_: str, *names: str) -> dict[str, str]:
        return {name: {"guid": "101", "keystatus": keystatus}[name] for name in names}

    async def run(*_: Any, **__: Any) -> Any:
        raise ToolFailed("cannot mount it", problem)

    where: Any = SimpleNamespace(get=get, host=SimpleNamespace(run=run, address=None))
    check = RestoreCheck(context(folder=folder), "tank/check", 0, lambda _: None)
    one = dataset("cold/a", snap(1, "cold/a"), encrypted=True), snap(1, "cold/a")
    await check.dataset(where, one, where, one, "tank/check")
    return check


async def test_without_a_key_the_content_is_told_as_not_compared(tmp_path: Path) -> None:
    check = await checked(tmp_path, keystatus="unavailable", problem="")
    assert "key is not loaded" in check.compared.unread["tank/check"]
    assert check.finish() is None


async def test_what_cannot_be_read_for_another_reason_makes_the_restore_partial(tmp_path: Path) -> None:
    check = await checked(tmp_path, keystatus="available", problem="I/O error")
    error = check.finish()
    assert error is not None
    assert "I/O error" in str(error)
    assert "could not be compared" in str(error)
