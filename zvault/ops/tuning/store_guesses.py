"""What the kept probe of an object store tells of it, for a vault whose profile is ``auto``."""

from __future__ import annotations

from zvault.blockstore.kept_probe import read_probe
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.paths import Paths
from zvault.config.schema import Device, Vault
from zvault.core.tuning.store_guess import StoreGuess, guess_from_probe


def find_store_guess(paths: Paths, vault: Vault) -> StoreGuess | None:
    """What is known of the first of a vault's block stores that was probed with speeds on this host."""
    guesses = (find_device_guess(paths, device) for device in vault.device)
    return next((one for one in guesses if one is not None), None)


def find_device_guess(paths: Paths, device: Device) -> StoreGuess | None:
    """What is known of the store that a device is in; None for another device, or where it was not probed."""
    if not isinstance(device.nbd, BlockstoreServer):
        return None
    report = read_probe(paths.blockstore_probes, device.nbd.identity)
    return None if report is None else guess_from_probe(report)


def list_unprobed_devices(paths: Paths, vault: Vault) -> list[str]:
    """The specs of a vault's block stores that nobody probed with speeds."""
    stores = [one for one in vault.device if isinstance(one.nbd, BlockstoreServer)]
    return [one.spec for one in stores if find_device_guess(paths, one) is None]
