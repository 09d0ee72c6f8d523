"""Which moment of a vault's past is kept: by its block store, which a program of its own asks (find_moment.py)."""

from __future__ import annotations

import json
import sys

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.schema import Device, Vault
from zvault.core.errors import NotFound, Refused, ToolFailed, ZvaultError
from zvault.devices.nbd.guarded_server import parse_reported_error
from zvault.devices.nbd.past_store import PastStore, strip_for_reading
from zvault.ops.vaults.past_record import PastVault, make_past_pool_name
from zvault.system.process.runner import ProcessRunner

ASK_BUCKET_DEADLINE = 120.0
"""Seconds to ask the bucket."""

KEEP_PAST_ADVICE = (
    "what keeps its past is a block store with 'history=': see docs/how-to/against-ransomware.md"
)


def find_past_device(config: Vault) -> tuple[Device, BlockstoreServer]:
    """The device of a vault that can be opened as it was. Raises Refused with the reason."""
    what = f"vault '{config.name}' cannot be opened as it was"
    if config.host is not None:
        raise Refused(what, f"it is on {config.host}", "open it there")
    if len(config.device) != 1:
        many = f"it has {len(config.device)} devices, whose moments are not the same"
        raise Refused(what, many if config.device else "its pool has no device of zvault's", KEEP_PAST_ADVICE)
    (device,) = config.device
    if not isinstance(device.nbd, BlockstoreServer):
        raise Refused(what, f"{device.spec} is no block store", KEEP_PAST_ADVICE)
    if device.cache is not None:
        raise Refused(what, "its device has a cache, and nothing keeps what that held then", KEEP_PAST_ADVICE)
    return device, device.nbd


async def look_up_moment(
    runner: ProcessRunner, config: Vault, spec: BlockstoreServer, at: float
) -> PastVault:
    """The last moment up to ``at`` that is kept. Raises NotFound, and what keeps the bucket from being asked."""
    read = strip_for_reading(spec)
    looker = PastStore(read.bucket, read.key, read.settings)
    words = [
        f"bucket={read.bucket}",
        f"key={read.key}",
        *read.settings,
        "readonly=yes",
        f"user={looker.user}",
    ]
    argv = [sys.executable, "-P", "-m", "zvault.blockstore.find_moment", repr(at), *words]
    result = await runner.run(argv, deadline=ASK_BUCKET_DEADLINE, check=False)
    try:
        told = json.loads(result.stdout)
        if (error := told.get("error")) is not None:
            raise _no_moment(config, spec, parse_reported_error(error))
        epoch, number, taken = _count(told["epoch"]), _count(told["number"]), float(told["taken"])
        if not 0 < taken <= at:
            raise ValueError(f"{taken!r} is no time up to {at!r}")
        return PastVault(config.name, epoch, number, taken, make_past_pool_name(config.pool, taken))
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        OSError,
        RecursionError,
    ) as error:
        what = f"the moments that the block store of vault '{config.name}' keeps cannot be looked up"
        raise ToolFailed(what, result.complaint()) from error


def _count(found: object) -> int:
    """A number that an epoch, or a checkpoint, can have. Raises ValueError."""
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found < 1 << 63:
        raise ValueError(f"{found!r} is no number of a checkpoint")
    return found


def _no_moment(config: Vault, spec: BlockstoreServer, error: ZvaultError) -> ZvaultError:
    """The error where no moment is found, for somebody who named a vault."""
    if not isinstance(error, NotFound):
        return error
    following = f"'zvaultctl blockstore history {config.name}' lists what is kept"
    if spec.history is None:
        following = (
            "with 'history=hourly:24,daily:30' among the words of its device, moments are kept from then on"
        )
    return NotFound(
        f"vault '{config.name}' cannot be opened as it was then", error.why or error.what, following
    )
