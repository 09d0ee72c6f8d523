"""What notifications are decided by: the daemon's verdicts, and what nobody has seen so far."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from zvault.api.vaults import VaultDocument
from zvault.config.schema import Config, Notify
from zvault.core.health.daemon import DAEMON_SUBJECT
from zvault.core.notify.incidents import JudgedSubjects
from zvault.core.notify.topics import (
    UNDELIVERED_TOPIC,
    UNIMPORTED_TOPICS,
    NotifySubject,
    SubjectTopics,
    sort_by_topic,
)
from zvault.daemon.status import DaemonStatus


def collect_verdicts(
    status: DaemonStatus, vaults: Sequence[VaultDocument], outdated: Collection[str]
) -> JudgedSubjects:
    """Each subject as it is; a vault whose document is ``outdated``, or a backup that is being read, counts as not
    looked at.
    """
    documents = {one["name"]: one for one in vaults if one["name"] not in outdated}
    looks = {
        (kind, name): sort_by_topic(verdict, frozenset(_hidden(status, (kind, name), documents.get(name))))
        for (kind, name), verdict in status.verdicts(list(documents.values())).items()
        if kind != "backup" or not status.runs.readings.being_read(name)
    }
    config = status.context.env.config
    unlooked: set[NotifySubject] = {("vault", name) for name in config.vault}
    unlooked |= {("backup", name) for name in config.backup}
    return JudgedSubjects(looks, unlooked - looks.keys())


def _hidden(status: DaemonStatus, subject: NotifySubject, vault: VaultDocument | None) -> Iterator[str]:
    """Topics that are not in the verdict because nobody knows, as after a restart."""
    kind, name = subject
    env = status.context.env
    if kind == "backup":
        if status.history.last(name, way=env.way(env.backup(name))) is None:
            yield from ("run", "prune")
        if status.runs.proofs.noted(name) is None:
            yield from ("contents", "verification")
    if kind == "vault" and vault is not None:
        if vault["health"] is None:
            yield from UNIMPORTED_TOPICS
        if not status.judge.knows_pace(name):
            yield "filling"
        if not _written_since(status, name):
            yield "writes"


def _written_since(status: DaemonStatus, vault: str) -> bool:
    """True if a run into a vault has ended since this daemon started: only that tells of its writes."""
    backups = [name for name, backup in status.context.env.config.backup.items() if backup.vault == vault]
    ended = [run["ended"] for name in backups if (run := status.history.last(name)) is not None]
    return any(when is not None and when >= status.started for when in ended)


def select_verdicts_for(
    found: JudgedSubjects, table: Notify, config: Config, *, failing: bool
) -> JudgedSubjects:
    """Select what a target is told of. One that cannot be reached is not told of just that."""
    looks = {subject: one for subject, one in found.looks.items() if _asked(subject, table, config)}
    daemon: NotifySubject = ("daemon", DAEMON_SUBJECT)
    if failing and daemon in looks:
        wrong = {topic: one for topic, one in looks[daemon].wrong.items() if topic != UNDELIVERED_TOPIC}
        looks[daemon] = SubjectTopics(wrong, looks[daemon].hidden | {UNDELIVERED_TOPIC})
    return JudgedSubjects(looks, {subject for subject in found.unlooked if _asked(subject, table, config)})


def _asked(subject: NotifySubject, table: Notify, config: Config) -> bool:
    kind, name = subject
    if not table.backups:
        return True
    vaults = {config.backup[one].vault for one in table.backups if one in config.backup}
    return name in (table.backups if kind == "backup" else vaults if kind == "vault" else ())
