"""The device stack on a real kernel: servers in units, NBD connections, queue settings, several stacks at once."""

import asyncio
import contextlib
import re
import shutil
import time
from pathlib import Path

import pytest
from device_stacks import (
    DEVICES,
    QUEUE,
    becomes,
    clean_before_and_after,  # noqa: F401
    cleared,
    connected,
    file_spec,
    image,
    leftovers,
    nbd_module,  # noqa: F401
    only_state,
    quiet,
    running_units,
    server,
)
from device_stacks import patient_stack_of as stack_of
from world import eventually
from world import shell as sh

from zvault.core.errors import Busy, DeviceGone, NotFound, Refused, ToolFailed
from zvault.devices import request_queue
from zvault.system.process.runner import HostRunner
from zvault.system.system_bus import read_unit_states
from zvault.system.systemd_units import SystemdUnits

GIB = 1 << 30


def connect(server: str, index: int) -> None:
    """As somebody else does. udev may still look at a device that the kernel released, and keeps it busy."""
    argv = f"nbd-client {server} /dev/nbd{index} -timeout 30"
    eventually(f"{server} on nbd{index}", lambda: sh(f"{argv} && echo done", check=False).endswith("done"))


async def test_up_gives_a_device_that_works_and_down_leaves_nothing(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "cold.img"), size="1G", settings=QUEUE)
    assert (await only_state(stack)).state == "down"
    before = {name: request_queue.read_queue_setting("nbd0", name) for name in request_queue.ORDER}
    said: list[str] = []
    began = time.monotonic()
    (device,) = await stack.up(said.append)
    print(f"up in {time.monotonic() - began:.2f} s", said)

    assert (device.path, device.size) == ("/dev/nbd0", GIB)
    backing = tmp_path / "cold.img"
    assert backing.stat().st_size == GIB
    assert backing.stat().st_blocks * 512 < 1 << 20
    assert backing.stat().st_mode & 0o777 == 0o600
    sh(f"dd if=/dev/urandom of={tmp_path}/data bs=1M count=8")
    sh(f"dd if={tmp_path}/data of={device.path} bs=1M oflag=direct")
    sh(f"cmp -n 8388608 {tmp_path}/data {device.path} && cmp -n 8388608 {tmp_path}/data {backing}")
    assert [line.split()[:3] for line in running_units()] == [
        ["zvault-device@cold-0.service", "loaded", "active"]
    ]
    assert DEVICES.stat().st_mode & 0o777 == 0o700
    assert "oldtimeout" not in said

    def kernel(name: str) -> str:
        return Path(f"/sys/block/nbd0/queue/{name}").read_text().strip()

    assert kernel("max_sectors_kb") == kernel("max_hw_sectors_kb") == "32768"
    assert kernel("scheduler").startswith("[none]")
    assert kernel("nr_requests") == Path("/sys/block/nbd0/mq/0/nr_tags").read_text().strip()
    assert kernel("read_ahead_kb") == "64"
    assert any("max_sectors_kb is 32768" in line for line in said)

    began = time.monotonic()
    state = await only_state(stack)
    print(f"probe in {time.monotonic() - began:.3f} s")
    assert (state.state, state.path, state.size, state.detail) == ("up", "/dev/nbd0", GIB, "")

    began = time.monotonic()
    await stack.down(said.append)
    print(f"down in {time.monotonic() - began:.2f} s")
    cleared()
    assert {name: request_queue.read_queue_setting("nbd0", name) for name in request_queue.ORDER} == before
    assert (await only_state(stack)).state == "down"
    await stack.down(quiet)
    assert backing.stat().st_size == GIB


async def test_another_process_adopts_what_is_up(tmp_path: Path):
    spec = file_spec(tmp_path / "cold.img")
    (device,) = await stack_of(spec, size="64M", settings=QUEUE).up(quiet)
    pid, unit = connected(), sh("systemctl show -p MainPID,InvocationID zvault-device@cold-0")

    later = stack_of(spec, size="64M", settings=QUEUE)
    said: list[str] = []
    assert await later.up(said.append) == [device]
    assert "/dev/nbd0 is up already" in said
    assert connected() == pid
    assert sh("systemctl show -p MainPID,InvocationID zvault-device@cold-0") == unit
    # What goes back is what was there before the first, not what the first set.
    await later.down(quiet)
    assert request_queue.read_queue_setting("nbd0", "read_ahead_kb") != "64"


async def test_down_needs_no_configuration(tmp_path: Path):
    await stack_of(file_spec(tmp_path / "cold.img"), size="64M").up(quiet)
    without = stack_of()
    assert [state.state for state in await without.probe()] == ["up"]
    await without.down(quiet)
    cleared()


