"""Looks at what is wrong, decides whom to tell, and has it sent: a target at a time, in no run's way."""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from zvault.api.events import RunEvent, RunFinished
from zvault.api.notify import NotifyState, NotifyTarget, NotifyTestResult
from zvault.api.vaults import VaultDocument
from zvault.config.schema import Notify
from zvault.core.errors import NotFound, ToolFailed, ZvaultError
from zvault.core.notify import incidents, outbox
from zvault.core.notify.incidents import JudgedSubjects, TellingRules
from zvault.core.notify.message import (
    Item,
    RunPing,
    make_incidents_message,
    make_probe_message,
    make_report_message,
)
from zvault.core.notify.outbox import TargetOutbox
from zvault.core.notify.report import (
    PeriodReport,
    ReportEvery,
    choose_reported_until,
    find_last_period,
    is_due,
)
from zvault.daemon.journald import log
from zvault.daemon.notify.audience import collect_verdicts, select_verdicts_for
from zvault.daemon.notify.report_source import make_report
from zvault.daemon.notify.run_pings import RunPings
from zvault.daemon.notify.target_store import TARGETS_FOLDER, TargetStore
from zvault.daemon.status import DaemonStatus
from zvault.ops.deliver_message import can_try_harmlessly, deliver_item, is_pinged_for
from zvault.system.record_store import RecordStore
from zvault.system.tasks import cancel_tasks

NOTIFY_INTERVAL = 15.0
"""Seconds between looks; one at once when a run has ended."""

SENDERS_AT_ONCE = 4
"""Processes that send, of all targets together."""

MOST_PINGS = 1000
"""Pings that wait to be taken over; more only if the loop stands still."""


