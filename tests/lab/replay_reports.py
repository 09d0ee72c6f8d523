"""What guests reported, told to pytest as if it had run on the host; and the tests that failed only once.

Lab tests kill, cut off and freeze things at chosen moments of a real system, on whatever CPU is left for it. A rare one
fails for that alone, and a suite of hundreds would then hardly ever pass. So where few fail, each is run once more, in
a fresh guest. If it fails again it has failed; else it is *unsteady*: told at the end with its whole failure, for it
is a fault all the same, of the test or of zvault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from run_modules import Guest

Location = tuple[str, int | None, str]


def stop_if_asked(session: pytest.Session) -> None:
    """Heed -x and --maxfail."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)


class Doubts:
    """Tests that failed, while that may be for once. ``most``: if more do, all have failed."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.places: dict[str, Location] = {}
        self.unsteady: list[str] = []
        self.second = False
        self.told: set[str] = set()
        """Those whose second run ended."""

    def takes(self, name: str, reports: list[pytest.TestReport]) -> bool:
        """Whether a test's reports are kept back."""
        failed = any(report.failed for report in reports)
        if self.second and name not in self.places:  # what a doubtful one goes on from: it has passed already
            if failed:
                self.reports[name] = reports
                self.unsteady.append(name)
            return True
        if self.second:
            self.told.add(name)
            if not failed:
                self.unsteady.append(name)
            return False
        if failed and self.most:
            self.reports[name] = reports
            self.places[name] = reports[0].location
        return failed and self.most > 0

    @property
    def worth_a_second_run(self) -> bool:
        """Whether there are some, and few."""
        return 0 < len(self.reports) <= self.most

    def second_run(self) -> Doubts:
        """From now on no more is kept back."""
        self.second = True
        return self

    def tell(self, session: pytest.Session) -> None:
        """Have those count that were not run again, for whatever reason."""
        for name in self.places:
            reports = self.reports[name]
            if name not in self.told:
                forward(session, reports)

    def summary(self, terminal: pytest.TerminalReporter) -> None:
        """Tell all about those that failed only once, and of those that failed twice how they did at first."""
        if self.unsteady:
            terminal.section(f"unsteady: {len(self.unsteady)} failed, and passed in a second guest", sep="!")
        for name in self.unsteady:
            self._failure(name, terminal)
        twice = sorted(self.told - set(self.unsteady))
        if twice:
            terminal.section(f"the first time: {len(twice)} failed, and once more in a second guest", sep="!")
        for name in twice:
            self._failure(name, terminal)
        for name in [*self.unsteady, *twice]:  # once more at the end: a log's middle is the first to be cut
            terminal.write_line(f"{name} the first time: {crash_message(self.reports[name])}")

    def _failure(self, name: str, terminal: pytest.TerminalReporter) -> None:
        terminal.section(name, sep="_")
        for report in self.reports[name]:
            if report.failed:
                terminal.write_line(report.longreprtext)
                for title, text in report.sections:
                    terminal.section(title, sep="-")
                    terminal.write_line(text)


def crash_message(reports: list[pytest.TestReport]) -> str:
    """What the first failure of a test was, in words."""
    failed = next(report for report in reports if report.failed)
    crash = getattr(failed.longrepr, "reprcrash", None)
    said: str = crash.message if crash else failed.longreprtext.strip().rpartition("\n")[2]
    return said.partition("\n")[0]


def forward(session: pytest.Session, reports: list[pytest.TestReport]) -> None:
    """Tell pytest of one test."""
    hook = session.config.hook
    hook.pytest_runtest_logstart(nodeid=reports[0].nodeid, location=reports[0].location)
    for report in reports:
        hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=reports[0].nodeid, location=reports[0].location)
    stop_if_asked(session)


class Replay:
    """Tells pytest what a guest reported, as if it had run here."""

    def __init__(self, session: pytest.Session, guest: Guest, doubts: Doubts) -> None:
        self.session, self.guest, self.doubts, self.hook = session, guest, doubts, session.config.hook
        self.expected: Mapping[str, Location] = guest.expected
        self.reports: dict[str, list[pytest.TestReport]] = {}
        self.finished: set[str] = set()
        self.uncollected = False

    def all(self) -> None:
        """Until the guest has ended."""
        while True:
            event = self.guest.events.get()
            if "ended" in event:
                return self.ended(int(event["ended"]), event["output"])
            if "collected" in event:
                self.collected(event["collected"])
            elif "uncollected" in event:
                self.not_collected(event["uncollected"])
            else:
                data = event["report"]
                self.report(self.hook.pytest_report_from_serializable(config=self.session.config, data=data))
            stop_if_asked(self.session)

    def collected(self, names: list[str]) -> None:
        """Count parameters as tests of their own."""
        if self.doubts.second:
            return
        self.guest.collected = names
        self.session.testscollected += len(names) - len(self.expected)
        where = self.expected
        self.expected = {
            name: where.get(name) or where.get(name.partition("[")[0], (name, 0, name)) for name in names
        }

    def not_collected(self, what: dict[str, str]) -> None:
        """A module that cannot be imported, or that is skipped as a whole."""
        self.uncollected = True
        longrepr: object = what["text"]
        if what["outcome"] == "skipped":
            longrepr = (str(self.guest.module.path), 0, what["text"])
        report = pytest.CollectReport(what["nodeid"], what["outcome"], longrepr, None)  # type: ignore[arg-type]
        self.hook.pytest_collectreport(report=report)

    def report(self, report: pytest.TestReport) -> None:
        """A test's setup, call or teardown."""
        if isinstance(report.longrepr, list):  # JSON has no tuples: a skip's file, line and reason
            path, line, reason = report.longrepr
            report.longrepr = (path.replace("/src", str(self.session.config.rootpath), 1), line, reason)
        self.reports.setdefault(report.nodeid, []).append(report)
        if report.when == "teardown":
            self.tell(report.nodeid)

    def tell(self, name: str) -> None:
        """Pass on what is known of a test."""
        self.finished.add(name)
        if not self.doubts.takes(name, self.reports[name]):
            forward(self.session, self.reports[name])

    def ended(self, status: int, output: str) -> None:
        """Fail whatever the guest has not reported, or the module if it has and yet ended badly."""
        missing = {name: where for name, where in self.expected.items() if name not in self.finished}
        if self.uncollected:
            missing = {}
        text = ending(status, output)
        if (
            not missing
            and not self.uncollected
            and status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        ):
            name = f"{self.guest.module.nodeid}::guest"
            where = (self.guest.module.nodeid, 0, "guest")
            forward(self.session, [pytest.TestReport(name, where, {}, "failed", text, "call")])
        for number, (name, where) in enumerate(missing.items()):
            if number:
                text = f"the guest had ended already: see {next(iter(missing))}"
            report = pytest.TestReport(name, where, {}, "failed", text, "call")
            self.reports.setdefault(name, []).append(report)
            self.tell(name)


def ending(status: int, output: str) -> str:
    """What to say of a guest that ended too early."""
    return f"the guest ended (status {status}) before this test did; its last output:\n{output}"
