"""The part of the API that is about vaults: up, down, made, taken over, measured, examined.

What is done seldom is imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from aiohttp import web

from zvault.api import routes
from zvault.api.diagnosis import DoctorDocument
from zvault.api.tuning import MeasuredAnswer, TuningDocument
from zvault.api.vaults import (
    AcceptOlderAnswer,
    ClosedAnswer,
    CreationAnswer,
    JudgedVault,
    PastAnswer,
    PoolHistoryAnswer,
    TakeoverAnswer,
    VaultAnswer,
    VaultsAnswer,
)
from zvault.daemon import journald
from zvault.daemon.api.access import MalformedRequest, read_json_object, read_moment
from zvault.daemon.api.handler import RouteHandler, make_handler
from zvault.daemon.api.streaming import Say, answer_with_progress
from zvault.daemon.backup_runs import BackupRuns
from zvault.daemon.status import DaemonStatus
from zvault.ops.vault_documents import make_vault_document
from zvault.ops.vault_facts import make_judged_vault
from zvault.ops.vaults.vault import ManagedVault, Vaults

A = TypeVar("A", bound=Mapping[str, object])


class VaultsApi:
    """Routes requests about vaults to use cases."""

    def __init__(self, status: DaemonStatus, runs: BackupRuns, vaults: Vaults) -> None:
        self.status = status
        self.runs = runs
        self.vaults = vaults

    def handlers(self) -> list[RouteHandler]:
        """Return the handlers of the routes about vaults."""
        return [
            make_handler(routes.VAULTS, self.get_vaults),
            make_handler(routes.DOCTOR, self.get_doctor),
            make_handler(routes.TUNING, self.get_tuning),
            make_handler(routes.VAULT_UP, self.post_up),
            make_handler(routes.VAULT_DOWN, self.post_down),
            make_handler(routes.OPEN_PAST, self.post_open_past),
            make_handler(routes.CLOSE_PAST, self.post_close_past),
            make_handler(routes.VAULT_CREATE, self.post_create),
            make_handler(routes.VAULT_GROW, self.post_grow),
            make_handler(routes.MEASURE, self.post_measure),
            make_handler(routes.CREATION, self.get_creation),
            make_handler(routes.POOL_HISTORY, self.get_pool_history),
            make_handler(routes.BEGIN_ANEW, self.post_begin_anew),
            make_handler(routes.ACCEPT_OLDER, self.post_accept_older),
            make_handler(routes.TAKEOVER, self.get_takeover),
            make_handler(routes.TAKE, self.post_take),
        ]

    async def get_vaults(self, _: web.Request) -> VaultsAnswer:
        """Tell of all vaults."""
        return {"vaults": self.status.judged(await self.status.vault_monitor.documents())}

    async def get_doctor(self, request: web.Request) -> DoctorDocument:
        """Tell what bounds a vault now; it is watched for ``seconds``. ``rights=1``: Ceph users' rights are tried."""
        from zvault.ops.diagnosis.doctor import make_doctor_document, parse_watch_seconds

        name, seconds = request.match_info["vault"], parse_watch_seconds(request.query.get("seconds"))
        context, last = self.status.context, self.runs.last_into(name)
        rights, vault = request.query.get("rights") == "1", context.env.vault(name)
        return await make_doctor_document(context, self.vaults, vault, seconds, last, rights=rights)

    async def get_tuning(self, _: web.Request) -> TuningDocument:
        """Module parameters: what is wanted, set, and why."""
        from zvault.ops.tuning.tuning_report import make_tuning_document

        return await make_tuning_document(self.status.context)

    async def post_up(self, request: web.Request) -> VaultAnswer | web.StreamResponse:
        """Bring a vault up."""
        return await self._act(request, lambda vault, say: vault.up(say))

    async def post_down(self, request: web.Request) -> VaultAnswer | web.StreamResponse:
        """Take a vault down."""
        return await self._act(request, lambda vault, say: vault.down(say))

    async def post_create(self, request: web.Request) -> VaultAnswer | web.StreamResponse:
        """Make a vault's pool."""
        from zvault.ops.provision.create_vault import create_vault

        return await self._act(request, create_vault)

    async def post_grow(self, request: web.Request) -> VaultAnswer | web.StreamResponse:
        """Have a vault's pool use all of its devices."""
        return await self._act(request, lambda vault, say: vault.grow(say))

    async def _act(
        self, request: web.Request, act: Callable[[ManagedVault, Say], Awaitable[None]]
    ) -> VaultAnswer | web.StreamResponse:
        """Do something with a vault; with ``follow=1`` told as it goes."""
        vault = self.vaults[request.match_info["vault"]]

        async def whole(say: Say) -> VaultAnswer:
            await act(vault, say)
            return {"vault": await self._judged(vault)}

        return await _told(request, whole, vault.name)

    async def post_open_past(self, request: web.Request) -> PastAnswer | web.StreamResponse:
        """Open a vault as it was."""
        vault, at = self.vaults[request.match_info["vault"]], read_moment(await read_json_object(request))
        if at is None:
            raise MalformedRequest(
                "'at' is missing in the request", "it says as of when", "see the API's reference"
            )

        async def whole(say: Say) -> PastAnswer:
            return {"past": (await self.runs.past.open(vault.name, at, say)).document()}

        return await _told(request, whole, vault.name)

    async def post_close_past(self, request: web.Request) -> ClosedAnswer | web.StreamResponse:
        """Close what is open of a vault as it was."""
        vault, at = self.vaults[request.match_info["vault"]], read_moment(await read_json_object(request))

        async def whole(say: Say) -> ClosedAnswer:
            return {"closed": [one.document() for one in await self.runs.past.close(vault.name, at, say)]}

        return await _told(request, whole, vault.name)

    async def _judged(self, vault: ManagedVault) -> JudgedVault:
        document = await make_vault_document(vault)
        return make_judged_vault(self.status.context, document, self.status.vault_verdict(document))

    async def post_measure(self, request: web.Request) -> web.StreamResponse:
        """Measure a vault's device and try out what follows, told as it goes; it ends when its client goes away."""
        from zvault.ops.provision.measure import measure_vault, refuse_unless_auto
        from zvault.ops.tuning.tuning_report import make_measured_document

        vault = self.vaults[request.match_info["vault"]]
        refuse_unless_auto(vault.config)

        async def whole(say: Say) -> MeasuredAnswer:
            async with vault.use("zvaultctl tune measure", say):
                found = await measure_vault(self.status.context, vault.config, list(vault.users), say)
            return {"measured": make_measured_document(found)}

        return await answer_with_progress(request, whole, journald.make_vault_logger(vault.name))

    async def get_pool_history(self, request: web.Request) -> PoolHistoryAnswer:
        """The pools that a vault had."""
        from zvault.ops.vaults.earlier_pools import read_pool_history

        vault = self.vaults[request.match_info["vault"]]
        return {"history": (await read_pool_history(vault.context, vault.config)).document(vault.config)}

    async def post_begin_anew(self, request: web.Request) -> PoolHistoryAnswer:
        """Forget the ``pools`` of get_pool_history."""
        vault, body = self.vaults[request.match_info["vault"]], await read_json_object(request)
        return {"history": await vault.begin_anew(body.get("pools"), journald.make_vault_logger(vault.name))}

    async def post_accept_older(self, request: web.Request) -> AcceptOlderAnswer:
        """Have a vault go on from what it has, as its store was put back."""
        vault, body = self.vaults[request.match_info["vault"]], await read_json_object(request)
        return {"older": vault.accept_older(body.get("older"), journald.make_vault_logger(vault.name))}

    async def get_takeover(self, request: web.Request) -> TakeoverAnswer:
        """Tell who has a vault, and what taking it over would do."""
        from zvault.ops.vaults.take_vault_over import show_takeover

        vault = self.vaults[request.match_info["vault"]]
        return {"takeover": await show_takeover(vault)}

    async def post_take(self, request: web.Request) -> VaultAnswer:
        """Take a vault over from the ``holders`` of get_takeover."""
        from zvault.ops.vaults.take_vault_over import take_vault_over

        vault, body = self.vaults[request.match_info["vault"]], await read_json_object(request)
        by_hand = body.get("fenced_by_hand") is True
        await take_vault_over(
            vault, body.get("holders"), journald.make_vault_logger(vault.name), by_hand=by_hand
        )
        return {"vault": await self._judged(vault)}

    async def get_creation(self, request: web.Request) -> CreationAnswer:
        """Tell what making a vault's pool would run."""
        from zvault.ops.vaults.new_pool import make_creation_document

        vault = self.vaults[request.match_info["vault"]]
        await vault.refuse_unless_new()
        made = vault.assembly()
        found = make_creation_document(vault.name, vault.config, made.profile(), made.stack())
        return {"creation": found}


async def _told(
    request: web.Request, whole: Callable[[Say], Awaitable[A]], vault: str
) -> A | web.StreamResponse:
    """Do all of it; with ``follow=1`` told as it goes."""
    if request.query.get("follow") == "1":
        return await answer_with_progress(request, whole, journald.make_vault_logger(vault))
    return await whole(journald.make_vault_logger(vault))
