"""What zvault has written down, in small files below the run and the state directory."""

from __future__ import annotations

from dataclasses import dataclass

from zvault.config.paths import Paths
from zvault.ops.state.costs import CostBook
from zvault.ops.state.exposed_book import ExposedBook
from zvault.ops.state.place_book import PlaceBook
from zvault.ops.state.pool_book import PoolBook
from zvault.ops.state.pool_health import PoolConditions
from zvault.ops.state.put_back_book import PutBackBook
from zvault.ops.state.replaced_book import ReplacedBook
from zvault.ops.state.unchanged_book import UnchangedBook
from zvault.system.record_store import RecordStore


@dataclass(frozen=True)
class Records:
    """The files, by what is in them; each is read anew, and is changed only by the use case that is named.

    ``undo``: effects on this host, of this boot; whoever has an effect on it writes it down first (invariant 4).
    ``hooks``: hooks that are still to be run, also after a boot (ops/hooks.py).
    ``pools``: which pool was seen as which vault's; noted when a vault comes up (ops/vaults).
    ``progress``: how far each pool was when it was last seen; noted when a vault comes up, and by each look at it
    (ops/vaults/put_back.py).
    ``places``: where a pool has what was last sent of each source; noted in a run (ops/replication/transfer.py).
    ``unchanged``: until when sources were as their newest snapshots; noted in a run (ops/run.py).
    ``replaced``: snapshots that a run makes anew and has still to destroy (ops/run_snapshot.py).
    ``conditions``: the last look at each vault's pool (ops/vaults/examine_pool.py, ops/healing).
    ``exposed``: what lies on a vault in the clear, below an encrypted dataset; noted by each look at a vault
    (daemon/lag_readings.py).
    ``costs``: what vaults' block stores were asked for (daemon/periodic_checks.py).
    ``mount_holds``: snapshots that are held while they are mounted for somebody, also after a boot: the hold is in the
    pool (ops/restore/snapshot_reader.py).
    ``machines``: on which machine each vault was up last; noted when a vault comes up (ops/vaults/copied_machine.py).
    ``measured``: what was measured of vaults' devices (ops/tuning/measurements.py).
    """

    undo: RecordStore
    hooks: RecordStore
    pools: PoolBook
    progress: PutBackBook
    places: PlaceBook
    unchanged: UnchangedBook
    replaced: ReplacedBook
    conditions: PoolConditions
    exposed: ExposedBook
    costs: CostBook
    measured: RecordStore
    mount_holds: RecordStore
    machines: RecordStore

    @classmethod
    def at(cls, paths: Paths) -> Records:
        """Those of one daemon. What an effect on this host leaves ends with the boot; all else outlives it."""
        return cls(
            undo=RecordStore(paths.run / "lease"),
            hooks=RecordStore(paths.state / "lease"),
            pools=PoolBook(RecordStore(paths.state / "pools")),
            progress=PutBackBook(RecordStore(paths.state / "progress")),
            places=PlaceBook(RecordStore(paths.state / "places")),
            unchanged=UnchangedBook(RecordStore(paths.state / "unchanged")),
            replaced=ReplacedBook(RecordStore(paths.state / "replaced")),
            conditions=PoolConditions(RecordStore(paths.state / "condition")),
            exposed=ExposedBook(RecordStore(paths.state / "exposed")),
            costs=CostBook(RecordStore(paths.state / "costs")),
            measured=RecordStore(paths.state / "measured"),
            mount_holds=RecordStore(paths.state / "mount-holds"),
            machines=RecordStore(paths.state / "machines"),
        )
