"""What a vault's object stores cost."""

from collections.abc import Sequence
from typing import TypedDict

from zvault.core.cost.prices import format_money


class CostDocument(TypedDict):
    """This month so far, by this host's time zone, of a vault's block stores together.

    Requests by kind and bytes that they moved, from ``since`` on: the month's begin, or when a store was first seen, in
    seconds since the epoch. Bytes stored as seen ``at``. ``cost`` so far and ``forecast`` for the whole month are in
    ``currency``: None where a device has no ``prices``, the forecast also in the first day.
    """

    since: float
    at: float
    put: int
    get: int
    list: int
    delete: int
    put_bytes: int
    get_bytes: int
    stored_bytes: int
    currency: str
    cost: float | None
    forecast: float | None


def describe_spending(cost: CostDocument) -> str:
    """Say what it has cost this month, and what it will: ``$1.20 this month, $3.10 at this pace``; "" without
    prices.
    """
    if cost["cost"] is None:
        return ""
    so_far = f"{format_money(cost['cost'], cost['currency'])} this month"
    if cost["forecast"] is None:
        return so_far
    return f"{so_far}, {format_money(cost['forecast'], cost['currency'])} at this pace"


def describe_cost(cost: CostDocument | None, uncounted: Sequence[str]) -> str:
    """The same of a vault with its requests, and with its devices whose requests nobody counts, at a cost unknown."""
    known = (describe_spending(cost), describe_requests(cost)) if cost is not None else ()
    missing = f"not counted: {', '.join(uncounted)}" if uncounted else ""
    return "; ".join(filter(None, (*known, missing)))


def describe_requests(cost: CostDocument) -> str:
    """Say what was asked for this month: ``1,204 put, 31 get, 2 list``."""
    kinds = (("put", cost["put"]), ("get", cost["get"]), ("list", cost["list"]), ("delete", cost["delete"]))
    return ", ".join(f"{number:,} {kind}" for kind, number in kinds if number) or "no requests"
