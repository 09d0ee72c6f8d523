"""The encryption of a pool's root dataset: its key loaded. What is in the key goes by stdin, and into no argv."""

from __future__ import annotations

from zvault.core.errors import Refused, ToolFailed
from zvault.system.process.runner import ToolRunner

LOAD_KEY_DEADLINE = 120.0
"""Seconds; a slow device may have a txg to sync first."""

POOL_KEY_PROPERTIES = {"encryption": "aes-256-gcm", "keyformat": "hex", "keylocation": "prompt"}
"""Of the root dataset of a pool that is made. ``prompt``: no host's path is written into the pool."""


class WrongPoolKey(Refused):
    """The key that was given is not the pool's."""

    reason = "wrong-key"


def format_key_input(key: bytes) -> bytes:
    """A key as zfs and zpool read it from stdin, once, where that is no terminal (zfs_crypto.c in OpenZFS's libzfs)."""
    return key.hex().encode() + b"\n"


async def load_pool_key(host: ToolRunner, pool: str, key: bytes) -> None:
    """Load the key of a pool's root dataset, unless it is loaded. Raises WrongPoolKey, Refused, ToolFailed."""
    names = "encryption,keyformat,keystatus"
    found = await host.run(["zfs", "get", "-Hpo", "value", names, pool], deadline=LOAD_KEY_DEADLINE)
    encryption, form, status = [*found.stdout.split("\n"), "", "", ""][:3]
    if encryption == "off":
        raise Refused(
            f"the pool '{pool}' is not encrypted",
            "its vault has 'encryption', and a pool's root dataset is encrypted when it is made or never",
            "leave 'encryption' out; or make a new vault with it, and send into that",
        )
    if status == "available":
        return
    if form != "hex":
        raise Refused(
            f"the key of the pool '{pool}' is not loaded",
            f"its root dataset has keyformat={form}, and zvault's keys are hex",
            f"'zfs load-key {pool}', then 'zfs change-key -o keyformat=hex -o keylocation=prompt {pool}' with the key"
            " that 'encryption' names; or leave 'encryption' out, and load it by hand",
        )
    argv = ["zfs", "load-key", "-L", "prompt", pool]
    done = await host.run(argv, deadline=LOAD_KEY_DEADLINE, stdin=format_key_input(key), check=False)
    if done.returncode != 0:
        said = done.complaint()
        if "Incorrect key" in done.stderr:
            raise WrongPoolKey(
                f"the pool '{pool}' cannot be opened with the key that its vault has",
                "it is another pool's key, or it was changed by 'zfs change-key'",
                "correct 'encryption' of the vault",
            )
        raise ToolFailed(f"the key of the pool '{pool}' cannot be loaded", said)
