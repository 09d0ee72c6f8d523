"""The module parameters that zvault sets, and why, as a document: ``GET /v1/tuning``, ``zvaultctl tune show``. Changes
nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zvault.api.tuning import MeasuredDocument, ParameterDocument, ParameterState, TunedVault, TuningDocument
from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.tuning import (
    ParameterDecision,
    TunedHost,
    TuningRequest,
    decide_parameters,
    find_default,
    list_modprobe_options,
)
from zvault.core.zfs_version import format_version
from zvault.ops.context import Context
from zvault.ops.state.records import Records
from zvault.ops.tuning.measurements import (
    MeasurementOutcome,
    list_parameter_reasons,
    load_vault_profile,
    read_outcome,
)
from zvault.ops.tuning.parameters import (
    TuningNote,
    list_other_pools,
    list_tuning_complaints,
    list_tuning_requests,
    read_note,
)
from zvault.zfs.pool import module_parameters


async def make_tuning_document(context: Context) -> TuningDocument:
    """Every parameter that a vault of this host wants. Raises ToolFailed if OpenZFS is not loaded."""
    host = await module_parameters.read_tuned_host(context.env.runner)
    up = list_tuning_requests(context.records.leases)
    down = [request for request in _configured(context) if request.vault not in {one.vault for one in up}]
    note = read_note(context.records.leases)
    rows = _rows(up, down, host, note)
    return {
        "openzfs": format_version(host.version),
        "memory": host.memory,
        "other_pools": list_other_pools(context),
        "vaults": [_vault(context.records, vault, up) for vault in context.env.config.vault.values()],
        "parameters": rows,
        "modprobe": [
            {"name": name, "value": value, "why": why}
            for name, value, why in list_modprobe_options([*up, *down], host)
        ],
        "warnings": list_tuning_complaints(context.records.leases),
    }


def _configured(context: Context) -> list[TuningRequest]:
    """The parameters that each vault of this host would want if it came up; facts about its devices are missing."""
    found = []
    for vault in context.env.config.vault.values():
        if vault.host is None:
            try:
                module = load_vault_profile(context, vault).module
                found.append(
                    TuningRequest(
                        vault.name, module, reasons=list_parameter_reasons(context.records, vault, module)
                    )
                )
            except ZvaultError:
                continue  # its profile was deleted after the configuration was read; 'check-config' reports that
    return found


def _vault(records: Records, vault: Vault, up: Iterable[TuningRequest]) -> TunedVault:
    return {
        "name": vault.name,
        "pool": vault.pool,
        "profile": vault.profile,
        "host": None if vault.host is None else str(vault.host),
        "tuned": vault.name in {request.vault for request in up},
        "measured": None
        if (found := read_outcome(records, vault)) is None
        else make_measured_document(found),
    }


def make_measured_document(found: MeasurementOutcome) -> MeasuredDocument:
    """The measurement of a vault's device and the trials on its pool; ``time`` in seconds since the epoch."""
    return {
        "time": found.time,
        "devices": list(found.devices),
        "way": found.way,
        "points": [
            {"size": one.size, "depth": one.depth, "bandwidth": one.bandwidth, "latency": one.latency}
            for one in found.points
        ],
        "choices": [{"name": one.name, "value": one.value, "why": one.why} for one in found.choices],
        "tries": list(found.tries),
        "advice": found.advice,
    }


def _rows(
    up: list[TuningRequest], down: list[TuningRequest], host: TunedHost, note: TuningNote
) -> list[ParameterDocument]:
    """The parameters of the vaults that are up, then those that only vaults that are down want."""
    now = {one.name: one for one in decide_parameters(up, host)}
    later = {one.name: one for one in decide_parameters(down, host) if one.name not in now}
    rows = []
    for name in sorted(now.keys() | later.keys()):
        verdict = now.get(name) or later[name]
        wanted = {**verdict.wanted, **{one.vault: one.module[name] for one in down if name in one.module}}
        rows.append(
            make_parameter_document(replace(verdict, wanted=wanted), host, note, in_force=name in now)
        )
    return rows


def make_parameter_document(
    verdict: ParameterDecision, host: TunedHost, note: TuningNote, *, in_force: bool
) -> ParameterDocument:
    """One parameter as a document; ``in_force``: a vault that is up wants it."""
    name = verdict.name
    known, here, held = KNOWN_PARAMETERS.get(name), host.parameters.get(name), note.held.get(name)
    now = here.value if here else None
    state, why, todo = _fate(verdict, now, note, in_force=in_force)
    return {
        "name": name,
        "what": known.what if known else None,
        "unit": known.unit if known else "text",
        "default": find_default(name, host),
        "before": held.before if held else None,
        "now": now,
        "value": verdict.value,
        "wanted": dict(verdict.wanted),
        "state": state,
        "why": why,
        "next": todo,
    }


def _fate(
    verdict: ParameterDecision, now: str | None, note: TuningNote, *, in_force: bool
) -> tuple[ParameterState, str, str]:
    """The parameter's state in a word, the reason, and what to do next."""
    if verdict.fate != "set":
        return verdict.fate, verdict.why, verdict.next
    if not in_force:
        return "when up", verdict.why, ""
    if now == verdict.value:
        return "set", verdict.why, ""
    held = note.held.get(verdict.name)
    if held is not None and now not in held.ours:
        why = f"somebody else set it to {now} after zvault had set {held.ours[-1]}; {verdict.why}"
        return "changed", why, f"set it to {held.ours[-1]} to have zvault tune it again"
    why = note.troubles.get(verdict.name, f"zvault has not set it; {verdict.why}")
    return "not set", why, "see 'journalctl -u zvaultd'"
