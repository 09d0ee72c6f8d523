"""What a user of this host without any rights can do to the daemon: nothing that stops or misleads it."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
import world
from world import World, eventually, ok, sh, snapshots

LAB = {"mem": "3G", "timeout": 1800}

IDLE = 1400


@pytest.fixture
def tank():
    it = World()
    it.clean()
    it.source()
    yield it
    it.clean()


def descriptors(pid: int | None = None) -> int:
    return len(list(Path(f"/proc/{pid or world.main_pid()}/fd").iterdir()))


def fewest_descriptors(pid: int) -> int:
    """Within a second: the programs that the daemon starts to look at something have some for as long as they run."""
    found = [descriptors(pid)]
    for _ in range(20):
        time.sleep(0.05)
        found.append(descriptors(pid))
    return min(found)


def metrics_pid() -> int:
    """The process that serves metrics."""
    (pid,) = sh("pgrep", "-f", "web/listener.py").split()
    return int(pid)


def taken_by(pid: int, host: str, port: str) -> str:
    """The connections to a port, where this process has one of them: a new one, for it closes those on which nothing
    is said after some seconds.
    """
    with socket.create_connection((host, int(port))):
        time.sleep(0.2)
        there = sh("ss", "-Htnp", "state", "established", f"sport = :{port}")
    return there if f"pid={pid}," in there else ""


def scrape_fails() -> bool:
    try:
        world.metrics()
    except OSError:
        return True
    return False


def test_metrics_come_from_a_process_without_rights_and_from_nowhere_else(tank):
    tank.start()
    assert world.metrics()
    first = metrics_pid()
    told = Path(f"/proc/{first}/status").read_text()
    assert re.search(r"^Uid:\t65534\t65534\t65534\t65534$", told, re.MULTILINE), told
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert re.search(rf"^{name}:\t0+$", told, re.MULTILINE), told
    assert re.search(r"^NoNewPrivs:\t1$", told, re.MULTILINE), told
    assert "fdinfo" in str(Path(f"/proc/{first}/root").readlink())
    host, _, port = world.METRICS.partition(":")
    listens = sh("ss", "-Hltnp", f"sport = :{port}")
    assert f"pid={first}," in listens
    # zvaultd has the socket too, for when that process ends, and takes no connection from it.
    taken = eventually("it is taken", lambda: taken_by(first, host, port), every=0.1)
    assert f"pid={world.main_pid()}," not in taken
    # It is started again where it dies, and a new daemon has a new one.
    os.kill(first, signal.SIGKILL)
    eventually("metrics again", lambda: not scrape_fails(), every=1)
    second = metrics_pid()
    before = world.main_pid()
    os.kill(before, signal.SIGKILL)
    world.restarted(before)
    eventually("metrics again", lambda: not scrape_fails(), every=1)
    assert len({first, second, metrics_pid()}) == 3
    # No figure is told where zvaultd cannot tell it.
    before = world.main_pid()
    os.kill(before, signal.SIGSTOP)
    try:
        assert scrape_fails()
    finally:
        os.kill(before, signal.SIGCONT)
    assert world.metrics()
    sh("systemctl", "stop", "zvaultd")
    assert scrape_fails()
    assert not sh("pgrep", "-f", "web/listener.py", check=False)


def tells_of_the_vault() -> bool:
    try:
        return 'zvault_vault_up{vault="cold"}' in world.metrics()
    except OSError:
        return False


def idle_connections(count: int) -> list[socket.socket]:
    """Connections to the metrics port on which nothing is said; those that the kernel turns away are left out."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8192), most))
    host, _, port = world.METRICS.partition(":")
    found = []
    for _ in range(count):
        one = socket.socket()
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.connect((host, int(port)))
        found.append(one)
        time.sleep(0.001)
    return found


def test_idle_connections_stop_no_backup_and_the_metrics_come_back(tank):
    tank.start()
    assert world.metrics()
    listener = metrics_pid()
    daemon = world.main_pid()
    before, free = fewest_descriptors(daemon), descriptors(listener)
    idle = idle_connections(IDLE)
    try:
        assert fewest_descriptors(daemon) < before + 10
        assert descriptors(listener) <= 128
        assert world.status()["backups"][0]["name"] == "tank"
        ok("run", "tank")
        assert len(snapshots("tank/home")) == 1
        # They are still there, and whoever asks is answered.
        eventually("a scrape", tells_of_the_vault)
    finally:
        for one in idle:
            one.close()
    eventually("all descriptors are free again", lambda: descriptors(daemon) <= before + 5)
    eventually("and those of metrics", lambda: descriptors(listener) <= free + 5)
    assert world.metrics()['zvault_backup_runs_total{backup="tank",result="ok"}'] == 1


