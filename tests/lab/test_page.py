"""The status page of a real daemon: what it shows while a run goes, a pool hangs and zvaultd does, and who may see it.

The tests come in order; they share one pool, one vault and one daemon.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import world
from world import World, ctl, eventually, ok, sh, snapshots

from zvault.zfs.pool.pool import POOL_HEALTH_DEADLINE

LAB = {"mem": "3G", "timeout": 600, "in_order": True}

HOST, PORT = "127.0.0.1", 9712
SERVER = "zvault-device@*"
PASSWORD = "S3CRETpassword"
LOGIN = f"admin:{PASSWORD}"
HOME, IN_VAULT = "/dataset?backup=tank&name=tank/home", "cold/lab/tank/home"

CHOSEN = 'every = "1d"\nmax_lag = "2d"\nlimit = "{}"'


class Patient(World):
    """A vault whose device may stand still for as long as a test takes: else it would be given up, and repaired."""

    def config_text(self) -> str:
        return super().config_text().replace('timeout = "20s"', 'timeout = "200s"')


@pytest.fixture(scope="module")
def tank() -> Iterator[World]:
    it = Patient(vault_extra='create = true\nup = "always"', backup_extra=CHOSEN.format("512K"))
    it.clean()
    it.source()
    it.start()
    yield it
    sh("systemctl", "kill", "--signal=CONT", SERVER, check=False)
    it.clean()


def fetch(target: str = "/", password: str | None = None) -> tuple[int, str]:
    """A page's status and its text, as a browser would show it."""
    asked = urllib.request.Request(f"http://{HOST}:{PORT}{target}")
    if password is not None:
        asked.add_header("Authorization", f"Basic {base64.b64encode(password.encode()).decode()}")
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, shown(answer.read().decode())
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def shown(text: str) -> str:
    """Words without the markup around them."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def page() -> str:
    code, text = fetch()
    assert code == 200, text
    return text


def page_with(words: str) -> str | None:
    """The page, if it has these."""
    text = page()
    return text if words in text else None


def section(text: str, begins: str, ends: str) -> str:
    return text.partition(begins)[2].partition(ends)[0].strip()


class Live:
    """What a browser is told of changes, as it comes."""

    def __init__(self) -> None:
        self.socket = socket.create_connection((HOST, PORT), timeout=60)
        self.socket.sendall(b"GET /live HTTP/1.0\r\nHost: localhost\r\n\r\n")
        self.lines = self.socket.makefile("rb")

    def changes(self) -> Iterator[dict[str, str]]:
        for line in self.lines:
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))

    def until(self, part: str, words: str) -> str:
        """A part of the page as soon as the words, a regular expression, are in it."""
        for changed in self.changes():
            if re.search(words, shown(changed.get(part, ""))):
                return shown(changed[part])
        raise AssertionError(f"{words!r} was never told")


def test_a_run_is_seen_as_it_goes_and_all_is_well_after_it(tank: World) -> None:
    live = Live()
    # The first run is due at once: it makes the pool, and sends everything, slowly until that was seen.
    running = live.until("running", r"tank/big \S+ of 2\S+M [\d.]+[KM]/s")
    assert re.search(r"\d+% · \S+[KM] of \S+[KM] · \S+[KM]/s · [0-9hms ]+ left", running), running
    during = page()
    assert "running" in section(during, "Backups", "Vaults")
    tank.backup_extra = CHOSEN.format("5M")
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    assert "Nothing." in live.until("running", r"Nothing\.")
    live.socket.close()
    text = eventually("all is well", lambda: page_with("all is well"))
    assert "all is well: 1 backup, 1 vault" in text
    backups = section(text, "Backups", "Vaults")
    assert re.search(r"tank → cold . ok idle \S+.* of 2d: within max_lag", backups), backups
    vaults = section(text, "Vaults", "The next seven days")
    assert "ONLINE" in vaults
    assert "up nbd0" in vaults or "nbd" in vaults
    assert re.search(r"\d+% of ", vaults), vaults
    assert "ok: 1 day" in section(text, "The last year", "zvault "), text


def test_a_backups_page_has_its_datasets_and_a_runs_page_its_lines(tank: World) -> None:
    code, text = fetch("/backup?name=tank")
    assert code == 200
    datasets = section(text, "Datasets", "zvault 0")
    assert "5 in all" in datasets
    for name in ("tank/home", "tank/my files", "tank/vol"):
        assert name in datasets
    assert "tank/scratch" not in datasets
    (run,) = ctl("history", "-j", "tank").json()["runs"]
    assert re.search(r"✓ ok (catch-up|schedule)", section(text, "Runs", "Datasets")), text
    code, text = fetch(f"/run?id={run['id']}")
    assert code == 200
    for line in (f"run {run['id']} begins", "tank/big: full to", f"run {run['id']} ok"):
        assert line in text
    assert fetch("/backup?name=cold")[0] == 404


def test_a_datasets_page_tells_what_the_next_run_prunes_and_that_is_what_it_does(tank: World) -> None:
    sh("zfs", "snapshot", "tank/home@by-hand")
    for _ in range(3):
        ok("run", "tank")
    on_source, on_vault = snapshots("tank/home"), snapshots(IN_VAULT)
    assert (len(on_source), len(on_vault)) == (3, 3)
    code, text = fetch(HOME)
    assert code == 200
    # By what the run listed before it pruned, and what it pruned since.
    listed = "listed (now|[0-9hms ]+ ago)"
    assert re.search(f"on the source 3 {listed} on the vault 3 {listed}", text), text
    assert "the next run prunes 1 on the source and 1 on the vault" in text
    each = section(text, "Each of them", "zvault 0")
    pruned = {side: going(raw(HOME), side) for side in ("source", "vault")}
    assert "by-hand" in each
    assert "not made by zvault" in each
    assert f"{on_source[-1]} ◆ base" in each
    ok("run", "tank")
    for side, before, after in (
        ("source", on_source, snapshots("tank/home")),
        ("vault", on_vault, snapshots(IN_VAULT)),
    ):
        assert pruned[side] == [one for one in before if one not in after], side
        assert len(pruned[side]) == 1
    eventually("it is listed anew", lambda: "to be sent 0" in fetch(HOME)[1])
    assert fetch("/dataset?backup=tank&name=tank/scratch")[0] == 404
    assert fetch("/files?mount=0a")[0] == 404


def test_what_is_wrong_is_told_with_the_runbook_that_is_installed(tank: World) -> None:
    world.CONFIG.write_text(tank.config_text() + "\nnonsense = 1\n")
    text = eventually("it is told", lambda: page_with("What needs a person !"), seconds=180)
    needs = section(text, "What needs a person", "What runs now")
    assert "zvaultd" in needs
    assert "zvaultctl check-config" in needs
    assert "runbook ZvaultWarning" in needs
    code, book = fetch("/runbook?name=ZvaultWarning")
    assert code == 200
    assert "zvaultctl status" in book
    tank.configure()
    eventually("all is well again", lambda: "all is well" in page(), seconds=180)


def test_a_pool_that_hangs_does_not_slow_it_nor_do_two_hundred_clients(tank: World) -> None:
    sh("systemctl", "kill", "--signal=STOP", SERVER)
    try:
        # It is written to, and that waits.
        hangs = subprocess.Popen(["zfs", "set", "lab:x=1", "cold"])
        slowest = 0.0
        for _ in range(15):
            began = time.monotonic()
            # The process that answers says 503 where zvaultd takes 8 s to tell it what it shows.
            page()
            assert fetch(HOME)[0] == 200
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.5)
        with ThreadPoolExecutor(200) as pool:
            got = Counter(pool.map(lambda _: answered(), range(200)))
        print(f"the slowest page: {slowest:.2f} s; two hundred at once: {dict(got)}")
        assert set(got) <= {"200", "503", "turned away"}
        assert got["200"] >= 50
        began = time.monotonic()
        world.status()
        assert time.monotonic() - began < POOL_HEALTH_DEADLINE, "it waited for the pool"
        assert hangs.poll() is None, "it hung all the while"
    finally:
        sh("systemctl", "kill", "--signal=CONT", SERVER)
    hangs.wait(240)
    eventually("all is well again", lambda: "all is well" in page(), seconds=180)


def answered() -> str:
    try:
        return str(fetch()[0])
    except (OSError, urllib.error.URLError):
        return "turned away"


def test_when_zvaultd_does_not_answer_no_old_state_is_shown(tank: World) -> None:
    pid = world.main_pid()
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1.5)
        code, text = fetch()
        assert (code, text) == (503, "zvaultd does not answer\n")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert page()


def files_of_a_mounted_snapshot() -> None:
    """They are listed to whom the password lets in, and the command beside each restores it."""
    home = Path("/tank/home")
    (home / "<b>odd<i>\n\x1b[31m").write_bytes(b"odd")
    (home / "deep").mkdir()
    (home / "deep" / "out").symlink_to("/etc")
    (home / "private").mkdir(mode=0o700)
    (home / "private" / "diary").write_bytes(b"dear")
    (home / "far").mkdir()
    for number in range(400):
        (home / "far" / str(number)).touch()
    # Nothing of it is remembered: what is read is read from the device.
    sh("zfs", "set", "primarycache=none", "cold")
    ok("run", "tank")
    folder = Path("/mnt/look")
    folder.mkdir(exist_ok=True)
    looking = subprocess.Popen(["zvaultctl", "mount", "tank", "tank/home", str(folder)])
    try:
        link = eventually("it is mounted", lambda: re.search(r"/files\?mount=\w+", raw("/backup?name=tank")))[
            0
        ]
        assert fetch(link)[0] == 401
        top = raw(link)
        text = shown(top)
        assert "<b>odd<i>\\n\\x1b[31m" in text
        assert "<b>" not in top
        for name, content in ((r"odd", b"odd"), ("diary", b"dear")):
            at = top if name == "odd" else raw(path_to(top, "private/"))
            (command,) = [one for one in commands(at) if name in one]
            sh("bash", "-c", command)
            (found,) = [one for one in Path("/root/restored").rglob("*") if name in one.name]
            assert found.read_bytes() == content
        deep = path_to(top, "deep/")
        assert "→ /etc" in shown(raw(deep))
        for way in (b"..", b"deep/out", b"deep/../..", b"/etc", b".zfs"):
            path = base64.urlsafe_b64encode(way).decode()
            assert "not listed" in shown(raw(f"{link}&path={path}")), way
        hangs_with_its_pool(link)
    finally:
        looking.send_signal(signal.SIGINT)
        looking.wait(120)
    eventually("it is not mounted any more", lambda: fetch(link, LOGIN)[0] == 404)


def hangs_with_its_pool(link: str) -> None:
    """A folder that has to be read from a pool that hangs is told as such, and the page goes on."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    sh("systemctl", "kill", "--signal=STOP", SERVER)
    try:
        way = base64.urlsafe_b64encode(b"far").decode()
        for _ in range(2):
            text = fetch(f"{link}&path={way}", LOGIN)[1]
            print(f"while it hangs: {section(text, 'far', 'The page restores')}")
        assert fetch("/", LOGIN)[0] == 200
        assert re.search("its pool may hang|left alone", text), text
    finally:
        sh("systemctl", "kill", "--signal=CONT", SERVER)
        sh("zfs", "inherit", "primarycache", "cold")


