"""A vault watched where nothing can be asked of a pool: what is known all the same is told, in time."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.ops import ops_world
from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.config.tables.device import Device
from zvault.core.diagnosis.observations import ObservedRun
from zvault.core.errors import DeviceGone, Refused
from zvault.core.names import DatasetName
from zvault.ops.context import Context
from zvault.ops.diagnosis import doctor, observe
from zvault.ops.diagnosis.doctor import make_doctor_document, parse_watch_seconds
from zvault.ops.stream.run_stream import ActiveStream, StreamProgress
from zvault.ops.vaults.vault import Vaults
from zvault.system.process.sampler import _fill

STILL = ["sleep", str(FOR_EVER)]


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for one in found:
        one.kill()
        one.wait()


@pytest.fixture
def context(tmp_path: Path) -> Context:
    found = ops_world.context(folder=tmp_path, limit="8M")
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "local.toml").write_text("")
    return found


def stream(context: Context, started: list[subprocess.Popen[bytes]], *argvs: list[str]) -> None:
    """Programs joined by pipes, told of as the stages of a stream."""
    names = (["zfs", "send"], ["python3", "throttle.py"], ["zfs", "receive"])
    programs = []
    before = None
    for argv, name in zip(argvs, names, strict=True):
        one = subprocess.Popen(argv, stdin=before, stdout=subprocess.PIPE)
        before = one.stdout
        started.append(one)
        programs.append((name, one.pid))
    progress = StreamProgress(None, stages=lambda: programs)
    context.activity.streams["b", "tank"] = ActiveStream("b", "cold", DatasetName("tank"), progress)


async def test_a_source_that_gives_nothing(context: Context, started: list[subprocess.Popen[bytes]]):
    stream(context, started, STILL, ["cat"], ["cat"])
    found = await make_doctor_document(context, Vaults(context), context.env.vault("cold"), 0.5)
    assert found["verdict"]["bound"] == "source"
    (flow,) = found["streams"]
    assert [stage["name"] for stage in flow["stages"]] == ["zfs send", "throttle", "zfs receive"]
    assert [stage["full"] for stage in flow["stages"]] == [None, 0.0, 0.0]


async def test_of_a_stream_whose_backup_got_another_name_or_is_gone(
    context: Context, started: list[subprocess.Popen[bytes]]
):
    """A reload in the middle of a run kept the doctor from telling anything until the run had ended."""
    stream(context, started, STILL, ["cat"], ["cat"])
    env = context.env
    renamed = env.config.model_copy(update={"backup": {"b@cold": env.config.backup["b"]}})
    env.reconfigure(renamed)
    found = await make_doctor_document(context, Vaults(context), env.vault("cold"), 0.1)
    assert found["streams"] == []
    env.note_rename("b", "b@cold")
    found = await make_doctor_document(context, Vaults(context), env.vault("cold"), 0.1)
    assert [flow["backup"] for flow in found["streams"]] == ["b@cold"]


async def test_a_throttle_that_lets_nothing_pass(context: Context, started: list[subprocess.Popen[bytes]]):
    stream(context, started, ["cat", "/dev/zero"], STILL, ["cat"])
    await eventually(lambda: _fill(f"/proc/{started[1].pid}/fd/0") == 1)
    found = await make_doctor_document(context, Vaults(context), context.env.vault("cold"), 0.5)
    assert found["verdict"]["bound"] == "limit"
    assert found["verdict"]["knob"]["now"] == "8M"


async def test_a_vault_that_is_down_is_told_at_once(context: Context, monkeypatch: pytest.MonkeyPatch):
    async def nothing(*_: object) -> None:
        return None

    monkeypatch.setattr("zvault.zfs.pool.pool.Zpool.state", nothing)
    watched = make_doctor_document(context, Vaults(context), context.env.vault("cold"), FOR_EVER)
    found = await asyncio.wait_for(watched, PATIENCE)
    assert found["verdict"]["sentence"].startswith("vault cold is down: no stream writes to it")


async def test_a_pool_that_hangs_is_not_waited_for(context: Context, monkeypatch: pytest.MonkeyPatch):
    async def never(*_: object) -> None:
        await asyncio.sleep(FOR_EVER)

    monkeypatch.setattr(observe, "OBSERVE_DEADLINE", 3.0)
    monkeypatch.setattr("zvault.ops.vaults.vault.ManagedVault.imported", never)
    last = ObservedRun("b", 1 << 20, 2.0, "its requests were small")
    watched = make_doctor_document(context, Vaults(context), context.env.vault("cold"), 0.5, last)
    found = await asyncio.wait_for(watched, PATIENCE)
    assert found["verdict"]["bound"] == "nothing"
    assert found["verdict"]["why"] == "its requests were small"


@pytest.mark.parametrize("text", ["", "soon", "0", "61", "nan", "-1"])
def test_how_long_to_watch(text: str):
    with pytest.raises(Refused):
        parse_watch_seconds(text)
    assert parse_watch_seconds(None) == 5.0
    assert parse_watch_seconds("2.5") == 2.5


async def test_what_ceph_users_may_not_do_is_tried_where_it_is_asked_for(
    context: Context, monkeypatch: pytest.MonkeyPatch
):
    device = {"rbd": "p/cold", "size": "1G"}
    vault = context.env.vault("cold").model_copy(
        update={"device": tuple(Device.model_validate(device | {"rbd": f"p/{name}"}) for name in "abc")}
    )
    tried = []

    async def find(device: Device, _: object) -> str:
        tried.append(str(device.rbd))
        if str(device.rbd) == "p/b":
            raise DeviceGone("no monitor of Ceph answered", "", "")
        return "it may not write to pool 'p'" if str(device.rbd) == "p/c" else ""

    monkeypatch.setattr(doctor, "find_lacking_rights", find)
    found = await make_doctor_document(context, Vaults(context), vault, 0.5)
    assert (found["lacking"], tried) == ([], [])
    found = await make_doctor_document(context, Vaults(context), vault, 0.5, rights=True)
    first, second = found["lacking"]
    assert "p/b" in first
    assert "no monitor of Ceph answered" in first
    assert second == "it may not write to pool 'p'"
    assert tried == ["p/a", "p/b", "p/c"]
