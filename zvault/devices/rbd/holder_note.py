"""A note with the name of the host that has an RBD image. zvault stores it with the image.

The image's lock keeps other hosts out, but contains only an address and a number. The note says which host that is and
since when; it is valid only while its address is the lock's. It is the image metadata ``org.zvault.writer`` (``rbd
image-meta get``) and is removed with the image. ``rbd image-meta set`` cannot write it, because it needs the lock that
the mapping holds. So zvault writes it where librbd stores metadata (cls_rbd.cc: ``metadata_KEY`` in the header's omap).
Seen with Ceph 18.2.7. argv of ``rados`` is built here.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict, dataclass

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Refused, ZvaultError
from zvault.devices.rbd.cluster import CephCluster
from zvault.devices.rbd.image import RBD_CALL_DEADLINE, rbd_argv
from zvault.system.process.runner import ToolRunner
from zvault.system.record_store import read_boot_id

KEY = "org.zvault.writer"


@dataclass(frozen=True, slots=True)
class HolderNote:
    """``client``: the address as Ceph prints it; ``boot``: the host's boot_id; ``since``: seconds since the epoch."""

    host: str
    client: str
    boot: str
    since: float

    def words(self) -> str:
        """The note in words."""
        return f"{self.host}, since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(self.since))}"


def write_note_argv(image: RbdImage, image_id: str, note: HolderNote, cluster: CephCluster) -> list[str]:
    """Argv that stores a note."""
    space = ["--namespace", image.namespace] if image.namespace else []
    where = [f"rbd_header.{image_id}", f"metadata_{KEY}", json.dumps(asdict(note))]
    return ["rados", *cluster.words(), "--pool", image.pool, *space, "setomapval", *where]


async def write_holder_note(
    image: RbdImage, image_id: str, client: str, cluster: CephCluster, runner: ToolRunner
) -> None:
    """Store the note for this host. Raises nothing: the lock, not the note, protects the image."""
    note = HolderNote(socket.gethostname(), client, read_boot_id(), time.time())
    await _quietly(write_note_argv(image, image_id, note, cluster), runner)


async def read_holder_note(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> HolderNote | None:
    """The last note; None if there is none or it cannot be read."""
    text = await _quietly(rbd_argv(cluster, "image-meta", "get", str(image), KEY), runner)
    try:
        note = HolderNote(**json.loads(text)) if text else None
        # Whoever may write to the pool wrote it: what cannot be told is none.
        return note if note is None or (note.since is not None and note.words()) else None
    except (ValueError, TypeError, OverflowError, OSError, RecursionError):
        return None


async def _quietly(argv: list[str], runner: ToolRunner) -> str:
    try:
        result = await runner.run(argv, deadline=RBD_CALL_DEADLINE, check=False)
    except ZvaultError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


async def refuse_if_image_had_since(image: RbdImage, cluster: CephCluster, runner: ToolRunner) -> None:
    """Raise Refused if another host used an image meanwhile while a suspended pool of this host still waits for it."""
    note = await read_holder_note(image, cluster, runner)
    if note is not None and note.boot != read_boot_id():
        raise Refused(
            f"another host used the RBD image {image} meanwhile",
            f"{note.words()}; this host's pool has data in memory that no longer matches the image",
            "the suspended pool cannot be resumed: reboot this host, then bring the vault up",
        )
