"""The prices of an object store."""

from __future__ import annotations

from dataclasses import dataclass

BILLED_GIGABYTE = 1 << 30
"""Bytes that bills of storage call a gigabyte: at Amazon 2^30, elsewhere often 10^9, which is 7 % less."""


@dataclass(frozen=True, slots=True)
class StorePrices:
    """The prices that a store asks for a thousand requests that write or list, for a thousand that read, for a GB kept
    a month, and for a GB that is read from it. Removing is free everywhere. ``currency`` is only shown.
    """

    put: float
    get: float
    stored: float = 0.0
    download: float = 0.0
    currency: str = ""

    def of_requests(self, put: float, get: float) -> float:
        """Return the cost of so many requests; those that list are as dear as those that put, and count as such."""
        return (put * self.put + get * self.get) / 1000


def format_money(amount: float, currency: str) -> str:
    """A sum in a currency, which may be a sign, a word or nothing: ``$1.20``, ``0.0031 CHF``, ``12,000.00``.

    Of what is small two figures, since a request costs a millionth; less than 0.0001 is nothing.
    """
    small = 0.0001 <= abs(amount) < 0.1
    number = f"{amount:.2g}" if small else f"{amount:,.2f}"
    if not currency:
        return number
    return f"{number} {currency}" if currency.isalpha() else f"{currency}{number}"
