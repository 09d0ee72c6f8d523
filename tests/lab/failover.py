"""Two guests that share a vault: one fails in the middle of a run, in one of several ways, and the other takes over.

All but ``Storage`` is the same for each kind of storage; failover_s3.py has a bucket's.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from peer import KNOWN, daemon, hashes, install_zvault, introduce, peer, peer_daemon
from report_to_host import PEER_SSH
from world import eventually, make_tank, sh, shell, snapshots

ADDRESS = {"lab": "10.99.0.1", "peer": "10.99.0.2"}
POOL, SOURCE = "cold", "tank/home"
COPY = f"{POOL}/{SOURCE}"
RATE_MIB = 1
"""MiB a second of a run's stream."""
TAKEN_WITHIN = 60.0
"""Seconds besides the lease until another host has the vault."""
BEAT = 20.0
"""Seconds after which a host that has the vault writes the note here; elsewhere at least five minutes."""
AHEAD = "7 minutes"
"""By so much the peer's clock is ahead of the other guest's."""
ASLEEP = 60
"""Seconds for which a host sleeps: another has the vault by then."""
CONNECTION = "/run/lab/connection"
"""Of ssh to the peer: a login for each question would be a third of what this costs."""
SSH_PORTS = "22, 2222"


@dataclass(frozen=True)
class Wrote:
    """What reached the storage from a host after another had the vault: what ``counts``, and how many were ignored."""

    counts: Sequence[str] = ()
    ignored: int = 0


class Storage(Protocol):
    """The storage of the vault that both hosts share.

    ``units``: those of its servers on a host. ``ports``: its TCP ports, as in a set of nft. ``bound``: the lease, in
    seconds.
    """

    units: str
    ports: str
    bound: float

    def holder(self) -> str:
        """The host that has the vault, by the storage's own word; "" where none has."""

    def after(self, taker: str) -> Wrote:
        """What others wrote since ``taker`` took the vault over last. The vault is down."""

    def late(self, host: str, asked: float, answered: float = 0.0) -> None:
        """Have each request of a host reach the storage so many seconds late, and each answer the host."""


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
mkdir -p /etc/polkit-1/rules.d /etc/systemd/sleep.conf.d /run/systemd/logind.conf.d /usr/lib/systemd/system-sleep
echo 'polkit.addRule(function(action, subject) {{ if (/^org.freedesktop.login1.*-ignore-inhibit$/.test(action.id))
return polkit.Result.YES; }});' >/etc/polkit-1/rules.d/10-lab.rules
printf '[Sleep]\nSuspendState=mem\n' >/etc/systemd/sleep.conf.d/lab.conf
printf '[Login]\nInhibitDelayMaxSec=60\n' >/run/systemd/logind.conf.d/lab.conf
printf '#!/bin/sh\n[ $1 != pre ] || exec rtcwake -m no -s {ASLEEP}\n' >/usr/lib/systemd/system-sleep/lab
chmod 755 /usr/lib/systemd/system-sleep/lab
systemctl restart systemd-logind
"""
"""As test_sleep.py has it."""

SHORT_BEAT = f"""
sed -i 's/^MIN_BEAT = 300.0$/MIN_BEAT = {BEAT}/' /usr/lib/python3/dist-packages/zvault/core/sharing/decide.py
grep -qx 'MIN_BEAT = {BEAT}' /usr/lib/python3/dist-packages/zvault/core/sharing/decide.py
mkdir -p /run/systemd/system/zvaultd.service.d
printf '[Service]\\nWatchdogSec=0\\n' >/run/systemd/system/zvaultd.service.d/lab.conf
systemctl daemon-reload
"""
"""A hang is to be seen in a minute, and systemd not to end what hangs."""


def begin(device: str, profile: str, keep: int = 9) -> None:
    """Start both daemons with one vault on that device, and a backup that is due every hour."""
    text = f"""
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


def _api(path: str, *words: str) -> str:
    target = shlex.quote(f"http://zvaultd{path}")
    return shlex.join(["curl", "-sS", "--unix-socket", "/run/zvault/zvaultd.sock", *words]) + f" {target}"


def ask(host: str, path: str) -> Any:
    """An answer of a host's daemon."""
    return json.loads(on(host, _api(path)))


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


def log(host: str) -> str:
    """The end of what a host's daemon and servers wrote."""
    units = "-u zvaultd -u 'zvault-*@*'"
    return on(host, f"journalctl --sync; journalctl -o short-precise --no-pager -n 60 {units}")


def run(host: str) -> None:
    """Start a run by hand."""
    on(host, _api("/v1/run/tank", "-X", "POST", "-H", "Content-Type: application/json", "-d", "{}"))


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


