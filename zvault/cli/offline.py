"""Read-only verbs without a daemon: the same code makes the same documents from the pools."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast

from zvault.api import routes
from zvault.api.backups import ForecastDocument, HoldsAnswer, ListAnswer, PlanDocument, PruneDocument
from zvault.api.diagnosis import DoctorDocument, FitDocument
from zvault.api.explain import ExplainDocument
from zvault.api.routes import ApiRoute
from zvault.api.tuning import TuningDocument
from zvault.api.vaults import JudgedVault, VaultsAnswer
from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.core.errors import HostUnreachable
from zvault.core.health.vault import judge_vault
from zvault.ops.context import Context
from zvault.ops.diagnosis.doctor import make_doctor_document, parse_watch_seconds
from zvault.ops.diagnosis.fit import make_fit_document
from zvault.ops.explain.document import make_explain_document
from zvault.ops.explain.knowledge import NoDaemon
from zvault.ops.forecast import make_forecast_document
from zvault.ops.list_documents import make_list_document
from zvault.ops.plan_documents import make_plan_document
from zvault.ops.retention.holds import find_keepsakes
from zvault.ops.retention.prune_report import make_prune_document
from zvault.ops.state.environment import Environment
from zvault.ops.tuning.tuning_report import make_tuning_document
from zvault.ops.vault_documents import make_vault_document
from zvault.ops.vault_facts import make_judged_vault, make_vault_facts
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system.process.runner import HostRunner

A = TypeVar("A")
Arguments = Mapping[str, object]
DocumentMaker = Callable[[Context, Vaults, Arguments], Awaitable[object]]


class OfflineSource:
    """A Source for use while zvaultd is not running. It brings no vault up and changes nothing."""

    def __init__(self, daemon: HostUnreachable) -> None:
        self.daemon = daemon

    def get(self, route: ApiRoute[A], arguments: Arguments) -> A:
        """A route's document. For a route that needs the daemon, raises the reason why the daemon was not reached."""
        if os.geteuid() != 0 or route not in _MADE:
            raise self.daemon
        return cast(A, asyncio.run(_document(_MADE[route], arguments)))


async def _document(made: DocumentMaker, arguments: Arguments) -> object:
    paths = Paths()
    config = load_config(paths)
    context = Context.of(Environment.of(config, paths, HostRunner()))
    try:
        return await made(context, Vaults(context), arguments)
    finally:
        await context.clients.close()


async def _list(context: Context, vaults: Vaults, wanted: Arguments) -> ListAnswer:
    only = wanted.get("backup")
    return await make_list_document(
        context, vaults, None if only is None else str(only), snapshots=bool(wanted.get("snapshots"))
    )


async def _vaults(context: Context, vaults: Vaults, __: Arguments) -> VaultsAnswer:
    return {"vaults": [await _judged(context, keeper) for keeper in vaults.all()]}


async def _judged(context: Context, keeper: ManagedVault) -> JudgedVault:
    """By what can be seen without a daemon: what it would have noticed over time is missing."""
    document = await make_vault_document(keeper)
    return make_judged_vault(context, document, judge_vault(make_vault_facts(context, document)))


async def _tuning(context: Context, _: Vaults, __: Arguments) -> TuningDocument:
    return await make_tuning_document(context)


async def _holds(context: Context, vaults: Vaults, _: Arguments) -> HoldsAnswer:
    found, unknown = await find_keepsakes(context, vaults)
    return {"holds": [one.document() for one in found], "unknown": unknown}


async def _fit(context: Context, vaults: Vaults, wanted: Arguments) -> FitDocument:
    return await make_fit_document(context, vaults, context.env.backup(str(wanted["backup"])))


async def _doctor(context: Context, vaults: Vaults, wanted: Arguments) -> DoctorDocument:
    vault, seconds = context.env.vault(str(wanted["vault"])), wanted.get("seconds")
    watch = parse_watch_seconds(None if seconds is None else str(seconds))
    return await make_doctor_document(context, vaults, vault, watch, rights=bool(wanted.get("rights")))


async def _prune(context: Context, vaults: Vaults, wanted: Arguments) -> PruneDocument:
    backup, over_limit = context.env.backup(str(wanted["backup"])), bool(wanted.get("over_limit"))
    return await make_prune_document(context, vaults, backup, bring_up=False, over_limit=over_limit)


async def _plan(context: Context, vaults: Vaults, wanted: Arguments) -> PlanDocument:
    return await make_plan_document(
        context, vaults, context.env.backup(str(wanted["backup"])), bring_up=False
    )


async def _explain(context: Context, _: Vaults, wanted: Arguments) -> ExplainDocument:
    return await make_explain_document(context, NoDaemon(), str(wanted["name"]))


async def _forecast(context: Context, _: Vaults, wanted: Arguments) -> ForecastDocument:
    backup, snapshot = context.env.backup(str(wanted["backup"])), wanted.get("snapshot") is None
    refused = "zvaultd is not running"
    return await make_forecast_document(context, backup, snapshot=snapshot, refused=refused)


def _made(
    route: ApiRoute[A], made: Callable[[Context, Vaults, Arguments], Awaitable[A]]
) -> tuple[ApiRoute[Any], DocumentMaker]:
    return route, made


_MADE = dict(
    [
        _made(routes.LIST, _list),
        _made(routes.VAULTS, _vaults),
        _made(routes.TUNING, _tuning),
        _made(routes.HOLDS, _holds),
        _made(routes.FIT, _fit),
        _made(routes.DOCTOR, _doctor),
        _made(routes.PRUNE_PLAN, _prune),
        _made(routes.PLAN, _plan),
        _made(routes.FORECAST, _forecast),
        _made(routes.EXPLAIN, _explain),
    ]
)
"""By route, the function that makes its document without a daemon."""
