"""A place far from the object store: a network namespace behind a wire that takes its time. Servers run in it.

RGW and the cluster behind it talk to each other as ever: only who comes over the wire waits.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
from world import sh

PLACE = "far"
HERE, THERE = "10.77.0.1", "10.77.0.2"
ENTER = ("nsenter", f"--net=/run/netns/{PLACE}")
"""What a command begins with that runs there; ``ip netns exec`` would hide what it mounts."""


@contextmanager
def place() -> Iterator[None]:
    """It exists, and reaches HERE."""
    sh("ip", "netns", "add", PLACE)
    sh("ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire1", "netns", PLACE)
    sh("ip", "address", "add", f"{HERE}/24", "dev", "wire0")
    sh("ip", "link", "set", "wire0", "up")
    for words in (f"address add {THERE}/24 dev wire1", "link set wire1 up", "link set lo up"):
        sh(*ENTER, "ip", *words.split())
    try:
        yield
    finally:
        sh("ip", "netns", "delete", PLACE)


@contextmanager
def away(ms: float, rate: str = "") -> Iterator[None]:
    """A round trip takes so many milliseconds more; what comes from HERE has a ``rate``, as tc(8) writes it."""
    if not ms and not rate:
        yield
        return
    sh("modprobe", "sch_netem")
    words = ["delay", f"{ms}ms", "limit", "100000", *(["rate", rate] if rate else [])]
    subprocess.run(["tc", "qdisc", "replace", "dev", "wire0", "root", "netem", *words], check=True)
    try:
        yield
    finally:
        sh("tc", "qdisc", "delete", "dev", "wire0", "root")