# What befalls a host


def kill(storage: Storage, host: str) -> None:
    """As a host that crashes: nothing of zvault is left to say anything."""
    on(host, f"systemctl kill -s KILL zvaultd {storage.units}; systemctl --no-block stop zvaultd")


def stop(storage: Storage, host: str) -> None:
    """As a host that is frozen."""
    on(host, f"systemctl kill -s STOP --kill-whom=all zvaultd {storage.units}")


def hang(storage: Storage, host: str) -> None:
    """zvaultd alone: its server, its streams and its lease go on."""
    on(host, "systemctl kill -s STOP --kill-whom=main zvaultd")


def sleep(storage: Storage, host: str) -> None:
    """As when somebody closes the lid all the same; the clock wakes it."""
    on(host, "systemd-run -q systemctl suspend -i")


def cut_from_store(storage: Storage, host: str) -> None:
    """No packet from or to the storage."""
    table = "table inet cut { chain out { type filter hook output priority 0; tcp dport PORTS drop; };"
    table += " chain in { type filter hook input priority 0; tcp sport PORTS drop; }; }"
    on(host, f"nft {shlex.quote(table.replace('PORTS', f'{{ {storage.ports} }}'))}")


def cut_from_other(storage: Storage, host: str) -> None:
    """No packet from or to the other host, but for the source and the storage, which are there."""
    kept = f"{{ {SSH_PORTS}, {storage.ports} }}"
    rule = f"ip WHO {ADDRESS[other(host)]} tcp dport != {kept} tcp sport != {kept} drop; ip WHO {ADDRESS[other(host)]} "
    rule += "meta l4proto != tcp drop;"
    table = f"table inet cut {{ chain out {{ type filter hook output priority 0; {rule.replace('WHO', 'daddr')} }};"
    table += f" chain in {{ type filter hook input priority 0; {rule.replace('WHO', 'saddr')} }}; }}"
    on(host, f"nft {shlex.quote(table)}")


def late(asked: float, answered: float, storage: Storage, host: str) -> None:
    """The store gets each request late, or the host each answer."""
    storage.late(host, asked, answered)


def start(storage: Storage, host: str) -> None:
    """zvaultd is started, as by a boot."""
    on(host, "systemctl start zvaultd")


def go_on(storage: Storage, host: str) -> None:
    """What was stopped goes on."""
    on(host, "systemctl kill -s CONT --kill-whom=all zvaultd; systemctl start zvaultd")


def wake(storage: Storage, host: str) -> None:
    """It wakes by itself."""
    eventually("the host awake", partial(_answers, host), seconds=2 * ASLEEP, every=1)
    assert int(on(host, "cat /sys/power/suspend_stats/success")), on(host, "dmesg | tail -30")


def _answers(host: str) -> bool:
    argv = [*PEER_SSH, "-o", "ConnectTimeout=2", "true"]
    with suppress(subprocess.TimeoutExpired):
        return host != "peer" or subprocess.run(argv, capture_output=True, timeout=5).returncode == 0
    return False


def connect(storage: Storage, host: str) -> None:
    """Its packets come and go."""
    on(host, "nft delete table inet cut")


def in_time(storage: Storage, host: str) -> None:
    """The store answers as ever."""
    storage.late(host, 0.0)


Act = Callable[[Storage, str], None]


@dataclass(frozen=True)
class Kind:
    """One way to fail in the middle of a run, and how a host comes back from it.

    ``taken``: whether the other host takes over. ``within``: seconds for that, besides the lease.
    """

    name: str
    strike: Act
    back: Act
    taken: bool = True
    within: float = TAKEN_WITHIN

    def __str__(self) -> str:
        return self.name


KILLED = Kind("killed", kill, start)
STOPPED = Kind("stopped and continued", stop, go_on)
ASLEEP_KIND = Kind("asleep", sleep, wake)
HUNG = Kind("zvaultd hung", hang, go_on, within=3 * BEAT + TAKEN_WITHIN)
CUT_OFF = Kind("cut from the store", cut_from_store, connect)
ALONE = Kind("cut from the other", cut_from_other, connect, taken=False)


def answers_late(asked: float, answered: float = 0.0, *, taken: bool) -> Kind:
    """A store that gets what a host asks, or gives its answers, so late."""
    told = f"requests {asked:g} s late" if asked else f"answers {answered:g} s late"
    return Kind(told, partial(late, asked, answered), in_time, taken)


# One failure