async def test_filters_are_in_effect(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "slow.img", "filter=delay rdelay=300ms"), size="64M")
    (device,) = await stack.up(quiet)
    began = time.monotonic()
    sh(f"dd if={device.path} of=/dev/null bs=4096 count=1 skip=1000 iflag=direct")
    assert time.monotonic() - began > 0.29
    await stack.down(quiet)


async def test_an_existing_server_on_a_unix_socket(tmp_path: Path):
    path, listen = image(tmp_path / "a"), tmp_path / "their socket"
    with server("-U", str(listen), "file", str(path)) as process:
        stack = stack_of(f"unix:{listen}?export=any")
        (device,) = await stack.up(quiet)
        assert device.size == 64 << 20
        assert (await only_state(stack)).state == "up"
        await stack.down(quiet)
        assert process.poll() is None

        await stack.up(quiet)
        # A read of udev's that the server takes with it waits for the device's 30 s, and keeps it busy as long.
        sh("udevadm settle")
        process.kill()
        process.wait()
        await becomes(stack, "gone", "lost")
        await stack.down(quiet)


async def test_an_existing_server_over_tcp_with_several_connections(tmp_path: Path):
    path = image(tmp_path / "a")
    with server("-i", "127.0.0.1", "-p", "10901", "file", str(path)) as process:
        stack = stack_of("tcp:localhost:10901/any", connections=3)
        (device,) = await stack.up(quiet)
        assert len(sh("ss -Htn state established dst 127.0.0.1:10901").splitlines()) == 3
        assert (await only_state(stack)).state == "up"
        sh("ss -Ktn dst 127.0.0.1:10901 | tail -1", check=False)
        process.kill()
        process.wait()
        await becomes(stack, "gone")
        await stack.down(quiet)
    sh("udevadm settle", check=False)
    with server("-i", "127.0.0.1", "-p", "10901", "file", str(path)):
        (again,) = await stack.up(quiet)
        assert again.size == device.size == 64 << 20
        await stack.down(quiet)


def make_certificates(folder: Path, name: str) -> None:
    """A CA, and a server's and a client's certificate by the names that nbdkit looks for."""
    key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout"
    (folder / "ext").write_text(f"subjectAltName=DNS:{name}\nbasicConstraints=CA:FALSE\n")
    sh(f"cd {folder} && openssl req -x509 {key} ca-key.pem -out ca-cert.pem -days 2 -subj '/CN=lab CA'")
    for who in ("server", "client"):
        sh(
            f"cd {folder} && openssl req {key} {who}-key.pem -out {who}.csr -subj /CN={who} && openssl x509 -req"
            f" -in {who}.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial -days 2 -out {who}-cert.pem -extfile ext"
        )


def tls_processes() -> list[str]:
    """What nbd-client left to speak TLS: the cgroup of each process."""
    found = []
    for pid in sh("pgrep nbd-client", check=False).split():
        with contextlib.suppress(OSError):
            found.append(Path(f"/proc/{pid}/cgroup").read_text().strip())
    return found


def no_tls_process() -> None:
    eventually(lambda: f"no process speaks TLS: {tls_processes()}", lambda: not tls_processes())


async def test_a_server_over_tls(tmp_path: Path):
    make_certificates(tmp_path, "nas.lab")
    tls = {"certs": str(tmp_path), "hostname": "nas.lab"}
    options = ["--tls=require", f"--tls-certificates={tmp_path}", "--tls-verify-peer"]
    with server("-i", "127.0.0.1", "-p", "10903", *options, "file", str(image(tmp_path / "a"))) as process:
        spec = "tcp:127.0.0.1:10903"
        with pytest.raises(ToolFailed):
            await stack_of(spec).up(quiet)
        with pytest.raises(ToolFailed):
            await stack_of(spec, tls={**tls, "hostname": "other.lab"}).up(quiet)
        with pytest.raises(NotFound, match="ca-cert"):
            await stack_of(spec, tls={"certs": "/nosuch"}).up(quiet)
        eventually(leftovers, lambda: leftovers().keys() == {"servers"})
        no_tls_process()

        stack = stack_of(spec, tls=tls, connections=2)
        (device,) = await stack.up(quiet)
        sh(f"dd if=/dev/urandom of={tmp_path}/data bs=1M count=4 && cp {tmp_path}/data {device.path}")
        sh(f"blockdev --flushbufs {device.path}; cmp -n 4194304 {tmp_path}/data {tmp_path}/a")
        assert (await only_state(stack)).state == "up"
        # In a scope: in the daemon's own cgroup they would be killed with it, and the disk with them.
        cgroups = tls_processes()
        assert len(cgroups) == 2
        assert all(re.fullmatch(r"0::/zvault.slice/.+\.scope", one) for one in cgroups), cgroups
        await stack.down(quiet)
        no_tls_process()

        # What udev asks of it then fails at its timeout only: sooner than it is given up to ask whether it is in use.
        stack = stack_of(spec, tls=tls, connections=2, timeout="5s")
        await stack.up(quiet)
        sh("pkill -KILL nbd-client")
        await becomes(stack, "gone")
        await stack.up(quiet)
        assert (await only_state(stack)).state == "up"
        process.kill()
        process.wait()
        state = await becomes(stack, "gone")
        assert state.detail == f"the connection to {spec} is lost"
        await stack.down(quiet)
        no_tls_process()


