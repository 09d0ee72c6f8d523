"""Whether a block device can be used, the lock under which its parts change, and who waits for a change."""

from __future__ import annotations

import threading

from zvault.blockstore.log.journal import Journal
from zvault.blockstore.log.log import SegmentLog
from zvault.object_store.interface import StoreError


class DeviceClosed(StoreError):
    """The device was closed."""


class EngineState:
    """Why a device cannot be used any more, if it cannot. ``changed`` is notified of that, and of each change.

    ``sealed_one`` has the same lock: see SegmentLog.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        self.changed = threading.Condition(lock)
        self.sealed_one = threading.Condition(lock)
        self.failure: StoreError | None = None
        self.closing = False

    @property
    def ending(self) -> bool:
        """True once nothing new is to be begun."""
        return self.closing or self.failure is not None

    def fail(self, error: StoreError) -> None:
        """Nothing can be done any more: all that waits, and all that comes, fails with this."""
        with self.changed:
            self.failure = self.failure or error
            self.changed.notify_all()
            self.sealed_one.notify_all()

    def refuse_reading(self) -> None:
        """Raises StoreError where nothing can be done any more."""
        if self.failure is not None:
            raise self.failure

    def refuse_writing(self) -> None:
        """Raises StoreError where nothing may be written any more, as the device is being closed too."""
        self.refuse_reading()
        if self.closing:
            raise DeviceClosed("the block store is being closed")


class LogProgress:
    """Waits for what is written to reach the store; ``threads`` upload it, or else whoever waits.

    ``opened``: whether a root of this epoch says that its segments count. Until then only the journal has what it had.
    """

    def __init__(self, state: EngineState, log: SegmentLog, journal: Journal, *, threads: bool) -> None:
        self._state = state
        self._log = log
        self._journal = journal
        self._threads = threads
        self.opened = False

    def wait(self) -> None:
        """Wait for a change, with the lock held; without threads make one. Raises StoreError once none will come."""
        self._state.refuse_reading()
        if self._threads:
            self._state.changed.wait(1.0)
        else:
            self._log.upload()
            self.release()

    def release(self) -> None:
        """The journal need not keep what is in the store. May wait for its disk, so not with the lock held."""
        if self.opened:
            self._journal.release(self._log.frame_uploaded)
        with self._state.changed:
            self._state.changed.notify_all()
