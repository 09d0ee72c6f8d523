"""What zpool, zdb and the kernel's statistics print of a pool, which may be another host's."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from hypothesis import strategies as st

from tests.unit.fuzz.mutation import mutated, seed
from tests.unit.fuzz.target import MIB, target
from tests.unit.fuzz.test_zfs_output import FAMILY, text
from zvault.core.errors import ZvaultError
from zvault.core.integrity.block_pointer import parse_pointer
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool import statistics
from zvault.zfs.pool.label import parse_label_host, parse_label_vdev
from zvault.zfs.pool.name_permit import NamePermit
from zvault.zfs.pool.pool import Zpool
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.pool.stall_events import EventReader, find_stall_sign
from zvault.zfs.repair.error_log import ErrorLog


def outputs(*names: str) -> st.SearchStrategy[bytes]:
    return mutated([seed(FAMILY, name) for name in names])


class _Tools:
    """Whatever is run says the same."""

    def __init__(self, said: str, status: int = 0) -> None:
        self.said, self.status = said, status

    async def run(self, argv: Any, **_: Any) -> ProcessResult:
        return ProcessResult(tuple(argv), self.status, self.said, "", 0.0)


@target(outputs("pool-state", "pool-devices", "get"), ZvaultError, cap=4 * MIB)
def test_pools(data: bytes) -> None:
    """The state of a pool, its devices, and what is still to be freed of it."""
    tools: Any = _Tools(text(data))
    pool = Zpool(tools)
    asyncio.run(pool.devices("tank"))
    for call in (pool.state, pool.read_freeing):
        with contextlib.suppress(ZvaultError):
            asyncio.run(call("tank"))


@target(outputs("pool-status"), ZvaultError, cap=16 * MIB)
def test_status(data: bytes) -> None:
    """``zpool status -j``: scrubber, errors and what is damaged."""
    tools: Any = _Tools(text(data))
    scrubber = Scrubber(tools)
    names = lambda: scrubber.errors(NamePermit("tank"))  # noqa: E731 - beside the other
    for call in (lambda: scrubber.health("tank", 1795435400.0), names):
        with contextlib.suppress(ZvaultError):
            asyncio.run(call())


@target(outputs("pool-events"), cap=8 * MIB)
def test_events(data: bytes) -> None:
    """``zpool events -v``, line by line."""
    reader = EventReader()
    for line in [*text(data).split("\n"), ""]:
        if (event := reader.feed(line)) is not None:
            find_stall_sign(event)
            event.after(1, 2)


@target(outputs("label"), cap=4 * MIB)
def test_labels(data: bytes) -> None:
    """``zdb -l``: who had the pool last."""
    parse_label_host(text(data))
    parse_label_vdev(text(data))


@target(outputs("iostat-queues", "iostat-requests", "txgs", "dmu-tx"), cap=4 * MIB)
def test_statistics(data: bytes) -> None:
    """Waits, queues, sizes, transaction groups."""
    said = text(data)
    statistics.parse_queue(said)
    statistics.parse_writers(said)
    statistics.estimate_request_size({}, statistics.parse_requests(said))
    statistics.parse_groups(said)
    statistics.parse_syncing(said, 10**15)


@target(outputs("zdb-objects", "zdb-zap", "zdb-blocks-of-one", "zdb-blocks-forged"), ZvaultError, cap=8 * MIB)
def test_error_logs(data: bytes) -> None:
    """What zdb says of an error log and of objects."""
    tools: Any = _Tools(text(data))
    log = ErrorLog(tools, "tank", ["/dev/a"])
    asyncio.run(log.entries({54: "tank/home"}))
    asyncio.run(log.objects("tank/home", range(10)))
    asyncio.run(log.pointers("tank/home", {2: [0, 1], 3: [0]}))
    tools.said += "\nended 0\n"
    asyncio.run(log.pointers("tank/home", {2: [0, 1]}))
    for line in text(data).splitlines():
        parse_pointer(line)
