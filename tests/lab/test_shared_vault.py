"""Two hosts with one configuration and one vault: one makes the run, and when it fails the other goes on with it."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import ceph
import pytest
from peer import daemon, install_zvault, introduce, peer, peer_daemon, peer_pool
from report_to_host import PEER_SSH
from test_one_writer import ADDRESS, on
from world import eventually

LAB = {"mem": "4G", "timeout": 900, "peer": True}

BUCKET, KEYS = "zvault", "/etc/credstore/zvault.lab"
BOUND = 20
PLACE = {"lab": 0, "peer": 1}
WITHIN = BOUND + 60
"""Seconds from a failure of the one host to the beginning of the other's run."""
SOURCE_MIB, RATE_MIB = 40, 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[ceph.Cluster]:
    """A source on the peer, which both reach by ssh, a bucket on this guest, and the same configuration on both."""
    introduce()
    install_zvault()
    peer("zgenhostid -f 0badcafe")
    subprocess.run(
        f"tar -C /root -c .ssh | {shlex.join(PEER_SSH)} 'tar -C /root -x --exclude .ssh/authorized_keys'",
        shell=True,
        check=True,
    )
    peer("grep -q peer /etc/hosts || echo 10.99.0.2 peer >>/etc/hosts")
    peer_pool("tank", options="-O compression=off")
    peer("zfs create tank/home")
    with ceph.cluster(rgw=True, address=ADDRESS["lab"]) as it:
        s3 = it.s3()
        s3.bucket(BUCKET).create()
        keys = f"[default]\naws_access_key_id = {s3.access_key}\naws_secret_access_key = {s3.secret_key}\n"
        for host in ADDRESS:
            on(host, f"mkdir -p {KEYS.rpartition('/')[0]}; umask 077; printf %s {shlex.quote(keys)} >{KEYS}")
        write(0)
        text = config(s3)
        daemon(text)
        peer_daemon(text)
        yield it


def config(s3: ceph.S3) -> str:
    store = (
        f"zvault:{BUCKET}/cold size=1G endpoint={s3.endpoint} region=default style=path credential=zvault.lab"
    )
    return f"""
[vault.cold]
pool = "cold"
profile = "blockstore"
create = true
hosts = ["lab", "peer"]
[[vault.cold.device]]
nbd = "{store}"
lease = "{BOUND}s"
timeout = "15s"

[backup.tank]
source = "ssh://root@peer/tank"
vault = "cold"
into = "{{dataset}}"
every = "1h"
limit = "{RATE_MIB}M"
retries = 0
keep = {{ source = {{ last = 9 }}, vault = {{ last = 9 }} }}
"""


def ask(host: str, path: str) -> Any:
    return json.loads(on(host, f"curl -sS --unix-socket /run/zvault/zvaultd.sock http://zvaultd{path}"))


def last_run(host: str) -> dict[str, Any]:
    """The newest run of a host's history."""
    runs = ask(host, "/v1/history?backup=tank&limit=1")["runs"]
    return runs[0] if runs else {"id": "", "result": None, "ended": None, "started": 0.0}


def backup(host: str) -> dict[str, Any]:
    (found,) = ask(host, "/v1/status")["backups"]
    return found


def vault(host: str) -> dict[str, Any]:
    (found,) = ask(host, "/v1/status")["vaults"]
    return found


def began(host: str) -> bool:
    """Whether a host's stream is under way."""
    found = backup(host)
    return found["state"] == "running" and found["bytes_done"] > RATE_MIB << 20


def write(number: int) -> None:
    """New files on the source, so that there is something to send for some seconds."""
    peer(f"head -c {SOURCE_MIB << 20} /dev/urandom >/tank/home/{number}; zpool sync tank")


def log(host: str) -> str:
    return on(host, "journalctl --sync; journalctl -o cat --no-pager -u zvaultd")


def left_nothing(host: str) -> bool:
    """Whether neither pool nor server of the vault is on a host."""
    found = on(
        host,
        "cat /proc/spl/kstat/zfs/cold/state 2>/dev/null; cat /sys/block/nbd*/pid 2>/dev/null;"
        " systemctl list-units --plain --no-legend --state=active 'zvault-blockstore@*'",
    )
    return not found.strip()


def test_of_two_that_are_due_one_runs_and_the_other_skips(cluster: ceph.Cluster) -> None:
    results = eventually(
        lambda: f"{ {host: last_run(host) for host in ADDRESS} }",
        lambda: all(last_run(host)["ended"] for host in ADDRESS)
        and {host: last_run(host)["result"] for host in ADDRESS},
        seconds=180,
        every=2,
    )
    print(results)
    assert sorted(results.values()) == ["ok", "skipped"], log("lab") + log("peer")
