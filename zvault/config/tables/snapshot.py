"""The snapshots that a backup makes: their names, and what runs around them."""

from __future__ import annotations

from pydantic import Field, ValidationInfo, field_validator

from zvault.config.fields import (
    CalendarField,
    ConfigTable,
    IntervalField,
    Several,
    SnapnameForm,
    TimeZone,
    WordField,
)
from zvault.config.tables.hooks import Hooks, refuse_hold
from zvault.core.policy.cron_schedule import CronSchedule
from zvault.core.snapshot_form import DEFAULT_FORM, SnapshotNames, check_zone


class SnapshotConfig(ConfigTable):
    """The snapshots zvault makes."""

    prefix: WordField = Field(
        default="zvault",
        description="What their names begin with: `PREFIX_2026-11-21T09:00:00Z`. Only such are ever pruned. Backups of "
        "the same source that have the same prefix send each other's snapshots: on the source each keeps what another, "
        "unless its `backlog` is `newest`, has not sent yet, however long that takes.",
        examples=["zvault"],
    )
    form: SnapnameForm = Field(
        default=DEFAULT_FORM,
        description="The rest of their names, after the prefix, as in strftime(3). No two moments may give one name, "
        "and names must sort as their times do: anything else is refused. See "
        "[names of your own](../explanation/how-zvault-decides.md#names-of-your-own).",
        examples=["-%Y%m%d-%H%M%S", "-%s_%Y-%m-%d_%H%M"],
    )
    timezone: TimeZone = Field(
        default="UTC",
        description="The time zone of `form`: UTC, or one such as `Etc/GMT-1`, which never changes; any where `form` "
        "begins with `%s`.",
        examples=["UTC", "Etc/GMT-1"],
    )
    former: Several[SnapnameForm] = Field(
        default_factory=list,
        description="Forms that names had before, in the same `timezone`. Such snapshots are still sent and pruned. "
        "The default form is always known.",
        examples=[["-%Y-%m-%d.%H%M%S"]],
    )
    make: bool = Field(
        default=True,
        description="Whether a run begins with a snapshot. With `false` it sends the snapshots that are there: where "
        "the source is itself a vault's replica, or something else makes them (see `also`), or `snapshot.schedule` "
        "does.",
        examples=[False],
    )
    schedule: CalendarField | None = Field(
        default=None,
        description="When to make snapshots apart from the runs, by the clock: hourly snapshots, say, that a nightly "
        "run sends. They need no vault, so they go on while it is away or a long run is under way. `keep.source` "
        "prunes them, and the next run sends them as `backlog` says. Without this, and without `snapshot.every`, "
        "runs make the snapshots, also those that cannot reach their vault. See "
        "[snapshots at their own time](../how-to/snapshots-only.md#snapshots-at-their-own-time).",
        examples=["hourly", "0 8-18 * * mon-fri"],
    )
    every: IntervalField | None = Field(
        default=None,
        description="How long from one such snapshot to the next, instead of `snapshot.schedule`.",
        examples=["15m"],
    )
    skip_unchanged: bool = Field(
        default=False,
        description="Make no snapshot of a dataset, and send nothing of it, while it is as the vault has it: nothing "
        "was written since its newest snapshot, as ZFS counts it, and that one is zvault's and is on the vault. Until "
        "then it counts as backed up. An access time is written, too: see `atime` in zfsprops(7). Encrypted datasets "
        "are always snapshotted. See [unchanged datasets](../how-to/unchanged-datasets.md).",
        examples=[True],
    )
    hooks: Hooks = Field(
        default_factory=Hooks,
        description="Programs to run right before and right after the snapshot is made.",
    )

    @property
    def timetable(self) -> CronSchedule | IntervalField | None:
        """The times at which it makes snapshots apart from its runs; None where it does not."""
        return self.every or self.schedule

    @property
    def names(self) -> SnapshotNames:
        return SnapshotNames(self.prefix, self.form, self.timezone, tuple(self.former))

    @field_validator("timezone", "former")
    @classmethod
    def _sorts(cls, value: str | list[str], info: ValidationInfo) -> str | list[str]:
        """Both stand after ``form``, and ``former`` after the zone."""
        if isinstance(value, str) and "form" in info.data:
            check_zone(info.data["form"], value)
        elif "timezone" in info.data:
            for form in value:
                check_zone(form, info.data["timezone"])
        return value

    @field_validator("every")
    @classmethod
    def _one_schedule(cls, every: object, info: ValidationInfo) -> object:
        if every is not None and info.data.get("schedule") is not None:
            raise ValueError("stands beside snapshot.schedule: use one of them")
        return every

    @field_validator("hooks")
    @classmethod
    def _held_before(cls, hooks: Hooks) -> Hooks:
        return refuse_hold(hooks, "snapshot")
