"""Several daemons as one: those of other hosts, each by a way of its own through ssh. Names are ``HOST:NAME``."""

from __future__ import annotations

import atexit
import contextlib
import queue
import shutil
import tempfile
import threading
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from zvault.api import routes
from zvault.api.events import RunEvent
from zvault.api.health import FindingDocument, HealthDocument
from zvault.api.routes import ApiRoute
from zvault.api.status import HostDocument, StatusDocument
from zvault.cli.daemon_client import HttpClient
from zvault.core.address import SSH_SCHEME, Address, parse_address
from zvault.core.errors import ConfigError, HostUnreachable, Refused, ZvaultError
from zvault.core.health.verdict import select_worst_level
from zvault.system import ssh
from zvault.system.process.tunnel import Tunnel

A = TypeVar("A")

LOCAL_VERBS = frozenset(
    {"adopt", "browse", "check-config", "diff", "install-units", "blockstore", "mount", "restore"}
)
"""Verbs that work on files or devices of the host where they are started."""


class SeveralDaemons:
    """The client of several hosts. Each is asked in a thread of its own."""

    def __init__(self, clients: Mapping[str, HttpClient | ZvaultError]) -> None:
        """``clients`` by host; an error in the place of one that cannot be reached."""
        self.clients = clients
        self._runs: dict[str, str] = {}

    def get(self, route: ApiRoute[A], arguments: Mapping[str, object]) -> A:
        """See Client. The state of everything is that of all hosts; anything else is asked of the host it names."""
        if route is routes.STATUS:
            return cast(A, self._status())
        host, own = self._named(arguments)
        return self._client(host).get(route, own)

    def post(self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object) -> A:
        """See Client."""
        host, own, sent = self._addressed(arguments, body)
        answer = self._client(host).post(route, sent, **own)
        if isinstance(answer, dict) and isinstance(answer.get("run"), str):
            self._runs |= dict.fromkeys([answer["run"], *answer.get("runs", {}).values()], host)
        return answer

    def events(self, run: str) -> Generator[RunEvent, None, None]:
        """See Client: of a run that was started here, or seen in the state of everything."""
        if run not in self._runs:
            what = f"no host is known to have run {run}"
            raise Refused(what, "a run is followed by its backup here", "name it as HOST:BACKUP")
        host = self._runs[run]
        for event in self._client(host).events(run):
            yield _prefixed(event, host)

    def all_events(self) -> Generator[RunEvent, None, None]:
        """See Client. Ends when one of the hosts does."""
        heard: queue.SimpleQueue[RunEvent | ZvaultError] = queue.SimpleQueue()

        def listen(host: str, client: HttpClient) -> None:
            try:
                for event in client.all_events():
                    heard.put(_prefixed(event, host))
            except ZvaultError as error:
                heard.put(error)

        for host, client in self.clients.items():
            if isinstance(client, HttpClient):
                threading.Thread(target=listen, args=(host, client), daemon=True).start()
        while not isinstance(event := heard.get(), ZvaultError):
            yield event
        raise event

    def followed(
        self, route: ApiRoute[A], body: Mapping[str, object] | None = None, **arguments: object
    ) -> Generator[str, None, A]:
        """See Client."""
        host, own, sent = self._addressed(arguments, body)
        return (yield from self._client(host).followed(route, sent, **own))

    def _client(self, host: str) -> HttpClient:
        client = self.clients[host]
        if isinstance(client, ZvaultError):
            raise client
        return client

    def _addressed(
        self, arguments: Mapping[str, object], body: Mapping[str, object] | None
    ) -> tuple[str, dict[str, object], Mapping[str, object] | None]:
        """The host that an argument or the body names, and both without it. Raises Refused."""
        if body and "backup" in body:
            host, sent = self._named({"backup": body["backup"]})
            return host, dict(arguments), {**body, **sent}
        host, own = self._named(arguments)
        return host, own, body

    def _named(self, arguments: Mapping[str, object]) -> tuple[str, dict[str, object]]:
        """The host that an argument names, and the arguments without it. Raises Refused."""
        for key, value in arguments.items():
            host, colon, name = value.partition(":") if isinstance(value, str) else ("", "", "")
            if colon and host in self.clients:
                return host, {**arguments, key: name}
        if len(self.clients) == 1:
            return next(iter(self.clients)), dict(arguments)
        raise Refused(
            "it is not said on which host",
            f"asked are {', '.join(self.clients)}",
            f"put a host before the name, as in {next(iter(self.clients))}:NAME",
        )

    def _status(self) -> StatusDocument:
        def ask(client: HttpClient | ZvaultError) -> StatusDocument | ZvaultError:
            try:
                return client.get(routes.STATUS, {}) if isinstance(client, HttpClient) else client
            except ZvaultError as error:
                return error

        with ThreadPoolExecutor(len(self.clients)) as threads:
            answers = dict(zip(self.clients, threads.map(ask, self.clients.values()), strict=True))
        found = {host: one for host, one in answers.items() if not isinstance(one, ZvaultError)}
        if not found:
            raise next(one for one in answers.values() if isinstance(one, ZvaultError))
        for host, status in found.items():
            self._runs |= {one["run"]: host for one in status["backups"] if one["run"] is not None}
        return merge_statuses(answers)


