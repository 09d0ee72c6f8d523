"""What the tests of faults share: a pair of small pools without devices, and what must be true after any fault."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import crash_at
import world
from world import DISK, World, eventually, sh

DROP_IN = Path("/run/systemd/system/zvaultd.service.d/crash.conf")
SOCKET = "/run/zvault/zvaultd.sock"


def drop_in() -> None:
    """Have systemd start a daemon that can be made to die, and not again by itself: first comes a look."""
    DROP_IN.parent.mkdir(parents=True, exist_ok=True)
    server = f"ExecStart=\nExecStart={crash_at.SERVER}\nRestart=no\n"
    DROP_IN.write_text(f"[Unit]\nStartLimitIntervalSec=0\n[Service]\n{server}")
    sh("systemctl", "daemon-reload")


@dataclass
class Points:
    """One dataset's snapshots by GUID (oldest first, with snapname and hold tags) and its bookmarks' names by GUID."""

    snapshots: dict[str, str] = field(default_factory=dict)
    holds: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    marks: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    partial: bool = False


def points(root: str) -> dict[str, Points]:
    """Every snapshot, hold and bookmark below a dataset, by the dataset's name."""
    found: dict[str, Points] = {}
    columns = "name,guid,userrefs,receive_resume_token"
    kinds = "filesystem,volume,snapshot,bookmark"
    listing = sh("zfs", "list", "-Hpr", "-t", kinds, "-o", columns, "-s", "createtxg", root, check=False)
    held = []
    for name, guid, references, token in (line.split("\t") for line in listing.splitlines()):
        dataset, _, snapname = name.replace("#", "@").partition("@")
        one = found.setdefault(dataset, Points())
        if "#" in name:
            one.marks[guid].append(snapname)
        elif snapname:
            one.snapshots[guid] = snapname
            held += [name] if references not in {"-", "0"} else []
        else:
            one.partial = token != "-"
    for name, hold, *_ in (
        line.split("\t") for line in (sh("zfs", "holds", "-H", *held) if held else "").splitlines()
    ):
        dataset, _, snapname = name.partition("@")
        guid = next(guid for guid, other in found[dataset].snapshots.items() if other == snapname)
        found[dataset].holds[guid].add(hold)
    return found


def vault_guid(pool: str = "cold") -> str:
    """The vault pool's GUID as zvault's holds and bookmarks carry it."""
    return f"{int(sh('zpool', 'get', '-Hpo', 'value', 'guid', pool)):x}"


def bases(source: str = "tank", vault: str = "cold/lab/tank", *, protected: bool = True) -> dict[str, str]:
    """The newest GUID both sides share, by source dataset; if ``protected``, each is held or bookmarked there."""
    there, guid = points(vault), vault_guid(vault.partition("/")[0])
    found = {}
    for name, here in points(source).items():
        target = there.get(vault + name.removeprefix(source))
        if target is None or not target.snapshots:
            continue
        shared = [one for one in target.snapshots if one in here.snapshots or one in here.marks]
        assert shared, f"{name} and its vault share nothing any more: {here} {target}"
        base = shared[-1]
        found[name] = base
        if not protected:
            continue
        names = {f"zvault_{guid}_{int(base):x}", f"zvault-{guid}_{int(base):x}"}
        marked = not names.isdisjoint(here.marks.get(base, []))
        assert marked or f"zvault:{guid}" in here.holds.get(base, ()), (
            f"nothing protects {name}'s base: {here}"
        )
    return found


def bases_advanced(source: str = "tank", vault: str = "cold/lab/tank") -> None:
    """Each dataset's newest snapshot is on the vault, and one hold is there: for that one. It is bookmarked, with one
    base before it at most. On the vault it is held too."""
    guid, here, there = vault_guid(vault.partition("/")[0]), points(source), points(vault)
    assert set(there) == {vault + name.removeprefix(source) for name in here}
    for name, one in here.items():
        target = there[vault + name.removeprefix(source)]
        newest = list(one.snapshots)[-1]
        assert list(target.snapshots)[-1] == newest, f"{name}: {one} {target}"
        assert dict(one.holds) == {newest: {f"zvault:{guid}"}}, f"{name}: {one}"
        assert newest in one.marks, f"{name}: {one}"
        assert len(one.marks) <= 2, f"{name}: {one}"
        for marked, names in one.marks.items():
            assert names == [f"zvault_{guid}_{int(marked):x}"], f"{name}: {one}"
        assert dict(target.holds) == {newest: {"zvault:keep"}}, target
        assert not target.marks, target
        assert not target.partial, f"{name}: a receive was left behind"


