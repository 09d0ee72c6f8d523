"""Who has an RBD image, by name: a note that zvault leaves beside the image's lock.

The lock is what keeps others out; it knows an address and a number. The note says which host that is and since when,
and it counts only as long as its address is the lock's. It is the image's metadatum ``org.zvault.writer`` (``rbd
image-meta get``), removed with the image. ``rbd image-meta set`` cannot write it: it wants the lock for itself, which
the mapping keeps. So it is put where librbd keeps metadata (cls_rbd.cc: ``metadata_KEY`` in the header's omap). Seen
with Ceph 18.2.7. argv of ``rados`` is built here.
"""

from __future__ import annotations

import json
import socket
import time
from dataclasses import asdict, dataclass

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Refused, ZvaultError
from zvault.devices.rbd.cluster import Cluster
from zvault.devices.rbd.image import CALL_DEADLINE, command
from zvault.system.process.runner import ToolRunner
from zvault.system.state_files import current_boot_id

KEY = "org.zvault.writer"


@dataclass(frozen=True, slots=True)
class HolderNote:
    """``client`` is the address in Ceph's words, ``boot`` the host's boot_id, ``since`` seconds since the epoch."""

    host: str
    client: str
    boot: str
    since: float

    def words(self) -> str:
        """For people."""
        return f"{self.host}, since {time.strftime('%Y-%m-%d %H:%M:%S UTC', time.gmtime(self.since))}"


def write_command(image: RbdImage, image_id: str, note: HolderNote, cluster: Cluster) -> list[str]:
    """Argv that leaves a note."""
    space = ["--namespace", image.namespace] if image.namespace else []
    where = [f"rbd_header.{image_id}", f"metadata_{KEY}", json.dumps(asdict(note))]
    return ["rados", *cluster.words(), "--pool", image.pool, *space, "setomapval", *where]


async def write(image: RbdImage, image_id: str, client: str, cluster: Cluster, runner: ToolRunner) -> None:
    """Say that this host has it. Without the note it has it all the same: nothing is raised."""
    note = HolderNote(socket.gethostname(), client, current_boot_id(), time.time())
    await _quietly(write_command(image, image_id, note, cluster), runner)


async def read(image: RbdImage, cluster: Cluster, runner: ToolRunner) -> HolderNote | None:
    """The last note; None where there is none, or it cannot be had."""
    text = await _quietly(command(cluster, "image-meta", "get", str(image), KEY), runner)
    try:
        return HolderNote(**json.loads(text)) if text else None
    except (ValueError, TypeError):
        return None


async def _quietly(argv: list[str], runner: ToolRunner) -> str:
    try:
        result = await runner.run(argv, deadline=CALL_DEADLINE, check=False)
    except ZvaultError:
        return ""
    return result.stdout.strip() if result.returncode == 0 else ""


async def refuse_if_had_since(image: RbdImage, cluster: Cluster, runner: ToolRunner) -> None:
    """Raise Refused when another host has had an image that a pool of this host's still waits for."""
    note = await read(image, cluster, runner)
    if note is not None and note.boot != current_boot_id():
        raise Refused(
            f"the RBD image {image} was another host's meanwhile",
            f"{note.words()}; what this host's pool has in memory no longer fits what is there",
            "the suspended pool can only be given up: reboot this host, then bring the vault up",
        )
