"""Whether a backup fits its vault: the figures expected, held against what a server really gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import world
from world import World, ctl, noise, ok, sh

from zvault.core.tuning.alignment import count_storage_units

LAB = {"mem": "3G", "timeout": 800}

MIB = 1 << 20
LOG = Path("/run/requests.log")
WRITE = re.compile(r" Write id=\d+ offset=(0x[0-9a-f]+) count=(0x[0-9a-f]+) ")
KEY = Path("/root/key")

S3 = """
[vault.cloud]
pool = "cloud"
profile = "nbd-lan"
create = true
[[vault.cloud.device]]
nbd = "nbdkit:S3 bucket=zv key=cloud size=10G object-size={size} secret-key=+/root/s3.key {more}"
prices = {{ put = 0.005, get = 0.0004 }}

[backup.cloud]
source = "tank"
vault = "cloud"
snapshot = {{ prefix = "cloud" }}
send = {{ {send} }}
"""


class Cut(World):
    """Files in records of three sizes, an encrypted filesystem and a volume."""

    def source(self) -> None:
        super().source()
        sh("zfs", "create", "-o", "recordsize=16K", "tank/db")
        sh("zfs", "create", "-o", "compression=lz4", "tank/text")
        Path("/tank/text/words").write_text("the same words again and again\n" * 200_000)
        KEY.write_text("correct horse battery\n")
        sh(
            *("zfs", "create", "-o", "encryption=on", "-o", "keyformat=passphrase"),
            *("-o", f"keylocation=file://{KEY}", "tank/secret"),
        )
        # What datasets use is compared between two looks: none may become more by what is still in memory.
        sh("zpool", "sync")

    def cloud(self, size: str = "512K", more: str = "", send: str = "") -> None:
        """A vault in a bucket that is never brought up."""
        self.extra = S3.format(size=size, more=more, send=send)
        self.configure()


@pytest.fixture
def tank():
    found = Cut()
    found.clean()
    found.source()
    yield found
    found.clean()


def fitted(backup: str) -> dict:
    found = ctl("fit", "-j", backup).json()
    found["of"] = {row["dataset"]: row for row in found["datasets"]}
    found["told"] = {one["what"]: one["about"] for one in found["advice"]}
    return found


def told(found: dict, words: str) -> list[str]:
    """What an advice is about; nothing where there is none of these words."""
    return next((about for what, about in found["told"].items() if what.startswith(words)), [])


def test_a_server_gets_requests_as_they_were_expected(tank):
    tank.source_name = "tank/big"
    tank.delay = f"filter=log logfile={LOG}"
    tank.vault_extra = 'create = true\nprofile = "nbd-lan"'
    noise(Path("/tank/big/more"), 150)
    sh("zpool", "sync")
    tank.start()
    before = fitted("tank")["of"]["tank/big"]
    ok("run", "tank")
    writes = [(int(o, 16), int(c, 16)) for o, c in WRITE.findall(LOG.read_text())]
    ok("vault", "up", "cold")
    up = fitted("tank")
    assert (up["sector"], up["of"]["tank/big"]) == (4096, before), (
        "what the pool says is what was expected of it"
    )
    ok("vault", "down", "cold")
    data = [one for one in writes if one[1] >= 128 << 10]
    moved = sum(count for _, count in data)
    assert moved > 170 * MIB
    mean = sum(count * count for _, count in data) / moved
    print(
        f"expected requests of {before['request'] >> 10} KiB, a byte came in one of {mean / 1024:.0f} on average"
    )
    assert before["request"] / 2 < mean <= before["request"]

    for unit in (MIB, 4 * MIB):
        touched = sum((start + count - 1) // unit - start // unit + 1 for start, count in data)
        whole = sum(max(0, (start + count) // unit - -(-start // unit)) for start, count in data)
        expected = [count_storage_units(count, unit, 4096) for _, count in data]
        print(
            f"objects of {unit >> 20} MiB: {touched} touched, {sum(one[0] for one in expected):.0f} expected;"
            f" {touched - whole} in part, {sum(one[1] for one in expected):.0f} expected"
        )
        assert sum(one[0] for one in expected) == pytest.approx(touched, rel=0.2)
        assert sum(one[1] for one in expected) == pytest.approx(touched - whole, rel=0.2)


def test_a_vault_in_a_bucket_before_its_first_byte(tank):
    tank.cloud()
    tank.start()
    found = fitted("cloud")
    assert found["of"]["tank/db"]["record"] == 16 << 10
    assert found["of"]["tank/big"]["block"] == MIB
    assert found["of"]["tank/text"]["block"] < 128 << 10, "it is compressed"
    assert told(found, "take larger objects") == ["tank/big"]
    assert found["of"]["tank/big"]["cost"] > 0
    page = ctl("fit", "cloud")
    print(page.out)
    assert page.code == 1
    assert "objects of 512K" in page.out
    assert "advice: take larger objects" in page.out
    sh("systemctl", "stop", "zvaultd")
    assert ctl("fit", "cloud").out == page.out, "without a daemon too"

    # What is advised is done, and helps.
    costly = found["of"]["tank/big"]["cost"]
    tank.cloud("4M")
    found = fitted("cloud")
    assert not told(found, "take larger objects")
    assert found["of"]["tank/big"]["cost"] < costly / 2
    assert not any(f"@{snapname}" for snapname in world.snapshots("tank/big")), "nothing was changed"
    world.nothing_left()


def test_what_is_cut_or_done_twice_is_pointed_out(tank):
    tank.cloud("4M", more="passphrase=+/root/key filter=luks", send="large_blocks = false")
    tank.start()
    found = fitted("cloud")
    assert told(found, "set send = { large_blocks = true }") == ["tank/big"]
    assert told(found, "leave encryption to one") == ["tank/secret"]
    assert found["of"]["tank/big"]["block"] == 128 << 10
    scripted = ctl("fit", "-H", "-p", "-o", "dataset,record,cost", "cloud").out.splitlines()
    row = next(line.split("\t") for line in scripted if line.startswith("tank/big\t"))
    assert row[1] == "1048576"
    assert float(row[2]) == found["of"]["tank/big"]["cost"]


def test_what_cannot_be_looked_at_is_told(tank):
    tank.source_name = "nowhere"
    tank.start()
    done = ctl("fit", "tank")
    assert done.code == 2
    assert "'nowhere'" in done.err
    assert "there is no backup" in ctl("fit", "nothing").err
