"""A vault's host that is hostile: it gets nothing of an encrypted dataset in the clear, whatever token it lists."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile import be_honest, lie
from peer import clean, daemon, hashes, introduce, peer, peer_pool
from world import ctl, get, ok, sh, snapshots

LAB = {"mem": "4G", "timeout": 2500, "peer": True}

SECRET = b"the plain text that no vault may see "
STOLEN = "/root/stolen"
VAULT = "attic/lab/desk"

CONFIG = """
[vault.attic]
pool = "attic"
host = "ssh://root@peer"

[backup.home]
source = "desk"
vault = "attic"
retries = 0
"""


@pytest.fixture
def desk() -> Iterator[None]:
    clean()
    introduce()
    be_honest()
    peer(f"rm -f {STOLEN}")
    peer_pool("attic")
    sh("truncate", "-s", "1G", "/desk.img")
    sh("zpool", "create", "-O", "mountpoint=/desk", "-O", "compression=off", "desk", "/desk.img")
    Path("/key").write_text("a passphrase\n")
    sh(
        "zfs",
        "create",
        "-o",
        "encryption=on",
        "-o",
        "keyformat=passphrase",
        "-o",
        "keylocation=file:///key",
        "desk/enc",
    )
    sh("zfs", "create", "desk/plain")
    Path("/desk/enc/secret").write_bytes(SECRET * 50_000)
    Path("/desk/plain/file").write_bytes(b"no secret " * 5000)
    daemon(CONFIG)
    yield
    be_honest()
    clean()


def forged(fields: dict[str, int | str]) -> str:
    """A resume token as ZFS would make it, of anything; 1 is a flag where ZFS has one."""
    packed = bytes([0, 1, 0, 0]) + struct.pack("<iI", 0, 1)
    for name, value in fields.items():
        if name.endswith("ok"):
            kind, count, body = 1, 0, b""
        elif isinstance(value, int):
            kind, count, body = 8, 1, struct.pack("<Q", value)
        else:
            kind, count, body = 9, 1, value.encode() + b"\0"
        raw = name.encode() + b"\0"
        pair = struct.pack("<hhii", len(raw), 0, count, kind) + raw
        pair += bytes(-(len(pair) + 4) % 8)
        pair += body + bytes(-len(body) % 8)
        packed += struct.pack("<i", len(pair) + 4) + pair
    plain = packed + bytes(4)
    small = zlib.compress(plain)
    words = struct.unpack_from(f"<{len(small) // 4}I", small)
    return f"1-{sum(words) & (1 << 64) - 1:x}-{len(plain):x}-{small.hex()}"


def newest() -> tuple[str, int]:
    """The name and the GUID of the encrypted dataset's newest snapshot."""
    name = f"desk/enc@{snapshots('desk/enc')[-1]}"
    return name, int(get(name, "guid"))


def nothing_was_stolen() -> None:
    """What the vault's host was sent has not a word of the plain text."""
    assert int(peer(f"grep -c -a '{SECRET.decode()}' {STOLEN} || true", check=False).strip() or 0) == 0


@pytest.mark.parametrize("line", ["\n\trawok = 1", ""])
def test_a_forged_token_gets_no_plain_text(desk: None, line: str) -> None:
    """It is a token of the snapshot without -w; the name in it shows one with -w to who reads what zfs prints."""
    sh("zfs", "snapshot", "desk/enc@zvault_2026-11-20T00:00:00Z")
    name, guid = newest()
    peer(f"zfs create -p {VAULT}/enc; zfs set org.zvault:placeholder={VAULT}/enc {VAULT}/enc")
    token = forged(
        {"object": 0, "offset": 0, "bytes": 0, "toguid": guid, "toname": name + line, "compressok": 1}
    )
    lie(token={f"{VAULT}/enc": token}, steal=STOLEN)
    done = ctl("run", "home")
    nothing_was_stolen()
    assert "Traceback" not in done.out + done.err
    assert "give up the interrupted receive" in done.out + done.err


def test_a_token_of_another_dataset_sends_nothing_of_it(desk: None) -> None:
    sh("zfs", "create", "desk/private")
    sh("zfs", "snapshot", "desk/private@own")
    Path("/desk/private").joinpath("x").write_bytes(SECRET * 1000)
    sh("zfs", "snapshot", "desk/private@own2")
    daemon(CONFIG.replace("retries = 0", 'retries = 0\nexclude = ["desk/private"]'))
    ok("run", "home")
    token = forged(
        {
            "object": 0,
            "offset": 0,
            "bytes": 0,
            "toguid": int(get("desk/private@own2", "guid")),
            "toname": "desk/private@own2",
        }
    )
    lie(token={f"{VAULT}/plain": token}, steal=STOLEN)
    Path("/desk/plain/more").write_bytes(b"more")
    done = ctl("run", "home")
    nothing_was_stolen()
    assert "give up the interrupted receive" in done.out + done.err
    lie()
    ok("run", "home")


def test_a_restore_takes_only_what_was_asked_for(desk: None) -> None:
    ok("run", "home")
    sh("zfs", "create", "desk/old")
    for answer in (
        f"/usr/sbin/zfs send -w -R {VAULT}@SNAP",
        f"/usr/sbin/zfs send -w -p {VAULT}/enc@SNAP",
        f"/usr/sbin/zfs send -Lceb {VAULT}@SNAP",
    ):
        snapname = snapshots("desk/plain")[-1]
        lie(send={f"{VAULT}/plain": answer.replace("SNAP", snapname)})
        done = ctl("restore", "home", "desk/plain", "desk/old/back")
        assert done.code == 1
        assert "not what was ordered" in done.out + done.err
        assert "desk/old/back" not in sh("zfs", "list", "-Ho", "name", "-r", "desk")
    lie()
    ok("restore", "home", "desk/plain", "desk/old/back")
    assert hashes(f"desk/old/back@{snapname}") == hashes(f"desk/plain@{snapname}")
