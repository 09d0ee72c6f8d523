"""What the process that answers web requests is told when it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """``host`` is the configured one to listen on, ``hosts`` are other names that it may be asked under.

    ``metrics`` and ``page`` say what is served, ``files`` whether the page lists those of mounted snapshots. For the
    page: ``zone`` is the time zone of its times; ``login`` the digest of a name and password; ``header`` what a proxy
    at one of the addresses ``proxies`` names the user in. After ``rest`` seconds without a connection it ends.
    """

    host: str
    metrics: bool = True
    page: bool = False
    files: bool = False
    hosts: tuple[str, ...] = ()
    zone: str = "UTC"
    login: Mapping[str, str] | None = None
    header: str | None = None
    proxies: tuple[str, ...] = ()
    rest: float = math.inf

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> ListenerSettings:
        """From what was handed over as JSON."""
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in told.items()
        }
        return cls(**values)
