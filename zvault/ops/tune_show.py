"""What is tuned and why, as a document: ``GET /v1/tuning``, ``zvaultctl tune``. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from zvault.core.borrow import Held
from zvault.core.errors import ZvaultError
from zvault.core.parameters import KNOWN, written
from zvault.core.tuning import Host, Verdict, Wish, decide, default_of, modprobe
from zvault.ops.context import Context
from zvault.ops.measured import Outcome, outcome, profile_of, reasons_of
from zvault.ops.tune import Note, complaints, other_pools, read_note, wishes
from zvault.system import params

Document = dict[str, Any]


async def tuning_document(context: Context) -> Document:
    """Every parameter that a vault of this host wants. Raises ToolFailed where OpenZFS is not loaded."""
    host = await params.look(context.runner)
    up = wishes(context.leases)
    down = [wish for wish in _configured(context) if wish.vault not in {one.vault for one in up}]
    note = read_note(context.leases)
    rows = _rows(up, down, host, note)
    return {
        "openzfs": written(host.version),
        "memory": host.memory,
        "other_pools": other_pools(context),
        "vaults": [_vault(context, name, up) for name in context.config.vault],
        "parameters": rows,
        "modprobe": [
            {"name": name, "value": value, "why": why} for name, value, why in modprobe([*up, *down], host)
        ],
        "warnings": complaints(context.leases),
    }


def _configured(context: Context) -> list[Wish]:
    """What each vault of this host would want if it came up; what its devices say is not known then."""
    found = []
    for name, vault in context.config.vault.items():
        if vault.host is None:
            try:
                module = profile_of(context, name).module
                found.append(Wish(name, module, reasons=reasons_of(context, name, module)))
            except ZvaultError:
                continue  # its profile went away since the configuration was read; 'check-config' tells of it
    return found


def _vault(context: Context, name: str, up: Iterable[Wish]) -> Document:
    config = context.config.vault[name]
    return {
        "name": name,
        "pool": config.pool,
        "profile": config.profile,
        "host": None if config.host is None else str(config.host),
        "tuned": name in {wish.vault for wish in up},
        "measured": None if (found := outcome(context, name)) is None else measured_document(found),
    }


def measured_document(found: Outcome) -> Document:
    """What was measured of a vault's device and tried out on its pool; ``time`` is when, in seconds since the epoch."""
    return {
        "time": found.time,
        "devices": list(found.devices),
        "way": found.way,
        "points": [asdict(one) for one in found.points],
        "choices": [asdict(one) for one in found.choices],
        "tries": [dict(one) for one in found.tries],
        "advice": found.advice,
    }


def _rows(up: list[Wish], down: list[Wish], host: Host, note: Note) -> list[Document]:
    """What holds for the vaults that are up; for parameters that only others want, what would hold then."""
    now = {one.name: one for one in decide(up, host)}
    later = {one.name: one for one in decide(down, host) if one.name not in now}
    rows = []
    for name in sorted(now.keys() | later.keys()):
        verdict = now.get(name) or later[name]
        wanted = {**verdict.wanted, **{one.vault: one.module[name] for one in down if name in one.module}}
        row = _row(verdict, host, note.held.get(name))
        rows.append(row | {"wanted": wanted} | _fate(verdict, row["now"], note, in_force=name in now))
    return rows


def _row(verdict: Verdict, host: Host, held: Held | None) -> Document:
    name = verdict.name
    known, here = KNOWN.get(name), host.parameters.get(name)
    return {
        "name": name,
        "what": known.what if known else None,
        "unit": known.unit if known else "text",
        "default": default_of(name, host),
        "before": held.before if held else None,
        "now": here.value if here else None,
        "value": verdict.value,
    }


def _fate(verdict: Verdict, now: str | None, note: Note, *, in_force: bool) -> Document:
    """The row's state in a word, why it is so, and what to do about it."""
    state, why, todo = verdict.fate, verdict.why, verdict.next
    if state != "set":
        return {"state": state, "why": why, "next": todo}
    if not in_force:
        return {"state": "when up", "why": why, "next": ""}
    if now == verdict.value:
        return {"state": "set", "why": why, "next": ""}
    held = note.held.get(verdict.name)
    if held is not None and now not in held.ours:
        why = f"somebody else set it to {now} after zvault had made it {held.ours[-1]}; {why}"
        todo = f"to have it tuned again, put back {held.ours[-1]}"
        return {"state": "changed", "why": why, "next": todo}
    why = note.troubles.get(verdict.name, f"zvault has not set it; {why}")
    return {"state": "not set", "why": why, "next": "see 'journalctl -u zvaultd'"}
