"""What ``/metrics`` tells. Nothing of Prometheus is imported before somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.seen_vaults import SeenVaults
from zvault.daemon.status import DaemonStatus

if TYPE_CHECKING:
    from zvault.daemon.metrics.exporter import MetricsCollector


class MetricFigures:
    """Makes the metrics of the status and of the vaults as seen last. ``reload_ok``: the newest configuration holds."""

    def __init__(
        self,
        status: DaemonStatus,
        seen_vaults: SeenVaults,
        notifier: Notifier | None = None,
        loop_lag: Callable[[], float] | None = None,
    ) -> None:
        self._status, self._seen_vaults = status, seen_vaults
        self._notifier, self._loop_lag = notifier, loop_lag
        self._exporter: MetricsCollector | None = None
        self.reload_ok = True

    def exporter(self) -> MetricsCollector:
        """Return the exporter with these figures, made when it is first needed."""
        from zvault.daemon.metrics.exporter import MetricsCollector

        found = self._exporter = self._exporter or MetricsCollector(
            self._status, self._notifier, self._loop_lag
        )
        found.vaults, found.reload_ok = self._seen_vaults.list_documents(), self.reload_ok
        return found

    def text(self, _: str = "") -> bytes:
        """The exposition, as ``/metrics`` serves it."""
        return self.exporter().text()
