"""What ``/metrics`` tells. Nothing of Prometheus is imported before somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zvault.api.vaults import VaultDocument
from zvault.daemon.notify.notifier import Notifier
from zvault.daemon.status import DaemonStatus

if TYPE_CHECKING:
    from zvault.daemon.metrics.exporter import MetricsCollector


class MetricFigures:
    """The vaults as they were seen last, and whether the newest configuration is in force; the rest is the status's."""

    def __init__(
        self,
        status: DaemonStatus,
        notifier: Notifier | None = None,
        loop_lag: Callable[[], float] | None = None,
    ) -> None:
        self._status, self._notifier, self._loop_lag = status, notifier, loop_lag
        self._exporter: MetricsCollector | None = None
        self.vaults: list[VaultDocument] = []
        self.reload_ok = True

    def exporter(self) -> MetricsCollector:
        """Return the exporter with these figures, made when it is first needed."""
        from zvault.daemon.metrics.exporter import MetricsCollector

        found = self._exporter = self._exporter or MetricsCollector(
            self._status, self._notifier, self._loop_lag
        )
        found.vaults, found.reload_ok = self.vaults, self.reload_ok
        return found

    def text(self) -> bytes:
        """The exposition, as ``/metrics`` serves it."""
        return self.exporter().text()
