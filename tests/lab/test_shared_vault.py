"""Two hosts with one configuration and one vault: one makes the run, and when it fails the other goes on with it."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import ceph
import pytest
from peer import (
    daemon,
    hashes,
    install_zvault,
    introduce,
    peer,
    peer_daemon,
    peer_hashes,
    peer_pool,
    peer_snapshots,
)
from report_to_host import PEER_SSH
from test_one_writer import ADDRESS, CUT, RECONNECT, on
from world import eventually, sh, snapshots

from zvault.blockstore.format import numbers
from zvault.devices.s3_lease.lease import BucketPlace, Store

LAB = {"mem": "4G", "timeout": 1200, "peer": True}

BUCKET, KEYS = "zvault", "/etc/credstore/zvault.lab"
BOUND = 20
WITHIN = BOUND + 60
"""Seconds from a failure of the one host to the beginning of the other's run."""
SOURCE_MIB, RATE_MIB = 48, 2


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
    peer(f"rm -f /tank/home/*; head -c {SOURCE_MIB << 20} /dev/urandom >/tank/home/{number}; zpool sync tank")


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
        lambda: (
            all(last_run(host)["ended"] for host in ADDRESS)
            and {host: last_run(host)["result"] for host in ADDRESS}
        ),
        seconds=180,
        every=2,
    )
    print(results)
    assert sorted(results.values()) == ["ok", "skipped"], log("lab") + log("peer")


def kill(host: str) -> None:
    """As a host that crashes: nothing of zvault is left to say anything."""
    on(host, "systemctl kill -s KILL zvaultd zvault-blockstore@cold-0; systemctl --no-block stop zvaultd")


def stop(host: str) -> None:
    """As a host that hangs or sleeps."""
    on(host, "systemctl kill -s STOP --kill-whom=all zvaultd zvault-blockstore@cold-0")


def cut(host: str) -> None:
    on(host, CUT)


@dataclass(frozen=True)
class Failure:
    """What befalls a host in the middle of a run, and how it comes back."""

    victim: str
    strike: Callable[[str], None]
    back: str

    def __str__(self) -> str:
        return f"{self.strike.__name__} {self.victim}"


def has_lease(s3: ceph.S3) -> str:
    """Whose the lease is, by the object itself."""
    place = [f"bucket={BUCKET}", "key=cold", f"endpoint={s3.endpoint}", f"keys={KEYS}"]
    seen = Store(BucketPlace.of(place)).read()
    return seen.lease.host if seen is not None and seen.lease.held else ""


def goes_on(s3: ceph.S3, number: int, failure: Failure) -> None:
    """One host fails in the middle of a run, the other takes over, and the first one cleans up and stands by."""
    victim = failure.victim
    (taker,) = set(ADDRESS) - {victim}
    write(number)
    on(victim, "zvaultctl run --no-wait tank")
    eventually("the stream", lambda: began(victim), seconds=120, every=1)
    on(taker, "zvaultctl run --no-wait tank")
    eventually(
        lambda: f"{backup(taker)}",
        lambda: f"{victim} has the vault" in (backup(taker)["turn"]["waits"] or ""),
    )
    assert vault(taker)["held_by"] == has_lease(s3) == victim
    struck = time.monotonic()
    failure.strike(victim)
    eventually(lambda: log(taker)[-3000:], lambda: has_lease(s3) == taker, seconds=WITHIN, every=0.5)
    print(f"{failure}: taken over after {time.monotonic() - struck:.0f} s")
    eventually("its run has ended", lambda: last_run(taker)["ended"], seconds=240, every=1)
    run = last_run(taker)
    assert run["result"] == "ok", run
    kinds = re.findall(r'"kind": ?"([a-z-]+)"', on(taker, events(run["id"])))
    assert "resume" in kinds, kinds
    on(victim, failure.back)
    eventually(lambda: log(victim)[-3000:], lambda: left_nothing(victim), seconds=180, every=2)
    eventually(lambda: f"{last_run(victim)}", lambda: backup(victim)["state"] == "idle", seconds=120, every=1)
    print(f"{failure}: stands by after {time.monotonic() - struck:.0f} s")


@pytest.mark.parametrize(
    ("number", "failure"),
    [
        (1, Failure("peer", kill, "systemctl start zvaultd")),
        (2, Failure("lab", stop, "systemctl kill -s CONT --kill-whom=all zvaultd; systemctl start zvaultd")),
    ],
    ids=str,
)
def test_another_goes_on_with_a_run_whose_host_fails(
    cluster: ceph.Cluster, number: int, failure: Failure
) -> None:
    goes_on(cluster.s3(), number, failure)


def events(run: str) -> str:
    return f"curl -sS --unix-socket /run/zvault/zvaultd.sock 'http://zvaultd/v1/events?run={run}'"


def test_what_was_acknowledged_is_there_and_nobody_wrote_at_the_same_time(cluster: ceph.Cluster) -> None:
    on("lab", "zvaultctl vault up cold")
    there, here = peer_snapshots("tank/home"), snapshots("cold/tank/home")
    assert len(there) > 2
    assert set(there) <= set(here), (there, here)
    for snapname in there:
        assert hashes(f"cold/tank/home@{snapname}") == peer_hashes(f"tank/home@{snapname}")
    found = sh("sh", "-c", "zpool scrub -w cold; zpool status cold")
    assert "No known data errors" in found, found
    on("lab", "zvaultctl vault down cold")

    put: dict[int, list[float]] = {}
    for item in cluster.s3().bucket(BUCKET).objects.filter(Prefix="cold/segments/"):
        put.setdefault(numbers(item.key)[1], []).append(item.last_modified.timestamp())
    print({epoch: len(times) for epoch, times in put.items()})
    assert len(put) > 2
    for before, after in pairwise(sorted(put)):
        assert max(put[before]) <= min(put[after]), (before, after)


def test_a_host_that_loses_its_way_to_the_store_is_shut_out(cluster: ceph.Cluster) -> None:
    goes_on(cluster.s3(), 3, Failure("peer", cut, RECONNECT))
