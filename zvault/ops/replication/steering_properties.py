"""Finds the properties by which other tools take datasets for theirs: on a source before it is sent, and on a vault."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from zvault.api.events import Emit, MessageEvent
from zvault.config.schema import Backup
from zvault.core.errors import ToolFailed, ToolMissing, ZvaultError
from zvault.core.model import Dataset
from zvault.core.replication.steering_properties import SteeringProperty, list_steering, select_steering
from zvault.ops.state.cached_backups import CachedBackup
from zvault.zfs import properties
from zvault.zfs.client import Zfs
from zvault.zfs.lzc import Lzc

SteeringByDataset = dict[str, tuple[str, ...]]
"""By dataset that has any, its properties that steer other tools."""


async def read_steering_of_source(
    source: Zfs, backup: Backup, names: Sequence[str], emit: Emit, known: CachedBackup | None = None
) -> SteeringByDataset:
    """The steering properties that the streams of these datasets bring and that their backup does not let in.

    Only what is set on a dataset itself comes with its stream, and nothing without ``send.properties``. Where they
    cannot be read that is told; what came in all the same is found on the vault at the run's end.
    """
    if not backup.send.properties or not names:
        return {}
    try:
        found = await _read_names(source, names, "local,received", needed=True)
    except ZvaultError as error:
        if known is not None:
            known.free_of_steering.clear()
        emit(MessageEvent(text=f"which properties of the source steer other tools is not known: {error}"))
        return {}
    return _select_any(found, backup.receive.let_in)


async def read_steering_of_vault(
    vault: Zfs, datasets: Sequence[Dataset], known: CachedBackup | None = None
) -> SteeringByDataset:
    """The steering properties that streams brought to these datasets of a vault, and that are in force.

    What the vault's administrator set there is not among them. A dataset that had none is not read again: no stream of
    zvault's brings any in. One that does not tell, as it is damaged, is read again at the next run.
    """
    free = known.free_of_steering if known is not None else set()
    asked = [one for one in datasets if one.guid not in free]
    if not asked:
        return {}
    read = await _read_names(vault, [one.name for one in asked], "received", needed=False)
    found = _select_any(read)
    free.update(one.guid for one in asked if one.name in read and one.name not in found)
    return found


async def read_steering_of_replica(
    source: Zfs, here: Sequence[str], replica: Zfs, there: Sequence[str]
) -> list[SteeringProperty]:
    """What steers other tools on a source and on the replica that another tool made of it. Raises ToolFailed."""
    return list_steering(
        await properties.list_property_sources(source.host, here, "local,received"),
        await properties.list_property_sources(replica.host, there, "local,received,inherited"),
    )


def _select_any(found: dict[str, list[str]], let_in: Sequence[str] = ()) -> SteeringByDataset:
    steering = {name: select_steering(those, let_in) for name, those in found.items()}
    return {name: those for name, those in steering.items() if those}


async def _read_names(zfs: Zfs, names: Sequence[str], sources: str, *, needed: bool) -> dict[str, list[str]]:
    """By dataset, the names of its properties from these ``sources`` (``zfs get -s``): set on it, by whom or what.

    Without those that do not tell: one may be damaged. Raises ToolFailed if any are ``needed`` and none tells.
    """
    found: dict[str, list[str]] = {}
    if isinstance(zfs.lzc, Lzc):
        with contextlib.suppress(ToolMissing, ToolFailed):  # zfs says in words what the matter is
            told = await zfs.lzc.settings(names)
            found = {
                name: [key for key, (_, came) in of_it["set"].items() if came or "local" in sources]
                for name, of_it in told.items()
            }
    if left := [name for name in names if name not in found]:
        found |= await _ask_for_names(zfs, left, sources, needed=needed and not found)
    return found


async def _ask_for_names(
    zfs: Zfs, names: Sequence[str], sources: str, *, needed: bool
) -> dict[str, list[str]]:
    """The same by ``zfs get``: of all at once, or where that is refused of each half. Raises ToolFailed if any are
    ``needed`` and none tells.
    """
    try:
        found = await properties.list_property_sources(zfs.host, names, sources)
    except ToolFailed:
        if len(names) == 1:
            if needed:
                raise
            return {}
    else:
        return {name: list(found.get(name, ())) for name in names}
    half = len(names) // 2
    first = await _ask_for_names(zfs, names[:half], sources, needed=False)
    return first | await _ask_for_names(zfs, names[half:], sources, needed=needed and not first)
