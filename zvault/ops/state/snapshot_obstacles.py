"""Of which datasets of a source no snapshot can be made now, as far as that is known before anybody tries."""

from __future__ import annotations

from collections.abc import Iterable

from zvault.api.backups import RefusedSnapshotDocument
from zvault.config.schema import Backup
from zvault.core.errors import SnapshotRefused
from zvault.core.replication.snapshot_refusal import find_obstacle
from zvault.ops.state.clients import ZfsClients
from zvault.zfs.whole_listing import PartialListing

Obstacles = dict[str, SnapshotRefused]


async def find_snapshot_obstacles(clients: ZfsClients, backup: Backup, datasets: Iterable[str]) -> Obstacles:
    """Find what stands in the way of a snapshot of these datasets of a backup's source, by name; nothing where the
    backup makes none. A run does not ask this: it is told by the call that makes the snapshots. Raises ZvaultError.
    """
    if not (backup.snapshot.make or backup.snapshot.timetable):
        return {}
    source, wanted = clients.source_of(backup), list(datasets)
    try:
        facts = await source.snapshot_facts([backup.source.dataset], below=True)
    except PartialListing:
        facts = await source.snapshot_facts(wanted)
    found = {one.name: find_obstacle(one) for one in facts}
    return {name: one for name, one in found.items() if one is not None and name in wanted}


def make_obstacle_documents(found: Obstacles) -> list[RefusedSnapshotDocument]:
    """The same as the API sends it."""
    return [{"dataset": name, "why": one.why, "next": one.next} for name, one in found.items()]
