"""Talks to the daemon: HTTP and JSON over its unix socket."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from zvault.api import routes
from zvault.api.events import Event
from zvault.api.routes import Route
from zvault.cli import http
from zvault.core.errors import HostUnreachable, ZvaultError

READ_DEADLINE = 120.0
"""Seconds: a plan lists both sides and sizes every stream."""
ACT_DEADLINE = 900.0
"""Seconds: bringing a vault up starts servers, connects devices and imports a pool."""

FOLLOW_DEADLINE = 60.0
"""Seconds: who tells how something goes says at least every few that it is there."""

A = TypeVar("A")

_LOOK = "see 'systemctl status zvaultd' and 'journalctl -u zvaultd'"
_REASONS = {cls.reason: cls for cls in ZvaultError.__subclasses__()}


def socket_path() -> Path:
    """The daemon's socket; ZVAULT_SOCKET names another."""
    if named := os.environ.get("ZVAULT_SOCKET"):
        return Path(named)
    from zvault.config.paths import Paths

    return Paths().socket


class Source(Protocol):
    """Where the verbs that only read find their documents."""

    def get(self, route: Route[A], arguments: Mapping[str, object]) -> A:
        """The document that a route answers. Raises ZvaultError."""
        ...


def read(route: Route[A], **arguments: object) -> A:
    """One document, for a verb that only reads: from the daemon or, where none runs, from the pools themselves.

    Arguments that are None are left out of the query.
    """
    try:
        return Client(socket_path()).get(route, arguments)
    except NotRunning as error:
        if "ZVAULT_SOCKET" in os.environ:
            raise  # asked of that daemon, not of this host's pools
        from zvault.cli.offline import OfflineSource

        source: Source = OfflineSource(error)
        return source.get(route, arguments)


def act(route: Route[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
    """Have the daemon do one thing, and return what it answers."""
    return Client(socket_path()).post(route, body, **arguments)


class Client:
    """Asks the daemon, each time over a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, route: Route[A], arguments: Mapping[str, object]) -> A:
        """See Source.get."""
        return self._ask(route, arguments, None, READ_DEADLINE)

    def post(self, route: Route[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
        """Have something done and return the answer. Raises ZvaultError."""
        return self._ask(route, arguments, body or {}, ACT_DEADLINE)

    def events(self, run: str) -> Generator[Event, None, None]:
        """A run's events from its beginning, to its ``run-finished``.

        Raises HostUnreachable when the stream ends before that.
        """
        # No deadline on reading: a run may wait for hours. Whoever follows can leave with Ctrl-C.
        with self._answer(routes.EVENTS, {"run": run}, None, None) as answer:
            for line in answer.body:
                if line.strip():
                    event = cast(Event, json.loads(line))
                    yield event
                    if event["event"] == "run-finished":
                        return
        raise _broken_off(f"the daemon ended the stream before run {run} did")

    def followed(self, route: Route[A], **arguments: object) -> Generator[str, None, A]:
        """Have done what takes long: yields what the daemon tells as it goes, and returns its answer.

        Who stops listening, say with Ctrl-C, ends it there too. Raises ZvaultError.
        """
        with self._answer(route, arguments, {}, FOLLOW_DEADLINE) as answer:
            for line in answer.body:
                told = json.loads(line)
                if "error" in told:
                    raise _sent(told["error"])
                if "answer" in told:
                    return cast(A, told["answer"])
                if told.get("text"):
                    yield told["text"]
        raise _broken_off("the daemon ended its answer in the middle")

    def _ask(
        self,
        route: Route[A],
        arguments: Mapping[str, object],
        body: Mapping[str, object] | None,
        deadline: float,
    ) -> A:
        with self._answer(route, arguments, body, deadline) as answer:
            return cast(A, json.loads(answer.read()))

    @contextlib.contextmanager
    def _answer(
        self,
        route: Route[Any],
        arguments: Mapping[str, object],
        body: Mapping[str, object] | None,
        deadline: float | None,
    ) -> Iterator[http.Answer]:
        """What the daemon answers; it may be silent for ``deadline`` seconds. Raises the error it tells of."""
        target = route.target(arguments)
        sent = None if body is None else json.dumps(body).encode()
        with (
            _explained(self.path, deadline or http.CONNECT_DEADLINE),
            http.ask(self.path, route.method, target, sent, deadline) as answer,
        ):
            _check(answer, f"{route.method} {target.partition('?')[0]}")
            yield answer


def _check(answer: http.Answer, asked: str) -> None:
    """Raise what the daemon answered as the error it was, by its ``reason``."""
    if answer.status < 400:
        return
    text = answer.read().decode(errors="replace")
    try:
        error = _sent(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        error = ZvaultError(
            f"zvaultd answered {answer.status} to {asked}",
            (text.strip().splitlines() or [""])[0],
            f"zvaultctl and zvaultd may be of different versions; {_LOOK}",
        )
    raise error


def _broken_off(why: str) -> HostUnreachable:
    return HostUnreachable("the connection to zvaultd broke off", why, _LOOK)


def _sent(error: Mapping[str, Any]) -> ZvaultError:
    """An error as the daemon sent it."""
    kind = _REASONS.get(error["reason"], ZvaultError)
    return kind(error["what"], error.get("why", ""), error.get("next", ""))


@contextlib.contextmanager
def _explained(path: Path, deadline: float) -> Iterator[None]:
    """Turn what a connection can die of into words."""
    try:
        yield
    except TimeoutError as error:
        raise HostUnreachable(
            "zvaultd does not answer", f"it was silent for {deadline:g} s", _LOOK
        ) from error
    except (http.TruncatedAnswer, ConnectionResetError, BrokenPipeError, json.JSONDecodeError) as error:
        raise _broken_off(str(error) or type(error).__name__) from error
    except OSError as error:
        raise _no_daemon(path, error) from error


class NotRunning(HostUnreachable):
    """Nobody listens on the socket: no daemon, rather than one that does not answer."""


def _no_daemon(path: Path, error: OSError) -> HostUnreachable:
    """Why nobody answers at the socket, and what to do."""
    start = "start it with 'systemctl start zvaultd'; if it does not stay up, see 'journalctl -u zvaultd'"
    match error.errno:
        case errno.ENOENT:
            return NotRunning("zvaultd is not running", f"there is no socket {path}", start)
        case errno.ECONNREFUSED:
            return NotRunning("zvaultd is not running", f"nobody listens on {path}", start)
        case errno.EACCES | errno.EPERM:
            return HostUnreachable(
                "you may not talk to zvaultd",
                f"{path} is open to root and to the group zvault only",
                "run this as root, or have yourself added with 'adduser USER zvault' and log in again",
            )
    return HostUnreachable("zvaultd cannot be reached", f"{path}: {error.strerror or error}", _LOOK)
