"""Debian 12 as people have it: its own systemd, Python and tools of OpenZFS 2.1, and zvault's wheel in a venv.

The second guest is that system; its kernel is the lab's, so its OpenZFS module is newer than its tools. The tests share
it and come in order: zvault is installed there as docs/how-to/install.md says and backs it up; then that host is a
source, and at last a vault host, for the daemon here.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import ceph
import pytest
from peer import PEER_SSH, clean, daemon, hashes, introduce, peer, peer_hashes, peer_pool, peer_snapshots
from world import eventually, fill, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 1200, "peer": True, "peer-system": "debian12", "in_order": True}

TUTORIAL = """
[vault.cold]
pool = "cold"
create = true

[[vault.cold.device]]
nbd = "nbdkit:file /srv/cold.img"
size = "1G"

[backup.tank]
source = "tank"
vault = "cold"
into = "{dataset}"
keep = { source = { last = 2 }, vault = { last = 7 } }
"""


IN_A_BUCKET = """
[vault.cloud]
pool = "cloud"
create = true

[[vault.cloud.device]]
nbd = "zvault:vaults/cold size=1G endpoint={endpoint} region=default style=path keys=/etc/zvault/s3.keys"

[backup.tank]
source = "tank"
vault = "cloud"
into = "{{dataset}}"
keep = {{ source = {{ last = 2 }}, vault = {{ last = 7 }} }}
"""


def follow_the_page(block: int) -> None:
    """Do what the section about a venv has in this block; what apt installs is there already."""
    text = Path("/src/docs/how-to/install.md").read_text()
    section = text.partition("### Or in a venv")[2].partition("\n#")[0]
    apt, *commands = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[block].splitlines()
    there = set(peer("dpkg-query -W -f '${Package}\n'").split())
    assert set(apt.split()[2:]) <= there
    for command in commands:
        peer(f"cd /root; export PIP_NO_INDEX=1 PIP_FIND_LINKS=/opt/wheels; {command}", timeout=400)


@pytest.fixture(scope="module", autouse=True)
def installed() -> Iterator[None]:
    """The page's commands, on that system; what apt has installed is there, and pip finds the wheels in a folder."""
    introduce()
    copy, made = Path("/var/tmp/copy"), Path("/var/tmp/made")
    sh("sh", "-c", f"mkdir {made} && cp -r /src {copy} && rm -rf {copy}/tests")
    sh(
        "sh",
        "-c",
        f"cd {copy} && python3 -c 'import setuptools.build_meta as it; it.build_wheel(\"{made}\")'",
    )
    (wheel,) = made.glob("*.whl")
    packed = subprocess.run(["tar", "-C", made, "-c", wheel.name], capture_output=True, check=True).stdout
    subprocess.run([*PEER_SSH, "tar -x -C /root"], input=packed, check=True)
    follow_the_page(0)
    yield
    clean()


def test_it_backs_itself_up_and_restores() -> None:
    assert "zfs-2.1." in peer("zfs version")
    assert peer("systemctl --version").startswith("systemd 252")
    peer_pool("tank")
    peer(
        "zfs create tank/home; zfs create -V 16M tank/vm; cp -a /etc /tank/home; mkdir -p /srv;"
        " head -c 5000000 /dev/urandom >/tank/home/thesis.pdf; sha256sum </tank/home/thesis.pdf >/root/sum"
    )
    peer(f"printf %s {shlex.quote(TUTORIAL)} >/etc/zvault/zvault.toml")
    assert peer("zvaultctl check-config").startswith("OK: ")
    peer("systemctl enable --now zvaultd")
    said = peer("zvaultctl run tank")
    assert "3 full" in said
    peer("echo more >/tank/home/more")
    assert "3 incremental" in peer("zvaultctl run tank")
    peer(
        "rm /tank/home/thesis.pdf; mkdir /root/back; zvaultctl restore tank tank/home /root/back --file thesis.pdf"
    )
    assert peer("sha256sum </root/back/thesis.pdf") == peer("cat /root/sum")
    peer("zvaultctl vault up cold; zvaultctl scrub cold; zvaultctl verify tank --level full")
    assert "errors: No known data errors" in peer("zpool status cold")
    peer("zvaultctl vault down cold; zvaultctl run tank")
    assert peer("zvaultctl status").startswith("all is well")


