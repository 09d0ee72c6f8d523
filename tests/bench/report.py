"""What every benchmark ends with: medians of alternating runs, and one JSON object on the last line."""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Collection, Mapping, Sequence

Contender = Callable[[int], float]
"""Runs once and returns its seconds; the number is the round's, so that each can have data of its own."""


def say(text: str) -> None:
    """Progress for who waits, apart from the result."""
    print(text, file=sys.stderr, flush=True)


def chosen(
    contenders: Mapping[str, Contender],
    rounds: int = 3,
    seldom: Collection[str] = (),
    meant: Callable[[list[str]], list[str]] | None = None,
) -> tuple[dict[str, Contender], int]:
    """Which of them the command line wants to see, and for how many rounds; if it says nothing, all but the ``seldom``
    for ``rounds``.

    A name stands for all that begin with that word: ``zvault`` for ``zvault warm``, too. ``meant`` says which ones the
    words mean where it is otherwise.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("contender", nargs="*", help=", ".join(contenders))
    wanted = parser.parse_args()
    words = wanted.contender if meant is None else meant(wanted.contender)
    names = words or [name for name in contenders if name not in seldom]
    known = {word for name in contenders for word in (name, name.split()[0])}
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no {', '.join(unknown)}")
    found = {name: one for name, one in contenders.items() if {name, name.split()[0]} & {*names}}
    return found, wanted.rounds


def race(contenders: Mapping[str, Contender], rounds: int = 3) -> dict[str, list[float]]:
    """Run all contenders in turn, ``rounds`` times, starting with another one each round."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            took = contenders[name](number)
            seconds[name].append(took)
            say(f"round {number + 1}/{rounds}: {name:24} {took:8.2f} s")
    return seconds


def ratio(seconds: Mapping[str, list[float]], others: Sequence[str], ours: str) -> float | None:
    """The seconds of the fastest of ``others`` over ours, by their medians; None if not both took part."""
    medians = [statistics.median(seconds[name]) for name in others if name in seconds]
    return min(medians) / statistics.median(seconds[ours]) if medians and ours in seconds else None


def finish(
    name: str, seconds: Mapping[str, list[float]], ratios: Mapping[str, float | None], **facts: object
) -> None:
    """Print the table, then the JSON object as the last line."""
    known = {ratio: value for ratio, value in ratios.items() if value is not None}
    medians = {contender: statistics.median(values) for contender, values in seconds.items()}
    say("")
    for contender, median in medians.items():
        runs = ", ".join(f"{value:.2f}" for value in seconds[contender])
        say(f"{contender:24} median {median:8.2f} s   ({runs})")
    for ratio, value in known.items():
        say(f"{ratio:24} {value:.3f}")
    print(
        json.dumps(
            {
                "benchmark": name,
                "seconds": {contender: round(median, 3) for contender, median in medians.items()},
                "runs": {c: [round(value, 3) for value in values] for c, values in seconds.items()},
                **{ratio: round(value, 3) for ratio, value in known.items()},
                **facts,
            }
        )
    )
