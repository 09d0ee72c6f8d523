"""What the process that answers web requests can ask zvaultd for."""

from enum import IntEnum


class Topic(IntEnum):
    """What can be asked for. ``BACKUP`` and ``RUN`` have a subject: a backup's name, a run's number."""

    METRICS = 0
    OVERVIEW = 1
    BACKUP = 2
    RUN = 3
