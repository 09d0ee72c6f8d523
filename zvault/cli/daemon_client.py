"""Talks to the daemon: HTTP and JSON over its unix socket."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from zvault.api import routes
from zvault.api.events import RunEvent, RunFinished, read_event
from zvault.api.routes import ApiRoute
from zvault.cli import unix_http
from zvault.core.errors import HostUnreachable, SeveralVaults, ZvaultError

DOCUMENT_DEADLINE = 120.0
"""Seconds for a read: a plan lists both sides and sizes every stream."""
ACTION_DEADLINE = 900.0
"""Seconds for an action: bringing a vault up starts servers, connects devices and imports a pool."""

FOLLOW_DEADLINE = 60.0
"""Seconds of silence while following: the daemon sends a sign of life every few seconds."""

PROCESS_ID_LENGTH = 20
"""Characters of a process ID at most, as far as it is read from a file."""

A = TypeVar("A")

_LOOK = "see 'systemctl status zvaultd' and 'journalctl -u zvaultd'"
_REASONS = {cls.reason: cls for cls in ZvaultError.__subclasses__()}
_REASONS[SeveralVaults.reason] = SeveralVaults


def find_socket_path() -> Path:
    """The path of the daemon's socket; ZVAULT_SOCKET overrides it."""
    if named := os.environ.get("ZVAULT_SOCKET"):
        return Path(named)
    from zvault.config.paths import Paths

    return Paths().socket


class DocumentSource(Protocol):
    """A source of documents for verbs that only read."""

    def get(self, route: ApiRoute[A], arguments: Mapping[str, object]) -> A:
        """The document that a route answers. Raises ZvaultError."""
        ...