def live_hashes(root: Path) -> dict[str, str]:
    """The hash of every file of the filesystem mounted there, without those mounted below it."""
    device = root.stat().st_dev
    found = {}
    for folder, below, files in os.walk(root):
        below[:] = [name for name in below if (Path(folder) / name).stat().st_dev == device]
        for path in (Path(folder) / name for name in files):
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def same_files(source: str = "tank", vault: str = "cold/lab/tank") -> None:
    """Every filesystem's files are, by hash, those of its newest snapshot on both sides."""
    there = points(vault)
    for name, one in points(source).items():
        live = live_hashes(Path("/") / name)
        guid, snapname = list(one.snapshots.items())[-1]
        target = vault + name.removeprefix(source)
        assert world.snapshot_hashes(f"{name}@{snapname}") == live, f"{name}@{snapname}"
        assert world.snapshot_hashes(f"{target}@{there[target].snapshots[guid]}") == live, target


def forget(dataset: str, vault: str = "cold/lab/tank") -> None:
    """Destroy a dataset on both sides, so that the next of its name is a new one."""
    world.destroy_held(dataset)
    world.destroy_held(vault + dataset.removeprefix("tank"))


def api(method: str, path: str, *, timeout: float = 240) -> Any:
    """Ask the daemon as zvaultctl does, but without the second that takes to start; None where it does not answer."""
    with socket.socket(socket.AF_UNIX) as asked, contextlib.suppress(OSError):
        asked.settimeout(timeout)
        asked.connect(SOCKET)
        asked.sendall(f"{method} {path} HTTP/1.0\r\nContent-Length: 0\r\n\r\n".encode())
        head, _, body = asked.makefile("rb").read().partition(b"\r\n\r\n")
        if body:
            assert b" 200 OK" in head, body
            return json.loads(body)
    return None


def history(limit: int = 5) -> list[dict[str, Any]]:
    """The newest runs first."""
    return api("GET", f"/v1/history?limit={limit}")["runs"]


def run_of(run: str, *, seconds: float = 240) -> dict[str, Any]:
    """A run, when it has ended."""
    return eventually(
        lambda: (
            f"run {run} to end\n{world.journal()}\n{sh('ps', '-eo', 'pid,ppid,stat,wchan:20,etimes,args')}"
        ),
        lambda: next((one for one in history() if one["id"] == run and one["ended"]), None),
        seconds=seconds,
        every=0.1,
    )


def run_now(*, result: str = "ok") -> dict[str, Any]:
    """A run to its end, which must be as it should."""
    run = run_of(api("POST", "/v1/run/tank")["run"])
    assert run["result"] == result, run
    return run


@dataclass
class Pair(World):
    """A small source, and a vault that is a pool this host has anyway: on a loop device, where an import finds it."""

    vault_extra: str = ""

    def source(self) -> None:
        DISK.mkdir(exist_ok=True)
        for pool in ("tank", "cold"):
            sh("truncate", "-s", "512M", str(DISK / f"{pool}.img"))
            device = sh("losetup", "--find", "--show", str(DISK / f"{pool}.img")).strip()
            sh("zpool", "create", "-O", f"mountpoint=/{pool}", "-O", "compression=off", pool, device)
        sh("zfs", "create", "tank/home")
        world.fill(Path("/tank/home"), 1, count=2, size=20_000)

    def clean(self) -> None:
        super().clean()
        sh("losetup", "--detach-all", check=False)

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"
timezone = "UTC"

[vault.cold]
pool = "cold"
up = "always"
{self.vault_extra}

[backup.tank]
source = "tank"
vault = "cold"
keep = {self.keep}
{self.backup_extra}
{self.extra}
"""


def converged() -> None:
    """After a good run: all is on both sides, nothing is left behind, the pools have no fault."""
    bases_advanced()
    same_files()
