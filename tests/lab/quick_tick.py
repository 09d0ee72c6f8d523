"""zvaultd, but it looks at the wall clock each second: so a test that sets the clock need not wait for its tick.

A drop-in has systemd start this instead of zvaultd. It changes nothing else of the daemon; with the word ``lags`` it
reads lags each second, too.
"""

from __future__ import annotations

import sys

SERVER = "/usr/bin/python3 -P /src/tests/lab/quick_tick.py"


def main() -> None:
    """Live as zvaultd does."""
    from zvault.daemon import scheduler

    scheduler.TICK = 1.0
    if "lags" in sys.argv:
        from zvault.daemon import app, lag_readings

        app.OBSERVE_EVERY = lag_readings.DOWN_SOURCE_INTERVAL = 1.0
    from zvault.daemon.main import main as zvaultd

    sys.argv = ["zvaultd"]
    zvaultd()


if __name__ == "__main__":
    main()
