"""A block store as it was at a moment of its past that is kept, as a device that can be written to.

Its server writes nothing to the bucket: what is written to the device goes into a file of its own, which nbdkit's cow
filter makes, and removes from its folder at once, so that it is gone with the server (nbdkit-cow-filter(1)). The server
takes no lease and has no journal: whoever writes to the store goes on.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from zvault.config.device_specs.blockstore import SERVER_USER_IDS, BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.tables.device import Device
from zvault.devices.nbd import blockstore_server, nbdkit
from zvault.devices.server_unit import DeviceServer
from zvault.system.process.runner import ProcessRunner

FILTER = "cow"

FOR_WRITING = frozenset({"journal", "journal-size", "mode", "cache", "cache-size", "history", "lock", "gc"})
"""Settings that are for the server that writes: it holds the folders that they name."""


def strip_for_reading(spec: BlockstoreServer) -> BlockstoreServer:
    """A store for a server that only reads it, beside the one that writes."""
    kept = tuple(word for word in spec.settings if word.partition("=")[0] not in FOR_WRITING)
    return BlockstoreServer(spec.bucket, spec.key, kept)


@dataclass(frozen=True, slots=True)
class PastStore(BlockstoreServer):
    """The server of a store as it was: ``at`` by its checkpoint's epoch and number, ``overlay`` the file's folder."""

    at: str = ""
    overlay: str = ""

    def __str__(self) -> str:
        return f"{BlockstoreServer.__str__(self)} at={self.at}"

    @property
    def user(self) -> int:
        """Another than the user of the server that writes: the one can do nothing to the other."""
        theirs = BlockstoreServer(self.bucket, self.key, self.settings).user
        digest = hashlib.sha256("\0".join((*self.identity, self.at)).encode()).digest()
        others = int.from_bytes(digest[:8], "big") % (len(SERVER_USER_IDS) - 1) + 1
        return SERVER_USER_IDS[(SERVER_USER_IDS.index(theirs) + others) % len(SERVER_USER_IDS)]


def make_past_device(device: Device, at: str, overlay: str) -> Device:
    """A device with a block store as its source, as it was at a moment."""
    spec = device.server
    if not isinstance(spec, BlockstoreServer):
        raise TypeError(spec)
    past = PastStore(spec.bucket, spec.key, strip_for_reading(spec).settings, at, overlay)
    return device.model_copy(update={"nbd": past, "exclusive": False, "requires_mount": ()})


def past_store_argv(server: DeviceServer, spec: PastStore) -> list[str]:
    """Argv that serves it in the foreground."""
    words = ["readonly=yes", f"at={spec.at}", f"status={blockstore_server.find_status_file(server)}"]
    head = ["env", f"TMPDIR={spec.overlay}", "nbdkit", "-f", f"--filter={FILTER}"]
    return [*head, *blockstore_server.nbdkit_program_argv(server.socket, spec), *words, f"user={spec.user}"]


async def check_past_tools(runner: ProcessRunner) -> None:
    """See that nbdkit, its Python plugin, its filter and the libraries are there. Raises ToolMissing."""
    await blockstore_server.check_store_tools(runner)
    await nbdkit.check_nbdkit(NbdkitServer("python", (FILTER,)), runner)
