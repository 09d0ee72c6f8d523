"""What is kept of each target over a restart: a small file each in the state directory."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from zvault.core.errors import ZvaultError
from zvault.core.notify.outbox import TargetOutbox
from zvault.system.record_store import RecordStore

TARGETS_FOLDER = "notify"
"""Below the state directory."""

log = logging.getLogger(__name__)


@cache
def _adapter() -> TypeAdapter[TargetOutbox]:
    """Made when it is first needed: that takes as long as importing a dozen modules."""
    return TypeAdapter(TargetOutbox)


class TargetStore:
    """Targets on disk. What is lost or damaged begins anew: what is still wrong is then told once more."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._trouble = ""

    def read(self, name: str) -> TargetOutbox:
        """Read what is kept of a target; nothing where there is nothing to be read."""
        try:
            kept = self._store.get(name)
            return _adapter().validate_python(kept, strict=False) if kept is not None else TargetOutbox()
        except (ZvaultError, ValidationError, OSError) as error:
            # Not the error's text: a value in it may be a message, over many lines.
            log.warning("what is kept of notifications to %s cannot be read, and begins anew", name)
            log.debug("%s", error)
            return TargetOutbox()

    def write(self, name: str, target: TargetOutbox) -> None:
        """Keep a target. Where that cannot be, it is told once, and what is in memory counts."""
        data: dict[str, Any] = _adapter().dump_python(target, mode="json")
        try:
            # The state directory is for others to make.
            if self._store.directory.parent.is_dir():
                self._store.put(name, data)
        except OSError as error:
            if str(error) != self._trouble:
                log.warning("notifications cannot be kept over a restart: %s", error)
            self._trouble = str(error)
        else:
            self._trouble = ""

    def names(self) -> list[str]:
        """The targets of which something is kept."""
        return self._store.names()

    def drop(self, name: str) -> None:
        """Keep nothing of a target any more."""
        try:
            self._store.drop(name)
        except OSError as error:
            log.warning("what is kept of notifications to %s stays: %s", name, error)
