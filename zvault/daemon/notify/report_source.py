"""What zvaultd knows for a report: the history of runs, its verdicts, and the vaults as they were last seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from zvault.api.cost import describe_cost
from zvault.api.headlines import write_status_headlines
from zvault.api.status import BackupDocument, DaemonDocument, StatusDocument
from zvault.api.vaults import JudgedVault, VaultDocument
from zvault.core.health.days import PastRun, summarize_days
from zvault.core.notify.formats import flatten_line
from zvault.core.notify.report import (
    BackupReport,
    NeededAction,
    PeriodFigures,
    PeriodReport,
    ReportPeriod,
    VaultReport,
    sum_period,
)
from zvault.daemon.status import DaemonStatus

LOOK_BACK_SPAN = 92 * 86400.0
"""Seconds before a period in which the newest run without fault is looked for: the lag at its begin rests on it."""


def make_report(
    status: DaemonStatus, vaults: Sequence[VaultDocument], period: ReportPeriod, only: Sequence[str] = ()
) -> PeriodReport:
    """The report of a period; ``only`` these backups and their vaults, or all."""
    env = status.context.env
    found = _chosen(status.document_of(vaults), only)
    past = _figures(status, period)
    sent: dict[str | None, int] = defaultdict(int)
    for one in found["backups"]:
        sent[one["vault"]] += past.get(one["name"], PeriodFigures()).bytes
    begins, now = status.history.begins(), env.clock.time()
    return PeriodReport(
        period,
        flatten_line(env.host),
        now,
        tuple(write_status_headlines(found)),
        tuple(_needs(found)),
        tuple(_backup(one, past.get(one["name"], PeriodFigures())) for one in found["backups"]),
        tuple(_vault(status, one, sent[one["name"]]) for one in found["vaults"]),
        None if begins is not None and begins <= period.begin else begins or now,
    )


def _chosen(found: StatusDocument, only: Sequence[str]) -> StatusDocument:
    if not only:
        return found
    backups = [one for one in found["backups"] if one["name"] in only]
    theirs = {one["vault"] for one in backups}
    vaults = [one for one in found["vaults"] if one["name"] in theirs]
    # Of zvaultd itself nothing is told to whom only some backups concern.
    daemon: DaemonDocument = {**found["daemon"], "verdict": {"level": "ok", "state": "ok", "findings": []}}
    return {"daemon": daemon, "backups": backups, "vaults": vaults}


def _figures(status: DaemonStatus, period: ReportPeriod) -> dict[str, PeriodFigures]:
    env = status.context.env
    past: dict[str, list[PastRun]] = defaultdict(list)
    for name, run in status.history.past(period.begin - LOOK_BACK_SPAN):
        if run.ended < period.end:
            past[name].append(run)
    return {
        name: sum_period(summarize_days(past[name], period.end - 1, env.zone, backup.max_lag), period)
        for name, backup in env.config.backup.items()
        if name in past
    }


def _needs(found: StatusDocument) -> Iterator[NeededAction]:
    subjects = [
        *(("zvaultd", one) for one in (found["daemon"]["verdict"],)),
        *((f"backup {one['name']}", one["verdict"]) for one in found["backups"]),
        *((f"vault {one['name']}", one["verdict"]) for one in found["vaults"]),
    ]
    for whose, verdict in subjects:
        for finding in verdict["findings"]:
            if finding["level"] in {"warning", "critical"}:
                what, why = flatten_line(finding["what"]), flatten_line(finding["why"])
                yield NeededAction(whose, finding["level"], what, why, flatten_line(finding["next"]))


def _backup(one: BackupDocument, its: PeriodFigures) -> BackupReport:
    proofs = one["proofs"]
    return BackupReport(
        one["name"],
        one["verdict"]["level"],
        one["verdict"]["state"],
        its,
        one["lag_seconds"],
        one["max_lag_seconds"],
        None if proofs is None else tuple((level, proof["proven"]) for level, proof in proofs.items()),
        sends=one["vault"] is not None,
        restore=one["restore"]["seconds"] if one["restore"] is not None else None,
        max_restore=one["max_restore_seconds"],
    )


def _vault(status: DaemonStatus, one: JudgedVault, sent: int) -> VaultReport:
    scrub = one["scrub"]
    return VaultReport(
        one["name"],
        one["verdict"]["level"],
        one["verdict"]["state"],
        one["size"],
        one["free"],
        sent,
        status.judge.full_in(one["name"]),
        scrub["last"] if scrub is not None else None,
        scrub["errors"] if scrub is not None else None,
        flatten_line(describe_cost(one["cost"], one["uncounted"])),
    )