def merge_statuses(answers: Mapping[str, StatusDocument | ZvaultError]) -> StatusDocument:
    """The state of everything on all hosts, of which at least one answered."""
    found = {host: one for host, one in answers.items() if not isinstance(one, ZvaultError)}
    findings: list[FindingDocument] = []
    hosts: list[HostDocument] = []
    for host, answer in answers.items():
        if isinstance(answer, ZvaultError):
            findings.append(_unreached(host, answer))
            hosts.append({"name": host, "daemon": None, "error": answer.as_dict()})
        else:
            told = answer["daemon"]["verdict"]["findings"]
            findings += [
                {**one, "what": f"{host}: {one['what']}", "why": f"{host}: {one['why']}"} for one in told
            ]
            hosts.append({"name": host, "daemon": answer["daemon"], "error": None})
    level = select_worst_level(one["level"] for one in findings)
    first = next((one for one in findings if one["level"] == level), None)
    verdict: HealthDocument = {
        "level": level,
        "state": first["state"] if first else "ok",
        "findings": findings,
    }
    return {
        "daemon": {
            **next(iter(found.values()))["daemon"],
            "warnings": [
                f"{host}: {text}" for host, one in found.items() for text in one["daemon"]["warnings"]
            ],
            "verdict": verdict,
        },
        "backups": [
            {**one, "name": f"{host}:{one['name']}"}
            for host, status in found.items()
            for one in status["backups"]
        ],
        "vaults": [
            {**one, "name": f"{host}:{one['name']}"}
            for host, status in found.items()
            for one in status["vaults"]
        ],
        "hosts": hosts,
    }


def _unreached(host: str, error: ZvaultError) -> FindingDocument:
    why = f"{error.what}: {error.why}" if error.why else error.what
    return {
        "condition": "host-not-asked",
        "level": "unknown",
        "state": "unknown",
        "what": f"{host} could not be asked",
        "why": f"{host}: {why}",
        "next": error.next,
    }


def _prefixed(event: RunEvent, host: str) -> RunEvent:
    names = {key: getattr(event, key, None) for key in ("backup", "vault")}
    told: dict[str, Any] = {key: f"{host}:{name}" for key, name in names.items() if isinstance(name, str)}
    return replace(event, **told)


def parse_hosts(text: str) -> dict[str, Address]:
    """``a,root@b,ssh://c:2222``: addresses by the hosts' names. Raises ConfigError."""
    found: dict[str, Address] = {}
    for word in text.split(","):
        try:
            address = parse_address(word.strip() if SSH_SCHEME in word else SSH_SCHEME + word.strip())
        except ValueError as error:
            raise ConfigError(
                f"--hosts {text}", str(error), "give hosts as ssh knows them, as in a,root@b"
            ) from None
        if address.host in found:
            raise ConfigError(f"--hosts {text}", f"{address.host} is named twice", "name each host once")
        found[address.host] = address
    return found


def open_hosts(hosts: Mapping[str, Address], remote: Path) -> SeveralDaemons:
    """A way to the daemon's socket, ``remote``, of each host. The ways end with this process."""
    folder = Path(tempfile.mkdtemp(prefix="zvaultctl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tunnels = {
        host: _tunnel(address, remote, folder / str(at)) for at, (host, address) in enumerate(hosts.items())
    }
    for tunnel in tunnels.values():
        atexit.register(tunnel.close)

    def reached(host: str) -> HttpClient | ZvaultError:
        try:
            tunnels[host].wait()
        except ZvaultError as error:
            return error
        return _RemoteClient(host, tunnels[host])

    with ThreadPoolExecutor(len(tunnels)) as threads:
        clients = dict(zip(tunnels, threads.map(reached, tunnels), strict=True))
    return SeveralDaemons(clients)


def _tunnel(address: Address, remote: Path, path: Path) -> Tunnel:
    return Tunnel(ssh.forward_argv(address, path, remote), path, partial(ssh.make_ssh_error, address))


class _RemoteClient(HttpClient):
    """A Client that tells, of a connection that ended at once, what ssh said."""

    def __init__(self, host: str, tunnel: Tunnel) -> None:
        super().__init__(tunnel.path)
        self._host, self._tunnel = host, tunnel

    @contextlib.contextmanager
    def _answer(self, *asked: Any) -> Generator[Any, None, None]:
        try:
            with super()._answer(*asked) as answer:
                yield answer
        except HostUnreachable as error:
            if not (said := self._tunnel.said().strip().splitlines()):
                raise
            raise HostUnreachable(
                f"zvaultd of {self._host} cannot be asked",
                said[-1],
                f"see 'systemctl status zvaultd' there; its user must be root or in group zvault ({error.what})",
            ) from error


def choose_hosts(text: str, verb: str | None, remote: Path) -> SeveralDaemons:
    """Parse what ``--hosts`` asks for. Raises Refused, ConfigError."""
    if verb in LOCAL_VERBS:
        raise Refused(
            f"'{verb}' works on the host where it is started",
            "--hosts asks daemons of other hosts only",
            f"'ssh HOST zvaultctl {verb} …' starts it there",
        )
    return open_hosts(parse_hosts(text), remote)
