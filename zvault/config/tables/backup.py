"""Backups, as the configuration writes them: from where to where, when, and what of it is kept."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from zvault.config.fields import (
    CalendarField,
    DurationField,
    IntervalField,
    NamedTable,
    PatternField,
    Several,
    ShareField,
    SnapnamePattern,
    SourceName,
    TemplateField,
    UserProperty,
    VaultsField,
    WordField,
    parse_default,
    quote_text,
)
from zvault.config.tables.bandwidth import LimitField
from zvault.config.tables.hooks import Hooks, refuse_hold
from zvault.config.tables.retention import Keep, Prune
from zvault.config.tables.snapshot import SnapshotConfig
from zvault.config.tables.transfer import Receive, Send
from zvault.config.tables.verification import Verify
from zvault.core.address import Source
from zvault.core.errors import NotFound
from zvault.core.integrity.verification import ProofLevel
from zvault.core.name_rules import DatasetChoice, can_reach, choose_by_pattern
from zvault.core.replication.bandwidth import RateLimit

NEEDS_VAULT = (
    "into", "also", "backlog", "on_conflict", "limit", "prune", "send", "receive", "verify", "max_lag", "max_restore",
)  # fmt: skip
"""Keys of a backup that are about what is sent."""


class Backup(NamedTable):
    """A flow from a source into a vault; or, with `snapshots_only`, snapshots of a source."""

    source: SourceName = Field(
        description="The dataset to back up, with all below it. On another host it is reached by ssh, as root's "
        "ssh_config(5) says. Several datasets of one pool are taken in one snapshot, and all of them have to exist; "
        "`{path}` in `into` is then the way from the nearest dataset that has all of them below it.",
        examples=["tank/data", "ssh://root@filer1/tank", ["tank/home", "tank/mail"]],
    )
    exclude: Several[PatternField] = Field(
        default_factory=list,
        description="Datasets to leave out: `tank/tmp` that dataset alone, `tank/tmp/**` all below it.",
        examples=[["tank/data/scratch", "tank/data/scratch/**"]],
    )
    include: Several[PatternField] = Field(
        default_factory=list,
        description="Only take these datasets of the source, by patterns as in `exclude`, which wins over it. Without "
        "it all are taken. What lies above those that are taken is made on the vault, empty, to hold them. This is how "
        "one backup takes several parts of a pool, in one snapshot: see "
        "[choose datasets](../how-to/choose-datasets.md).",
        examples=[["tank/home/**", "tank/mail"]],
    )
    select: UserProperty | None = Field(
        default=None,
        description="Only take datasets that this user property selects, besides what `include` and `exclude` say: "
        "those on which it is set to `true`, and all that inherit that from a dataset within the source. Set to "
        "`false` it leaves a dataset out; `child` takes only what is below it, `parent` only itself. What came with a "
        "stream (`received`) does not count. See [choose datasets](../how-to/choose-datasets.md).",
        examples=["org.example:backup", "autobackup:offsite"],
    )
    template: Several[WordField] = Field(
        default_factory=list,
        description="Templates whose keys it has where it does not set them itself: the NAME of a `[template.NAME]`, "
        "or several, of which a later one counts more. See [`[defaults]`](#defaults-templatename).",
        examples=["servers", ["servers", "offsite"]],
    )
    snapshots_only: bool = Field(
        default=False,
        description="Make snapshots and prune them by `keep.source`, and send nothing: then there is no `vault`, and "
        "no backup. Status and metrics tell the age of the newest snapshot in place of the lag. See "
        "[snapshots only](../how-to/snapshots-only.md). With `snapshot.make = false` it only prunes, what another host "
        "sends into the source: see [against ransomware](../how-to/against-ransomware.md#push-without-destroy).",
        examples=[True],
    )
    vault: WordField | None = Field(
        default=None,
        description="The vault to back up into: the NAME of a `[vault.NAME]`. Two backups that take the same dataset "
        "need a vault each. It may be left out with `snapshots_only = true` only, or where there are `vaults`.",
        examples=["cold"],
    )
    vaults: VaultsField | None = Field(
        default=None,
        description="Several vaults in place of one `vault`: their names; or a table for each, with the keys of this "
        "backup that are other there, such as `schedule`, `keep.vault`, `limit`, `backlog` or `max_lag`. What is "
        "snapshotted, how, and `keep.source` are the same for all. Each vault is a backup of its own, called "
        "`NAME@VAULT`, with runs, lag and health of its own, and runs that begin together send the same snapshot. See "
        "[several vaults](../how-to/several-vaults.md).",
        examples=[["cold", "shelf"], {"cold": {}, "shelf": {"schedule": "weekly", "max_lag": "5w"}}],
    )
    into: TemplateField = Field(
        default="{host}/{dataset}",
        description="Where below the vault's pool each dataset goes. `{host}` is the source's host, `{dataset}` the "
        "dataset's full name, `{pool}` the source's pool. With `{path}` in place of `{dataset}` at the end, its "
        "way from the source: with `mirror/{path}`, the source `tank/data` goes to `mirror`, and `tank/data/home` to "
        "`mirror/home`.",
        examples=["{host}/{dataset}", "{host}/data/{path}"],
    )
    schedule: CalendarField | None = Field(
        default=None,
        description="When to run, by the clock. With neither `schedule` nor `every` it runs only by hand. "
        "A run missed while the host slept or was off happens once when it is back. Snapshots can be made at other "
        "times than it runs: see `snapshot.schedule`.",
        examples=["hourly", "30 2 * * mon-fri"],
    )
    every: IntervalField | None = Field(
        default=None, description="How long from run to run, instead of `schedule`.", examples=["15m"]
    )
    snapshot: SnapshotConfig = Field(default_factory=SnapshotConfig, description="The snapshots it makes.")
    also: Several[SnapnamePattern] = Field(
        default_factory=list,
        description="Snapshots that zvault did not make and that are sent too, by their names after `@`. They are "
        "never pruned, on neither side.",
        examples=[["manual-*"], ["*"]],
    )
    backlog: Literal["all", "newest"] = Field(
        default="all",
        description="What is sent of several snapshots that the vault lacks.",
        examples=["newest"],
    )
    on_conflict: Literal["stop", "rollback", "new-dataset"] = Field(
        default="stop",
        description="What to do when a dataset on the vault was changed, so that it cannot follow its source. "
        '"stop" leaves both as they are and tells. "rollback" gives up what came after the base on the vault, '
        "but no backed-up snapshot that `keep.vault` wants. "
        '"new-dataset" renames it, and goes on beside it.',
        examples=["new-dataset"],
    )
    limit: LimitField = Field(
        default_factory=RateLimit,
        description="How many bytes a second all streams of a run may send together; or windows, of which the first "
        "that covers the moment counts.",
        examples=["80M", [{"rate": "20M", "start": "08:00", "end": "18:00", "days": "mon-fri"}]],
    )
    retries: int = Field(
        default=3,
        ge=0,
        le=100,
        description="How often a run tries again what failed and may go better: a lost link, a device that went "
        "away, a stalled stream. Each try resumes where the last one stopped.",
        examples=[10],
    )
    retry_wait: DurationField = Field(
        default=parse_default("30s"),
        description="How long to wait before the first such try; each further one waits twice as long, "
        "up to an hour.",
        examples=["1m"],
    )
    hooks: Hooks = Field(
        default_factory=Hooks,
        description="Programs to run before a run begins, when its vault may be down yet, and after it has ended.",
    )
    keep: Keep = Field(default_factory=Keep, description="What is kept on either side.")
    prune: Prune = Field(default_factory=Prune, description="Which host prunes the vault.")
    prune_limit: ShareField = Field(
        default=parse_default("50%"),
        description="The most of zvault's snapshots of one dataset that one run may prune on one side, of those that "
        "were there before it; three may always go. Where `keep` selects more, the run prunes so many, the oldest "
        "first, and says so, and the next runs prune the rest; `zvaultctl status` warns meanwhile. Between runs, after "
        "a snapshot at its own time (`snapshot.every`), a dataset over the limit loses nothing. "
        "`zvaultctl prune --over-limit` shows what is to go, and prunes all of it. `100%` sets no limit.",
        examples=["50%", "100%"],
    )
    send: Send = Field(default_factory=Send, description="How datasets are sent.")
    receive: Receive = Field(
        default_factory=Receive,
        description="Properties of its datasets on the vault, besides those it was sent with.",
    )
    verify: Verify = Field(
        default_factory=Verify, description="How the vault is compared with the source, and how often."
    )
    max_lag: DurationField | None = Field(
        default=None,
        description="How far the vault may lag before the backup counts as late, in `zvaultctl status`, "
        "its exit status and the metrics.",
        examples=["3h"],
    )
    max_restore: DurationField | None = Field(
        default=None,
        description="How long it may take to restore all of it, in `zvaultctl status`, its exit status and the "
        "metrics. zvault compares it with how much the backup is on the vault, at the rate at which the vault was "
        "last read: see [how long a restore takes](../explanation/restore-time.md).",
        examples=["8h"],
    )

    _siblings: tuple[str, ...] = PrivateAttr(default=())

    @property
    def table_name(self) -> str:
        """The NAME of the `[backup.NAME]` that it stands in: its own, but for the vault of a backup with several."""
        return self.name.partition("@")[0]

    @property
    def siblings(self) -> tuple[str, ...]:
        """The names of its table's backups, one for each vault, its own among them; none where it has one `vault`."""
        return self._siblings

    @property
    def speaks_for_source(self) -> bool:
        """True for one backup of each table: it does what concerns the source alone, once for all vaults."""
        return not self._siblings or self._siblings[0] == self.name

    def joined(self, siblings: tuple[str, ...]) -> Self:
        """The same table, which knows the others of its own from now on."""
        self._siblings = siblings
        return self

    @property
    def its_vault(self) -> str:
        """The vault it backs up into. Raises NotFound where it makes snapshots only."""
        if self.vault is None:
            raise NotFound(
                f"backup '{self.name}' has no vault",
                f"it makes snapshots of {self.source} only, and sends nothing anywhere (snapshots_only)",
                f"'zfs list -t snapshot {self.source.dataset}' shows them, on the source",
            )
        return self.vault

    @property
    def scheduled(self) -> bool:
        """True if it runs by itself."""
        return self.schedule is not None or self.every is not None

    @property
    def prunes_vault(self) -> bool:
        """True if this host prunes its vault, and may destroy anything there."""
        return self.vault is not None and self.prune.vault == "here"

    @property
    def prunes_only(self) -> bool:
        """True if it makes no snapshots and sends none: it prunes what another host sends into its source."""
        return self.vault is None and not self.snapshot.make

    def interval(self, level: ProofLevel) -> float | None:
        """Return how often a level is to be verified, in seconds; None by hand only, or where there is nothing to
        verify.
        """
        return self.verify.interval(level) if self.vault is not None else None

    def takes(self, dataset: str) -> bool:
        """True if its patterns select a dataset of its source."""
        return self.choice(dataset).taken

    def choice(self, dataset: str) -> DatasetChoice:
        """The same, and why."""
        return choose_by_pattern(
            dataset, self.include, self.exclude, "source" if self.source.parts else "include"
        )

    @field_validator("vault")
    @classmethod
    def _vault_or_none_on_purpose(cls, vault: str | None, info: ValidationInfo) -> str | None:
        alone = info.data.get("snapshots_only", False)
        if vault is None and not alone:
            raise ValueError(
                "is missing: a backup needs one; snapshots_only = true makes and prunes snapshots without any"
            )
        if vault is not None and alone:
            raise ValueError("stands beside snapshots_only, which sends nothing: leave out one of them")
        return vault

    @model_validator(mode="after")
    def _nothing_that_needs_a_vault(self) -> Self:
        if self.snapshots_only:
            given = [key for key in (*NEEDS_VAULT, "vaults") if key in self.model_fields_set]
            given += [f"keep.{key}" for key in ("vault", "gone") if key in self.keep.model_fields_set]
            given += ["snapshot.skip_unchanged"] if self.snapshot.skip_unchanged else []
            if given:
                raise ValueError(f"snapshots_only sends nothing, so these mean nothing: {', '.join(given)}")
            if self.snapshot.timetable is not None:
                raise ValueError(
                    "snapshots_only makes its snapshots in its runs: say when with the backup's own schedule or every,"
                    " not with those of snapshot"
                )
        return self

    @model_validator(mode="after")
    def _nothing_that_prunes_the_vault(self) -> Self:
        if self.prune.vault == "elsewhere":
            given = [f"keep.{key}" for key in ("vault", "gone") if key in self.keep.model_fields_set]
            given += [f'on_conflict = "{self.on_conflict}"'] if self.on_conflict != "stop" else []
            if given:
                raise ValueError(
                    f'prune.vault = "elsewhere" leaves the vault to its own host, so these mean nothing here: '
                    f"{', '.join(given)}"
                )
        return self

    @field_validator("exclude", "include")
    @classmethod
    def _patterns_can_match(cls, patterns: list[str], info: ValidationInfo) -> list[str]:
        source: Source | None = info.data.get("source")
        for pattern in patterns:
            if source is not None and not can_reach(pattern, source.dataset):
                raise ValueError(
                    f"{quote_text(pattern)} names nothing below the source {quote_text(source.dataset)}; "
                    f"patterns are full names, as in {quote_text(source.dataset + '/scratch/**')}"
                )
        return patterns

    @field_validator("include")
    @classmethod
    def _several_sources(cls, patterns: list[str], info: ValidationInfo) -> list[str]:
        """Several sources are what lies above them, of which these are included."""
        source: Source | None = info.data.get("source")
        if source is None or not source.parts:
            return patterns
        if patterns:
            raise ValueError(
                f"stands beside several sources: give {quote_text(source.dataset)} as the source and "
                "include what of it is"
                " to be taken, or leave include out"
            )
        return [pattern for part in source.parts for pattern in (part, f"{part}/**")]

    @field_validator("hooks")
    @classmethod
    def _not_held(cls, hooks: Hooks) -> Hooks:
        return refuse_hold(hooks, "run")

    @field_validator("every")
    @classmethod
    def _one_schedule(cls, every: object, info: ValidationInfo) -> object:
        if every is not None and info.data.get("schedule") is not None:
            raise ValueError("stands beside schedule: use one of them")
        return every

    @field_validator("max_restore")
    @classmethod
    def _some_time(cls, max_restore: float | None) -> float | None:
        if max_restore is not None and max_restore <= 0:
            raise ValueError("must be more than 0s: a restore takes its time; leave it out for no limit")
        return max_restore

    @field_validator("max_lag")
    @classmethod
    def _some_lag(cls, max_lag: float | None) -> float | None:
        if max_lag is not None and max_lag <= 0:
            raise ValueError("must be more than 0s: a backup always lags a little; leave it out for no limit")
        return max_lag
