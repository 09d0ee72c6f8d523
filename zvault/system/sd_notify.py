"""Words to the service manager, see sd_notify(3). Without one (NOTIFY_SOCKET unset) they go nowhere.

daemon/app.py decides when each is said. One that cannot be sent now (EMFILE) is told and left out: who says it again
and again goes on, and nothing else fails for it.
"""

from __future__ import annotations

import logging
import os
import time

from zvault.core.errors import ToolMissing
from zvault.core.printable import make_printable

log = logging.getLogger(__name__)


def notify_ready(status: str = "") -> None:
    """The start, or a reload, is done. Raises OSError: systemd waits for this one alone, and it is said once."""
    _send("READY=1", status, needed=True)


def notify_status(text: str) -> None:
    """One line for ``systemctl status``."""
    _send("", text)


def notify_stopping(text: str = "") -> None:
    """The stop has begun."""
    _send("STOPPING=1", text)


def notify_reloading(text: str = "") -> None:
    """A reload has begun; ``notify_ready`` ends it. Sends the clock that Type=notify-reload wants."""
    _send(f"RELOADING=1\nMONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}", text)


def extend_start(seconds: float) -> None:
    """The start takes longer: systemd shall wait so many seconds more from now, see EXTEND_TIMEOUT_USEC."""
    _send(f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")


def feed_watchdog() -> None:
    """The event loop is alive."""
    _send("WATCHDOG=1")


def allow_silence(seconds: float) -> None:
    """Be killed when no ``feed_watchdog`` comes for so long, from now on; see WATCHDOG_USEC in sd_notify(3)."""
    _send(f"WATCHDOG_USEC={int(seconds * 1_000_000)}")


def read_watchdog_interval() -> float | None:
    """Seconds from one ``feed_watchdog`` to the next: half the unit's WatchdogSec. None when not watched."""
    allowed, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not allowed.isdecimal() or int(allowed) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(allowed) / 2_000_000


def _send(state: str, text: str = "", *, needed: bool = False) -> None:
    if not os.environ.get("NOTIFY_SOCKET"):
        return
    try:
        from systemd.daemon import notify
    except ImportError as error:
        raise ToolMissing(
            "systemd cannot be told that zvault is ready", str(error), "install python3-systemd"
        ) from error
    # One line a field; a line break within the text would start another.
    line = f"STATUS={make_printable(' '.join(text.split()), keep='')}" if text else ""
    try:
        notify("\n".join(field for field in (state, line) if field))
    except OSError as error:
        if needed:
            raise
        log.warning("systemd cannot be told %s: %s", state.partition("=")[0] or "STATUS", error)
