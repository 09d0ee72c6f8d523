"""Which of a try's streams go through libzfs_core, and as what. The decision is in core/replication/small_streams.py.

A stream of libzfs_core has no properties with it. So those of both sides are looked at before: what has any to bring
goes through programs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from zvault.core.errors import ZvaultError
from zvault.core.model import Base, Dataset
from zvault.core.names import DatasetName, SnapshotName
from zvault.core.replication.plan_model import TransferPlan, TransferStep, list_sent_by
from zvault.core.replication.small_streams import explain_use_of_programs, leaves_properties_unchanged
from zvault.ops.replication.run_plan import OpenBackup, RunPlan
from zvault.zfs import compare_settings
from zvault.zfs.lzc_stream import SmallStream, StreamPart
from zvault.zfs.stream_argv import list_properties_kept_out, list_stored_properties
from zvault.zfs.stream_orders import make_step_order

_OF_ANY = frozenset({"volsize"})
"""What ``zfs get`` calls set on any snapshot of a volume. ``zfs send -p`` leaves it out."""


@dataclass(frozen=True, slots=True)
class _Unchanged:
    """The snapshots of a dataset that bring no properties, and what is set on its counterpart by ``zfs set``."""

    snapshots: frozenset[SnapshotName]
    there: Mapping[str, str]


@dataclass
class SmallStreams:
    """The knowledge of small streams that the transfers of one try share."""

    opened: OpenBackup
    plan: RunPlan
    usable: bool = True
    _alike: dict[tuple[DatasetName, DatasetName], _Unchanged] = field(default_factory=dict)

    @property
    def here(self) -> bool:
        """True if both ends are on this host, where libzfs_core can be used."""
        ends = self.opened.source.host.address, self.opened.vault.zfs.host.address
        return self.usable and ends == (None, None)

    async def learn(self) -> None:
        """Look whether the datasets that have little to send have no properties to send.

        Where that cannot be told, programs send them.
        """
        if not self.here or not self.opened.backup.send.properties or self.opened.backup.limit:
            return
        candidates = await self.plan.sides.compute(
            lambda: [one for one in self.plan.moving if self._maybe(one)]
        )
        if not candidates:
            return
        datasets = self.plan.sides.source.datasets
        sent = await self.plan.sides.compute(
            lambda: {one.dataset: self._snapshots(one, datasets[one.dataset]) for one in candidates}
        )
        asked = [*sent, *(name for names in sent.values() for name in names)]
        own = {name: self.plan.receive_properties(self.opened.backup, name) for name in sent}
        try:
            mine, its = await compare_settings.read_both_settings(
                self.opened.source,
                asked,
                self.opened.vault.zfs,
                [one.target for one in candidates],
                sorted({name for one in own.values() for name in one.hidden}),
            )
        except ZvaultError:
            return
        for one in candidates:
            bare = all(name in mine and mine[name].keys() <= _OF_ANY for name in sent[one.dataset])
            known = one.dataset in mine and one.target in its
            keep_out = list_properties_kept_out(datasets[one.dataset].type, own[one.dataset])
            if known and bare and leaves_properties_unchanged(mine[one.dataset], its[one.target], keep_out):
                its_own = {
                    key: found.value for key, found in its[one.target].items() if found.source == "local"
                }
                self._alike[one.dataset, one.target] = _Unchanged(frozenset(sent[one.dataset]), its_own)

    def _maybe(self, plan: TransferPlan) -> bool:
        size = self.plan.sizes.get(plan.dataset)
        return any(
            not explain_use_of_programs(step, size, here=True, limited=False, alike=True)
            for step in plan.steps
        )

    def _snapshots(self, plan: TransferPlan, dataset: Dataset) -> list[SnapshotName]:
        return [snap.name for step in plan.steps for snap in list_sent_by(step, dataset.snapshots)]

    def small(
        self,
        step: TransferStep,
        plan: TransferPlan,
        dataset: Dataset,
        size: int | None,
        *,
        limited: bool,
        record: str,
    ) -> SmallStream | None:
        """A step as libzfs_core sends it; None where it goes through programs.

        ``record`` is that of the flags.
        """
        sent = list_sent_by(step, dataset.snapshots)
        known = self._alike.get((dataset.name, plan.target), _Unchanged(frozenset(), {}))
        same = not self.opened.backup.send.properties or ({snap.name for snap in sent} <= known.snapshots)
        if step.base is None or explain_use_of_programs(
            step, size, here=self.here, limited=limited, alike=same
        ):
            return None
        flags = self.plan.flags(self.opened.backup, dataset)
        order = make_step_order(step, dataset, replace(flags, properties=False))
        bases: Sequence[Base] = [step.base, *sent[:-1]]
        parts = tuple(
            StreamPart(
                snap.name,
                base.name,
                order._replace(base=base.guid, snapshots=(ordered,), package=False),
            )
            for snap, base, ordered in zip(sent, bases, order.snapshots, strict=True)
        )
        source_record = self.plan.source_records.get(dataset.name, "")
        stored = list_stored_properties(dataset.type, sent=record, record=source_record)
        # To set what is set waits for a transaction group more, beside those of its begin and its end.
        changing = {key: value for key, value in stored.items() if known.there.get(key) != str(value)}
        return SmallStream(plan.target, parts, flags.lzc_send(), changing)
