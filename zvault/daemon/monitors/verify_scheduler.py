"""Verifications as the daemon runs them: when each level is due, by hand, and out of the way of backups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from zvault.core.errors import Busy, Refused, ZvaultError
from zvault.core.integrity.verification import PROOF_LEVELS, LevelProof, ProofLevel, measure_overdue
from zvault.core.policy.backoff import iterate_delays
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.jobs.verify_job import VERIFY_TRIGGER, VerifyJob, find_vault_name
from zvault.daemon.journald import log
from zvault.ops.context import Context
from zvault.ops.vaults.vault import Vaults

VERIFY_INTERVAL = 30.0
"""Seconds between looks at what is due."""

UNPROVEN_PAUSE = 3600.0
"""Seconds before one that is due, but was carried out without leaving a proof, is tried again; then twice as long."""

LONGEST_UNPROVEN_PAUSE = 86400.0
"""Seconds between two tries at most; and at least, while the vault cannot come up and no run brought it up."""


@dataclass
class RetryPause:
    """The rest of a verification that left no proof: when it is tried again, and how long it rests after that; and why
    it could not be started.

    In boot time, which counts the host's sleep: one that is awake two hours a day would else try it
    every twelfth day.
    """

    due: float = 0.0
    refused: str = ""
    pauses: Iterator[float] = field(
        default_factory=lambda: iterate_delays(UNPROVEN_PAUSE, LONGEST_UNPROVEN_PAUSE)
    )


class VerifyScheduler:
    """Starts verifications, by hand and by their intervals."""

    def __init__(self, context: Context, vaults: Vaults, runs: BackupRuns) -> None:
        self.context = context
        self.vaults = vaults
        self.runs = runs
        self._rests: dict[tuple[str, ProofLevel], RetryPause] = {}
        self._away: dict[str, float] = {}
        """By vault that could not come up, when that was seen, or tried again by a verification (boot time)."""

    def verify(self, backup: str, level: str) -> str:
        """Start a verification and return the run's id. Raises NotFound, Busy, Refused."""
        _ = self.context.env.backup(backup).its_vault
        chosen: ProofLevel | None = next((one for one in PROOF_LEVELS if one == level), None)
        if chosen is None:
            raise Refused(
                f"there is no level '{level}'", f"there are {', '.join(PROOF_LEVELS)}", "as in --level sample"
            )
        busy = self.runs.runner.find_run(backup, VERIFY_TRIGGER)
        if busy is not None:
            raise Busy(
                f"backup '{backup}' is being verified",
                f"run {busy.id} does it",
                f"'zvaultctl follow {busy.id}'",
            )

        return self.runs.runner.start(
            VerifyJob(self.context, self.vaults, self.runs.runner, self.runs.proofs, backup, chosen)
        )

    async def look(self) -> None:
        """Start what is due the longest, one a vault."""
        backups = self.context.env.config.backup
        taken = {find_vault_name(backups, run.backup) for run in self.runs.runner.current.values()}
        taken |= self._out_of_reach()
        for _, backup, level in sorted(self._due(), reverse=True):
            vault = self.context.env.backup(backup).vault
            if vault in taken:
                continue
            taken.add(vault)
            now, rest = (
                self.context.env.clock.boottime(),
                self._rests.setdefault((backup, level), RetryPause()),
            )
            try:
                self.verify(backup, level)
            except ZvaultError as error:
                # That was no try: it is made up for at the next look, and told once.
                if str(error) != rest.refused:
                    log.warning("%s", error, extra={"BACKUP": backup})
                rest.refused = str(error)
                continue
            rest.due, rest.refused = now + next(rest.pauses), ""
            if vault in self._away:
                self._away[vault] = now

    def _out_of_reach(self) -> set[str]:
        """The vaults that could not come up when that was tried last, and for which no verification tries it now.

        Each try costs what it takes to bring the vault up. The runs of its backups try anyway, and once one has brought
        it up what is due is carried out.
        """
        now, names = self.context.env.clock.boottime(), self.context.env.config.vault
        failed = {name for name in names if self.vaults[name].error is not None}
        self._away = {name: self._away.get(name, now) for name in failed}
        unplugged = {name for name in names if self.vaults[name].is_away()}
        return unplugged | {
            name for name, since in self._away.items() if now - since < LONGEST_UNPROVEN_PAUSE
        }

    def _due(self) -> list[tuple[float, str, ProofLevel]]:
        """What is due, by how many seconds. GUIDs are compared in each run, and not here."""
        clock = self.context.env.clock
        now, boottime = clock.time(), clock.boottime()
        found: list[tuple[float, str, ProofLevel]] = []
        for name, config in self.context.env.config.backup.items():
            proofs = self.runs.proofs.get(name, {})
            since = proofs.get("guids", LevelProof()).since
            for level in PROOF_LEVELS:
                if level == "guids" or since is None:
                    continue
                late = measure_overdue(proofs.get(level, LevelProof()), config.interval(level), since, now)
                if late is None or late < 0:
                    self._rests.pop((name, level), None)
                    continue
                # One that could not be carried out left no proof, and is not tried all the time.
                rest = self._rests.get((name, level))
                if rest is None or boottime >= rest.due:
                    found.append((late, name, level))
        return found
