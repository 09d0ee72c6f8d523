"""The key of a pool's root dataset: loaded once, never in an argv, and refused where it is not the pool's."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zvault.core.errors import Refused, ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool.encryption import WrongPoolKey, load_pool_key
from zvault.zfs.pool.pool import NewPool, Vdev, Zpool

KEY = bytes(range(32))


class Host:
    """A pool with these properties; ``right``: the key that opens it."""

    def __init__(self, *properties: str, right: bytes = KEY, complaint: str = "") -> None:
        self.properties, self.right, self.complaint = properties, right, complaint
        self.asked: list[tuple[tuple[str, ...], bytes | None]] = []

    async def run(self, argv: Sequence[str], *, stdin: bytes | None = None, **_: object) -> ProcessResult:
        self.asked.append((tuple(argv), stdin))
        if argv[1] == "get":
            return ProcessResult(tuple(argv), 0, "\n".join(self.properties) + "\n", "", 0.0)
        if argv[1] == "load-key" and stdin != self.right.hex().encode() + b"\n":
            said = self.complaint or "Key load error: Incorrect key provided for 'cold'.\n"
            return ProcessResult(tuple(argv), 255, "", said, 0.0)
        return ProcessResult(tuple(argv), 0, "", "", 0.0)

    @property
    def loaded(self) -> bool:
        return any(argv[1] == "load-key" for argv, _ in self.asked)


async def test_it_is_loaded_by_input_alone() -> None:
    host = Host("aes-256-gcm", "hex", "unavailable")
    await load_pool_key(host, "cold", KEY)
    assert host.loaded
    assert not any(KEY.hex() in " ".join(argv) for argv, _ in host.asked)


async def test_one_that_is_loaded_is_left() -> None:
    host = Host("aes-256-gcm", "passphrase", "available")
    await load_pool_key(host, "cold", KEY)
    assert not host.loaded


async def test_a_wrong_key_is_told_without_it() -> None:
    host = Host("aes-256-gcm", "hex", "unavailable", right=bytes(32))
    with pytest.raises(WrongPoolKey) as error:
        await load_pool_key(host, "cold", KEY)
    assert KEY.hex() not in str(error.value)
    other = Host("aes-256-gcm", "hex", "unavailable", right=bytes(32), complaint="I/O error")
    with pytest.raises(ToolFailed, match="I/O error"):
        await load_pool_key(other, "cold", KEY)


@pytest.mark.parametrize(
    ("properties", "why"),
    [(("off", "none", "-"), "not encrypted"), (("aes-256-gcm", "passphrase", "unavailable"), "passphrase")],
)
async def test_pools_that_this_key_cannot_be_of(properties: tuple[str, ...], why: str) -> None:
    host = Host(*properties)
    with pytest.raises(Refused, match=why):
        await load_pool_key(host, "cold", KEY)
    assert not host.loaded


async def test_a_new_pool_gets_its_key_by_input() -> None:
    host = Host()
    new = NewPool("cold", [Vdev("data", ("/a",))], {}, {"atime": "off"}, encrypted=True)
    await Zpool(host).create(new, KEY)
    ((argv, stdin),) = host.asked
    assert {"encryption=aes-256-gcm", "keyformat=hex", "keylocation=prompt", "atime=off"} <= set(argv)
    assert stdin == KEY.hex().encode() + b"\n"
    await Zpool(host).create(NewPool("cold", [Vdev("data", ("/a",))], {}, {}))
    assert host.asked[-1][1] is None
    assert not any("encryption" in word for word in host.asked[-1][0])
