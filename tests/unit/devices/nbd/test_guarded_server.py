"""A server below its guard: it has its time to stop, the lease is renewed meanwhile, and both have the same keys."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.unit.devices.nbd.blockstore_specs import (
    TEXT,
    slot_for_test,  # noqa: F401
    spec,
)
from tests.unit.devices.s3_lease.awake_clock import Awake
from tests.unit.devices.s3_lease.test_takeover import MINE, Memory
from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.config.tables.device import Device
from zvault.core.errors import NotFound, ToolFailed
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd import guarded_server
from zvault.devices.s3_lease.guard import LeaseGuard
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore
from zvault.system.credentials import find_credential_file


def test_it_runs_below_a_guard_that_gives_it_time_and_knows_where_the_lease_is(slot: DeviceSlot):
    device = Device.model_validate({"nbd": TEXT, "lease": "1m"})
    argv = guarded_server.guarded_server_argv(slot, device, spec(TEXT))
    assert argv[argv.index("zvault.devices.s3_lease.guard") + 1 : argv.index("--")] == [
        "guard",
        "--bound=60",
        f"--report={slot.directory / 'cold-0.why'}",
        "--patience=600",
    ]
    found = BucketPlace.of(argv[argv.index("--") + 1 :])
    assert str(found) == "s3://zv/cold.lease"
    assert found.endpoint == "https://s3.example.org"
    alone = Device.model_validate({"nbd": TEXT, "exclusive": False})
    assert guarded_server.guarded_server_argv(slot, alone, spec(TEXT))[0] == "nbdkit"


def test_uploads_that_the_settings_name_are_kept_and_others_are_as_was_guessed(slot: DeviceSlot):
    device = Device.model_validate({"nbd": TEXT, "lease": "1m"})
    for words, wanted in ((TEXT, ["uploads=16"]), (f"{TEXT} uploads=2", ["uploads=2"])):
        argv = guarded_server.guarded_server_argv(slot, device, spec(words), uploads=16)
        assert [word for word in argv if word.startswith("uploads=")] == wanted
    argv = guarded_server.guarded_server_argv(slot, device, spec(TEXT))
    assert not [word for word in argv if word.startswith("uploads=")]


def guard(memory: Memory, patience: float, bound: float = 2.0) -> LeaseGuard:
    etag = memory.take(MINE)
    return LeaseGuard(memory.store, MINE.__class__(*[*vars_of(memory), bound]), etag, memory.clock, patience)


def vars_of(memory: Memory) -> list[Any]:
    lease = memory.lease
    assert lease is not None
    return [lease.host, lease.address, lease.machine, lease.boot, lease.since]


SLOW = """
trap 'while [ ! -e {folder}/enough ]; do sleep 0.05; done; exit {code}' TERM
touch {folder}/up
while :; do sleep 0.05; done
"""


@pytest.mark.parametrize(("code", "given_back"), [(0, True), (1, False)])
async def test_a_server_that_stops_has_its_time_and_the_lease_is_renewed_meanwhile(
    code: int, given_back: bool, tmp_path: Path
):
    memory = Memory()
    it = guard(memory, 60.0, bound=10.0)  # renewed every second; a busy host may miss four
    it.clock = Awake().clock  # real time: what is waited for is a process
    it.renewed = it.clock.now()
    running = asyncio.ensure_future(it.run(["sh", "-c", SLOW.format(code=code, folder=tmp_path)]))
    await eventually((tmp_path / "up").exists)
    before = memory.number
    it.stop.set()
    while memory.number - before < 2:
        assert not running.done()
        await asyncio.sleep(0.02)
    (tmp_path / "enough").touch()
    await asyncio.wait({running})
    assert memory.lease is not None
    assert memory.lease.held != given_back
    if code:
        with pytest.raises(ToolFailed, match="exit status 1"):
            running.result()


async def test_a_server_that_takes_too_long_is_killed(tmp_path: Path):
    memory = Memory()
    it = guard(memory, 0.3, bound=10.0)
    it.clock = Awake().clock
    it.renewed = it.clock.now()
    running = asyncio.ensure_future(it.run(["sh", "-c", HANGS.format(folder=tmp_path, seconds=FOR_EVER)]))
    await eventually((tmp_path / "up").exists)
    it.stop.set()
    await asyncio.wait_for(running, PATIENCE)


HANGS = "trap '' TERM; touch {folder}/up; exec sleep {seconds}"


# Keys


def keys(folder: Path, **sections: str) -> Path:
    file = folder / "s3.keys"
    file.write_text(
        "".join(
            f"[{name}]\naws_access_key_id = {value}\naws_secret_access_key = hunter2\n"
            for name, value in sections.items()
        )
    )
    return file


@pytest.mark.parametrize(("words", "whose"), [([], "first"), (["profile=other"], "second")])
def test_the_lease_has_the_same_keys_as_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], whose: str
):
    pytest.importorskip("boto3")
    file = keys(tmp_path, default="first", other="second")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of somebody else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter3")
    place = BucketPlace.of(
        ["bucket=zv", "key=cold", "region=eu", "endpoint=http://h:9", f"keys={file}", *words]
    )
    client: Any = LeaseObjectStore(place)._objects._clients.get()
    assert client._request_signer._credentials.access_key == whose
    assert client.meta.region_name == "eu"
    assert client.meta.endpoint_url == "http://h:9"


def test_a_credential_is_systemds_or_else_the_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own, host = tmp_path / "own", tmp_path / "host"
    for folder in (own, host):
        folder.mkdir()
        keys(folder, default="x").rename(folder / "zvault.s3")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(own))
    assert find_credential_file("zvault.s3", (host,)) == own / "zvault.s3"
    (own / "zvault.s3").unlink()
    assert find_credential_file("zvault.s3", (host,)) == host / "zvault.s3"
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(NotFound, match="there is no credential other") as caught:
        find_credential_file("other", (host,))
    assert "ImportCredential=other" in caught.value.next
