"""Is the guest what the tests take it for?"""

import os
import platform
import subprocess
import time
from pathlib import Path


def out(*argv: str, timeout: float = 240) -> str:
    """What a program prints; it must succeed."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def test_user_mode_linux_with_openzfs():
    assert "User Mode Linux" in Path("/proc/cpuinfo").read_text()
    userland, kernel = out("zfs", "version").split()
    assert userland.removeprefix("zfs-") == kernel.removeprefix("zfs-kmod-")
    assert userland.startswith(f"zfs-{os.environ['ZVAULT_LAB_ZFS']}.")
    # The same of every package of OpenZFS: libzfs_core's calls are those of its own version.
    packages = out("dpkg-query", "-W", "-f", "${source:Package} ${Version}\n").splitlines()
    versions = {line for line in packages if line.startswith("zfs-linux ")}
    assert len(versions) == 1, versions


def test_systemd_is_up_and_nothing_failed():
    # Until all that the boot starts was started.
    asked = ["systemctl", "is-system-running", "--wait"]
    state = subprocess.run(asked, capture_output=True, text=True, timeout=240).stdout.strip()
    assert (state, out("systemctl", "--failed", "--plain", "--no-legend")) == ("running", "")
    for unit in ("dbus", "systemd-logind", "systemd-udevd", "systemd-journald"):
        assert out("systemctl", "is-active", unit) == "active"


def test_logind_answers_and_takes_inhibitors():
    who = out(
        "systemd-inhibit",
        "--what=sleep",
        "--who=lab",
        "systemd-inhibit",
        "--list",
        "--no-legend",
        "--no-pager",
    )
    assert "lab" in who


def test_loopback_is_up():
    assert "127.0.0.1/8" in out("ip", "-o", "-4", "address", "show", "lo")


def test_root_is_pristine_and_a_throw_away():
    assert platform.node() == "zvault-lab"
    assert os.getuid() == 0
    mark = Path("/usr/bin/lab-was-here")
    assert not mark.exists()
    mark.touch()
    assert not Path("/src/lab-was-here").exists()
    Path("/src/lab-was-here").touch()


def test_no_pool_is_imported_by_the_boot():
    assert out("zpool", "list", "-H") == ""


def test_zvault_is_the_installed_one():
    import zvault

    assert zvault.__file__ == "/usr/lib/python3/dist-packages/zvault/__init__.py"
    for launcher in ("/usr/bin/zvaultctl", "/usr/bin/zvaultd"):
        assert os.access(launcher, os.X_OK)


def test_guest_only_libraries_import():
    import libzfs_core
    import systemd.journal

    assert libzfs_core
    assert systemd.journal


def test_journal_takes_and_gives():
    out("systemd-cat", "-t", "labtest", "echo", "a line of the lab's")
    deadline = time.monotonic() + 60
    while "a line of the lab's" not in out("journalctl", "-q", "-t", "labtest", "-o", "cat"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_service_runs_and_outlives_what_started_it():
    out("systemd-run", "--unit=labsleep", "sleep", "600")
    assert out("systemctl", "is-active", "labsleep") == "active"
    out("systemctl", "stop", "labsleep")


def test_pool_on_nbd(tmp_path: Path):
    """nbdkit on a unix socket, a pool on its device: created, scrubbed, exported, imported again."""
    socket, device = tmp_path / "socket", "/dev/nbd0"
    # udev opens each device that the module makes, and keeps it busy for a moment.
    out("modprobe", "nbd")
    out("udevadm", "settle")
    server = subprocess.Popen(["nbdkit", "-f", "-U", socket, "memory", "1G"])
    try:
        deadline = time.monotonic() + 120
        connect = ["nbd-client", "-unix", str(socket), device, "-timeout", "30"]
        # Its socket is there a moment before it listens.
        while subprocess.run(connect, capture_output=True).returncode:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        try:
            out("zpool", "create", "-O", "compression=off", "labpool", device)
            Path("/labpool/file").write_bytes(os.urandom(32 << 20))
            out("zpool", "scrub", "-w", "labpool")
            assert "with 0 errors" in out("zpool", "status", "labpool")
            out("zpool", "export", "labpool")
            out("zpool", "import", "-d", device, "labpool")
            assert Path("/labpool/file").stat().st_size == 32 << 20
            out("zpool", "export", "labpool")
        finally:
            out("nbd-client", "-d", device)
    finally:
        server.terminate()
        server.wait(120)
