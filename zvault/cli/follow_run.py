"""Follows a run: prints its events, shows its progress, and ends with its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypedDict

from zvault.api.events import (
    ComparedEvent,
    DatasetFailed,
    DiffersEvent,
    HealedEvent,
    RestoredEvent,
    RunEvent,
    RunFinished,
    WarningEvent,
)
from zvault.api.restore import DifferenceDocument
from zvault.cli.daemon_client import DaemonClient, connect_daemon
from zvault.cli.event_text import format_difference, format_summary, narrate_event
from zvault.cli.output import (
    OK_STATUS,
    RED,
    TROUBLE_STATUS,
    YELLOW,
    clean_line,
    print_document,
    print_error,
    print_line,
    print_trouble,
)
from zvault.cli.progress import make_progress_bar
from zvault.core.errors import ErrorDocument, HostUnreachable

PRINTED_DIFFERENCES = 20
"""Maximum number of differences of a restore that are printed."""

INTERRUPTED_STATUS = 130
"""Exit status after Ctrl-C, as shells expect it: 128 + SIGINT."""

RunStart = Callable[[DaemonClient], str]
"""Starts a run, or finds the one to follow."""


class FailedDataset(TypedDict):
    """A dataset that failed."""

    dataset: str
    error: ErrorDocument


@dataclass(slots=True)
class RunFollower:
    """Prints the events of a run and collects them.

    ``quiet`` prints only trouble; ``json`` prints events on stderr, because stdout is for the document.
    """

    verb: str
    quiet: bool = False
    json: bool = False
    run: str | None = None
    end: RunFinished | None = None
    restored: RestoredEvent | None = None
    compared: ComparedEvent | None = None
    differences: list[DifferenceDocument] = field(default_factory=list)
    healed: HealedEvent | None = None
    failed: list[FailedDataset] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def see(self, event: RunEvent) -> None:
        """Record an event and print it."""
        match event:
            case DatasetFailed() if event.again:
                print_trouble(f"failed for now: {event.dataset}: {clean_line(event.error['what'])}", YELLOW)
            case DatasetFailed():
                self.failed.append({"dataset": event.dataset, "error": event.error})
                print_error(event.error, f"failed: {event.dataset}: ")
            case WarningEvent():
                self.warnings.append(event.text)
                print_trouble(f"warning: {clean_line(event.text)}", YELLOW)
            case RunFinished():
                self.end = event
            case RestoredEvent():
                self.restored = self.restored or event
            case DiffersEvent():
                self._differ(event.differences)
            case ComparedEvent():
                self.compared = event
            case HealedEvent():
                self.healed = event
        line = narrate_event(event)
        if line is not None and not self.quiet:
            (print_trouble if self.json else print_line)(clean_line(line))

    def _differ(self, differences: Sequence[DifferenceDocument]) -> None:
        """Print the first differences of a restore; the document has all of them."""
        room = max(0, PRINTED_DIFFERENCES - len(self.differences))
        self.differences += differences
        for one in differences[:room]:
            print_trouble(f"differs: {clean_line(format_difference(one))}", YELLOW)

    def _what_is_left(self) -> None:
        """After the differences: how many were left out, and the commands that repair them."""
        if len(self.differences) > PRINTED_DIFFERENCES:
            print_trouble(
                f"and {len(self.differences) - PRINTED_DIFFERENCES} more differences: -j shows all of them"
            )
        if self.compared is not None and self.compared.commands:
            print_trouble("these commands repair it:")
            for command in self.compared.commands:
                print_trouble(f"  {clean_line(command)}")

    def finish(self) -> int:
        """Print how the run ended, and return the exit status."""
        end = self.end
        if end is None:
            raise HostUnreachable(f"run {self.run} ended without a result", "", "see 'zvaultctl history'")
        good = end.result == "ok"
        self._what_is_left()
        if self.json:
            print_document(self.verb, self._document(end))
        elif good and not self.quiet:
            print_line(format_summary(end))
        elif not good:
            print_trouble(format_summary(end), YELLOW if end.result in ("partial", "skipped") else RED)
        # A dataset's error was already printed, and the run's error may be the same one.
        if end.error and end.error not in [failure["error"] for failure in self.failed]:
            print_error(end.error, "  ")
        return OK_STATUS if good else TROUBLE_STATUS

    def _document(self, end: RunFinished) -> dict[str, object]:
        run = {
            "id": end.run,
            "backup": end.backup,
            "result": end.result,
            "bytes": end.bytes,
            "seconds": end.seconds,
            "error": end.error,
        }
        body: dict[str, object] = {"run": run, "failed": self.failed, "warnings": self.warnings}
        if (restored := self.restored) is not None:
            body["restored"] = {
                "dataset": restored.dataset,
                "mountpoint": restored.mountpoint,
                "why": restored.why,
                "snapshot": restored.snapshot,
            }
        if (compared := self.compared) is not None:
            body["compared"] = {
                "result": compared.result,
                "datasets": compared.datasets,
                "files": compared.files,
                "bytes": compared.bytes,
                "unread": compared.unread,
            }
            body["differences"] = self.differences
            body["commands"] = compared.commands
        if (healed := self.healed) is not None:
            body["healed"] = {
                "vault": healed.vault,
                "result": healed.result,
                "found": healed.found,
                "healed": healed.healed,
                "left": healed.left,
            }
        return body


def follow_run(start: RunStart, follower: RunFollower, how_again: Callable[[str], str]) -> int:
    """Start a run and follow it to its end; returns the exit status.

    Ctrl-C leaves the run to the daemon; ``how_again`` gives the command that follows it again.
    """
    try:
        _follow(start, follower)
    except KeyboardInterrupt:
        if follower.run is not None:
            print_trouble(f"\nNo longer following: run {follower.run} continues in the daemon.")
            print_trouble(f"Follow it again with '{how_again(follower.run)}'.")
        return INTERRUPTED_STATUS
    return follower.finish()


def _follow(start: RunStart, follower: RunFollower) -> None:
    daemon = connect_daemon()
    follower.run = run = start(daemon)
    with (
        make_progress_bar(not follower.quiet, print_trouble if follower.json else print_line) as shown,
        closing(daemon.events(run)) as events,
    ):
        for event in events:
            shown.see(event)
            follower.see(event)
