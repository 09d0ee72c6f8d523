"""What the process that answers web requests can ask zvaultd for."""

from enum import IntEnum


class PageTopic(IntEnum):
    """A topic that can be asked for.

    But for ``METRICS`` and ``OVERVIEW`` each has a subject, as the page's source takes it.
    """

    METRICS = 0
    OVERVIEW = 1
    BACKUP = 2
    RUN = 3
    DATASET = 4
    FILES = 5