def test_it_is_watched_reloaded_and_stopped_as_its_systemd_does_it() -> None:
    assert "Traceback" not in peer("journalctl -b -o cat")
    assert "Unknown key" not in peer("journalctl -b -o cat")
    before = peer("systemctl show -P MainPID zvaultd")
    peer("echo '# a line' >>/etc/zvault/zvault.toml; systemctl reload zvaultd")
    assert peer("systemctl show -P MainPID zvaultd") == before
    peer("systemctl restart zvaultd")
    eventually("all is well", lambda: "all is well" in peer("zvaultctl status", check=False))
    peer("systemctl disable --now zvaultd; zpool destroy tank; rm -f /*.img")


def test_its_vault_is_in_a_bucket() -> None:
    follow_the_page(1)
    peer_pool("tank")
    peer("zfs create tank/home; cp -a /etc /tank/home; head -c 9000000 /dev/urandom >/tank/home/thesis.pdf")
    with ceph.cluster(rgw=True, address="10.99.0.1") as cluster:
        s3 = cluster.s3()
        s3.bucket("vaults").create()
        keys = f"[default]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
        config = IN_A_BUCKET.format(endpoint=s3.endpoint)
        peer(f"umask 077; printf %s {shlex.quote(keys)} >/etc/zvault/s3.keys")
        peer(f"printf %s {shlex.quote(config)} >/etc/zvault/zvault.toml; systemctl start zvaultd")
        try:
            back_up_into_the_bucket()
        finally:  # nothing may hang when the store is gone
            peer("zvaultctl vault down cloud; systemctl stop zvaultd", check=False)
        assert len(list(s3.bucket("vaults").objects.all())) > 2
    assert "Traceback" not in peer("journalctl -b -o cat")


def back_up_into_the_bucket() -> None:
    """Two runs, each of which brings the vault up and takes it down; then what is there is read back."""
    assert "2 full" in peer("zvaultctl run tank")
    peer("echo more >/tank/home/more; zvaultctl run tank")
    # systemd forgets a unit that has ended a little later.
    servers = "systemctl list-units --all --plain --no-legend 'zvault-blockstore@*'"
    eventually(lambda: f"no server is left: {peer(servers)}", lambda: not peer(servers).strip())
    peer("zvaultctl vault up cloud; zvaultctl scrub cloud; zvaultctl verify tank --level full")
    assert peer("ps -o uid= -C nbdkit").strip() != "0"
    assert "errors: No known data errors" in peer("zpool status cloud")
    snapname = peer_snapshots("tank/home")[-1]
    assert peer_hashes(f"cloud/tank/home@{snapname}") == peer_hashes(f"tank/home@{snapname}")


def test_it_is_a_source_over_ssh() -> None:
    clean()
    peer_pool("tank")
    peer("zfs create tank/home; zfs create 'tank/my files'; zfs create -V 8M tank/vol; cp -a /etc /tank/home")
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "cold", "/cold.img")
    daemon("""
[vault.cold]
pool = "cold"

[backup.old]
source = "ssh://root@peer/tank"
vault = "cold"
keep = { source = { last = 2 }, vault = { last = 9 } }
""")
    assert "4 full" in ok("run", "old").out
    for round_ in range(3):
        peer(f"head -c 300000 /dev/urandom >/tank/home/{round_}; zfs rename tank/home tank/house{round_}")
        ok("run", "old")
        peer(f"zfs rename tank/house{round_} tank/home")
    assert len(peer_snapshots("tank/home")) == 2
    ok("run", "old")
    snapname = peer_snapshots("tank/home")[-1]
    assert hashes(f"cold/peer/tank/home@{snapname}") == peer_hashes(f"tank/home@{snapname}")


def test_it_is_a_vault_host() -> None:
    clean()
    peer_pool("attic")
    sh("truncate", "-s", "1G", "/desk.img")
    sh("zpool", "create", "-O", "mountpoint=/desk", "desk", "/desk.img")
    sh("zfs", "create", "desk/home")
    sh("zfs", "create", "-V", "8M", "desk/vol")
    fill(Path("/desk/home"), 1)
    daemon("""
[vault.attic]
pool = "attic"
host = "ssh://root@peer"

[backup.home]
source = "desk"
vault = "attic"
keep = { source = { last = 1 }, vault = { last = 2 } }
""")
    for seed in range(3):
        fill(Path("/desk/home"), 10 + seed, count=2)
        ok("run", "home")
    snapname = snapshots("desk/home")[-1]
    assert peer_hashes(f"attic/lab/desk/home@{snapname}") == hashes(f"desk/home@{snapname}")
    assert len(peer_snapshots("attic/lab/desk/home")) == 2
