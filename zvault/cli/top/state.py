"""What ``zvaultctl top`` knows: the state of everything, streams under way, what vaults are asked for. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from zvault.api.blockstore import RequestCount
from zvault.api.diagnosis import DoctorDocument
from zvault.api.events import (
    DatasetFailed,
    HookOutput,
    ProgressMade,
    RunEvent,
    RunFinished,
    TransferFinished,
    TransferStarted,
    WarningEvent,
)
from zvault.api.status import StatusDocument
from zvault.cli.event_text import format_summary, narrate_event

KEPT_MESSAGES = 50
"""Lines of what happened that are kept."""


@dataclass(slots=True)
class StreamState:
    """A stream under way; ``rate`` in bytes a second, ``marks`` how full mbuffer's memory was of late, in percent."""

    backup: str
    run: str
    dataset: str
    done: int = 0
    total: int | None = None
    rate: float = 0.0
    marks: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class StoreRates:
    """The rates at which a vault's block stores are asked, by second; ``wait``: seconds that a request took."""

    requests: float
    errors: float
    bytes: float
    wait: float | None


@dataclass(slots=True)
class TopState:
    """Everything that is shown. ``trouble`` says why nothing newer is known, empty where it is.

    ``doctors`` are by vault what its devices were seen to do; ``stores`` what its block stores were asked for.
    """

    status: StatusDocument | None = None
    seen: float = 0.0
    trouble: str = ""
    streams: dict[tuple[str, str], StreamState] = field(default_factory=dict)
    doctors: dict[str, DoctorDocument] = field(default_factory=dict)
    stores: dict[str, StoreRates] = field(default_factory=dict)
    messages: deque[str] = field(default_factory=lambda: deque(maxlen=KEPT_MESSAGES))
    _counts: dict[str, tuple[float, RequestCount]] = field(default_factory=dict)

    def look(self, status: StatusDocument, now: float) -> None:
        """Take the state of everything in, as of ``now`` (seconds since the epoch)."""
        self.status, self.seen, self.trouble = status, now, ""
        runs = {backup["run"] for backup in status["backups"] if backup["run"] is not None}
        # Events that nobody heard may have ended a stream.
        self.streams = {key: one for key, one in self.streams.items() if one.run in runs}
        for vault in status["vaults"]:
            stores = [device["store"] for device in vault["devices"] if device["store"] is not None]
            kinds = [count for store in stores for count in (store["requests"] or {}).values()]
            if kinds:
                self._rate(vault["name"], now, _added(kinds))
            if vault["state"] != "up":
                self.doctors.pop(vault["name"], None)
                self.stores.pop(vault["name"], None)
                self._counts.pop(vault["name"], None)

    def _rate(self, vault: str, now: float, count: RequestCount) -> None:
        before = self._counts.get(vault)
        if before is None or count["requests"] < before[1]["requests"]:  # its server was started anew
            self._counts[vault] = now, count
            return
        at, last = before
        requests = count["requests"] - last["requests"]
        if now - at < 1.0 or (not requests and now - at < RATE_QUIET_TIME):
            return
        self.stores[vault] = StoreRates(
            requests / (now - at),
            (count["errors"] - last["errors"]) / (now - at),
            (count["bytes"] - last["bytes"]) / (now - at),
            (count["seconds"] - last["seconds"]) / requests if requests else None,
        )
        self._counts[vault] = now, count

    def hear(self, event: RunEvent) -> None:
        """Take an event in."""
        match event:
            case TransferStarted():
                stream = self._stream(event, event.dataset)
                stream.done, stream.total, stream.rate = 0, event.bytes, 0.0
            case ProgressMade():
                stream = self._stream(event, event.dataset)
                stream.done, stream.total = event.bytes, event.total
                stream.rate, stream.marks = event.rate, event.buffer
            case TransferFinished() | DatasetFailed():
                self.streams.pop((event.run, event.dataset), None)
            case RunFinished():
                self.streams = {key: one for key, one in self.streams.items() if one.run != event.run}
        if (line := _told(event)) is not None:
            self.messages.append(line)

    def _stream(self, event: RunEvent, dataset: str) -> StreamState:
        made = StreamState(event.backup, event.run, dataset)
        return self.streams.setdefault((event.run, dataset), made)

    def rate_of(self, backup: str) -> float:
        """Bytes a second of all of a backup's streams."""
        return sum(one.rate for one in self.streams.values() if one.backup == backup)


RATE_QUIET_TIME = 10.0
"""Seconds after which a store that was asked for nothing has no rate: its server tells of itself every few seconds."""


def _added(counts: list[RequestCount]) -> RequestCount:
    return {
        "requests": sum(one["requests"] for one in counts),
        "errors": sum(one["errors"] for one in counts),
        "bytes": sum(one["bytes"] for one in counts),
        "seconds": sum(one["seconds"] for one in counts),
        "buckets": (),
    }


def _told(event: RunEvent) -> str | None:
    """An event in a line, with its backup; None for those that are shown otherwise."""
    match event:
        case RunFinished():
            return format_summary(event)
        case WarningEvent():
            return f"{event.backup}: warning: {event.text}"
        case DatasetFailed():
            return f"{event.backup}: failed: {event.dataset}: {event.error['what']}"
        case ProgressMade() | HookOutput():
            return None
    line = narrate_event(event)
    return f"{event.backup}: {line}" if line is not None else None
