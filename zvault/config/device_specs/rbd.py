"""RBD images as the configuration names them: ``pool/image`` or ``pool/namespace/image``. Parsing only."""

from __future__ import annotations

import re
from dataclasses import dataclass

OBJECT_SIZES = (4 << 10, 32 << 20)
"""Bytes, the least and the most that rbd(8) takes (orders 12 to 25)."""

IMAGE_FEATURES = ("layering", "exclusive-lock", "object-map", "fast-diff", "deep-flatten", "journaling")
"""What ``rbd create --image-feature`` takes; striping and a data pool come with their own options."""

FEATURE_NEEDS = {"object-map": "exclusive-lock", "fast-diff": "object-map", "journaling": "exclusive-lock"}
"""Features that rest on another (librbd refuses them without)."""

# "@" would begin a snapshot's name; what begins with "-" would be taken for an option.
_NAME = re.compile(r"[^\s/@\x00-\x1f\x7f-][^\s/@\x00-\x1f\x7f]*")


@dataclass(frozen=True, slots=True)
class RbdImage:
    """One image. The empty ``namespace`` is the pool's own."""

    pool: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(filter(None, (self.pool, self.namespace, self.name)))

    @property
    def identity(self) -> tuple[str, ...]:
        """Two equal ones are the same bytes."""
        return ("rbd", self.pool, self.namespace, self.name)


def parse_rbd(text: str) -> RbdImage:
    """An image from its configuration string. Raises ValueError: what is wrong and what is right."""
    parts = text.split("/")
    if not 2 <= len(parts) <= 3:
        raise ValueError('is not pool/image or pool/namespace/image, as in "rbd_meta/cold"')
    for part in parts:
        if not _NAME.fullmatch(part):
            raise ValueError(
                f'"{part}" is no name of a pool, namespace or image here: no blanks, no "@", no "-" in front'
            )
    return RbdImage(parts[0], parts[1] if len(parts) == 3 else "", parts[-1])
