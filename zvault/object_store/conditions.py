"""Trying whether a store keeps to the conditions of puts: one after the other, and many at once.

A store that keeps to them one after the other may still let several win that put at the same moment. Seen: S3Proxy 4.1
(several winners of an If-Match in 11 of 25 rounds), and known of SeaweedFS before 2026-03 and RustFS over several
endpoints. Two hosts then take one lease, and each writes to the vault.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, Protocol

from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    StoreError,
    StoreUnreachable,
)

CLIENTS = 12
"""Puts at once. With this many S3Proxy let several win in nearly every second round."""
ROUNDS = 4
"""Rounds of each condition where a lease is first made: of a store as S3Proxy one time in ten none of them tells."""
LONG_ROUNDS = 16
"""Rounds where a person asks for a probe."""
STALE = "0" * 32
"""An ETag that no object has."""

Condition = Literal["If-None-Match", "If-Match"]


class Puts(Protocol):
    """What is asked of a store, as S3Store has it."""

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """Put an object; its ETag. Raises PreconditionFailed, StoreError."""

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects. Raises StoreError."""


@dataclass(frozen=True, slots=True)
class ConditionResult:
    """What came of one try. ``held`` None: it could not be told, as of puts at once that nobody won."""

    what: str
    held: bool | None
    came: str
    is_race: bool = False
    """Whether it was tried at once: what fails then does no harm where only one host writes."""


def try_conditions(store: Puts, prefix: str, rounds: int = ROUNDS) -> list[ConditionResult]:
    """Try both conditions on objects that begin with ``prefix``, and remove these. Raises StoreUnreachable,
    StoreDenied.

    ``rounds`` 0: nothing is tried at once. Nor is it where conditions are not even kept one after the other.
    """
    made: list[str] = []

    def name() -> str:
        made.append(f"{prefix}.{uuid.uuid4().hex}")
        return made[-1]

    try:
        results = _try_in_turn(store, name())
        if rounds and all(one.held for one in results):
            results += [_race(store, name, rounds, condition) for condition in ("If-None-Match", "If-Match")]
        return results
    finally:
        # What cannot be removed does no harm; and why something could not be put must not be hidden by that.
        with contextlib.suppress(StoreError):
            store.delete(made)


def find_fault(results: Sequence[ConditionResult]) -> ConditionResult | None:
    """The first try that shows that of several who put more than one may win; None where there is none."""
    return next((one for one in results if one.held is False), None)


def _try_in_turn(store: Puts, key: str) -> list[ConditionResult]:
    first = store.put(key, _body())
    return [
        _refused(store, key, NO_OBJECT_YET, "If-None-Match: * where there is an object"),
        _refused(store, key, STALE, "If-Match with another ETag"),
        *_replaced(store, key, first),
    ]


def _refused(store: Puts, key: str, condition: str, what: str) -> ConditionResult:
    try:
        store.put(key, _body(), condition)
    except PreconditionFailed:
        return ConditionResult(what, True, "refused")
    except StoreDenied as error:
        return ConditionResult(what, False, f"not understood: {error.why}")
    return ConditionResult(what, False, "done, though it should have been refused")


def _replaced(store: Puts, key: str, etag: str) -> list[ConditionResult]:
    """A right If-Match, and the same again, which is not right any more."""
    what = "If-Match with the right ETag"
    try:
        store.put(key, _body(), etag)
    except (PreconditionFailed, StoreDenied) as error:
        return [ConditionResult(what, False, f"refused: {error.why}")]
    after = _refused(store, key, etag, "If-Match with the ETag of before")
    return [ConditionResult(what, True, "done"), after]


def _race(store: Puts, name: Callable[[], str], rounds: int, condition: Condition) -> ConditionResult:
    """Rounds in which CLIENTS put one object at once under the same condition."""
    what = f"{condition} by {CLIENTS} at once"
    with ThreadPoolExecutor(CLIENTS, "race") as pool:
        winners = [_run_round(store, name(), condition, pool) for _ in range(rounds)]
    several = sum(1 for many in winners if many > 1)
    if several:
        came = f"several won in {several} of {rounds} rounds, up to {max(winners)} of them"
        return ConditionResult(what, False, came, is_race=True)
    if not any(winners):
        return ConditionResult(what, None, f"nobody won in any of {rounds} rounds", is_race=True)
    return ConditionResult(what, True, f"never more than one won, in {rounds} rounds", is_race=True)


def _run_round(store: Puts, key: str, condition: Condition, pool: ThreadPoolExecutor) -> int:
    """How many of those that put at once were told that they did."""
    expected = NO_OBJECT_YET if condition == "If-None-Match" else store.put(key, _body())
    ready = threading.Barrier(CLIENTS)

    def put() -> bool:
        body = _body()
        with contextlib.suppress(threading.BrokenBarrierError):
            ready.wait(5.0)
        try:
            store.put(key, body, expected)
        except (PreconditionFailed, StoreUnreachable, ObjectMissing):
            # 409 and 500 are how some stores answer the losers (RGW 18.2.7): nobody is told that he won.
            return False
        return True

    return sum(one.result() for one in [pool.submit(put) for _ in range(CLIENTS)])


def _body() -> bytes:
    """Contents that no other put has, and so another ETag."""
    return f"made to try conditional puts; may be removed ({uuid.uuid4().hex})".encode()
