"""Where the objects beside an RBD image are, which hosts that share a vault leave for each other: see objects.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zvault.config.device_specs.rbd import RbdImage
from zvault.core.errors import Refused
from zvault.devices.rbd.cluster import CephCluster


@dataclass(frozen=True, slots=True)
class ImagePlace:
    """The place of one image's objects, and the user that they are read and put as."""

    image: RbdImage
    cluster: CephCluster

    @classmethod
    def of(cls, params: Sequence[str]) -> ImagePlace:
        """From the words of ``params``. Raises Refused without a pool or image."""
        words = dict(word.split("=", 1) for word in params if "=" in word)
        if not words.get("pool") or not words.get("image"):
            raise Refused(
                "there can be no lease of it", "its pool or image is not known", "give pool= and image="
            )
        image = RbdImage(words["pool"], words.get("namespace", ""), words["image"])
        return cls(image, CephCluster(words.get("conf"), words.get("user"), words.get("keyring")))

    @property
    def params(self) -> list[str]:
        """As a command line has it; ``of`` reads it back."""
        image, cluster = self.image, self.cluster
        said = {
            "pool": image.pool,
            "namespace": image.namespace,
            "image": image.name,
            "conf": cluster.conf,
            "user": cluster.user,
            "keyring": cluster.keyring,
        }
        return [f"{name}={value}" for name, value in said.items() if value]

    @property
    def lease(self) -> str:
        """The lease's key."""
        return f"zvault.{self.image.name}.lease"

    @property
    def note(self) -> str:
        """The note's key."""
        return f"zvault.{self.image.name}.note"

    @property
    def epoch(self) -> str:
        """The key of the number that each host which gets the lease raises."""
        return f"zvault.{self.image.name}.epoch"

    @property
    def clock(self) -> str:
        """The key of the object whose OSD tells the time."""
        return f"zvault.{self.image.name}.clock"

    def __str__(self) -> str:
        space = f"/{self.image.namespace}" if self.image.namespace else ""
        return f"rados:{self.image.pool}{space}/{self.lease}"

    def local_address(self) -> str:
        """Not known: the cluster has many addresses, and this host may reach each by another of its own."""
        return ""