class Notifier:
    """Tells the targets of the configuration. ``counts``: tries by target, and whether they went through."""

    def __init__(
        self,
        status: DaemonStatus,
        vaults: Callable[[], Sequence[VaultDocument]],
        outdated: Callable[[], set[str]],
    ) -> None:
        self.status = status
        self.env = status.context.env
        self.counts: Counter[tuple[str, str]] = Counter()
        self._vaults, self._outdated = vaults, outdated
        self._store = TargetStore(RecordStore(self.env.paths.state / TARGETS_FOLDER))
        self._targets: dict[str, TargetOutbox] = {}
        self._runs, self._pings = RunPings(self._shared), list[RunPing]()
        self._wake = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(SENDERS_AT_ONCE)
        self._swept = False

    def hear(self, event: RunEvent) -> None:
        """Take in an event of a run. Nothing is sent or written here."""
        ping = self._runs.hear(event)
        if ping is not None and len(self._pings) < MOST_PINGS:
            self._pings.append(ping)
        if ping is not None or isinstance(event, RunFinished):
            self._wake.set()

    def _shared(self, backup: str) -> bool:
        return self.status.runs.turns.of(backup) is not None

    async def look(self) -> None:
        """Wait for something to do, and do it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pause()):
                await self._wake.wait()
        self._wake.clear()
        self.consider()
        self.send_due()

    def _pause(self) -> float:
        """Seconds until the next look."""
        now = self.env.clock.time()
        dues = [
            due
            for name, target in self._targets.items()
            if name not in self._sending and (due := outbox.find_next_due(target, now)) is not None
        ]
        return max(0.0, min([NOTIFY_INTERVAL, *(due - now for due in dues)]))

    def target(self, name: str) -> TargetOutbox:
        """Return what is known of a target."""
        if name not in self._targets:
            self._targets[name] = self._store.read(name)
        return self._targets[name]

    def _keep(self, name: str, target: TargetOutbox) -> None:
        before = self.target(name)
        self._targets[name] = target
        if outbox.strip_incident_words(target) != outbox.strip_incident_words(before):
            self._store.write(name, target)

    def consider(self) -> None:
        """Decide what each target is to be told now."""
        tables = self.env.config.notify
        self._forget()
        self._take_pings()
        messages = {name: table for name, table in tables.items() if not table.switch}
        found = (
            collect_verdicts(self.status, self._vaults(), self._outdated()) if messages else JudgedSubjects()
        )
        for name, table in tables.items():
            before = self.target(name)
            after = self._judged(name, table, found) if name in messages else before
            after = outbox.drop_expired(after, self.env.clock.time())
            if after.given_up > before.given_up:
                log.warning(
                    "notifications to %s: %d could not be delivered and are given up", name, after.given_up
                )
            self._keep(name, after)
            self._warn(name, after)

    def _take_pings(self) -> None:
        """Have the switches told of the runs that began or ended meanwhile."""
        pings, self._pings = self._pings, []
        for name, table in self.env.config.notify.items():
            target = self.target(name)
            for ping in pings:
                if is_pinged_for(table, ping.backup):
                    target = outbox.queue_item(target, ping)
            self._keep(name, target)

    def _forget(self) -> None:
        """Drop what is known of targets that are no longer configured."""
        known = set(self.env.config.notify)
        left = set(self._targets) if self._swept else set(self._targets) | set(self._store.names())
        self._swept = True
        for name in left - known:
            if (task := self._sending.pop(name, None)) is not None:
                task.cancel()
            self._targets.pop(name, None)
            self._store.drop(name)
            self.status.warnings.pop(f"notify {name}", None)

    def _judged(self, name: str, table: Notify, found: JudgedSubjects) -> TargetOutbox:
        """A target with the messages that are due."""
        target, clock = self.target(name), self.env.clock
        now, zone = clock.time(), self.env.zone
        rules = TellingRules(table.severity, table.after, table.again, table.per_hour)
        quiet = table.quiet is not None and table.quiet.covers(clock.now().astimezone(zone))
        mine = select_verdicts_for(found, table, self.env.config, failing=target.failing)
        book, bundles = incidents.advance_incidents(target.book, mine, rules, now, quiet=quiet)
        target = outbox.replace_book(target, book)
        for bundle in bundles:
            target = outbox.queue_item(
                target, make_incidents_message(bundle, id=_id(), host=self.env.host, now=now, zone=zone)
            )
        return self._with_report(target, table, quiet=quiet)

    def _with_report(self, target: TargetOutbox, table: Notify, *, quiet: bool) -> TargetOutbox:
        """A target with the report that is due."""
        if table.report is None:
            return replace(target, reported=None)
        now = self.env.clock.time()
        period = find_last_period(table.report, now, self.env.zone)
        if not is_due(period, target.reported):
            return replace(target, reported=choose_reported_until(period, target.reported, now))
        if quiet:
            return target
        message = make_report_message(self.report(table.report, table.backups), id=_id(), zone=self.env.zone)
        return replace(outbox.queue_item(target, message), reported=period.end)

    def report(self, every: ReportEvery, backups: Sequence[str] = ()) -> PeriodReport:
        """Return what there is to report of the last period; ``backups``: of these and their vaults only."""
        period = find_last_period(every, self.env.clock.time(), self.env.zone)
        return make_report(self.status, self._vaults(), period, backups)

    def _warn(self, name: str, target: TargetOutbox) -> None:
        warnings, key = self.status.warnings, f"notify {name}"
        if target.failing:
            warnings[key] = f"notifications to {name} cannot be delivered: {target.last_error}"
        else:
            warnings.pop(key, None)

    def send_due(self) -> None:
        """Begin to send what is due."""
        now = self.env.clock.time()
        for name in self.env.config.notify:
            due = outbox.find_next_due(self.target(name), now)
            if due is not None and due <= now and name not in self._sending:
                self._sending[name] = asyncio.create_task(self._send(name), name=f"notify {name}")

    async def _send(self, name: str) -> None:
        """Send the first that waits, and write down how that went."""
        try:
            async with self._slots:
                waiting, table = self.target(name).waiting, self.env.config.notify.get(name)
                if table is not None and waiting:
                    await self._try(name, table, waiting[0].item, waiting[0].tries)
        finally:
            if self._sending.get(name) is asyncio.current_task():
                del self._sending[name]
            self._wake.set()

    async def _try(self, name: str, table: Notify, item: Item, tries: int) -> None:
        error = await self._deliver(table, item)
        if name not in self.env.config.notify:
            return
        now = self.env.clock.time()
        if error is None:
            if tries:
                log.info("notifications to %s are delivered again", name)
            self._keep(name, outbox.record_sent(self.target(name), item.id, now))
        else:
            if not tries:
                log.warning("a notification to %s was not delivered, and is tried again: %s", name, error)
            self._keep(
                name, outbox.record_failure(self.target(name), item.id, _said(error), now, random.random)
            )
        self._warn(name, self.target(name))

    async def _deliver(self, table: Notify, item: Item) -> ZvaultError | None:
        """Send an item once; what went wrong, None if nothing did."""
        error: ZvaultError | None = None
        try:
            told = await deliver_item(self.env.runner, self.env.host, table, item)
        except ZvaultError as failure:
            error = failure
        except Exception as failure:
            # Its text may have a secret in it.
            error = ToolFailed(
                "it was not sent", f"zvault met an error it does not know: {type(failure).__name__}"
            )
        else:
            if told:
                log.warning("a notification to %s was delivered, but: %s", table.name, told)
        self.counts[table.name, "failed" if error is not None else "sent"] += 1
        return error

    async def try_out(self, only: str | None) -> list[NotifyTestResult]:
        """Send a test to one target, or to all. Raises NotFound.

        Of all, not to a dead-man's switch that would take it for a success.
        """
        tables = self.env.config.notify
        if only is not None and only not in tables:
            known = ", ".join(sorted(tables)) or "none is configured"
            raise NotFound(
                f"there is no notification '{only}'", f"known: {known}", "check [notify.…] in zvault.toml"
            )
        chosen = [table for name, table in tables.items() if only in (None, name)]
        return list(await asyncio.gather(*(self._try_out(one, named=only is not None) for one in chosen)))

    async def _try_out(self, table: Notify, *, named: bool) -> NotifyTestResult:
        if not named and not can_try_harmlessly(table):
            return {"target": table.name, "way": table.way, "result": "skipped", "error": None}
        now = self.env.clock.time()
        backup = next(iter([*table.backups, *self.env.config.backup]), "test")
        item: Item = make_probe_message(id=_id(), host=self.env.host, now=now)
        if table.switch:
            item = RunPing(_id(), now, backup, "test", "test", "a test of zvaultctl notify")
        async with self._slots:
            error = await self._deliver(table, item)
        if table.name in self.env.config.notify:
            told = "" if error is None else _said(error)
            self._keep(table.name, outbox.record_test(self.target(table.name), told, self.env.clock.time()))
        document = error.as_dict() if error is not None else None
        return {
            "target": table.name,
            "way": table.way,
            "result": "failed" if error else "sent",
            "error": document,
        }

    def documents(self) -> list[NotifyTarget]:
        """The targets, as the API tells them."""
        return [self._document(table) for table in self.env.config.notify.values()]

    def _document(self, table: Notify) -> NotifyTarget:
        target = self.target(table.name)
        return {
            "name": table.name,
            "way": table.way,
            "severity": None if table.switch else table.severity,
            "backups": list(table.backups),
            "state": _state(target),
            "waiting": len(target.waiting),
            "next_try": target.waiting[0].due if target.waiting else None,
            "open": sum(one.told is not None for one in target.book.incidents),
            "last_success": target.last_success,
            "last_failure": target.last_failure,
            "last_error": target.last_error,
            "given_up": target.given_up,
        }

    async def close(self) -> None:
        """End what is under way: what was not sent is kept for the next daemon."""
        self._take_pings()
        await cancel_tasks(*self._sending.values())


def _said(error: ZvaultError) -> str:
    return ". ".join(filter(None, (error.why or error.what, error.next)))


def _state(target: TargetOutbox) -> NotifyState:
    if target.failing or target.waiting:
        return "failing" if target.failing else "waiting"
    if target.last_error:
        return "failed"
    return "ok" if target.last_success is not None else "untried"


def _id() -> str:
    return secrets.token_hex(8)
