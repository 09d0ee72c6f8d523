"""Which devices several hosts can share: those whose storage shuts out a host that comes back late."""

from __future__ import annotations

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.tables.device import Device

_ONLY = "several hosts can share only zvault:BUCKET/KEY devices, and RBD images with a lease"


def explain_not_shared(device: Device) -> str | None:
    """Why several hosts cannot share a vault with this device; None where they can."""
    why = _why_no_image(device) if device.rbd is not None else _why_no_server(device)
    if why is None and device.cache is not None:
        why = "what its cache has is on one host alone, and another one that takes over would miss it"
    return f"{why}; {_ONLY}" if why is not None else None


def _why_no_image(device: Device) -> str | None:
    if device.map != "krbd":
        return 'with map = "rbd-nbd" an image has no lease: leave map out'
    if not device.exclusive:
        return "with exclusive = false nothing keeps two hosts from writing to the image at once"
    if device.lease is None:
        return (
            "an RBD image's lock never runs out, so the hosts need a lease beside it to see that one has stopped: add"
            ' lease = "5m" to the device'
        )
    return None


def _why_no_server(device: Device) -> str | None:
    if isinstance(device.nbd, NbdkitServer) and device.nbd.plugin == "S3":
        return "a bucket takes a block from any host with its keys, so a host that was frozen can still overwrite some"
    if not isinstance(device.nbd, BlockstoreServer):
        return "an NBD server does not know which host may write, so it cannot shut one out"
    if not device.exclusive:
        return "with exclusive = false there is no lease, by which the hosts take turns"
    if device.nbd.mode != "strict":
        return (
            "with mode=writeback what was written last is in the journal of one host alone, and another one that takes"
            " over would miss it: leave mode out"
        )
    return None