@dataclass
class Row:
    """What one failure showed. ``seconds`` until another had the vault, None where none was to."""

    kind: Kind
    victim: str
    seconds: float | None = None
    stood_by: float = 0.0
    acknowledged: int = 0
    began: int = 0
    wrote: Wrote = Wrote()
    same: bool | None = None
    scrub: str = ""

    @property
    def lost(self) -> int:
        """Transaction groups that the one had written for sure, and that the other did not find."""
        return max(0, self.acknowledged + 1 - self.began) if self.seconds is not None else 0

    def __str__(self) -> str:
        taken = f"{self.seconds:.0f} s" if self.seconds is not None else "not"
        hashed = {True: "equal", False: "DIFFERENT", None: "-"}[self.same]
        return (
            f"| {self.kind} | {self.victim} | {taken} | {self.stood_by:.0f} s | {len(self.wrote.counts)} |"
            f" {self.wrote.ignored} | {self.lost} | {hashed} | {self.scrub or '-'} |"
        )


HEAD = (
    "| what befell it | host | taken over after | stood by after | double writers | ignored puts | lost txgs | hashes |"
    " scrub |\n|---|---|---|---|---|---|---|---|---|"
)


def write(number: int, mib: int) -> None:
    """New files on the source, so that there is something to send for some seconds."""
    shell(f"rm -f /{SOURCE}/*; head -c {mib << 20} /dev/urandom >/{SOURCE}/{number}; zpool sync tank")


def under_way(host: str) -> bool:
    """Whether a host's stream has come some way."""
    found = backup(host)
    return found["state"] == "running" and found["bytes_done"] > 2 * RATE_MIB << 20


def fail(storage: Storage, kind: Kind, victim: str, number: int, mib: int = 24) -> Row:
    """A host fails in the middle of a run, the other takes over, and the first one cleans up and stands by."""
    row, taker = Row(kind, victim), other(victim)
    write(number, mib)
    run(victim)
    eventually(lambda: log(victim), lambda: storage.holder() == victim, seconds=180, every=1)
    run(taker)
    eventually(
        lambda: f"{backup(taker)}",
        lambda: f"{victim} has the vault" in (backup(taker)["turn"]["waits"] or ""),
        every=1,
    )
    eventually(lambda: f"{backup(victim)} {log(victim)}", lambda: under_way(victim), seconds=180, every=0.5)
    assert vault(taker)["held_by"] == storage.holder() == victim
    row.acknowledged = committed(victim)
    struck = time.monotonic()
    kind.strike(storage, victim)
    if kind.taken:
        within = storage.bound + kind.within
        eventually(lambda: log(taker), lambda: storage.holder() == taker, seconds=within, every=0.5)
        row.seconds = time.monotonic() - struck
    _its_run_ends(row, taker)
    kind.back(storage, victim)
    eventually(lambda: log(victim), lambda: left_nothing(victim), seconds=240, every=2)
    eventually(lambda: f"{last_run(victim)}", lambda: backup(victim)["state"] == "idle", seconds=240, every=1)
    row.stood_by = time.monotonic() - struck
    return row


def _its_run_ends(row: Row, taker: str) -> None:
    """The other host resumes the stream, or sees that the run was made."""
    seen: list[str] = []

    def ended() -> bool:
        found = on(taker, f"{_api('/v1/history?backup=tank&limit=1')}; echo; {TXGS}")
        answer, _, txgs = found.partition("\n")
        row.began = row.began or first(txgs)
        seen[:] = [answer]
        return bool(json.loads(answer)["runs"][0]["ended"])

    eventually(lambda: f"{seen} {log(taker)}", ended, seconds=240, every=1)
    made = last_run(taker)
    if not row.kind.taken:
        assert made["result"] == "skipped" or row.kind.strike is not None, made
        return
    assert made["result"] == "ok", made
    kinds = re.findall(r'"kind": ?"([a-z-]+)"', on(taker, _api(f"/v1/events?run={made['id']}")))
    assert "resume" in kinds, (kinds, log(taker))


def judge(row: Row, newest: int = 1) -> None:
    """What is in the vault: whether it has all snapshots, the newest as they are on the source, and no fault."""
    on("lab", f"zvaultctl vault up {POOL}")
    try:
        there, here = snapshots(SOURCE), snapshots(COPY)
        row.same = (
            bool(there)
            and set(there) <= set(here)
            and all(hashes(f"{COPY}@{name}") == hashes(f"{SOURCE}@{name}") for name in there[-newest:])
        )
        found = shell(f"zpool scrub -w {POOL}; zpool status {POOL}")
        row.scrub = "clean" if "No known data errors" in found and "repaired 0B" in found else found
    finally:
        on("lab", f"zvaultctl vault down {POOL}")
