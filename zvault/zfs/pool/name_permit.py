"""The permit without which nobody asks the kernel for the names of damaged objects.

With a full half-received dataset in the error log that question crashes the kernel (repair/damage_name_guard.py), so
what asks it takes a permit in place of a pool's name. Only the guard issues one.
"""

from __future__ import annotations

from dataclasses import dataclass

from zvault.core.errors import Refused


@dataclass
class NamePermit:
    """Leave to ask for the names of one pool's damaged objects, until the guard takes it back."""

    _pool: str
    _open: bool = True

    @property
    def pool(self) -> str:
        """The pool that may be asked. Raises Refused once the permit was taken back."""
        if not self._open:
            raise Refused(
                f"the names of what is damaged in '{self._pool}' may not be asked for now",
                "the leave to do so has ended: something may be half received there by now",
            )
        return self._pool

    def close(self) -> None:
        """Take the permit back."""
        self._open = False
