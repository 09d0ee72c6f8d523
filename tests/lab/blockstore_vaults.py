"""A vault in a bucket by zvault's own block store, and what its server and its bucket tell."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ceph
import pytest
from s3_proxy import Proxy
from test_s3_nbd import BUCKET, bucket
from world import (
    Done,
    World,
    command_lines,
    ctl,
    eventually,
    fill,
    journal,
    make_tank,
    nothing_left,
    ok,
    sh,
    snapshot_hashes,
    snapshots,
    tree_hashes,
)

from zvault.config.device_specs.blockstore import SERVER_USER_IDS
from zvault.devices.s3_lease.lease_object import BucketPlace, LeaseObjectStore

KEYS = Path("/etc/credstore/zvault.lab")
UNIT = "zvault-blockstore@cold-0.service"
STATUS = Path("/run/zvault/device/cold-0.store/status")
JOURNAL, CACHE = Path("/var/lib/zvault-lab-journal"), Path("/var/lib/zvault-lab-cache")


@pytest.fixture(name="cluster", scope="module")
def cluster_of_module() -> Iterator[ceph.Cluster]:
    with ceph.cluster(rgw=True) as it:
        yield it


@dataclass
class Vault(World):
    """The world with its vault in a bucket; ``mode`` are the words that say how."""

    s3: ceph.S3 = field(init=False)
    key: str = "cold"
    bucket: str = BUCKET
    mode: str = ""
    prices: str = ""
    source_size: int = 12
    vault_extra: str = 'create = true\nprofile = "blockstore"'

    def source(self) -> None:
        make_tank("512M")
        sh("zfs", "create", "tank/home")
        fill(Path("/tank/home"), 1, count=self.source_size)

    def config_text(self) -> str:
        place = (
            f"zvault:{self.bucket}/{self.key} size=2G endpoint={self.s3.endpoint} region=default style=path"
        )
        nbd = f"{place} credential=zvault.lab {self.mode}"
        return re.sub(
            r"\nnbd = .*\nsize = .*\n", lambda _: f'\nnbd = "{nbd}"\n{self.prices}\n', super().config_text()
        )

    @property
    def lease(self) -> LeaseObjectStore:
        return LeaseObjectStore(
            BucketPlace.of(
                [f"bucket={BUCKET}", f"key={self.key}", f"endpoint={self.s3.endpoint}", f"keys={KEYS}"]
            )
        )

    def clean(self) -> None:
        super().clean()
        sh("systemctl", "kill", "-s", "KILL", UNIT, check=False)
        sh("systemctl", "stop", UNIT, check=False)
        sh("systemctl", "reset-failed", check=False)
        sh("rm", "-rf", "/run/zvault", str(JOURNAL), str(CACHE))


@pytest.fixture(name="world")
def world_with_vault(cluster: ceph.Cluster) -> Iterator[Vault]:
    it = Vault()
    it.s3 = cluster.s3()
    it.clean()
    KEYS.parent.mkdir(exist_ok=True)
    KEYS.touch(mode=0o600)
    KEYS.write_text(
        f"[default]\naws_access_key_id = {it.s3.access_key}\naws_secret_access_key = {it.s3.secret_key}\n"
    )
    objects = bucket(it.s3)
    objects.create()
    objects.objects.all().delete()
    it.source()
    yield it
    it.clean()


def told() -> dict[str, Any]:
    """What the device's server says, which it writes down once a second."""
    found: dict[str, Any] = json.loads(STATUS.read_text())
    return found


def engine(name: str) -> Any:
    """One of its engine's figures; None while there is no server that tells."""
    with suppress(FileNotFoundError):
        return (told()["engine"] or {}).get(name)
    return None


def its_status(code: int, words: str) -> Done | None:
    """What 'vault status' tells, if it ends so and has these words (a regular expression)."""
    found = ctl("vault", "status", "cold")
    return found if found.code == code and re.search(words, found.out) else None


def keys(it: Vault) -> list[str]:
    return [item.key for item in bucket(it.s3).objects.all()]


