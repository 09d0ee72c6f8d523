"""The second guest as the other host: what a test does there, and a daemon here that reaches it by ssh."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from report_to_host import PEER, PEER_SSH
from world import CONFIG, sh

SSH = Path("/root/.ssh")
KNOWN = SSH / "known_hosts"
INSTALLED = (
    "usr/lib/python3/dist-packages/zvault usr/bin/zvault* usr/share/zvault usr/lib/systemd/system/zvault*"
    " usr/lib/sysusers.d/zvault.conf usr/lib/tmpfiles.d/zvault.conf"
)
FILES = "find . -type f -print0 | LC_ALL=C sort -z | xargs -0 -r sha256sum"


def peer(script: str, *, check: bool = True, timeout: float = 240) -> str:
    """What a shell script prints on the peer, where it runs as root by the lab's own way in."""
    argv = [*PEER_SSH, f"PATH=/usr/local/sbin:/usr/sbin:/sbin:$PATH; {script}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout)
    assert not check or done.returncode == 0, f"{script}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def introduce() -> None:
    """Root here gets a key that opens the peer, and knows the peer's host key, as an administrator would see to it."""
    SSH.mkdir(mode=0o700, exist_ok=True)
    shutil.copy(PEER / "key", SSH / "id_ed25519")
    (SSH / "id_ed25519").chmod(0o600)
    KNOWN.write_text(f"peer {' '.join((PEER / 'host_key.pub').read_text().split()[:2])}\n")


def let_in(user: str) -> None:
    """Make a user on the peer that this key opens too, and that may do nothing else yet."""
    peer(
        f"id {user} 2>/dev/null || useradd -m -s /bin/sh {user}; install -d -m 700 -o {user} /home/{user}/.ssh;"
        f" install -m 600 -o {user} /run/lab/key.pub /home/{user}/.ssh/authorized_keys"
    )


def peer_pool(name: str, size: str = "1G", options: str = "") -> None:
    """A pool on the peer, mounted at /NAME."""
    peer(f"truncate -s {size} /{name}.img && zpool create -O mountpoint=/{name} {options} {name} /{name}.img")


def peer_snapshots(dataset: str) -> list[str]:
    """The snapnames of a dataset on the peer, oldest first."""
    out = peer(f"zfs list -Hp -t snapshot -o name -s createtxg -d 1 {shlex.quote(dataset)}")
    return [line.partition("@")[2] for line in out.splitlines()]


def logins() -> int:
    """How often sshd on the peer has let somebody in on port 22."""
    return peer("journalctl --sync; journalctl -u ssh -o cat --no-pager").count("Accepted publickey")


def peer_hashes(snapshot: str) -> list[str]:
    """Hash and path of every file in a snapshot on the peer."""
    point = "mkdir -p /mnt/check && mount -t zfs"
    return peer(
        f"{point} {shlex.quote(snapshot)} /mnt/check && cd /mnt/check && {FILES}; cd / && umount /mnt/check"
    ).splitlines()


def hashes(snapshot: str) -> list[str]:
    """The same of a snapshot here."""
    Path("/mnt/check").mkdir(exist_ok=True)
    sh("mount", "-t", "zfs", snapshot, "/mnt/check")
    try:
        return sh("sh", "-c", f"cd /mnt/check && {FILES}").splitlines()
    finally:
        sh("umount", "/mnt/check")


def daemon(config: str) -> None:
    """Start the daemon with this configuration, without any connection from before."""
    CONFIG.parent.mkdir(exist_ok=True)
    CONFIG.write_text(f'[daemon]\nhost = "lab"\nmetrics = "off"\n{config}')
    sh("systemctl", "restart", "zvaultd")


def clean() -> None:
    """Stop the daemon; take away every pool, here and there, and what the daemon wrote."""
    sh("systemctl", "stop", "zvaultd", check=False)
    for pool in sh("zpool", "list", "-Ho", "name").split():
        sh("zpool", "destroy", "-f", pool)
    peer("systemctl stop zvaultd 2>/dev/null; true")
    peer("for pool in $(zpool list -Ho name); do zpool destroy -f $pool; done; rm -f /*.img")
    sh("rm", "-rf", "/run/zvault", "/var/lib/zvault", "/etc/zvault")
    sh("sh", "-c", "rm -f /*.img")


def install_zvault() -> None:
    """Give the peer what is installed here: it is to have a daemon of its own."""
    packed = subprocess.run(["sh", "-c", f"cd / && exec tar -c {INSTALLED}"], capture_output=True, check=True)
    subprocess.run([*PEER_SSH, "tar -x -C /"], input=packed.stdout, check=True, timeout=240)
    peer("systemd-sysusers; systemd-tmpfiles --create; systemctl daemon-reload")


def peer_daemon(config: str) -> None:
    """Start the daemon there with this configuration."""
    text = shlex.quote(f'[daemon]\nmetrics = "off"\n{config}')
    peer(f"mkdir -p {CONFIG.parent} && printf %s {text} >{CONFIG} && systemctl restart zvaultd")