async def test_vaults_at_the_same_time_take_different_devices(tmp_path: Path):
    stacks = [stack_of(file_spec(tmp_path / f"{i}"), vault=f"v{i}", size="64M") for i in range(4)]
    devices = await asyncio.gather(*(stack.up(quiet) for stack in stacks))
    assert len({device.path for (device,) in devices}) == 4
    await asyncio.gather(*(stack.down(quiet) for stack in stacks))


async def test_one_vault_twice_at_the_same_time_is_one_device(tmp_path: Path):
    spec = file_spec(tmp_path / "a")
    first, second = await asyncio.gather(*(stack_of(spec, size="64M").up(quiet) for _ in range(2)))
    assert first == second
    assert len(connected()) == 1
    await stack_of(spec).down(quiet)


async def test_several_devices_come_in_the_order_of_the_configuration(tmp_path: Path):
    specs = [file_spec(image(tmp_path / f"{mib}", mib << 20)) for mib in (100, 200, 300)]
    stack = stack_of(*specs)
    assert [device.size >> 20 for device in await stack.up(quiet)] == [100, 200, 300]
    assert [state.name for state in await stack.probe()] == ["cold-0", "cold-1", "cold-2"]
    await stack.down(quiet)


async def test_somebody_elses_devices_are_left_alone(tmp_path: Path):
    theirs = tmp_path / "theirs"
    with server("-U", str(theirs), "file", str(image(tmp_path / "a"))):
        connect(f"-unix {theirs}", 0)
        before = connected()
        stack = stack_of(file_spec(tmp_path / "mine"), size="64M")
        (device,) = await stack.up(quiet)
        assert device.path == "/dev/nbd1"
        # Ours goes behind our back, and the device becomes theirs too.
        sh("nbd-client -d /dev/nbd1")
        connect(f"-unix {theirs}", 1)
        await becomes(stack, "gone", "somebody else's")
        theirs_now = connected()
        assert set(theirs_now) == {0, 1}
        await stack.down(quiet)
        assert connected() == theirs_now
        assert before.items() <= theirs_now.items()
        sh("nbd-client -d /dev/nbd0; nbd-client -d /dev/nbd1")


async def test_when_all_devices_are_taken_the_kernel_makes_another(tmp_path: Path):
    theirs, count = tmp_path / "theirs", len(list(Path("/sys/block").glob("nbd*")))
    with server("-U", str(theirs), "file", str(image(tmp_path / "a"))):
        for index in range(count):
            connect(f"-unix {theirs}", index)
        stack = stack_of(file_spec(tmp_path / "mine"), size="64M")
        (device,) = await stack.up(quiet)
        assert device.path == f"/dev/nbd{count}"
        assert Path(device.path).is_block_device()
        await stack.down(quiet)
        for index in range(count):
            sh(f"nbd-client -d /dev/nbd{index}")


async def test_a_server_that_takes_one_connection_only(tmp_path: Path):
    spec = file_spec(image(tmp_path / "a"), "filter=multi-conn multi-conn-mode=disable")
    with pytest.raises(ToolFailed) as caught:
        await stack_of(spec, connections=2).up(quiet)
    assert "does not support multiple connections" in caught.value.why
    assert caught.value.next == "set connections = 1 for this device"
    cleared()


async def test_a_server_that_takes_one_client_only(tmp_path: Path):
    path, at = image(tmp_path / "a"), "tcp:127.0.0.1:10906"
    with server("-i", "127.0.0.1", "-p", "10906", "--filter=limit", "file", str(path), "limit=1"):
        stack = stack_of(at)
        for _ in range(3):
            (device,) = await stack.up(quiet)
            assert device.size == 64 << 20
            await stack.down(quiet)
        # Somebody else has taken it.
        connect("127.0.0.1 10906", 5)
        with pytest.raises(DeviceGone, match="takes no connection") as refused:
            await stack.up(quiet)
        assert "one client only" in refused.value.why
        cleared_but_for(5)
        sh("nbd-client -d /dev/nbd5")
        await stack.up(quiet)
        await stack.down(quiet)


def cleared_but_for(index: int) -> None:
    """Nothing is left but somebody else's device, and the test's own server."""
    eventually(
        lambda: f"the rest to be cleared: {leftovers()}",
        lambda: set(leftovers()) <= {"connected", "servers"} and set(connected()) == {index},
    )