def gone() -> None:
    """Nothing of the vault is on this host, nor of its server."""
    nothing_left()
    units = ("systemctl", "list-units", "--plain", "--no-legend", "--all", "zvault-blockstore@*")
    eventually(lambda: f"no unit is there: {sh(*units)}", lambda: not sh(*units).strip())
    assert [path.name for path in STATUS.parents[1].iterdir()] == []


def no_secret_is_shown(it: Vault) -> None:
    """The server runs, and nobody sees the keys in the list of processes."""
    said = command_lines()
    assert "nbdkit_plugin.py" in said
    assert it.s3.secret_key not in said
    assert it.s3.access_key not in said


def a_user_of_its_own(it: Vault) -> None:
    """The server has none of root's rights, and its keys are root's as before."""
    lines = Path(f"/proc/{told()['pid']}/status").read_text().splitlines()
    status = {key: value.split() for key, _, value in (line.partition(":") for line in lines)}
    (uid,) = set(status["Uid"])
    assert int(uid) in SERVER_USER_IDS, journal()
    assert set(status["Gid"]) == {uid}
    assert status["Groups"] == []
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name][0], 16) == 0, name
    journal_folder = Path(told()["journal"])
    assert journal_folder.is_dir(), "as it is called, not as it is reached"
    assert journal_folder.stat().st_uid == int(uid)
    positions = [path.stat() for path in Path("/var/lib/zvault/blockstore").iterdir()]
    assert positions
    assert all(one.st_uid == 0 and one.st_mode & 0o077 == 0 for one in [KEYS.stat(), *positions])
    # Keys or positions, of any store: that user opens none.
    for path in (KEYS, *Path("/var/lib/zvault/blockstore").iterdir()):
        be = ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--")
        assert subprocess.run([*be, "head", "-c1", str(path)], capture_output=True).returncode != 0


def unharmed() -> None:
    """All of the newest snapshot is there, byte by byte, and the pool has no fault."""
    newest = snapshots("cold/lab/tank/home")[-1]
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == tree_hashes(Path("/tank/home"))
    sh("zpool", "scrub", "-w", "cold")
    assert "No known data errors" in sh("zpool", "status", "cold")


def looks_for_its_keys() -> None:
    """'check-config' misses them where they are not."""
    assert "there is no credential" not in ok("check-config").err
    hidden = KEYS.rename(KEYS.with_name("elsewhere"))
    try:
        told = ok("check-config").err
    finally:
        hidden.rename(KEYS)
    assert "vault.cold.device[0].nbd: there is no credential zvault.lab" in told


def the_cost() -> dict[str, Any] | None:
    """What the vault's document has of it."""
    found: dict[str, Any] | None = ok("vault", "status", "cold", "-j").json()["vaults"][0]["cost"]
    return found


@pytest.fixture(name="proxy")
def proxy_before_bucket(world: Vault) -> Iterator[Proxy]:
    """What stands in front of the bucket and counts; it outlives the vault."""
    with Proxy(world.s3.endpoint) as it:
        world.s3 = replace(world.s3, endpoint=it.endpoint)
        yield it
        world.clean()


def passed_on(proxy: Proxy, method: str, key: str) -> int:
    """Requests for objects of a store, not for those of its lease."""
    ours = f"/{BUCKET}/{key}/"
    return sum(
        number
        for (way, place), number in proxy.of_key.items()
        if way == method and f"{place}/".startswith(ours)
    )


MARKER = bytes.fromhex("5ea1ed") * 11 + b"what nobody may read in the bucket"


def in_bucket(it: Vault, prefix: str, what: bytes) -> list[str]:
    """Objects that have these bytes in them."""
    objects = bucket(it.s3).objects.filter(Prefix=f"{prefix}/")
    return [item.key for item in objects if what in item.get()["Body"].read()]


def refused(words: str, *argv: str) -> None:
    """That zvaultctl says so, and nothing of the vault is up."""
    done = ctl(*argv)
    assert done.code != 0
    assert words in " ".join(done.err.split()), done.err
    gone()


def backed_up(name: str) -> None:
    """A run with a file more, that has the marker; all of it can be read."""
    Path(f"/tank/home/{name}").write_bytes(MARKER * 3000)
    ok("run", "tank")
    ok("vault", "up", "cold")
    unharmed()
