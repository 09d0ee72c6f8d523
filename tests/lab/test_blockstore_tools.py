"""zvaultctl blockstore on the S3 of a real Ceph cluster: made, filled, damaged, mended, cleaned up and copied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import ceph
import pytest
from world import sh

from zvault.blockstore.attach import attach
from zvault.blockstore.format import BLOCK
from zvault.blockstore.options import Options
from zvault.blockstore.repair import quiet
from zvault.cli import places

LAB = {"mem": "4G", "timeout": 600}

BUCKET = "zvault"
KEYS = Path("/etc/s3.keys")


@pytest.fixture(scope="module")
def s3() -> Iterator[ceph.S3]:
    with ceph.cluster(rgw=True) as cluster:
        it = cluster.s3()
        KEYS.touch(mode=0o600)
        KEYS.write_text(
            f"[default]\naws_access_key_id = {it.access_key}\naws_secret_access_key = {it.secret_key}\n"
        )
        yield it


def bucket(s3: ceph.S3) -> Any:
    keys = {"aws_access_key_id": s3.access_key, "aws_secret_access_key": s3.secret_key}
    return boto3.resource("s3", endpoint_url=s3.endpoint, region_name="default", **keys).Bucket(BUCKET)


def ctl(*words: str, status: int = 0) -> Any:
    done = sh("sh", "-c", 'zvaultctl blockstore "$@"; echo "status $?"', "sh", *words, "-j")
    text, _, code = done.rpartition("status ")
    assert int(code) == status, done
    return json.loads(text) if text.strip() else None


def test_a_life(s3: ceph.S3, tmp_path: Path):
    objects = bucket(s3)
    objects.create()
    more = f"endpoint={s3.endpoint} style=path region=default keys={KEYS}"
    place, other = f"zvault:{BUCKET}/cold {more}", f"zvault:{BUCKET}/warm/copy {more}"
    assert ctl("create", place, "--size", "1G")["size"] == 1 << 30
    ctl("create", place, "--size", "1G", status=2)

    engine = attach(places.reach(places.find(place)), "cold", quiet(Options(tmp_path / "journal")), "lab")
    for tag in range(1, 5):
        engine.write(0, bytes([tag]) * (3000 * BLOCK))
        engine.write(1000 * tag * BLOCK, b"k" * (900 * BLOCK))
        engine.flush()
        engine.checkpoint()
    during = ctl("check", place, "--all")
    assert during["well"]
    engine.write(0, b"z" * BLOCK)
    truth = engine.read(0, 5000 * BLOCK)
    engine.close()

    told = ctl("info", place)
    assert told["live_bytes"] == 4800 * BLOCK
    assert told["owner"] == "lab"
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])

    ctl("gc", place, status=2)
    done = ctl("gc", place, "--yes")
    assert done["after"] <= 1.1 * done["live"]

    ctl("copy", place, other)
    assert ctl("check", other, "--all")["well"]
    ctl("copy", place, other, status=2)

    for item in objects.objects.filter(Prefix="cold/maps/"):
        item.delete()
    objects.put_object(Key="cold/maps/0000000001-00000000", Body=b"stray")
    found = ctl("check", place, status=1)
    assert {problem["why"] for problem in found["problems"]} >= {
        "1 of its parts of the map cannot be used: it is missing"
    }
    ctl("check", place, "--repair", "--yes", "--doubtful", "data")
    found = ctl("check", place, "--all")
    assert (found["well"], found["strays"]) == (True, [])
    for where, key in ((place, "cold"), (other, "warm/copy")):
        engine = attach(places.reach(places.find(where)), key, quiet(Options(tmp_path / key)), "lab")
        assert engine.read(0, 5000 * BLOCK) == truth
        engine.close()
