"""A virtual machine of qemu, driven as an administrator drives one: by its console and its power switch.

The first serial line has the kernel's log, which ``kernel_log`` returns; the second one has a login. Its disk is an
overlay of another, which stays as it was.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import select
import shutil
import socket
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

MEMORY = "2G"
LOG_TAIL = 60
"""Lines of the kernel's log that an error shows."""
KVM_PROBE = 40
"""Seconds in which a kernel without a root panics where KVM works."""
EMULATED = 6.0
"""How much longer everything may take where the CPU is emulated: it computes a tenth as much, but most of what is
waited for are timers.
"""
LINE = 2000
"""Characters that are written to the console at once: the kernel's line discipline keeps 4,095 of a line."""
AWAKE = "PM: suspend exit"
CRASH = re.compile(r"Oops|BUG: (?!soft lockup)|PANIC|Kernel panic|VERIFY|general protection fault")
STUCK = re.compile(r"soft lockup|blocked for more than")
"""An emulated machine that gets no CPU is told so, too: it took 47 s to clear a page where others had the host."""


class MachineError(AssertionError):
    """The machine did not do what it was told to, with the end of what it said."""


class Done(str):
    """What a command printed, both streams, and its exit status."""

    status: int

    def __new__(cls, text: str, status: int) -> Done:
        it = super().__new__(cls, text)
        it.status = status
        return it


