"""The module parameters that zvault sets, and why, as a document: ``GET /v1/tuning``, ``zvaultctl tune show``. Changes
nothing."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from zvault.api.tuning import (
    ChoiceDocument,
    MeasuredDocument,
    MeasuredPointDocument,
    ParameterDocument,
    ParameterState,
    ProbedStoreDocument,
    TunedVault,
    TuningDocument,
)
from zvault.config.profile import VaultProfile
from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.candidates import ParameterChoice
from zvault.core.tuning.measurement import MeasuredPoint
from zvault.core.tuning.parameters import KNOWN_PARAMETERS
from zvault.core.tuning.store_guess import StoreGuess
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
from zvault.ops.tuning.measurements import (
    AUTO,
    MeasurementOutcome,
    list_parameter_reasons,
    load_vault_profile,
    read_outcome,
)
from zvault.ops.tuning.set_parameters import (
    TuningNote,
    list_other_pools,
    list_tuning_complaints,
    list_tuning_requests,
    read_note,
)
from zvault.ops.tuning.store_guesses import find_store_guess
from zvault.zfs.pool import module_parameters


async def make_tuning_document(context: Context) -> TuningDocument:
    """Every parameter that a vault of this host wants. Raises ToolFailed if OpenZFS is not loaded."""
    host = await module_parameters.read_tuned_host(context.env.runner)
    up = list_tuning_requests(context.records.undo)
    down = _configured(context, up)
    read = {
        name for _, profile in _profiles(context) for name in profile.reading.keys() - profile.module.keys()
    }
    note = read_note(context.records.undo)
    rows = _rows(up, down, host, note, read)
    return {
        "openzfs": format_version(host.version),
        "memory": host.memory,
        "other_pools": list_other_pools(context),
        "vaults": [_vault(context, vault, up) for vault in context.env.config.vault.values()],
        "parameters": rows,
        "modprobe": [
            {"name": name, "value": value, "why": why}
            for name, value, why in list_modprobe_options([*up, *down], host)
        ],
        "warnings": list_tuning_complaints(context.records.undo),
    }


def _profiles(context: Context) -> Iterator[tuple[Vault, VaultProfile]]:
    """The vaults of this host, with their profiles."""
    for vault in context.env.config.vault.values():
        # A profile that was deleted after the configuration was read is reported by 'check-config'.
        with contextlib.suppress(ZvaultError):
            if vault.host is None:
                yield vault, load_vault_profile(context, vault)


def _configured(context: Context, up: Iterable[TuningRequest]) -> list[TuningRequest]:
    """What each vault would want besides if it came up and were read; facts about its devices are missing."""
    now = {one.vault: one.module.keys() for one in up}
    found = []
    for vault, profile in _profiles(context):
        wanted = profile.reading if vault.name in now else {**profile.module, **profile.reading}
        module = {name: value for name, value in wanted.items() if name not in now.get(vault.name, ())}
        reasons = list_parameter_reasons(context, vault, module)
        found.append(TuningRequest(vault.name, module, reasons=reasons))
    return found


def _vault(context: Context, vault: Vault, up: Iterable[TuningRequest]) -> TunedVault:
    guess = (
        find_store_guess(context.env.paths, vault) if vault.profile == AUTO and vault.host is None else None
    )
    return {
        "name": vault.name,
        "pool": vault.pool,
        "profile": vault.profile,
        "host": None if vault.host is None else str(vault.host),
        "tuned": vault.name in {request.vault for request in up},
        "measured": None
        if (found := read_outcome(context.records, vault)) is None
        else make_measured_document(found),
        "probed": None if guess is None else _probed(guess),
    }


def _probed(guess: StoreGuess) -> ProbedStoreDocument:
    return {
        "time": guess.at,
        "puts": guess.puts,
        "gets": guess.gets,
        "uploads": guess.uploads,
        "reads": guess.reads,
    }


def make_measured_document(found: MeasurementOutcome) -> MeasuredDocument:
    """The measurement of a vault's device and the trials on its pool; ``time`` in seconds since the epoch."""
    return {
        "time": found.time,
        "devices": list(found.devices),
        "way": found.way,
        "points": _points(found.points),
        "choices": _choices(found.choices),
        "tries": list(found.tries),
        "advice": found.advice,
        "reading": None
        if found.reading is None
        else {
            "points": _points(found.reading.points),
            "choices": _choices(found.reading.choices),
            "sends": list(found.reading.sends),
            "scrubs": list(found.reading.scrubs),
        },
    }


def _points(points: Iterable[MeasuredPoint]) -> list[MeasuredPointDocument]:
    return [
        {"size": one.size, "depth": one.depth, "bandwidth": one.bandwidth, "latency": one.latency}
        for one in points
    ]


def _choices(choices: Iterable[ParameterChoice]) -> list[ChoiceDocument]:
    return [{"name": one.name, "value": one.value, "why": one.why} for one in choices]


def _rows(
    up: list[TuningRequest],
    down: list[TuningRequest],
    host: TunedHost,
    note: TuningNote,
    read: Collection[str],
) -> list[ParameterDocument]:
    """The parameters of the vaults that are up, then those wanted once others are up, or are ``read``."""
    now = {one.name: one for one in decide_parameters(up, host)}
    later = {one.name: one for one in decide_parameters(down, host) if one.name not in now}
    rows = []
    for name in sorted(now.keys() | later.keys()):
        verdict = now.get(name) or later[name]
        wanted = {**verdict.wanted, **{one.vault: one.module[name] for one in down if name in one.module}}
        later_state: ParameterState = "when read" if name in read else "when up"
        state = None if name in now else later_state
        rows.append(make_parameter_document(replace(verdict, wanted=wanted), host, note, later=state))
    return rows


def make_parameter_document(
    verdict: ParameterDecision, host: TunedHost, note: TuningNote, *, later: ParameterState | None = None
) -> ParameterDocument:
    """One parameter as a document; ``later``: its state where no vault wants it now."""
    name = verdict.name
    known, here, held = KNOWN_PARAMETERS.get(name), host.parameters.get(name), note.held.get(name)
    now = here.value if here else None
    state, why, todo = _fate(verdict, now, note, later)
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
    verdict: ParameterDecision, now: str | None, note: TuningNote, later: ParameterState | None
) -> tuple[ParameterState, str, str]:
    """The parameter's state in a word, the reason, and what to do next."""
    if verdict.fate != "set":
        return verdict.fate, verdict.why, verdict.next
    if later is not None:
        return later, verdict.why, ""
    if now == verdict.value:
        return "set", verdict.why, ""
    held = note.held.get(verdict.name)
    if held is not None and now not in held.ours:
        why = f"somebody else set it to {now} after zvault had set {held.ours[-1]}; {verdict.why}"
        return "changed", why, f"set it to {held.ours[-1]} to have zvault tune it again"
    why = note.troubles.get(verdict.name, f"zvault has not set it; {verdict.why}")
    return "not set", why, "see 'journalctl -u zvaultd'"
