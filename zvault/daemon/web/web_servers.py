"""What is served where: ``/metrics`` and the page, on one address or on two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from zvault.config.fields import split_address
from zvault.config.schema import Config
from zvault.config.tables.page import METRICS_WORD
from zvault.core.errors import ZvaultError
from zvault.core.loopback import is_loopback
from zvault.daemon.journald import log
from zvault.daemon.page.topics import PageTopic
from zvault.daemon.web.login import seal_login
from zvault.daemon.web.server import Told, WebServer
from zvault.ops.context import Context
from zvault.ops.deliver_message import read_secret

Key = str
"""``metrics`` or ``page``: what a server is for, and what its warning is called."""


@dataclass(frozen=True, slots=True)
class WantedServer:
    """An address, and whether metrics and the page are served there."""

    host: str
    port: int
    metrics: bool
    page: bool


def list_wanted_servers(config: Config) -> dict[Key, WantedServer]:
    """The servers that a configuration wants."""
    found: dict[Key, WantedServer] = {}
    page = config.page
    if config.daemon.metrics is not None:
        host, port = split_address(config.daemon.metrics)
        beside = page.listen == METRICS_WORD and (page.guarded or is_loopback(host))
        found["metrics"] = WantedServer(host, port, True, beside)
    if page.address is not None:
        metrics = found.get("metrics")
        if metrics is not None and (metrics.host, metrics.port) == page.address:
            found["metrics"] = WantedServer(*page.address, True, True)
        else:
            found["page"] = WantedServer(*page.address, False, True)
    return found


class WebServers:
    """Has the servers run that the configuration wants, or says why not; ``warnings`` are told as the daemon's."""

    def __init__(self, context: Context, warnings: dict[str, str], answers: Mapping[PageTopic, Told]) -> None:
        self._context, self._warnings = context, warnings
        self._servers: dict[Key, WebServer] = {"metrics": WebServer(answers), "page": WebServer(answers)}
        self._before: object = None
        self._hidden: set[Key] = set()

    async def look(self) -> None:
        """Serve what is wanted and not served. What cannot be is tried again: no backup is left undone for a port."""
        for key, one in list_wanted_servers(self._context.env.config).items():
            hidden = key in self._hidden and self._login(one) is not None
            if hidden or self._servers[key].address is None:
                await self._serve(key, one)

    async def _serve(self, key: Key, one: WantedServer) -> None:
        self._before = self._state()
        login = self._login(one)
        if login is None:
            # Metrics need no password. A page for which it cannot be read is shown to nobody.
            self._hidden.add(key)
            one = replace(one, page=False)
        else:
            self._hidden.discard(key)
        if not one.metrics and not one.page:
            return
        try:
            await self._servers[key].listen(one.host, one.port, self._settings(one, login or {}), key)
        except ZvaultError as error:
            self._warn(key, str(error))
        else:
            if key not in self._hidden:
                self._warnings.pop(key, None)

    def _login(self, one: WantedServer) -> dict[str, str] | None:
        """What a name and password are known by; empty where none is needed, None where it cannot be read."""
        page = self._context.env.config.page
        if not one.page or page.user is None or page.password is None:
            return {}
        try:
            found = seal_login(page.user, read_secret(page.password, "[page]"))
        except ZvaultError as error:
            self._warn("page", f"the page is not served: {error}")
            return None
        self._warnings.pop("page", None)
        return found

    def _warn(self, key: Key, text: str) -> None:
        if key not in self._warnings:
            log.error("%s", text)
        self._warnings[key] = text

    def _settings(self, one: WantedServer, login: Mapping[str, str]) -> dict[str, Any]:
        page, zone = self._context.env.config.page, self._context.env.zone
        return {
            "metrics": one.metrics,
            "page": one.page,
            "files": page.files,
            "hosts": page.hosts if one.page else [],
            "zone": getattr(zone, "key", "UTC"),
            "login": login or None,
            "header": page.header,
            "proxies": page.proxies,
        }

    def _state(self) -> object:
        config = self._context.env.config
        return list_wanted_servers(config), config.page, config.daemon.timezone

    async def reload(self) -> None:
        """Serve what a new configuration wants, and nothing else. A password may have changed where it is kept."""
        if self._state() != self._before or self._context.env.config.page.password is not None:
            await self.close()
            self._hidden.clear()
            for key in self._servers:
                self._warnings.pop(key, None)
        await self.look()

    async def close(self) -> None:
        """Stop serving."""
        for server in self._servers.values():
            await server.close()