@functools.cache
def has_kvm(kernel: Path) -> bool:
    """Whether this host's KVM runs such a kernel: with some nested ones a stock kernel does not come up."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK) or os.environ.get("ZVAULT_VM_EMULATED"):
        return False
    argv = [
        *(
            "qemu-system-x86_64",
            "-nodefaults",
            "-no-user-config",
            "-display",
            "none",
            "-no-reboot",
            "-m",
            "512",
        ),
        *("-machine", "pc,accel=kvm", "-cpu", "host", "-serial", "stdio", "-kernel", str(kernel)),
        *("-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1"),
    ]
    try:
        said = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=KVM_PROBE).stdout
    except subprocess.TimeoutExpired:
        return False
    # It has no root, so it panics within seconds, and panic=-1 ends it: if it never got there it hung, or qemu failed.
    return b"Unable to mount root" in said


def overlay(disk: Path, base: Path) -> Path:
    """Make ``disk``, which has what ``base`` has until it is written to."""
    made = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", str(base.resolve()), str(disk)]
    subprocess.run(made, check=True)
    return disk


class Machine:
    """One machine: ``folder`` is its own, ``image`` has a kernel and initrd, ``disk`` is its root.

    ``media`` is a folder whose files a second disk has, as a stick would.
    """

    def __init__(self, folder: Path, image: Path, disk: Path, media: Path | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.image, self.disk = folder, image, disk
        self.kvm = has_kvm(image / "vmlinuz")
        self.patience = 1.0 if self.kvm else EMULATED
        self.log = folder / "kernel.log"
        self.transcript = folder / "console.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._console: socket.socket | None = None
        self._qmp: socket.socket | None = None
        self._events: list[dict[str, Any]] = []
        self._said = b""
        self.media = self._make_stick(media) if media else None

    def _make_stick(self, files: Path) -> Path:
        stick = self.folder / "stick.img"
        subprocess.run(
            ["mke2fs", "-q", "-F", "-t", "ext4", "-d", str(files), str(stick), "256M"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return stick

    def _argv(self) -> list[str]:
        # ACPI's S3 is on in qemu's "pc"; -nodefaults leaves out a floppy drive, which a kernel would ask for in vain.
        # With two emulated CPUs the kernel was seen to die of an int3 while it patched its own code: qemu's fault.
        # An emulated CPU has no other tenant to be mitigated against, and page tables of five levels only cost it time.
        argv = [
            *("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none"),
            *("-accel", "kvm" if self.kvm else "tcg,tb-size=512"),
            *("-machine", "pc", "-cpu", "host" if self.kvm else "max,la57=off"),
            *("-m", MEMORY, "-smp", "2" if self.kvm else "1", "-device", "virtio-rng-pci", "-vga", "std"),
            *("-kernel", str(self.image / "vmlinuz"), "-initrd", str(self.image / "initrd")),
            *("-append", f"root=/dev/vda ro console=ttyS0{'' if self.kvm else ' mitigations=off'}"),
            # A power cut ends qemu, not the host: what the machine has flushed is in the host's memory, and safe there.
            *("-drive", f"file={self.disk},if=virtio,discard=unmap,cache=unsafe"),
            *("-chardev", f"file,id=log,path={self.log},append=on", "-serial", "chardev:log"),
            *("-serial", f"unix:{self.folder}/console,server=on,wait=off"),
            *("-qmp", f"unix:{self.folder}/qmp,server=on,wait=off"),
            *("-nic", "user,restrict=on,model=virtio-net-pci"),
        ]
        if self.media:
            argv += ["-drive", f"file={self.media},if=virtio,format=raw,readonly=on"]
        return argv

    def start(self) -> None:
        """Switch it on, and log in. Raises MachineError."""
        assert self.process is None, "it is on"
        for name in ("console", "qmp"):
            (self.folder / name).unlink(missing_ok=True)
        # It never outlives the tests, whatever ends those.
        argv = ["setpriv", "--pdeathsig", "KILL", *self._argv()]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        self._console, self._qmp = self._connect("console"), self._connect("qmp")
        self._said, self._events = b"", []
        self._order("qmp_capabilities")
        self.login()

    def _connect(self, name: str) -> socket.socket:
        end = time.monotonic() + 20
        while True:
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(self.folder / name))
                return connection
            except OSError:
                connection.close()
                if time.monotonic() > end or (self.process and self.process.poll() is not None):
                    raise MachineError("qemu did not start") from None
                time.sleep(0.1)

    def login(self, seconds: float = 180) -> None:
        """Log in as root once it has booted, into a shell that echoes nothing. Raises MachineError."""
        self._wait(rb"login: $", seconds)
        self._write("root\n")
        self._wait(rb"Password: $", 60)
        self._write("root\n")
        self._wait(rb"[#] $", 60)
        # dash, for bash's readline would echo; with no prompt what comes back is only what commands print.
        self._write("stty -echo -onlcr; exec env PS1= PS2= TERM=dumb PAGER=cat /bin/sh\n")
        time.sleep(0.5)
        self.run("true")

    def run(self, command: str, *, seconds: float = 120, check: bool = True) -> Done:
        """What a line of shell prints, without the space around. Raises MachineError if it fails, given ``check``."""
        mark = uuid.uuid4().hex[:12]
        if len(command) > LINE:
            self.put("/run/command", command)
            command = ". /run/command"
        self._said = b""
        # By a file: on a terminal programs colour and cut what they print, and a serial line has no width. The
        # mark is put together there, so that an echo of the line, if one comes, is no answer.
        answer = f"code=$?; cat /run/said; printf '\\n%s%s %d\\n' {mark[:6]} {mark[6:]} $code"
        self._write(f"{{ {command}\n}} </dev/null >/run/said 2>&1; {answer}\n")
        found = self._wait(rb"\n" + mark.encode() + rb" (\d+)\n", seconds, command)
        text = self._said[: found.start()].decode(errors="replace").strip()
        self._said = b""
        done = Done(text, int(found[1]))
        if check and done.status:
            raise MachineError(f"{command}: {done.status}\n{text}")
        return done

    def eventually(self, command: str, *, seconds: float = 120, every: float = 1) -> Done:
        """Run a command until it succeeds, and return what it printed then. Raises MachineError."""
        end = time.monotonic() + seconds * self.patience
        while (done := self.run(command, check=False)).status:
            if time.monotonic() > end:
                raise MachineError(f"not within {seconds * self.patience:g} s: {command}\n{done}")
            time.sleep(every)
        return done

    def put(self, path: str, text: str) -> None:
        """Write a file."""
        coded = base64.b64encode(text.encode()).decode()
        self.run(f"mkdir -p {Path(path).parent}; : >{path}")
        for at in range(0, len(coded), LINE // 2):
            self.run(f"printf %s {coded[at : at + LINE // 2]} | base64 -d >>{path}")

    def status(self) -> dict[str, Any]:
        """What zvaultctl tells of backups and vaults."""
        return dict(json.loads(self.run("zvaultctl status -j")))

    def power_cut(self) -> None:
        """Take its power away: what its kernel had not written to its disk is lost."""
        assert self.process
        self.process.kill()
        self._off(10)

    def reboot(self, seconds: float = 300) -> float:
        """Reboot it in good order, and log in again. Returns the seconds until it was down."""
        began = time.monotonic()
        self._events.clear()
        self._said = b""
        self._write("systemctl reboot\n")
        self.wait_event("RESET", seconds)
        took = time.monotonic() - began
        self.login()
        return took

    def shut_down(self, seconds: float = 300) -> float:
        """Have it shut down, by its power button. Returns the seconds until it was off. Raises MachineError."""
        assert self.process
        began = time.monotonic()
        self._order("system_powerdown")
        self._off(seconds)
        return time.monotonic() - began

    def wake(self) -> None:
        """Wake it from its sleep, and wait until it is up. Raises MachineError.

        What comes on a serial line before its driver has resumed is lost, in the middle of a command.
        """
        ended = self.kernel_log().count(AWAKE)
        self._order("system_wakeup")
        end = time.monotonic() + 60 * self.patience
        while self.kernel_log().count(AWAKE) <= ended:
            if time.monotonic() > end:
                raise MachineError(f"it does not wake\n{self._tail()}")
            time.sleep(0.5)

    def wait_event(self, name: str, seconds: float) -> None:
        """Wait for an event of qemu's. Raises MachineError."""
        end = time.monotonic() + seconds * self.patience
        while not any(event["event"] == name for event in self._events):
            if time.monotonic() > end:
                raise MachineError(f"no {name} within {seconds * self.patience:g} s\n{self._tail()}")
            self._read_qmp(1)

    def destroy(self) -> None:
        """End it, whatever it does."""
        if self.process:
            self.power_cut()

    def kernel_log(self) -> str:
        """All that the kernel and systemd wrote to the console, of every boot."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def find_crash(self) -> str:
        """The lines of the kernel's log from where it complained of itself; empty if it never did."""
        log = self.kernel_log()
        found = CRASH.search(log) or (STUCK.search(log) if self.kvm else None)
        return log[found.start() :][:3000] if found else ""

    def _off(self, seconds: float) -> None:
        assert self.process
        end = time.monotonic() + seconds * self.patience
        while self.process.poll() is None:
            if time.monotonic() > end:
                raise MachineError(f"not off within {seconds * self.patience:g} s\n{self._tail()}")
            # What it says must be read, or it would wait for that.
            self._read_console(0.2)
        for connection in (self._console, self._qmp):
            if connection:
                connection.close()
        self.process = self._console = self._qmp = None

    def _write(self, text: str) -> None:
        assert self._console
        self._console.sendall(text.encode())

    def _read_console(self, seconds: float) -> None:
        assert self._console
        if select.select([self._console], [], [], seconds)[0]:
            chunk = self._console.recv(65536)
            if not chunk:
                time.sleep(0.1)
            with self.transcript.open("ab") as file:
                file.write(chunk)
            self._said += chunk.replace(b"\r", b"")

    def _wait(self, pattern: bytes, seconds: float, doing: str = "") -> re.Match[bytes]:
        """Wait until the console said something. Raises MachineError."""
        end = time.monotonic() + seconds * self.patience
        while not (found := re.search(pattern, self._said)):
            off = self.process is None or self.process.poll() is not None
            dead = "Kernel panic" in self.kernel_log()
            if off or dead or time.monotonic() > end:
                why = (
                    "its kernel died"
                    if dead
                    else "it went off"
                    if off
                    else f"not within {seconds * self.patience:g} s"
                )
                said = self._said[-3000:].decode(errors="replace")
                raise MachineError(f"{doing or pattern!r}: {why}\n{said}\n--- kernel:\n{self._tail()}")
            self._read_console(0.5)
        return found

    def _tail(self) -> str:
        return "\n".join(self.kernel_log().splitlines()[-LOG_TAIL:])

    def _order(self, command: str) -> None:
        assert self._qmp
        self._qmp.sendall(json.dumps({"execute": command}).encode() + b"\n")
        self._read_qmp(0.5)

    def _read_qmp(self, seconds: float) -> None:
        assert self._qmp
        if not select.select([self._qmp], [], [], seconds)[0]:
            return
        for line in self._qmp.recv(65536).decode().splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if "event" in told:
                self._events.append(told)


def copy_log(machine: Machine, place: Path) -> None:
    """Keep what a machine said, for whoever reads why a test failed."""
    place.mkdir(parents=True, exist_ok=True)
    for file in (machine.log, machine.transcript):
        if file.exists():
            shutil.copy(file, place)
