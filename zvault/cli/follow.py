"""Follows a run: prints its events, shows its progress, and ends with its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypedDict

from zvault.api.events import Compared, Event, Healed, Restored, RunFinished
from zvault.api.restore import DifferenceDocument
from zvault.cli.client import Daemon, connect
from zvault.cli.event_text import difference, narrated, summary
from zvault.cli.output import OK, RED, TROUBLE, YELLOW, clean, complain, document, say, tell
from zvault.cli.progress import bar
from zvault.core.errors import ErrorDocument, HostUnreachable

NAMED = 20
"""Maximum number of differences of a restore that are printed."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it: 128 + SIGINT."""

Start = Callable[[Daemon], str]
"""Starts a run, or finds the one to follow."""


class Failure(TypedDict):
    """A dataset that failed."""

    dataset: str
    error: ErrorDocument


@dataclass(slots=True)
class Follower:
    """Prints the events of a run and collects them.

    ``quiet`` prints only trouble; ``json`` prints events on stderr, because stdout is for the document.
    """

    verb: str
    quiet: bool = False
    json: bool = False
    run: str | None = None
    end: RunFinished | None = None
    restored: Restored | None = None
    compared: Compared | None = None
    differences: list[DifferenceDocument] = field(default_factory=list)
    healed: Healed | None = None
    failed: list[Failure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def see(self, event: Event) -> None:
        """Record an event and print it."""
        match event["event"]:
            case "dataset-failed" if event["again"]:
                tell(f"failed for now: {event['dataset']}: {clean(event['error']['what'])}", YELLOW)
            case "dataset-failed":
                self.failed.append({"dataset": event["dataset"], "error": event["error"]})
                complain(event["error"], f"failed: {event['dataset']}: ")
            case "warning":
                self.warnings.append(event["text"])
                tell(f"warning: {clean(event['text'])}", YELLOW)
            case "run-finished":
                self.end = event
            case "restored":
                self.restored = self.restored or event
            case "differs":
                self._differ(event["differences"])
            case "compared":
                self.compared = event
            case "healed":
                self.healed = event
        line = narrated(event)
        if line is not None and not self.quiet:
            (tell if self.json else say)(clean(line))

    def _differ(self, differences: Sequence[DifferenceDocument]) -> None:
        """Print the first differences of a restore; the document has all of them."""
        room = max(0, NAMED - len(self.differences))
        self.differences += differences
        for one in differences[:room]:
            tell(f"differs: {clean(difference(one))}", YELLOW)

    def _what_is_left(self) -> None:
        """After the differences: how many were left out, and the commands that repair them."""
        if len(self.differences) > NAMED:
            tell(f"and {len(self.differences) - NAMED} more differences: -j shows all of them")
        if self.compared is not None and self.compared["commands"]:
            tell("these commands repair it:")
            for command in self.compared["commands"]:
                tell(f"  {clean(command)}")

    def finish(self) -> int:
        """Print how the run ended, and return the exit status."""
        end = self.end
        if end is None:
            raise HostUnreachable(f"run {self.run} ended without a result", "", "see 'zvaultctl history'")
        good = end["result"] == "ok"
        self._what_is_left()
        if self.json:
            document(self.verb, self._document(end))
        elif good and not self.quiet:
            say(summary(end))
        elif not good:
            tell(summary(end), YELLOW if end["result"] == "partial" else RED)
        # A dataset's error was already printed, and the run's error may be the same one.
        if end["error"] and end["error"] not in [failure["error"] for failure in self.failed]:
            complain(end["error"], "  ")
        return OK if good else TROUBLE

    def _document(self, end: RunFinished) -> dict[str, object]:
        run = {
            "id": end["run"],
            "backup": end["backup"],
            "result": end["result"],
            "bytes": end["bytes"],
            "seconds": end["seconds"],
            "error": end["error"],
        }
        body: dict[str, object] = {"run": run, "failed": self.failed, "warnings": self.warnings}
        if (restored := self.restored) is not None:
            body["restored"] = {
                "dataset": restored["dataset"],
                "mountpoint": restored["mountpoint"],
                "why": restored["why"],
                "snapshot": restored["snapshot"],
            }
        if (compared := self.compared) is not None:
            body["compared"] = {
                "result": compared["result"],
                "datasets": compared["datasets"],
                "files": compared["files"],
                "bytes": compared["bytes"],
                "unread": compared["unread"],
            }
            body["differences"] = self.differences
            body["commands"] = compared["commands"]
        if (healed := self.healed) is not None:
            body["healed"] = {
                "vault": healed["vault"],
                "result": healed["result"],
                "found": healed["found"],
                "healed": healed["healed"],
                "left": healed["left"],
            }
        return body


def follow(start: Start, follower: Follower, how_again: Callable[[str], str]) -> int:
    """Start a run and follow it to its end; returns the exit status.

    Ctrl-C leaves the run to the daemon; ``how_again`` gives the command that follows it again.
    """
    try:
        _follow(start, follower)
    except KeyboardInterrupt:
        if follower.run is not None:
            tell(f"\nNo longer following: run {follower.run} continues in the daemon.")
            tell(f"Follow it again with '{how_again(follower.run)}'.")
        return INTERRUPTED
    return follower.finish()


def _follow(start: Start, follower: Follower) -> None:
    daemon = connect()
    follower.run = run = start(daemon)
    with (
        bar(not follower.quiet, tell if follower.json else say) as shown,
        closing(daemon.events(run)) as events,
    ):
        for event in events:
            shown.see(event)
            follower.see(event)
