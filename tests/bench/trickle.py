"""The everyday run onto slow storage: many datasets with little new in each, 16 KiB in one snapshot.

A receive waits for a transaction group of the vault at its begin and at its end, so most of the time is waiting for the
device. For each model of storage: seconds, transaction groups of the vault's pool, requests to the device, processes
that were started, and seconds of the guest's one processor; the same once of the first, full copy. zvault brings the
vault up with the profile for that model; its peer sends into the same pool, with the parameters that zvault has set.

Environment: DATASETS=300 has so many, TRANSFERS=4 sets the vault's 'transfers' (it is left out otherwise), and
THREADS=16 is the number that the peer is told.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import field
import peers
import requests_seen
from receive import idle
from report import chosen, finish, race, ratio, say
from storage import REQUESTS, STORAGE, Model, storage
from world import CONFIG, ok, sh

DATASETS = int(os.environ.get("DATASETS", "60"))
TRANSFERS = os.environ.get("TRANSFERS", "")
THREADS = int(os.environ.get("THREADS", "48"))
WRITTEN = 16 << 10
MODELS = ("hdd", "s3")
PEER = f"bzfs --threads={THREADS}"
PATIENCE = 1800.0

CONFIG_TEXT = """
[daemon]
host = "lab"

[vault.cold]
pool = "cold"
profile = "{profile}"
create = true
{transfers}
[[vault.cold.device]]
{device}

[backup.bench]
source = "{root}"
vault = "cold"
into = "copy/{{dataset}}"
"""


@cache
def datasets() -> list[str]:
    """The source's datasets."""
    return field.datasets(DATASETS)


@cache
def increment(number: int) -> str:
    """Once a round: write to every dataset and make a snapshot of all, not on anybody's time. Its name."""
    for name in datasets():
        (Path("/") / name / "file").write_bytes(os.urandom(WRITTEN))
    return field.snapshot(number)


def newest_group() -> int:
    """The number of the vault's newest transaction group."""
    text = Path("/proc/spl/kstat/zfs/cold/txgs").read_text()
    return max(int(line.split()[0]) for line in text.splitlines() if line[:1].isdigit() and " C " in line)


def count_processes() -> int:
    """How many processes and threads were started since boot: proc_stat(5)."""
    lines = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    return next(int(words[1]) for words in lines if words[0] == "processes")


def send_by_zvault() -> float:
    """One run of zvault."""
    return field.zvault()


def send_by_peer() -> float:
    """One run of the peer."""
    return peers.bzfs(field.ROOT, f"cold/peer/{field.ROOT}", f"--threads={THREADS}")


COPIES: dict[str, tuple[str, Callable[[], float]]] = {
    "zvault": (f"cold/copy/{field.ROOT}", send_by_zvault),
    "bzfs": (f"cold/peer/{field.ROOT}", send_by_peer),
}


def run(copy: str, first: int, figures: dict[str, list[float]], number: int) -> float:
    """One run whose copy is looked at afterwards; its seconds. Its figures are added."""
    return send(copy, increment(first + number), figures)


def send(copy: str, newest: str, figures: dict[str, list[float]]) -> float:
    """Send up to a snapshot that is there, see that it arrived, and add the figures; the seconds."""
    target, send_all = COPIES[copy]
    field.settle()
    started, group, slept, began = count_processes(), newest_group(), idle(), time.monotonic()
    took = send_all()
    busy = took - (idle() - slept)
    groups, started = newest_group() - group, count_processes() - started
    time.sleep(1)
    asked = len(requests_seen.read(REQUESTS, began, began + took))
    field.newest_everywhere(target, newest)
    say(
        f"{copy}: {took:.1f} s, {groups} groups, {asked} requests, {started} processes, {busy:.1f} s of the processor"
    )
    more = {"groups": groups, "requests": asked, "processes": started, "processor_s": round(busy, 1)}
    for name, value in more.items():
        figures.setdefault(f"{copy}_{name}", []).append(value)
    return took


def measure(
    name: str, copies: list[str], rounds: int, first: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Race the copies on one model; the seconds of each, and medians of its other figures."""
    model, figures = STORAGE[name], dict[str, list[float]]()
    assert isinstance(model, Model)
    with model.served():
        transfers = f"transfers = {TRANSFERS}" if TRANSFERS else ""
        text = CONFIG_TEXT.format(
            profile=model.profile, device=model.device, root=field.ROOT, transfers=transfers
        )
        CONFIG.write_text(text)
        sh("systemctl", "restart", "zvaultd")
        ok("vault", "begin-anew", "cold", "--yes")
        say(f"{name}: making the vault")
        ok("vault", "create", "cold", "--yes", timeout=PATIENCE)
        ok("vault", "up", "cold", timeout=PATIENCE)
        sh("zfs", "create", "-p", "-o", "mountpoint=none", f"cold/peer/{field.ROOT}".rpartition("/")[0])
        newest, full = increment(first), dict[str, list[float]]()
        for copy in copies:
            say(f"{name}, {copy}, all in full:")
            full[f"{copy}_seconds"] = [round(send(copy, newest, full), 1)]
        seconds = race({copy: partial(run, copy, first + 1, figures) for copy in copies}, rounds)
        ok("vault", "down", "cold", timeout=PATIENCE)
    medians = {key: statistics.median(values) for key, values in figures.items()}
    return seconds, medians | {f"full_{key}": values[0] for key, values in full.items()}


def main() -> None:
    """Set up, race on each model, report."""
    names = {f"{copy} {model}": print for model in MODELS for copy in COPIES}
    wanted, rounds = chosen(names, rounds=2)  # type: ignore[arg-type]
    peers.install()
    say(f"making {DATASETS} datasets")
    field.source("2G", "/tank")
    CONFIG.parent.mkdir(exist_ok=True)
    datasets()
    seconds: dict[str, list[float]] = {}
    facts: dict[str, float] = {}
    with storage(256):
        for place, model in enumerate(MODELS):
            copies = [copy for copy in COPIES if f"{copy} {model}" in wanted]
            if not copies:
                continue
            found, figures = measure(model, copies, rounds, place * (rounds + 1))
            seconds |= {f"{copy} {model}": values for copy, values in found.items()}
            facts |= {f"{model}_{key}": value for key, value in figures.items()}
    ratios = {
        f"bzfs_over_zvault_{name}": ratio(seconds, [f"bzfs {name}"], f"zvault {name}") for name in MODELS
    }
    for name in MODELS:
        asked = [facts.get(f"{name}_{copy}_requests") for copy in ("zvault", "bzfs")]
        if asked[0] is not None and asked[1]:
            ratios[f"requests_of_bzfs_{name}"] = asked[0] / asked[1]
    finish(
        "trickle",
        seconds,
        ratios,
        datasets=DATASETS,
        bytes_each=WRITTEN,
        transfers=TRANSFERS or "by latency",
        threads=THREADS,
        **facts,
    )


if __name__ == "__main__":
    main()