class DaemonClient(DocumentSource, Protocol):
    """A Client, or what stands for several (cli/hosts.py)."""

    def post(self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
        """See Client."""
        ...

    def events(self, run: str) -> Generator[RunEvent, None, None]:
        """See Client."""
        ...

    def all_events(self) -> Generator[RunEvent, None, None]:
        """See Client."""
        ...

    def followed(
        self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object
    ) -> Generator[str, None, A]:
        """See Client."""
        ...


_chosen: list[DaemonClient] = []
"""The daemons of other hosts that this command asks; without any it asks this host's."""


def choose_daemon(daemon: DaemonClient | None) -> None:
    """Ask this from now on, in place of this host's daemon."""
    _chosen[:] = [] if daemon is None else [daemon]


def connect_daemon() -> DaemonClient:
    """Whom this command asks."""
    return _chosen[0] if _chosen else HttpClient(find_socket_path())


def read_document(route: ApiRoute[A], **arguments: object) -> A:
    """One document, for a verb that only reads: from the daemon or, where none runs, from the pools themselves.

    Arguments that are None are left out of the query.
    """
    try:
        return connect_daemon().get(route, arguments)
    except DaemonNotRunning as error:
        if _chosen or "ZVAULT_SOCKET" in os.environ:
            raise  # the user asked that daemon, not this host's pools
        from zvault.cli.offline import OfflineSource

        source: DocumentSource = OfflineSource(error)
        return source.get(route, arguments)


def request_action(route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
    """Have the daemon do one thing, and return its answer."""
    return connect_daemon().post(route, body, **arguments)


class HttpClient:
    """Queries the daemon; each request uses a new connection."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, route: ApiRoute[A], arguments: Mapping[str, object]) -> A:
        """See DocumentSource.get."""
        return self._ask(route, arguments, None, DOCUMENT_DEADLINE)

    def post(self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
        """Send a request that acts, and return the answer. Raises ZvaultError."""
        return self._ask(route, arguments, body or {}, ACTION_DEADLINE)

    def events(self, run: str) -> Generator[RunEvent, None, None]:
        """A run's events from its start to ``run-finished``.

        Raises HostUnreachable if the stream ends before that.
        """
        # No read deadline: a run may wait for hours. The user can leave with Ctrl-C.
        with self._answer(routes.EVENTS, {"run": run}, None, None) as answer:
            for line in answer.body:
                if (event := _event(line)) is not None:
                    yield event
                    if isinstance(event, RunFinished):
                        return
        raise _broken_off(f"the daemon ended the stream before run {run} did")

    def all_events(self) -> Generator[RunEvent, None, None]:
        """The events of all runs from now on. Raises HostUnreachable when the daemon ends."""
        with self._answer(routes.EVENTS, {}, None, None) as answer:
            for line in answer.body:
                if (event := _event(line)) is not None:
                    yield event
        raise _broken_off("the daemon ended the stream of events")

    def followed(
        self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object
    ) -> Generator[str, None, A]:
        """Send a request that takes long: yields the daemon's progress messages and returns its answer.

        If the caller stops reading, for example with Ctrl-C, the daemon ends the work too. Raises ZvaultError.
        """
        with self._answer(route, arguments, body or {}, FOLLOW_DEADLINE) as answer:
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
        route: ApiRoute[A],
        arguments: Mapping[str, object],
        body: Mapping[str, object] | None,
        deadline: float,
    ) -> A:
        with self._answer(route, arguments, body, deadline) as answer:
            return cast(A, json.loads(answer.read()))

    @contextlib.contextmanager
    def _answer(
        self,
        route: ApiRoute[Any],
        arguments: Mapping[str, object],
        body: Mapping[str, object] | None,
        deadline: float | None,
    ) -> Iterator[unix_http.HttpAnswer]:
        """The daemon's answer; it may be silent for ``deadline`` seconds. Raises the error in the answer."""
        target = route.target(arguments)
        sent = None if body is None else json.dumps(body).encode()
        with (
            _explained(self.path, deadline or unix_http.SOCKET_CONNECT_DEADLINE),
            unix_http.send_http(self.path, route.method, target, sent, deadline) as answer,
        ):
            _check(answer, f"{route.method} {target.partition('?')[0]}")
            yield answer


def _check(answer: unix_http.HttpAnswer, asked: str) -> None:
    """If the daemon answered with an error, raise it as the class that its ``reason`` names."""
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


def _event(line: bytes) -> RunEvent | None:
    """The event of a line; None of a sign of life, and of a kind that only a newer daemon knows."""
    if not line.strip():
        return None
    document = json.loads(line)
    try:
        return read_event(document)
    except ValueError as error:
        raise ZvaultError(
            "zvaultd sent an event that zvaultctl does not understand",
            str(error),
            f"zvaultctl and zvaultd may be of different versions; {_LOOK}",
        ) from error


def _broken_off(why: str) -> HostUnreachable:
    return HostUnreachable("the connection to zvaultd broke off", why, _LOOK)


def _sent(error: Mapping[str, Any]) -> ZvaultError:
    """An error as the daemon sent it."""
    kind = _REASONS.get(error["reason"], ZvaultError)
    return kind(error["what"], error.get("why", ""), error.get("next", ""))


@contextlib.contextmanager
def _explained(path: Path, deadline: float) -> Iterator[None]:
    """Turn errors of a connection into errors for a person."""
    try:
        yield
    except TimeoutError as error:
        raise HostUnreachable(
            "zvaultd does not answer", f"it was silent for {deadline:g} s", _LOOK
        ) from error
    except (unix_http.TruncatedAnswer, ConnectionResetError, BrokenPipeError, json.JSONDecodeError) as error:
        raise _broken_off(str(error) or type(error).__name__) from error
    except OSError as error:
        raise _no_daemon(path, error) from error


class DaemonNotRunning(HostUnreachable):
    """No process listens on the socket: there is no daemon. A daemon that does not answer is another error."""


class DaemonStarting(DaemonNotRunning):
    """A daemon starts, and does not answer yet."""


def _find_starting_daemon(socket: Path) -> str | None:
    """The process ID of a daemon that starts and will listen there; None where none does.

    It is known by its lock on the file (Paths.starting), and not by that ID: of one that was killed another process may
    have it by now.
    """
    try:
        with socket.with_name("zvaultd.starting").open(encoding="ascii") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return file.read(PROCESS_ID_LENGTH).strip()
    except (OSError, ValueError):
        pass
    return None


def _no_daemon(path: Path, error: OSError) -> HostUnreachable:
    """The error for a socket that cannot be connected to: why, and what to do."""
    starting = _find_starting_daemon(path) if error.errno in {errno.ENOENT, errno.ECONNREFUSED} else None
    if starting is not None:
        return DaemonStarting(
            "zvaultd is starting",
            f"process {starting} looks after what an earlier zvaultd left, and does not answer yet",
            "try again in a moment; 'systemctl status zvaultd' shows what it does",
        )
    start = "start it with 'systemctl start zvaultd'; if it does not stay up, see 'journalctl -u zvaultd'"
    match error.errno:
        case errno.ENOENT:
            return DaemonNotRunning("zvaultd is not running", f"there is no socket {path}", start)
        case errno.ECONNREFUSED:
            return DaemonNotRunning("zvaultd is not running", f"nobody listens on {path}", start)
        case errno.EACCES | errno.EPERM:
            return HostUnreachable(
                "you may not talk to zvaultd",
                f"{path} is open to root and to the group zvault only",
                "run this as root, or have yourself added with 'adduser USER zvault' and log in again",
            )
    return HostUnreachable("zvaultd cannot be reached", f"{path}: {error.strerror or error}", _LOOK)