@pytest.mark.parametrize("name", ["a backup's file", 'Sicherung „Köln“ $HOME `x` \\ % "é"', "--size=x;y"])
async def test_names_with_spaces_and_unicode(tmp_path: Path, name: str):
    folder = tmp_path / "mit Leerzeichen ü"
    folder.mkdir()
    stack = stack_of(file_spec(folder / name), size="64M")
    (device,) = await stack.up(quiet)
    assert device.size == 64 << 20
    assert [path.name for path in folder.iterdir()] == [name]
    assert (await only_state(stack)).state == "up"
    await stack.down(quiet)


async def test_a_changed_configuration_does_not_pull_a_device_from_under_a_pool(tmp_path: Path):
    await stack_of(file_spec(image(tmp_path / "a"))).up(quiet)
    with pytest.raises(Refused) as caught:
        await stack_of(file_spec(image(tmp_path / "b"))).up(quiet)
    assert "zvaultctl vault down cold" in caught.value.next
    with pytest.raises(Refused):
        await stack_of().up(quiet)
    await stack_of().down(quiet)


async def test_a_device_in_use_is_not_taken_down(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), file_spec(tmp_path / "b"), size="128M")
    first, second = await stack.up(quiet)
    sh(f"zpool create -o cachefile=none -m none zvt {second.path}")
    before = connected()
    with pytest.raises(Busy) as caught:
        await stack.down(quiet)
    assert second.path in caught.value.what
    assert connected() == before
    assert [state.state for state in await stack.probe()] == ["up", "up"]
    sh("zpool export zvt")
    await stack.down(quiet)
    assert first.path != second.path


async def test_blank(tmp_path: Path):
    stack = stack_of(file_spec(tmp_path / "a"), size="128M")
    (device,) = await stack.up(quiet)
    path = device.path
    assert await stack.blank(path) == (True, "nothing")

    sh(f"mkfs.minix {path}")
    assert (await stack.blank(path))[0] is False
    assert "minix" in (await stack.blank(path))[1]
    if shutil.which("mkfs.ext4"):
        sh(f"mkfs.ext4 -q -F -L mine {path}")
        assert await stack.blank(path) == (False, 'ext4 "mine"')
    sh(f"wipefs -qa {path}; dd if=/dev/zero of={path} bs=1M count=128 oflag=direct; true")
    assert (await stack.blank(path))[0] is True

    sh(f"zpool create -o cachefile=none -m none zvt {path} && zpool export zvt")
    assert await stack.blank(path) == (False, 'zfs_member "zvt"')
    # Only the labels at the end are left.
    sh(f"dd if=/dev/zero of={path} bs=1M count=100 oflag=direct")
    assert (await stack.blank(path))[0] is False
    sh(f"dd if=/dev/zero of={path} bs=1M count=128 oflag=direct; true")
    sh(f"printf x | dd of={path} bs=1 seek=$((127 * 1048576 + 7)) conv=notrunc")
    assert await stack.blank(path) == (False, "data of no kind that blkid knows")
    sh(f"printf '\\0' | dd of={path} bs=1 seek=$((127 * 1048576 + 7)) conv=notrunc")
    assert (await stack.blank(path))[0] is True
    await stack.down(quiet)
    with pytest.raises(ToolFailed):
        await stack.blank(path)
    with pytest.raises(ToolFailed):
        await stack.blank("/dev/nosuch")


def test_the_bus_tells_of_units_what_systemctl_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"zvault-shown-{one}.service" for one in ("runs", "failed", "ended", "unknown")]
    for name, command in zip(names, ("sleep 100", "exit 3", "true"), strict=False):
        sh(f"systemd-run --quiet --remain-after-exit --unit={name} sh -c '{command}'")
    eventually("the second fails", lambda: sh(f"systemctl is-failed {names[1]}", check=False) == "failed")
    eventually("the third ends", lambda: sh(f"systemctl show -P SubState {names[2]}") == "exited")
    try:
        told = asyncio.run(read_unit_states(names))
        assert told is not None
        assert told == asyncio.run(SystemdUnits(HostRunner()).states(names))
        assert [told[name].running for name in names] == [True, False, False, False]
        assert (told[names[1]].active, told[names[1]].result) == ("failed", "exit-code")
        assert not told[names[3]].loaded
        open_before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(20):
            asyncio.run(read_unit_states(names))
        assert len(list(Path("/proc/self/fd").iterdir())) <= open_before + 2
        monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nowhere")
        assert asyncio.run(read_unit_states(names)) is None
        assert asyncio.run(SystemdUnits(HostRunner(), read_unit_states).states(names)) == told
    finally:
        sh(f"systemctl stop {' '.join(names[:3])}; systemctl reset-failed", check=False)
