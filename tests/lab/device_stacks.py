"""Device stacks on this guest's kernel, what they leave, and a process killed between any two of its steps."""

import asyncio
import contextlib
import itertools
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from world import eventually
from world import shell as sh

from zvault.config.paths import Paths
from zvault.config.profile import QueueSettings
from zvault.config.schema import Device
from zvault.devices.device_state import DeviceState
from zvault.devices.stack import DeviceStack
from zvault.system.process.runner import HostRunner, ProcessResult
from zvault.system.record_store import RecordStore

PATHS = Paths()
DEVICES = PATHS.run / "device"
LEASES = PATHS.run / "lease"
QUEUE = QueueSettings(max_sectors_kb=1 << 20, scheduler="none", nr_requests=100_000, read_ahead_kb=64)


def connected() -> dict[int, int]:
    """Connected NBD devices and the processes that connected them."""
    found = {}
    for path in Path("/sys/block").glob("nbd*/pid"):
        # The kernel may release one at any time.
        with contextlib.suppress(OSError):
            found[int(path.parent.name[3:])] = int(path.read_text())
    return found


def running_units() -> list[str]:
    listing = sh("systemctl list-units --plain --no-legend --all 'zvault-device@*'")
    return [line for line in listing.splitlines() if " inactive " not in line]


def leftovers() -> dict[str, object]:
    """Whatever a stack could have left on the host."""
    files = [path.name for path in DEVICES.glob("*")] if DEVICES.exists() else []
    found = {
        "connected": connected(),
        "units": running_units(),
        "leases": RecordStore(LEASES).names(),
        "files": files,
        "servers": sh("pgrep -a nbdkit", check=False).splitlines(),
    }
    return {kind: things for kind, things in found.items() if things}


def cleared(what: object = "nothing is left") -> None:
    """Nothing is left. What was killed with its parent may take a moment to end."""
    eventually(lambda: f"{what}: {leftovers()}", lambda: not leftovers())


@pytest.fixture(name="_nbd_module", scope="session", autouse=True)
def nbd_module() -> None:
    sh("modprobe nbd && udevadm settle")


@pytest.fixture(name="_clean_before_and_after", autouse=True)
def clean_before_and_after() -> Iterator[None]:
    cleared()
    # While udev looks at a device it is busy, and the next one is taken.
    sh("udevadm settle", check=False)
    yield
    with contextlib.suppress(AssertionError):
        cleared()
    found = leftovers()
    # One test's failure must not become the next one's.
    sh("systemctl stop 'zvault-device@*'; systemctl reset-failed; pkill -KILL nbdkit; true", check=False)
    for index in connected():
        sh(f"nbd-client -d /dev/nbd{index}", check=False)
    shutil.rmtree(LEASES, ignore_errors=True)
    shutil.rmtree(DEVICES, ignore_errors=True)
    assert not found


def stack_of(
    *specs: str, vault: str = "cold", settings: QueueSettings | None = None, **device: object
) -> DeviceStack:
    devices = [Device.model_validate({"nbd": spec, "timeout": "5s", **device}) for spec in specs]
    settings = settings or QueueSettings()
    return DeviceStack(vault, devices, settings, HostRunner(), PATHS, RecordStore(LEASES), create=True)


def patient_stack_of(*specs: str, **more: Any) -> DeviceStack:
    """One whose devices wait for their servers for longer than a busy machine may stand still."""
    return stack_of(*specs, **({"timeout": "30s"} | more))


def file_spec(path: Path, extra: str = "") -> str:
    return f"nbdkit:file {shlex.quote(str(path))} {extra}".strip()


def quiet(_: str) -> None:
    pass


async def only_state(stack: DeviceStack) -> DeviceState:
    (state,) = await stack.probe()
    return state


async def becomes(stack: DeviceStack, state: str, detail: str = "") -> DeviceState:
    """The only device's state, once it is that: systemd and the kernel notice a death a little later."""
    for _ in range(600):
        seen = await only_state(stack)
        if seen.state == state and detail in seen.detail:
            return seen
        await asyncio.sleep(0.1)
    raise AssertionError(f"never {state} ({detail}): {seen}")


def listens(arguments: Sequence[str]) -> bool:
    """Whether a server takes connections, as its arguments say where."""
    words = dict(itertools.pairwise(arguments))
    with socket.socket(socket.AF_UNIX if "-U" in words else socket.AF_INET) as asked:
        return asked.connect_ex(words["-U"] if "-U" in words else (words["-i"], int(words["-p"]))) == 0


@contextlib.contextmanager
def server(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """An NBD server that somebody else runs."""
    process = subprocess.Popen(["nbdkit", "-f", *arguments])
    try:
        eventually("the server", lambda: listens(arguments), every=0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def image(path: Path, size: int = 64 << 20) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
    return path


class Moment:
    """The ``nth`` thing that a process does; it is killed before that, or while it is being done."""

    def __init__(self, nth: int, *, before: bool) -> None:
        self.left, self.before = nth, before

    def comes(self) -> bool:
        self.left -= 1
        return self.left == 0

    @staticmethod
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalRunner(HostRunner):
    """Dies with a tool on its way; the tool goes on, as it does when only the daemon is killed."""

    def __init__(self, moment: Moment) -> None:
        self.moment = moment

    async def run(self, argv: Sequence[str], **options: Any) -> ProcessResult:
        if self.moment.comes():
            if not self.moment.before:
                asyncio.get_running_loop().call_later(0.01, self.moment.die)
                await super().run(argv, **options)
            self.moment.die()
        return await super().run(argv, **options)


class MortalLeases(RecordStore):
    """Dies before or after a lease is written or dropped."""

    moment: Moment

    def put(self, name: str, data: Mapping[str, object]) -> None:
        self._at(lambda: super(MortalLeases, self).put(name, data))

    def drop(self, name: str) -> None:
        self._at(lambda: super(MortalLeases, self).drop(name))

    def _at(self, act: Callable[[], None]) -> None:
        comes = self.moment.comes()
        if comes and self.moment.before:
            self.moment.die()
        act()
        if comes:
            self.moment.die()


def killed(stack: DeviceStack, verb: str, moment: Moment) -> bool:
    """Let another process do something with a vault; whether it was killed on the way."""
    child = os.fork()
    if child == 0:
        leases = MortalLeases(LEASES)
        leases.moment = moment
        mortal = DeviceStack(
            "cold", stack.devices, stack.queue, MortalRunner(moment), PATHS, leases, create=True
        )
        asyncio.run(getattr(mortal, verb)(quiet))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
