"""Two guests that share a vault: zvault on both, one configuration, and what each says of itself."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from peer import KNOWN, daemon, install_zvault, introduce, peer, peer_daemon
from report_to_host import PEER_SSH
from world import make_tank, sh, shell

ADDRESS = {"lab": "10.99.0.1", "peer": "10.99.0.2"}
POOL, SOURCE = "cold", "tank/home"
COPY = f"{POOL}/{SOURCE}"
RATE_MIB = 1
"""MiB a second of a run's stream."""
BEAT = 20.0
"""Seconds after which a host that has the vault writes the note here; elsewhere at least five minutes."""
AHEAD = "7 minutes"
"""By so much the peer's clock is ahead of the other guest's."""
ASLEEP = 60
"""Seconds for which a host sleeps: another has the vault by then."""
CONNECTION = "/run/lab/connection"
"""Of ssh to the peer: a login for each question would be a third of what this costs."""


def on(host: str, script: str) -> str:
    """What a shell script prints on one of the two; it must succeed. The peer is asked over one connection."""
    if host != "peer":
        return sh("sh", "-c", script)
    *ssh, root = PEER_SSH
    path = "PATH=/usr/local/sbin:/usr/sbin:/sbin:$PATH"
    return sh(*ssh, "-o", f"ControlPath={CONNECTION}", root, f"{path}; {script}")


def other(host: str) -> str:
    """The other of the two."""
    (found,) = set(ADDRESS) - {host}
    return found


# Setting up


def prepare() -> None:
    """zvault on both guests, with clocks that differ, a source here that both reach by ssh, and a short beat."""
    introduce()
    install_zvault()
    peer("zgenhostid -f 0badcafe")  # the guests come from one tree, as clones do
    shell(
        "ssh-keygen -A; ssh-keygen -yf /root/.ssh/id_ed25519 >/root/.ssh/authorized_keys; systemctl start ssh"
    )
    with KNOWN.open("a") as known:
        known.write("lab " + Path("/etc/ssh/ssh_host_ed25519_key.pub").read_text())
    send = f"tar -C /root -c .ssh | {shlex.join(PEER_SSH)} 'tar -C /root -x --exclude .ssh/authorized_keys'"
    subprocess.run(send, shell=True, check=True)
    *ssh, root = PEER_SSH
    nothing = subprocess.DEVNULL
    connect = [*ssh, "-o", "ControlMaster=yes", "-o", f"ControlPath={CONNECTION}", "-fN", root]
    subprocess.run(connect, stdin=nothing, stdout=nothing, stderr=nothing, check=True)
    for host in ADDRESS:
        on(host, SHORT_BEAT)
    peer(f"date -s '+{AHEAD}'")
    peer(LET_SLEEP)
    make_tank("1G")
    sh("zfs", "create", "-o", "compression=off", SOURCE)


LET_SLEEP = f"""
mkdir -p /etc/systemd/sleep.conf.d /run/systemd/logind.conf.d /usr/lib/systemd/system-sleep
printf '[Sleep]\nSuspendState=mem\n' >/etc/systemd/sleep.conf.d/lab.conf
printf '[Login]\nInhibitDelayMaxSec=60\n' >/run/systemd/logind.conf.d/lab.conf
printf '#!/bin/sh\n[ $1 != pre ] || exec rtcwake -m no -s {ASLEEP}\n' >/usr/lib/systemd/system-sleep/lab
chmod 755 /usr/lib/systemd/system-sleep/lab
systemctl restart systemd-logind
"""
"""As test_sleep.py has it."""

SHORT_BEAT = f"""
sed -i 's/^MIN_BEAT = 300.0$/MIN_BEAT = {BEAT}/' /usr/lib/python3/dist-packages/zvault/core/sharing/run_decision.py
grep -qx 'MIN_BEAT = {BEAT}' /usr/lib/python3/dist-packages/zvault/core/sharing/run_decision.py
mkdir -p /run/systemd/system/zvaultd.service.d
printf '[Service]\\nWatchdogSec=0\\n' >/run/systemd/system/zvaultd.service.d/lab.conf
systemctl daemon-reload
"""
"""A hang is to be seen in a minute, and systemd not to end what hangs."""


def begin(device: str, profile: str, keep: int = 9) -> None:
    """Start both daemons with one vault on that device, and a backup that is due every hour."""
    text = f"""inhibit_sleep = "block-weak"

[vault.{POOL}]
pool = "{POOL}"
profile = "{profile}"
create = true
hosts = ["lab", "peer"]
[[vault.{POOL}.device]]
{device}

[backup.tank]
source = "ssh://root@lab/tank"
vault = "{POOL}"
into = "{{dataset}}"
every = "1h"
limit = "{RATE_MIB}M"
retries = 0
keep = {{ source = {{ last = {keep} }}, vault = {{ last = {keep} }} }}
"""
    daemon(text)
    peer_daemon(text)


# What a host says


def api(path: str, *words: str) -> str:
    """A line of shell that asks a host's daemon."""
    target = shlex.quote(f"http://zvaultd{path}")
    return shlex.join(["curl", "-sS", "--unix-socket", "/run/zvault/zvaultd.sock", *words]) + f" {target}"


def ask(host: str, path: str) -> Any:
    """An answer of a host's daemon."""
    return json.loads(on(host, api(path)))


def last_run(host: str) -> dict[str, Any]:
    """The newest run of a host's history."""
    runs = ask(host, "/v1/history?backup=tank&limit=1")["runs"]
    return runs[0] if runs else {"id": "", "result": None, "ended": None, "started": 0.0}


def backup(host: str) -> dict[str, Any]:
    """How the backup stands on a host."""
    (found,) = ask(host, "/v1/status")["backups"]
    return found


def vault(host: str) -> dict[str, Any]:
    """How the vault stands on a host."""
    (found,) = ask(host, "/v1/status")["vaults"]
    return found


def findings(host: str) -> set[str]:
    """What a host says is wrong with the vault."""
    return {one["condition"] for one in vault(host)["verdict"]["findings"]}


def log(host: str) -> str:
    """The end of what a host's daemon and servers wrote."""
    units = "-u zvaultd -u 'zvault-*@*'"
    return on(host, f"journalctl --sync; journalctl -o short-precise --no-pager -n 60 {units}")


def run(host: str) -> None:
    """Start a run by hand."""
    on(host, api("/v1/run/tank", "-X", "POST", "-H", "Content-Type: application/json", "-d", "{}"))


def left_nothing(host: str) -> bool:
    """Whether neither pool nor device nor server of the vault is on a host."""
    found = on(
        host,
        f"cat /proc/spl/kstat/zfs/{POOL}/state 2>/dev/null; cat /sys/block/nbd*/pid 2>/dev/null;"
        " cat /sys/bus/rbd/devices/*/name 2>/dev/null;"
        " systemctl list-units --plain --no-legend --state=active 'zvault-*@*'",
    )
    return not found.strip()


TXGS = f"cat /proc/spl/kstat/zfs/{POOL}/txgs 2>/dev/null; true"


def committed(host: str) -> int:
    """The last transaction group of the vault that a host knows to be on the storage; 0 for none."""
    rows = [line.split() for line in on(host, TXGS).splitlines()]
    return max((int(row[0]) for row in rows if len(row) > 2 and row[2] == "C"), default=0)


def first(txgs: str) -> int:
    """The first transaction group of a pool since its import; 0 where it is not imported."""
    rows = [line.split() for line in txgs.splitlines()]
    return min((int(row[0]) for row in rows if len(row) > 2 and row[0].isdigit()), default=0)
