"""The verbs that only read, without a daemon: the same documents, made from the pools by the same code."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from urllib.parse import unquote

from zvault.cli.documents import Document
from zvault.config.load import load
from zvault.config.paths import Paths
from zvault.core.errors import HostUnreachable
from zvault.ops.context import Context
from zvault.ops.doctor import doctor_document, watched_for
from zvault.ops.fit import fit_document
from zvault.ops.holds import find_keepsakes
from zvault.ops.preview import prune_document
from zvault.ops.report import list_document, plan_document, vault_document
from zvault.ops.tune_show import tuning_document
from zvault.ops.vault import Vaults
from zvault.system.process import HostRunner

_OFFLINE = (
    "/v1/list",
    "/v1/plan/",
    "/v1/prune/",
    "/v1/holds",
    "/v1/fit/",
    "/v1/doctor/",
    "/v1/vaults",
    "/v1/tuning",
)


class Offline:
    """A Source for when zvaultd is not running. It brings no vault up and changes nothing."""

    def __init__(self, daemon: HostUnreachable) -> None:
        self.daemon = daemon

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Document:
        """The document at ``path``; what only a daemon can tell raises the reason why none was asked."""
        if os.geteuid() != 0 or not path.startswith(_OFFLINE):
            raise self.daemon
        return asyncio.run(_document(path, query or {}))


async def _document(path: str, wanted: Mapping[str, str]) -> Document:
    paths = Paths()
    config = load(paths)
    context = Context(config, paths, HostRunner(), config.daemon.host or socket.gethostname())
    vaults = Vaults(context)
    try:
        if path == "/v1/list":
            snapshots = wanted.get("snapshots") == "1"
            found = await list_document(context, vaults, wanted.get("backup"), snapshots=snapshots)
        elif path == "/v1/vaults":
            found = {"vaults": [await vault_document(keeper) for keeper in vaults.all()]}
        elif path == "/v1/tuning":
            found = await tuning_document(context)
        elif path == "/v1/holds":
            found = {"holds": [one.document() for one in await find_keepsakes(context, vaults)]}
        elif path.startswith("/v1/fit/"):
            found = await fit_document(context, vaults, unquote(path.removeprefix("/v1/fit/")))
        elif path.startswith("/v1/doctor/"):
            name, watch = unquote(path.removeprefix("/v1/doctor/")), watched_for(wanted.get("seconds"))
            found = await doctor_document(context, vaults, name, watch)
        elif path.startswith("/v1/prune/"):
            name, over = unquote(path.removeprefix("/v1/prune/")), wanted.get("over_limit") == "1"
            found = await prune_document(context, vaults, name, bring_up=False, over_limit=over)
        else:
            found = await plan_document(context, vaults, path.removeprefix("/v1/plan/"), bring_up=False)
    finally:
        await context.close()
    return found
