"""Hosts that share a vault, in one process: one note and one lease in memory, a clock that is set, vaults as values."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from zvault.config.schema import Config
from zvault.core.errors import DeviceGone, ZvaultError
from zvault.core.policy.vault_life import VaultLife
from zvault.core.sharing.run_decision import DueRun, LeaseHolder
from zvault.devices.shared_note import ObservedLease, ObservedNote
from zvault.ops.vaults.shared_vault import SharedVault

HOUR = 3600.0
BOUND = 300.0

CONFIG = {
    "vault": {
        "cold": {
            "pool": "cold",
            "hosts": ["a", "b"],
            "device": [{"nbd": "zvault:bucket/cold size=1G", "lease": "5m"}],
        },
        "local": {"pool": "local"},
    },
    "backup": {
        "tank": {"source": "ssh://root@nas/tank", "vault": "cold", "every": "1h"},
        "home": {"source": "home", "vault": "local"},
    },
}


@dataclass
class Bucket:
    """The note and the lease, and the clock of everybody. ``requests`` are those for the note and the lease."""

    now: float = 1000.0
    data: bytes | None = None
    etag: str = ""
    put_at: float = 0.0
    holder: LeaseHolder | None = None
    renewed: float = 0.0
    away: bool = False
    requests: int = 0
    puts: int = 0
    before_put: Any = None
    seconds: float = 0.0
    """How long it takes to answer."""
    slow: bool = False
    """Whether others go on while it does what it was asked, before it answers, and after that."""

    def clock(self) -> float:
        return self.now

    def _asked(self) -> None:
        self.requests += 1
        assert self.requests < 500, "it asks for ever"
        self.now += self.seconds
        if self.away:
            raise DeviceGone("the store does not answer")

    async def _waits(self) -> None:
        for _ in range(3 if self.slow else 0):
            await asyncio.sleep(0)

    async def read(self) -> ObservedNote:
        self._asked()
        await self._waits()
        seen = ObservedNote(self.data, self.etag, None if self.data is None else self.now - self.put_at)
        await self._waits()
        return seen

    async def read_lease(self, reader: str = "") -> ObservedLease:
        self._asked()
        if self.holder is None:
            return ObservedLease(None, "", None)
        holder = replace(self.holder, ours=self.holder.boot == f"boot-{reader}")
        return ObservedLease(holder, f"{self.renewed}", self.now - self.renewed)

    async def put(self, data: bytes, etag: str) -> str | None:
        self._asked()
        if self.before_put is not None:
            before, self.before_put = self.before_put, None
            before()
        await self._waits()
        if etag != self.etag:
            return None
        self.puts += 1
        new = f"e{self.puts}"
        self.data, self.etag, self.put_at = data, new, self.now
        await self._waits()
        return new


@dataclass(frozen=True)
class BucketOf:
    """The bucket, as a host of that name sees it."""

    bucket: Bucket
    host: str

    async def read(self) -> ObservedNote:
        return await self.bucket.read()

    async def read_lease(self) -> ObservedLease:
        return await self.bucket.read_lease(self.host)

    async def put(self, data: bytes, etag: str) -> str | None:
        return await self.bucket.put(data, etag)


@dataclass
class HostVault:
    """Stands for a ManagedVault of one host."""

    bucket: Bucket
    host: str
    epoch: int = 1
    life: VaultLife = VaultLife.DOWN
    error: ZvaultError | None = None
    lost: bool = False
    name: str = "cold"
    context: Any = field(init=False)
    held_by: Any = None

    def __post_init__(self) -> None:
        clock = SimpleNamespace(time=lambda: 1.7e9 + self.bucket.now)
        config = Config.model_validate(CONFIG)
        env = SimpleNamespace(
            config=config, clock=clock, backup=config.backup.__getitem__, current_name=lambda name: name
        )
        self.context = SimpleNamespace(env=env, records=SimpleNamespace(costs=None))

    @property
    def config(self) -> Any:
        return self.context.env.config.vault["cold"]

    async def devices(self) -> list[Any]:
        return [SimpleNamespace(told={"engine": {"epoch": self.epoch}})]

    async def trouble(self) -> ZvaultError | None:
        return DeviceGone("lost") if self.lost else None

    def up(self, epoch: int) -> None:
        """This host gets the vault."""
        self.life, self.epoch = VaultLife.UP, epoch
        self.bucket.holder, self.bucket.renewed = (
            LeaseHolder(self.host, f"boot-{self.host}", BOUND),
            self.bucket.now,
        )

    def down(self) -> None:
        """It gives it back."""
        self.life = VaultLife.DOWN
        self.bucket.holder = LeaseHolder(self.host, f"boot-{self.host}", BOUND, held=False)
        self.bucket.renewed = self.bucket.now


def host(bucket: Bucket, name: str) -> tuple[HostVault, SharedVault]:
    """A host of that name."""
    vault = HostVault(bucket, name)
    it: Any = vault
    place = BucketOf(bucket, name)
    return vault, SharedVault(it, place=place, clock=bucket.clock, host=name, boot=f"boot-{name}")


def due(bucket: Bucket, **known: Any) -> DueRun:
    """The backup is due now."""
    return DueRun("tank", bucket.now, HOUR, **known)
