"""A store that takes no writes is imported read-only: it can be restored from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from tests.unit.patience import PATIENCE
from zvault.core.errors import Busy, DeviceGone, ToolFailed
from zvault.devices.device_state import DeviceState
from zvault.ops.vaults import assembly
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.ops.vaults.vault import ManagedVault
from zvault.system import tasks
from zvault.zfs.pool.pool import UnknownFeature


class Pool:
    """A pool that this host may know all features of, or can read only, or not at all."""

    def __init__(self, knows: str) -> None:
        self.knows = knows
        self.asked: list[bool] = []

    async def import_(self, pool: str, paths: Sequence[str], *, force: bool, readonly: bool = False) -> bool:
        self.asked.append(readonly)
        if self.knows != "all" and not (readonly and self.knows == "reading"):
            error = UnknownFeature(
                "it has features that are not known here", "org.example:x", "update OpenZFS"
            )
            error.readable = self.knows == "reading"
            raise error
        return True


@pytest.mark.parametrize(
    ("locked", "knows", "asked"),
    [
        (False, "all", [False]),
        (True, "all", [True]),
        (False, "reading", [False, True]),
        (False, "nothing", [False]),
    ],
)
async def test_it_is_imported_as_far_as_that_can_be(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, locked: bool, knows: str, asked: list[bool]
) -> None:
    where, pool, said = context(folder=tmp_path, vault={"pool": "cold"}), Pool(knows), list[str]()
    where.clients.zpool_of = lambda _: pool  # type: ignore[assignment,method-assign,return-value]
    monkeypatch.setattr(assembly, "is_read_only_device", lambda _: locked)
    vault: Any = VaultAssembly(where, "cold", where.env.vault("cold"))
    if knows == "nothing":
        with pytest.raises(UnknownFeature):
            await vault._import(None, ["/dev/nbd0"], said.append)
    else:
        assert await vault._import(None, ["/dev/nbd0"], said.append)
    assert pool.asked == asked
    assert any("can be restored from" in text for text in said) == asked[-1]


class Forced(Pool):
    """One that notes whether its import is forced."""

    def __init__(self) -> None:
        super().__init__("all")
        self.forced: list[bool] = []

    async def import_(self, pool: str, paths: Sequence[str], *, force: bool, readonly: bool = False) -> bool:
        self.forced.append(force)
        return await super().import_(pool, paths, force=force, readonly=readonly)


@pytest.mark.parametrize("locked", [True, False])
async def test_the_pool_of_a_vault_of_one_host_is_not_forced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, locked: bool
) -> None:
    monkeypatch.setattr(assembly, "is_read_only_device", lambda _: locked)
    device = {"nbd": "zvault:zv/cold size=1T endpoint=https://s3.example.org credential=zvault.s3"}
    for hosts in ([], ["host", "other"]):
        where = context(folder=tmp_path, vault={"pool": "cold", "hosts": hosts, "device": [device]})
        pool = Forced()
        where.clients.zpool_of = lambda _, pool=pool: pool  # type: ignore[assignment,method-assign,misc,return-value]
        vault: Any = ManagedVault(where, "cold").assembly()
        assert await vault._import(None, ["/dev/nbd0"], print)
        assert pool.forced == [bool(hosts)]


async def test_the_pool_on_a_device_without_a_lease_is_not_forced(tmp_path: Path) -> None:
    """The configuration refuses such a vault; what is in force may have been read by an older zvault."""
    device = {"nbd": "zvault:zv/cold size=1T endpoint=https://s3.example.org credential=zvault.s3"}
    where = context(folder=tmp_path, vault={"pool": "cold", "hosts": ["host", "other"], "device": [device]})
    shared = where.env.vault("cold")
    alone = shared.device[0].model_copy(update={"exclusive": False})
    for one in (shared, shared.model_copy(update={"device": [alone]})):
        pool = Forced()
        where.clients.zpool_of = lambda _, pool=pool: pool  # type: ignore[assignment,method-assign,misc,return-value]
        vault: Any = VaultAssembly(where, "cold", one, fenced=True)
        assert await vault._import(None, ["/dev/nbd0"], print)
        assert pool.forced == [one is shared]


async def test_an_import_whose_storage_is_lost_is_left_alone_and_no_other_begins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its zpool waits in the kernel, and was waited for for ten minutes: a vault that could be told at once was not."""
    where = context(folder=tmp_path, vault={"pool": "cold", "device": [{"nbd": "tcp:nas:10809/cold"}]})
    monkeypatch.setattr(tasks, "WATCH_EVERY", 0.01)
    done: list[str] = []

    class Hanging(Pool):
        async def import_(self, *_: object, **__: object) -> bool:
            done.append("begun")
            try:
                return await asyncio.Future()
            finally:
                done.append("ended")

        async def kernel_state(self, _: str) -> str:
            return "ONLINE"

    where.clients.zpool_of = lambda _: Hanging("all")  # type: ignore[assignment,method-assign,return-value]
    vault: Any = VaultAssembly(where, "cold", where.env.vault("cold"))
    gone = DeviceState("cold-0", "tcp:nas:10809/cold", "/dev/nbd0", "gone", "its server died", 1 << 30)
    vault._seen.probe = partial(asyncio.sleep, 0, [gone])

    async def cut_off(_: object) -> None:
        done.append("cut off")

    stack = SimpleNamespace(find_cause=partial(asyncio.sleep, 0), cut_off=cut_off)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(DeviceGone, match="lost its device tcp:nas:10809/cold"):
            await vault._import(stack, ["/dev/nbd0"], print)
    assert done == ["begun", "ended", "cut off"]


async def test_an_import_that_fails_over_a_taken_device_names_who_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """zpool import: "one or more devices are already in use" (seen with 2.3.9, and a dm device on it)."""
    where = context(folder=tmp_path, vault={"pool": "cold"})

    class Taken(Pool):
        async def state(self, _: str) -> None: ...

        async def import_(self, *_: object, **__: object) -> bool:
            raise ToolFailed("cannot import the pool 'cold'", "one or more devices are already in use")

    def refuse(pool: str, paths: Sequence[str]) -> None:
        raise Busy(f"{pool}: mpatha lies on {', '.join(paths)}", "")

    where.clients.zpool_of = lambda _: Taken("all")  # type: ignore[assignment,method-assign,return-value]
    vault: Any = VaultAssembly(where, "cold", where.env.vault("cold"))
    devices = [SimpleNamespace(path="/dev/nbd0")]
    with pytest.raises(ToolFailed, match="cannot import"):
        await vault._open_pool(None, devices, None, None, None, print)
    monkeypatch.setattr(assembly, "refuse_taken_devices", refuse)
    with pytest.raises(Busy, match="mpatha lies on /dev/nbd0"):
        await vault._open_pool(None, devices, None, None, None, print)
