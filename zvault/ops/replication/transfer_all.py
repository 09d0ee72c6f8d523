"""All transfers of one try, side by side, within the limits of the configuration in force."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import MappingProxyType

from zvault.api.events import MessageEvent
from zvault.config.schema import Backup
from zvault.core.errors import NotFound, Refused, ZvaultError
from zvault.core.replication.plan_model import TransferPlan
from zvault.core.replication.run_order import RunOrder
from zvault.core.replication.streams_at_once import count_small_streams, is_small_stream
from zvault.ops.replication.run_plan import RunPlan
from zvault.ops.replication.transfer import MENDABLE, Transfers
from zvault.ops.replication.vault_sync_time import VaultSyncTime
from zvault.ops.state.environment import Environment
from zvault.ops.stream.bandwidth import limit_rate
from zvault.ops.stream.parallel import ParallelWork
from zvault.ops.stream.stream_slots import StreamSlots

SMALL_LANE = "small"
"""The lane of small streams: they do not wait for the slots of large ones."""

Note = Callable[[str, ZvaultError | None], None]
"""``note(dataset, error)``: one was tried, and went well where there is no error."""

_UNKNOWN: Mapping[str, float] = MappingProxyType({})


class StreamLimits:
    """The limits of a backup's streams, looked up anew each time: a new configuration is in force at once."""

    def __init__(self, env: Environment, backup: Backup, sync_times: Mapping[str, float] = _UNKNOWN) -> None:
        self._env = env
        self.name = backup.name
        self._limit = backup.limit
        self._sync_times = sync_times

    def slots(self, *, small: bool = False) -> dict[str, int]:
        """Return the owners that each stream takes a slot of, with how many slots each has. Raises NotFound.

        A ``small`` one takes none of the vault's slots for large ones where it has others.
        """
        backup = self._env.backup(self.name)
        host, vault = backup.source.host, self._env.vault(backup.its_vault)
        slots = {f"vault {backup.vault}": vault.transfers}
        if small and self.has_small_slots:
            sync_time = self._sync_times.get(vault.name)
            count = count_small_streams(sync_time, len(os.sched_getaffinity(0)), vault.transfers)
            slots = {f"vault {backup.vault}, small streams": count}
        if host is not None:
            slots[f"host {host.host}"] = self._env.host_config(host).transfers
        return slots

    @property
    def has_small_slots(self) -> bool:
        """True if small streams have slots of their own: within this host, unless ``transfers`` or ``limit`` is set.

        Over ssh each stream has a connection, and with a limit a stage more. Raises NotFound.
        """
        backup = self._env.backup(self.name)
        vault = self._env.vault(backup.its_vault)
        here = backup.source.host is None and vault.host is None
        return here and not backup.limit and "transfers" not in vault.model_fields_set

    def rate(self) -> int | None:
        """Return the bytes a second that all its streams may have together at this moment."""
        with contextlib.suppress(NotFound):  # while it runs it may vanish from the configuration
            self._limit = self._env.backup(self.name).limit
        return self._limit.rate(self._env.clock.now().astimezone(self._env.zone))

    def throttle(self) -> AbstractAsyncContextManager[Sequence[str]]:
        """Gives the stage that keeps a stream within that rate, for a block; none where there is no limit."""
        return limit_rate(self.rate) if self._limit else contextlib.nullcontext(())


class TransferQueue(ParallelWork):
    """Carries out every plan of a try; what one dataset suffers stops only itself and what needs it.

    ``note`` is told how each fared.
    """

    def __init__(self, transfers: Transfers, slots: StreamSlots, limits: StreamLimits, note: Note) -> None:
        self.transfers, self.limits, self.note = transfers, limits, note
        self.plans: dict[str, TransferPlan] = {plan.dataset: plan for plan in transfers.plan.plans}
        self._small = _find_small(transfers.plan) if limits.has_small_slots else frozenset[str]()
        self._sync_time = VaultSyncTime(transfers.opened.context, transfers.opened.vault)
        needs = {name: plan.after for name, plan in self.plans.items()}
        order = RunOrder(needs, transfers.plan.sizes, dict.fromkeys(self._small, SMALL_LANE))
        super().__init__(order, slots, limits.name)

    async def learn_sync_time(self) -> None:
        """Learn how long the vault takes to write a transaction group, if small streams have slots by that."""
        if self._small:
            await self._sync_time.update()

    def list_limits(self, name: str) -> Mapping[str, int]:
        """See ParallelWork.list_limits. What sends nothing takes no slot."""
        return self.limits.slots(small=name in self._small) if name in self.transfers.plan.sizes else {}

    def tell(self, text: str) -> None:
        """See ParallelWork.tell."""
        self.transfers.opened.emit(MessageEvent(text=text))

    async def carry_out(self, name: str) -> bool:
        """Do what the plan of a dataset says, and go on after what the stream met on its way."""
        transfers, plan, sending = self.transfers, self.plans[name], False
        try:
            while await transfers.begin(plan):
                sending = True
                try:
                    await transfers.send(plan)
                    break
                except MENDABLE as error:
                    if (again := await transfers.plan_around(plan, error)) is None:
                        break
                    transfers, plan = again
        except ZvaultError as error:
            self.note(name, error)
            for lost, cause in self.order.fail(name):
                self.note(lost, make_orphaned_error(lost, cause, error))
            return False
        finally:
            if sending:
                transfers.drop(plan)
        self.note(name, None)
        if name in self._small:
            await self._sync_time.update()
        return True


def _find_small(plan: RunPlan) -> frozenset[str]:
    """The datasets whose streams are all small."""
    sizes = ((one.dataset, plan.estimates.total(one)) for one in plan.plans if one.dataset in plan.sizes)
    return frozenset(name for name, size in sizes if is_small_stream(size))


def make_orphaned_error(dataset: str, cause: str, error: ZvaultError) -> ZvaultError:
    """Make the error of a dataset that has to come after one that failed."""
    orphan = Refused(
        f"{dataset} was not sent",
        f"it comes after {cause}, which failed",
        "it follows once that one went well",
    )
    orphan.retryable = error.retryable
    return orphan


def make_cycle_error(dataset: str) -> ZvaultError:
    """Make the error of datasets each of which has to come after another."""
    return Refused(
        f"{dataset} was not sent", "it and others each have to come after another", "please report it"
    )
