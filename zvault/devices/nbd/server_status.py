"""What a block store's server says of itself, as far as it can be: it parses what a bucket says, and is not root.

zvaultd reads it as root, for its documents, its metrics and its decisions. One word of another kind had the metrics of
all vaults fail, or a vault not come down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from zvault.api.blockstore import REQUEST_KINDS, EngineStatus, RequestCount
from zvault.devices.layer import Data

LATEST_STATUS_TIME = 1 << 40
"""Seconds since the epoch that no word of a server is of."""

LARGEST_FIGURE = 1 << 63
"""Of anything that a server counts."""

LONGEST_WORDS = 4096
"""Characters of a text."""

MOST_BOUNDS = 64
"""Upper bounds of the buckets that it counts requests in."""

_UNKNOWN_ERROR = {
    "kind": "ToolFailed",
    "what": "the device's server failed",
    "why": "what it says of that cannot be understood",
    "next": "see its unit's journal",
}


def check_server_status(said: Any) -> Data | None:
    """What a server said, as server.py of the block store has it, without what cannot be; None where it is no status.

    An error stays one, whatever it is.
    """
    if (
        not isinstance(said, dict)
        or not _is_number(at := said.get("at", 0))
        or not 0 <= at <= LATEST_STATUS_TIME
    ):
        return None
    bounds = _check_bounds(said.get("bounds"))
    found: Data = {
        "journal": _check_text(said.get("journal")),
        "ready": said.get("ready") is True,
        "closed": said.get("closed") is True,
        "error": _check_error(said.get("error")),
        "trouble": _check_text(said.get("trouble")),
        "engine": _check_figures(said.get("engine"), get_type_hints(EngineStatus)) or None,
        "requests": _check_requests(said.get("requests"), bounds),
        "bounds": bounds,
    }
    return {key: value for key, value in found.items() if key in said} | ({"at": at} if "at" in said else {})


def _check_text(said: Any) -> str | None:
    return said[:LONGEST_WORDS] if isinstance(said, str) else None


def _check_error(said: Any) -> dict[str, str] | None:
    if said is None:
        return None
    if not isinstance(said, dict):
        return _UNKNOWN_ERROR
    empty = {"kind": _UNKNOWN_ERROR["kind"], "what": _UNKNOWN_ERROR["what"], "why": "", "next": ""}
    return {key: _check_text(said.get(key)) or other for key, other in empty.items()}


def _check_figures(said: Any, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Those of these names that are of their kind."""
    if not isinstance(said, dict):
        return {}
    return {key: said[key] for key, kind in kinds.items() if key in said and _is_of_kind(said[key], kind)}


def _check_requests(said: Any, bounds: list[float] | None) -> dict[str, Any] | None:
    if not isinstance(said, dict) or bounds is None:
        return None
    kinds = get_type_hints(RequestCount)
    counts = {kind: _check_figures(said.get(kind), kinds) for kind in REQUEST_KINDS}
    whole = {kind: count for kind, count in counts.items() if count.keys() == kinds.keys()}
    return {kind: count for kind, count in whole.items() if len(count["buckets"]) == len(bounds) + 1} or None


def _check_bounds(said: Any) -> list[float] | None:
    if not isinstance(said, list) or len(said) > MOST_BOUNDS or not all(map(_is_number, said)):
        return None
    return said


def _is_of_kind(value: Any, kind: Any) -> bool:
    """True if a value is of a kind that the API's documents have."""
    if kind is bool:
        return isinstance(value, bool)
    if kind in {int, float}:
        return _is_number(value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_origin(kind) is dict:
        return isinstance(value, dict) and all(map(_is_number, value.values()))
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(map(_is_number, value))
    return isinstance(value, str) or (value is None and type(None) in get_args(kind))


def _is_number(value: Any) -> bool:
    """True if it is a number that can be counted with; NaN and infinity cannot."""
    return type(value) in {int, float} and -LARGEST_FIGURE <= value <= LARGEST_FIGURE
