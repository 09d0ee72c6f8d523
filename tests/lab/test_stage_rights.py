"""What only moves or unpacks a stream's bytes runs without any rights, whichever way the stream goes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import world
from peer import clean, daemon, introduce, peer, peer_pool
from world import CONFIG, ctl, eventually, ok, sh

LAB = {"mem": "4G", "timeout": 1200, "peer": True}

TRUSTED = {"zfs", "ssh"}
"""They need what only root has: /dev/zfs, and root's keys."""

SHOWN = ("Uid", "Gid", "Groups", "NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapAmb")


@pytest.fixture
def hosts() -> Iterator[None]:
    clean()
    introduce()
    yield
    clean()


def stages() -> dict[str, dict[str, str]]:
    """The stages of a stream that runs, as the kernel knows them: children of the daemon, by what they are."""
    found, daemon_pid = {}, str(world.main_pid())
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text(errors="replace").split("\0")
            lines = (folder / "status").read_text().splitlines()
        except OSError:
            continue
        told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        if told.get("PPid") == daemon_pid:
            name = next((Path(word).stem for word in words if word.endswith(".py")), Path(words[0]).name)
            found[name] = {key: told[key] for key in SHOWN}
    return found


def has_no_rights(told: dict[str, str]) -> bool:
    none = all(int(told[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"))
    user = told["Uid"].split() == ["65534"] * 4 and "0" not in told["Gid"].split()
    return none and user and told["Groups"].strip() == "" and told["NoNewPrivs"] == "1"


def see(wanted: set[str], *, here: bool = True) -> None:
    """Look at a stream that goes through these; it is received ``here``, or sent from here in no time."""

    seen = set[tuple[str, ...]]()

    def look() -> dict[str, dict[str, str]] | None:
        found = stages()
        seen.add(tuple(f"{name}{'' if has_no_rights(told) else '!'}" for name, told in sorted(found.items())))
        there = wanted | ({"zfs"} if here else set()) <= set(found) and "setpriv" not in found
        return found if there and all(map(has_no_rights, (found[one] for one in wanted))) else None

    found = eventually(lambda: f"{wanted}, all without rights (!: has some): {seen}", look, every=0.05)
    for name in TRUSTED & set(found):
        assert found[name]["Uid"].split()[0] == "0"
    # None of them can trace another, or open its pipes.
    groups = [found[one]["Gid"] for one in wanted if one not in ("process", "throttle")]
    assert len(set(groups)) == len(groups)


def config(source: str, vault: str, limit: str = "64K") -> str:
    """So limited, a stream lasts five minutes if it is let: however slow this guest is, it is seen."""
    return f"""
[vault.cold]
pool = "cold"
profile = "nbd-lan"
{vault}

[backup.b]
source = "{source}"
vault = "cold"
send = {{ compressed = false }}
limit = "{limit}"
retries = 0
"""


def let_it_end() -> None:
    """The stream goes on without a limit, and its run ends: what is cut off ends on the other host some time later."""
    CONFIG.write_text(CONFIG.read_text().replace('limit = "64K"', 'limit = "50M"'))
    sh("systemctl", "reload", "zvaultd")
    eventually("the run ends", lambda: world.status()["backups"][0]["state"] == "idle")


def test_from_another_host(hosts: None) -> None:
    peer_pool("tank", options="-O compression=off")
    peer("head -c 20000000 /dev/urandom >/tank/x")
    sh("truncate", "-s", "1G", "/cold.img")
    sh("zpool", "create", "cold", "/cold.img")
    daemon(config("ssh://root@peer/tank", ""))
    ok("run", "b", "--no-wait", "-q")
    see({"mbuffer", "zstd", "process", "throttle"})
    # Its programs are there a moment before zvaultd knows the stream as one.
    eventually("the stream is counted", lambda: world.status()["backups"][0]["bytes_done"])
    verdict = ctl("doctor", "cold", "-j").json()
    shown = {stage["name"]: stage["full"] for one in verdict["streams"] for stage in one["stages"]}
    assert shown
    assert all(full is not None for name, full in shown.items() if not name.startswith("ssh")), shown
    daemon(config("ssh://root@peer/tank", "", "1M"))
    eventually("what was cut off is resumed", lambda: world.status()["backups"][0]["last_result"] == "ok")


def test_to_another_host_and_within_this_one(hosts: None) -> None:
    sh("truncate", "-s", "1G", "/tank.img")
    sh("zpool", "create", "-O", "compression=off", "tank", "/tank.img")
    sh("sh", "-c", "head -c 20000000 /dev/urandom >/tank/x")
    peer_pool("cold")
    daemon(config("tank", 'host = "ssh://root@peer"'))
    ok("run", "b", "--no-wait", "-q")
    see({"mbuffer", "zstd", "throttle"}, here=False)
    let_it_end()
    clean()
    for name in ("tank", "cold"):
        sh("truncate", "-s", "1G", f"/{name}.img")
        sh("zpool", "create", "-O", "compression=off", name, f"/{name}.img")
    sh("sh", "-c", "head -c 20000000 /dev/urandom >/tank/x")
    daemon(config("tank", ""))
    ok("run", "b", "--no-wait", "-q")
    see({"mbuffer", "throttle"})
    let_it_end()
