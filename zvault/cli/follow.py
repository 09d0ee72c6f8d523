"""Follows a run: narrates its events, shows how far it is, and ends with its result."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from zvault.cli.client import Client, socket_path
from zvault.cli.documents import Event, RunId
from zvault.cli.narrate import narrated, summary
from zvault.cli.output import OK, RED, TROUBLE, YELLOW, clean, complain, document, say, tell
from zvault.cli.progress import bar
from zvault.core.errors import HostUnreachable

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells expect it: 128 + SIGINT."""

Start = Callable[[Client], RunId]
"""Starts a run, or finds the one to follow."""


@dataclass(slots=True)
class Follower:
    """What the person following sees, and what was seen.

    ``quiet`` leaves only troubles; ``json`` moves the narration to stderr, for stdout is the document's.
    """

    verb: str
    quiet: bool = False
    json: bool = False
    run: RunId | None = None
    end: Event | None = None
    restored: Event | None = None
    healed: Event | None = None
    failed: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def see(self, event: Event) -> None:
        """Take an event in and show it."""
        match event["event"]:
            case "dataset-failed" if event.get("again"):
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
            case "healed":
                self.healed = event
        line = narrated(event)
        if line is not None and not self.quiet:
            (tell if self.json else say)(clean(line))

    def finish(self) -> int:
        """Say how the run ended, and return the exit status."""
        end = self.end
        if end is None:
            raise HostUnreachable(f"run {self.run} ended without a result", "", "see 'zvaultctl history'")
        good = end["result"] == "ok"
        if self.json:
            document(self.verb, self._document(end))
        elif good and not self.quiet:
            say(summary(end))
        elif not good:
            tell(summary(end), YELLOW if end["result"] == "partial" else RED)
        # A dataset's error was shown when it happened, and the run's may be the same one.
        if end["error"] and end["error"] not in [failure["error"] for failure in self.failed]:
            complain(end["error"], "  ")
        return OK if good else TROUBLE

    def _document(self, end: Event) -> dict[str, Any]:
        run = {
            "id": end["run"],
            **{key: end[key] for key in ("backup", "result", "bytes", "seconds", "error")},
        }
        body: dict[str, Any] = {"run": run, "failed": self.failed, "warnings": self.warnings}
        if self.restored is not None:
            body["restored"] = {key: self.restored[key] for key in ("dataset", "mountpoint", "snapshot")}
        if self.healed is not None:
            body["healed"] = {key: self.healed[key] for key in ("vault", "result", "found", "healed", "left")}
        return body


def follow(start: Start, follower: Follower, how_again: Callable[[RunId], str]) -> int:
    """Start a run and follow it to its end; returns the exit status.

    Ctrl-C leaves the run to the daemon; ``how_again`` gives the command that follows it again.
    """
    try:
        _follow(start, follower)
    except KeyboardInterrupt:
        if follower.run is not None:
            tell(f"\nNo longer following: run {follower.run} goes on in the daemon.")
            tell(f"Follow it again with '{how_again(follower.run)}'.")
        return INTERRUPTED
    return follower.finish()


def _follow(start: Start, follower: Follower) -> None:
    daemon = Client(socket_path())
    follower.run = run = start(daemon)
    with (
        bar(not follower.quiet, tell if follower.json else say) as shown,
        closing(daemon.events(run)) as events,
    ):
        for event in events:
            shown.see(event)
            follower.see(event)
