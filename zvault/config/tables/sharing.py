"""Which devices several hosts can share: those whose storage shuts out a host that comes back late."""

from __future__ import annotations

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.tables.device import Device

_ONLY = "several hosts can share only zvault:BUCKET/KEY devices"


def why_not_shared(device: Device) -> str | None:
    """Why several hosts cannot share a vault with this device; None where they can."""
    if device.rbd is not None:
        why = (
            "an RBD image's lock never runs out, and zvault fences its owner only when a person confirms it, with"
            " 'zvaultctl vault take'"
        )
    elif isinstance(device.nbd, NbdkitServer) and device.nbd.plugin == "S3":
        why = "a bucket takes a block from any host with its keys, so a host that was frozen can still overwrite some"
    elif not isinstance(device.nbd, BlockstoreServer):
        why = "an NBD server does not know which host may write, so it cannot shut one out"
    elif not device.exclusive:
        why = "with exclusive = false there is no lease, by which the hosts take turns"
    elif device.nbd.mode != "strict":
        why = (
            "with mode=writeback what was written last is in the journal of one host alone, and another one that takes"
            " over would miss it: leave mode out"
        )
    elif device.cache is not None:
        why = "what its cache has is on one host alone, and another one that takes over would miss it"
    else:
        return None
    return f"{why}; {_ONLY}"
