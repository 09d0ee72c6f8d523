"""What goes on in this process at this moment. It ends with the process; what has to outlive it is in the records."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.diagnosis.write_drift import WriteSample
from zvault.core.errors import SnapshotRefused
from zvault.core.names import SnapshotName
from zvault.ops.stream.run_stream import ActiveStream
from zvault.ops.stream.stream_slots import StreamSlots


@dataclass
class VaultWrites:
    """The state of writes into vaults, by vault; ops/diagnosis/write_watch.py changes it, while streams go into one.

    ``watched`` are the vaults whose writes are sampled, ``samples`` the newest sample of each of these; ``drifts`` is
    what was told of the last run into each, and stays until the next one.
    """

    watched: set[str] = field(default_factory=set)
    samples: dict[str, WriteSample] = field(default_factory=dict)
    drifts: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ActiveMount:
    """A snapshot of a vault that is mounted to look into it: where, and since when (seconds since the epoch)."""

    backup: str
    snapshot: SnapshotName
    folder: str
    since: float


@dataclass(frozen=True, slots=True)
class SharedMoment:
    """The snapshot that the run of one vault of a backup made: the runs of its other vaults send it too.

    ``began`` is when making it began, in monotonic seconds; ``made`` are its full names; ``refused`` says of which
    datasets ZFS made none, and why.
    """

    backup: str
    snapname: str
    began: float
    made: Sequence[str]
    refused: Mapping[str, SnapshotRefused]


@dataclass
class Activity:
    """The activity over all runs and vaults.

    ``slots``: how many streams go at once into each vault and from each host; each transfer takes and gives back.
    ``streams``: the streams into vaults, by backup and dataset (ops/replication/transfer.py).
    ``writes``: how these fare.
    ``sync_times``: seconds for a transaction group with little in it, by vault (ops/replication/vault_sync_time.py).
    ``readings``: leases of snapshots that are open for reading (ops/restore/snapshot_reader.py).
    ``mounts``: snapshots that somebody looks into, by a number of their own (ops/restore/mount_snapshot.py).
    ``snapshotting``: a lock for each backup's table, held while its snapshot is made: by a run, or at its own time; the
    hooks around the one must not meet those around the other.
    ``moments``: the newest snapshot that a run made, by the table of a backup with several vaults.
    ``measured``: vaults whose pools are scrubbed to try parameters out (ops/provision/read_trial.py); nobody else is to
    begin or pause a scrub of theirs meanwhile.
    ``unlinked``: removable vaults whose disk has no link of udev's by its pool's name, as it was up last.
    ``appeared``: when the disk of a removable vault was seen to be there again, in monotonic seconds.
    ``awake``: not set while the host is about to sleep, or does; nothing may begin then that a sleep would break
    (daemon/monitors/sleep_monitor.py).
    ``came_up``: who is told the name of each vault that came up: what was known of it may hold no longer
    (ops/vaults/vault.py tells).
    ``going_down``: the host is shut down, and whatever can wait for the next boot does (daemon/shutdown.py).
    """

    slots: StreamSlots = field(default_factory=StreamSlots)
    streams: dict[tuple[str, str], ActiveStream] = field(default_factory=dict)
    writes: VaultWrites = field(default_factory=VaultWrites)
    sync_times: dict[str, float] = field(default_factory=dict)
    readings: set[str] = field(default_factory=set)
    mounts: dict[str, ActiveMount] = field(default_factory=dict)
    snapshotting: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))
    moments: dict[str, SharedMoment] = field(default_factory=dict)
    measured: set[str] = field(default_factory=set)
    unlinked: set[str] = field(default_factory=set)
    appeared: dict[str, float] = field(default_factory=dict)
    awake: asyncio.Event = field(default_factory=asyncio.Event)
    came_up: list[Callable[[str], None]] = field(default_factory=list)
    going_down: bool = False

    def __post_init__(self) -> None:
        """The host is awake: it runs this."""
        self.awake.set()

    @property
    def asleep(self) -> bool:
        """True if the host is about to sleep, or does."""
        return not self.awake.is_set()
