"""What zvaultd knows for a report: the history of runs, its verdicts, and the vaults as they were last seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from zvault.api.cost import told_cost
from zvault.api.headlines import status_headlines
from zvault.api.status import BackupDocument, DaemonDocument, StatusDocument
from zvault.api.vaults import JudgedVault, VaultDocument
from zvault.core.health.days import PastRun, days
from zvault.core.notify.formats import one_line
from zvault.core.notify.report import BackupReport, Figures, Need, Period, Report, VaultReport, figures
from zvault.daemon.status import Status

BEFORE = 92 * 86400.0
"""Seconds before a period in which the newest run without fault is looked for: the lag at its begin rests on it."""


def report_of(
    status: Status, vaults: Sequence[VaultDocument], period: Period, only: Sequence[str] = ()
) -> Report:
    """The report of a period; ``only`` these backups and their vaults, or all."""
    env = status.context.env
    found = _chosen(status.document_of(vaults), only)
    past = _figures(status, period)
    sent: dict[str | None, int] = defaultdict(int)
    for one in found["backups"]:
        sent[one["vault"]] += past.get(one["name"], Figures()).bytes
    begins, now = status.history.begins(), env.clock.time()
    return Report(
        period,
        one_line(env.host),
        now,
        tuple(status_headlines(found)),
        tuple(_needs(found)),
        tuple(_backup(one, past.get(one["name"], Figures())) for one in found["backups"]),
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


def _figures(status: Status, period: Period) -> dict[str, Figures]:
    env = status.context.env
    past: dict[str, list[PastRun]] = defaultdict(list)
    for name, run in status.history.past(period.begin - BEFORE):
        if run.ended < period.end:
            past[name].append(run)
    return {
        name: figures(days(past[name], period.end - 1, env.zone, backup.max_lag), period)
        for name, backup in env.config.backup.items()
        if name in past
    }


def _needs(found: StatusDocument) -> Iterator[Need]:
    subjects = [
        *(("zvaultd", one) for one in (found["daemon"]["verdict"],)),
        *((f"backup {one['name']}", one["verdict"]) for one in found["backups"]),
        *((f"vault {one['name']}", one["verdict"]) for one in found["vaults"]),
    ]
    for whose, verdict in subjects:
        for finding in verdict["findings"]:
            if finding["level"] in {"warning", "critical"}:
                what, why = one_line(finding["what"]), one_line(finding["why"])
                yield Need(whose, finding["level"], what, why, one_line(finding["next"]))


def _backup(one: BackupDocument, its: Figures) -> BackupReport:
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
    )


def _vault(status: Status, one: JudgedVault, sent: int) -> VaultReport:
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
        one_line(told_cost(one["cost"], one["uncounted"])),
    )