def test_a_member_of_the_group_cannot_keep_root_out(tank):
    sh("groupadd", "-f", "zvault")
    sh("useradd", "-G", "zvault", "member")
    tank.start()
    script = (
        "import socket, time\nkept = []\n"
        "for _ in range(600):\n"
        "    one = socket.socket(socket.AF_UNIX); one.settimeout(2)\n"
        "    try:\n        one.connect('/run/zvault/zvaultd.sock')\n"
        "        one.sendall(b'GET /v1/events HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n')\n"
        "    except OSError: pass\n"
        "    kept.append(one)\n"
        "print('kept', flush=True); time.sleep(600)\n"
    )
    argv = ["setpriv", "--reuid", "member", "--regid", "member", "--init-groups", "python3", "-c", script]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as attack:
        try:
            assert attack.stdout is not None
            assert attack.stdout.readline().strip() == "kept"
            assert descriptors() < 200
            ok("run", "tank")
        finally:
            attack.kill()
    sh("userdel", "-r", "member", check=False)


def test_a_foreign_name_gets_no_metrics(tank):
    tank.start()
    host, _, port = world.METRICS.partition(":")
    with socket.create_connection((host, int(port)), 60) as link:
        link.sendall(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        answer = link.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 403")
    assert b"zvault_" not in answer


def test_the_units_are_as_closed_as_they_can_be():
    devices = {"device": 2.5, "rbd": 2.9, "rbd-lease": 2.5, "s3backer": 2.7, "blockstore": 3.0}
    for unit, most in {
        "zvaultd": 5.2,
        **{f"zvault-{kind}@x": figure for kind, figure in devices.items()},
    }.items():
        told = sh("systemd-analyze", "security", "--no-pager", f"{unit}.service")
        found = re.search(r"Overall exposure level for .*: ([0-9.]+) ", told)
        assert found is not None
        assert float(found[1]) <= most, told


def test_servers_that_only_connect_listen_on_no_port():
    denied = {
        kind: sh("systemctl", "show", "-P", "SocketBindDeny", f"zvault-{kind}@x.service").split()
        for kind in ("blockstore", "s3backer")
    }
    assert denied == {"blockstore": ["any"], "s3backer": ["any"]}


def test_no_user_sees_the_state(tank):
    tank.start()
    ok("run", "tank")
    assert Path("/var/lib/zvault").stat().st_mode & 0o077 == 0
    assert all(
        path.stat().st_mode & 0o077 == 0 for path in Path("/var/lib/zvault").iterdir() if path.is_file()
    )


def test_a_restore_into_a_users_folder_never_leaves_it(tank):
    """The user swaps a folder of the copy for a link to another place, again and again, while root copies into it."""
    deep = Path("/tank/home/docs")
    deep.mkdir()
    for number in range(400):
        (deep / f"name{number}").write_bytes(b"from the snapshot")
    tank.start()
    ok("run", "tank")
    outside, folder = Path("/root/outside"), Path("/srv/user")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    folder.mkdir()
    os.chown(folder, 1234, 1234)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):
                (folder / "docs").rename(folder / f"away{time.monotonic_ns()}")
                (folder / "docs").symlink_to(outside)
                time.sleep(0.002)
                (folder / "docs").unlink()

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(5):
            world.ctl("restore", "tank", "tank/home", str(folder), "--file", "docs", "--overwrite")
    finally:
        stop.set()
        thread.join()
    assert list(outside.iterdir()) == []


def test_a_link_in_the_snapshot_does_not_lead_to_the_hosts_own_file(tank):
    Path("/root/live").mkdir(exist_ok=True)
    Path("/root/live/secret").write_text("of the host, not of the snapshot")
    Path("/tank/home/way").symlink_to("/root/live")
    tank.start()
    ok("run", "tank")
    folder = Path("/srv/restored")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = world.ctl("restore", "tank", "tank/home", str(folder), "--file", "way/secret")
    assert done.code != 0
    assert list(folder.iterdir()) == []