def raw(target: str) -> str:
    asked = urllib.request.Request(f"http://{HOST}:{PORT}{target}")
    asked.add_header("Authorization", f"Basic {base64.b64encode(LOGIN.encode()).decode()}")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return str(answer.read().decode())


def going(text: str, side: str) -> list[str]:
    """The snapshots that a dataset's page says the next run prunes on a side."""
    rows = re.findall(r'<tr role="row"><th role="rowheader".*?</tr>', text, re.DOTALL)
    cell = f'data-label="{side}"'
    return [
        shown(row).split()[0] for row in rows if "pruned next" in row.partition(cell)[2].partition("</td>")[0]
    ]


def path_to(text: str, name: str) -> str:
    """Where a folder's name leads on a page."""
    (found,) = re.findall(rf'<a href="([^"]*)">{re.escape(name)}</a>', text)
    return html.unescape(found)


def commands(text: str) -> list[str]:
    return [html.unescape(one) for one in re.findall(r"<pre[^>]*>(.*?)</pre>", text)]


def test_a_password_shuts_others_out_and_stands_nowhere(tank: World) -> None:
    Path("/etc/credstore").mkdir(exist_ok=True)
    secret = Path("/etc/credstore/zvault.page")
    secret.write_text(f"{PASSWORD}\n")
    secret.chmod(0o600)
    tank.extra = '[page]\nuser = "admin"\npassword = "credential:zvault.page"\nfiles = true\n'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    eventually("a password is wanted", lambda: answered() == "401")
    assert fetch("/", f"admin:{PASSWORD}")[0] == 200
    assert fetch("/live")[0] == fetch("/backup?name=tank")[0] == 401
    assert world.metrics()
    assert PASSWORD not in world.command_lines()
    assert PASSWORD not in world.journal()
    (pid,) = sh("pgrep", "-f", "web/listener.py").split()
    assert PASSWORD not in Path(f"/proc/{pid}/environ").read_text()
    files_of_a_mounted_snapshot()
    # One that is gone opens nothing: the page is not served, metrics are, and that is told.
    secret.unlink()
    sh("systemctl", "reload", "zvaultd")
    eventually("it is told", lambda: (it := ctl("status")).code == 1 and "zvault.page" in it.out)
    eventually("the page is not served", lambda: answered() == "404")
    assert world.metrics()
    secret.write_text(f"other{PASSWORD}\n")
    secret.chmod(0o600)
    eventually("the page again", lambda: answered() == "401")
    assert fetch("/", f"admin:other{PASSWORD}")[0] == 200
    tank.extra = '[page]\nlisten = "off"\n'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    eventually("metrics again, and no page", lambda: answered() == "404")
    assert world.metrics()
    assert ok("status").code == 0
