"""What is known of what vaults' block stores were asked for, kept over the times that nobody looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, tzinfo
from typing import Any

from zvault.api.blockstore import StoreDocument
from zvault.api.cost import CostDocument
from zvault.api.vaults import VaultDocument
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.config.tables.device import Device
from zvault.core.cost.ledger import (
    COUNTED_FIELDS,
    Ledger,
    StoreReading,
    StoreUsage,
    find_month_start,
    start_ledger,
)
from zvault.ops.state.environment import Environment
from zvault.system.record_store import RecordStore

STORED_FIELD = "stored_bytes"

LARGEST_COUNT = 1 << 62
"""Of anything that a store counts."""

OLDEST_READING, READING_AHEAD = 3600.0, 60.0
"""Seconds by which a server's word may be older than now, or newer: it is made each second, by the same clock."""

WRITTEN_EVERY = 300.0
"""Seconds between two writes of a ledger: what is lost by a crash is found again by the next reading."""


class CostBook:
    """A ledger for each block store, by vault and device."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._known: dict[str, Ledger | None] = {}
        self._written: dict[str, float] = {}

    def look(self, env: Environment, vault: VaultDocument) -> None:
        """Note what the servers of a vault's block stores tell."""
        for index, device in enumerate(vault["devices"]):
            found = device["store"]
            reading = make_store_reading(found) if found is not None else None
            if reading is not None and -OLDEST_READING <= reading.at - env.clock.time() <= READING_AHEAD:
                self._note(env, _key(vault["name"], index), reading)

    def asked(self, env: Environment, vault: str, asked: Mapping[str, int]) -> None:
        """Note requests that zvaultd itself made to the store of a vault's first device, by kind."""
        known = self._get(name := _key(vault, 0))
        if known is not None:
            self._known[name] = known.also(asked, env.clock.time(), env.zone)

    def _note(self, env: Environment, name: str, reading: StoreReading) -> None:
        known = self._get(name)
        self._known[name] = now = start_ledger(reading) if known is None else known.read(reading, env.zone)
        changed = known is None or (known.reading.asked, known.reading.stored) != (
            reading.asked,
            reading.stored,
        )
        if changed and reading.at - self._written.get(name, 0.0) >= WRITTEN_EVERY:
            self._write(name, now)

    def close(self) -> None:
        """Write down all that is known."""
        for name, ledger in self._known.items():
            if ledger is not None:
                self._write(name, ledger)

    def _write(self, name: str, ledger: Ledger) -> None:
        self._store.note(name, _kept(ledger))
        self._written[name] = ledger.reading.at

    def _get(self, name: str) -> Ledger | None:
        if name not in self._known:
            self._known[name] = self._store.recall(name, _loaded)
        return self._known[name]

    def document(self, env: Environment, vault: str) -> CostDocument | None:
        """Return what a vault costs this month; None where it has no block store of which anything is known."""
        config = env.config.vault.get(vault)
        if config is None:
            return None
        now = env.clock.time()
        known = [
            (device, self._get(_key(vault, index)))
            for index, device in enumerate(config.device)
            if isinstance(device.nbd, BlockstoreServer)
        ]
        found = [(device, ledger.still(now, env.zone)) for device, ledger in known if ledger is not None]
        # Of a store that nobody has read yet it is not known what it cost, nor then of all.
        return _document(found, now, env.zone, whole=len(found) == len(known)) if found else None


def list_uncounted(env: Environment, vault: VaultDocument) -> list[str]:
    """The devices of a vault that cost by the request as far as is known, but whose server does not tell how many."""
    config = env.config.vault.get(vault["name"])
    if config is None:
        return []
    found = (
        (device, vault["devices"][index]["name"] if index < len(vault["devices"]) else f"device {index + 1}")
        for index, device in enumerate(config.device)
    )
    return [f"{name} ({_kind(device)})" for device, name in found if _is_uncounted(device)]


def _is_uncounted(device: Device) -> bool:
    server = device.server if device.nbd is not None else None
    if isinstance(server, BlockstoreServer):
        return False
    in_a_bucket = isinstance(server, S3backerServer) or (
        isinstance(server, NbdkitServer) and server.plugin.lower() == "s3"
    )
    return in_a_bucket or device.prices is not None


def _kind(device: Device) -> str:
    server = device.server if device.nbd is not None else None
    if isinstance(server, S3backerServer):
        return "s3backer"
    if isinstance(server, NbdkitServer):
        return f"nbdkit's {server.plugin}"
    return "NBD" if server is not None else "RBD" if device.rbd is not None else "a device"


def _key(vault: str, index: int) -> str:
    return f"{vault}/{index}"


def make_store_reading(found: StoreDocument) -> StoreReading | None:
    """A reading of what a server tells of its store; None where it does not tell all that, or tells nonsense."""
    told: dict[str, Any] = {**found}
    at, store, asked = told.get("at"), told.get("uuid"), told.get("asked")
    if not (isinstance(at, (int, float)) and isinstance(store, str) and isinstance(asked, dict)):
        return None
    numbers = {kind: asked.get(kind, 0) for kind in COUNTED_FIELDS} | {STORED_FIELD: told.get(STORED_FIELD)}
    if not all(isinstance(number, int) and 0 <= number <= LARGEST_COUNT for number in numbers.values()):
        return None
    return StoreReading(float(at), store, numbers, numbers.pop(STORED_FIELD))


def _document(
    stores: Sequence[tuple[Device, Ledger]], now: float, zone: tzinfo, *, whole: bool
) -> CostDocument:
    total = sum((ledger.month(now, zone) for _, ledger in stores), StoreUsage())
    priced = [(ledger, device.prices.as_prices()) for device, ledger in stores if device.prices is not None]
    cost = forecast = None
    if whole and len(priced) == len(stores):
        cost = sum(ledger.cost(now, zone, prices) for ledger, prices in priced)
        later = [ledger.forecast(now, zone, prices) for ledger, prices in priced]
        forecast = None if None in later else sum(one for one in later if one is not None)
    return {
        "since": max(find_month_start(now, zone), *(ledger.since for _, ledger in stores)),
        "at": max(ledger.reading.at for _, ledger in stores),
        "put": total.put,
        "get": total.get,
        "list": total.list,
        "delete": total.delete,
        "put_bytes": total.put_bytes,
        "get_bytes": total.get_bytes,
        "stored_bytes": sum(ledger.reading.stored for _, ledger in stores),
        "currency": priced[0][1].currency if priced else "",
        "cost": cost,
        "forecast": forecast,
    }


def _kept(ledger: Ledger) -> dict[str, Any]:
    reading = ledger.reading
    return {
        "at": reading.at,
        "store": reading.store,
        "asked": dict(reading.asked),
        "stored": reading.stored,
        "since": ledger.since,
        "days": {
            day.isoformat(): [getattr(it, kind) for kind in (*COUNTED_FIELDS, "byte_seconds")]
            for day, it in ledger.days.items()
        },
    }


def _loaded(data: Mapping[str, Any]) -> Ledger:
    asked = {str(kind): int(number) for kind, number in data["asked"].items()}
    reading = StoreReading(float(data["at"]), str(data["store"]), asked, int(data["stored"]))
    days = {
        date.fromisoformat(day): StoreUsage(
            **dict(zip(COUNTED_FIELDS, map(int, numbers), strict=False)), byte_seconds=float(numbers[-1])
        )
        for day, numbers in data["days"].items()
    }
    return Ledger(reading, float(data["since"]), days)
