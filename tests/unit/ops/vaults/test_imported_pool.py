"""Whether a vault's pool is imported, which is told also while a listing of it stands still."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import DeadlineExceeded
from zvault.ops.vaults import assembly
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.system.process import kernel_waits
from zvault.system.process.kernel_waits import KernelWaits, WaitingProgram
from zvault.zfs.pool.pool import PoolState

STATE = PoolState("cold", 7, 1, 0, 1, "ONLINE")


@pytest.mark.parametrize("hung", [("zfs", "list", "-r", "cold"), ("zpool", "list", "cold")])
async def test_a_listing_that_stands_still_makes_no_vault_gone(
    hung: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage that is slow for a minute holds a listing up. Behind a look at the pool itself none is begun."""
    waits = KernelWaits(Path("/proc"))
    waits.leave(WaitingProgram(hung, "cold", process=SimpleNamespace(pid=os.getpid(), returncode=None)))
    monkeypatch.setattr(kernel_waits, "KERNEL_WAITS", waits)

    async def state(pool: str) -> PoolState:
        waits.refuse_look(pool, ["zpool", "list", pool])
        return STATE

    config: Any = SimpleNamespace(pool="cold", device=[], host=None)
    it = VaultAssembly(SimpleNamespace(), "cold", config)  # type: ignore[arg-type]
    monkeypatch.setattr(assembly.VaultAssembly, "zpool", SimpleNamespace(state=state))
    monkeypatch.setattr(assembly.VaultAssembly, "_seen", None)
    if hung[0] == "zpool":
        with pytest.raises(DeadlineExceeded):
            await it.imported()
    else:
        assert await it.imported() is STATE
