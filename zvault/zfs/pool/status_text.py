"""``zpool status`` as text, for OpenZFS before 2.3, which has no JSON (print_scan_status in zpool_main.c).

Amounts are rounded to three digits there, counts of errors are exact (``-p``), and times are in the zone that was asked
for. What cannot be told from it is not made up: a scrub has no rate of its own since it last resumed, only the one that
is printed.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import strptime

from zvault.core.integrity.pool_devices import TopVdev
from zvault.core.policy.scrub import PoolScan, ScanState
from zvault.core.units import parse_size

STATUS_COMMAND = ["env", "TZ=UTC", "LC_ALL=C", "zpool", "status", "-pPL"]
"""Its times are printed in the host's zone, which nothing here knows."""

NO_JSON = "invalid option 'j'"

_DATE = r"(\w{3} \w{3} +\d+ \d\d:\d\d:\d\d \d{4})"
_VDEV = r"(?: \([^)\n]+\))?"
"""Of a sequential resilver, which has a ``scan:`` of its own: the vdev that it rebuilds."""
_ENDED = re.compile(
    rf"(scrub repaired|resilvered){_VDEV} (\S+) in (?:(\d+) days )?(\d+):(\d\d):(\d\d)"
    rf" with (\d+) errors on {_DATE}"
)
_CANCELED = re.compile(rf"(scrub|resilver){_VDEV} canceled on {_DATE}")
_OPEN = re.compile(rf"(scrub|resilver){_VDEV} (in progress|paused) since {_DATE}")
_STARTED = re.compile(rf"scrub started on {_DATE}")
_ISSUED = re.compile(r"(\S+)(?: / (\S+))? issued(?: at (\S+)/s)?")
_TOTAL = re.compile(r"(\S+) total")
_DEVICE = re.compile(
    r" *(\S.*?) +(?:ONLINE|DEGRADED|FAULTED|OFFLINE|REMOVED|UNAVAIL|AVAIL|INUSE)\b(?: +\d+ +\d+ +(\S+))?"
)
"""A row of the table of devices: name and CKSUM. A path may have spaces in it."""
_REPAIRED = re.compile(r"(\S+) (?:repaired|resilvered),")


@dataclass(frozen=True, slots=True)
class PoolText:
    """The state of one pool as the text tells it: its newest scrub, the length of its error list, the CKSUM
    column's sum.
    """

    scan: PoolScan
    errors: int
    checksums: int
    vdevs: tuple[TopVdev, ...] = ()


def parse_pool_status(text: str) -> PoolText:
    """Parse ``zpool status -pPL POOL``. Raises ValueError where it is none that is known here."""
    parts, scans = _parts(text)
    rows = _rows(parts["config"])
    return PoolText(_newest(scans), _errors(parts.get("errors", "")), _wrong(rows), tuple(_vdevs(rows)))


def parse_listed_errors(text: str) -> list[str]:
    """The damaged files in ``zpool status -v POOL``, as ZFS names them."""
    lines = _parts(text)[0].get("errors", "").splitlines()
    return [line.strip() for line in lines[1:] if line.strip()]


def _parts(text: str) -> tuple[dict[str, str], list[str]]:
    """What stands behind each word, and behind each ``scan:``. Raises ValueError where parts are missing."""
    found: dict[str, str] = {}
    scans: list[str] = []
    name = ""
    for line in text.splitlines():
        head = re.match(r" {0,7}([a-z]+):(?: |$)", line)
        if head and name != "errors":
            name, rest = head[1], line[head.end() :]
            found[name] = rest
            if name == "scan":
                scans.append(rest)
        elif name == "scan":
            scans[-1] += f"\n{line}"
        elif name:
            found[name] += f"\n{line}"
    if not {"pool", "state", "config", "errors"} <= found.keys():
        raise ValueError("'zpool status' printed no pool, state, config or errors")
    return found, scans


def _newest(scans: list[str]) -> PoolScan:
    """Of a scrub and a sequential resilver, each told by itself: the one that runs, else the scrub."""
    found = [_scan(text) for text in scans] or [PoolScan()]
    return next((scan for scan in found if scan.open), found[0])


def _scan(text: str) -> PoolScan:
    if not text.strip() or text.startswith("none requested"):
        return PoolScan()
    if match := _ENDED.match(text):
        kind, amount, days, hours, minutes, seconds, errors, ended = match.groups()
        took = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
        return PoolScan(
            "finished",
            started=_time(ended) - took,
            ended=_time(ended),
            errors=int(errors),
            repaired=parse_size(amount),
            resilver=kind == "resilvered",
        )
    if match := _CANCELED.match(text):
        return PoolScan("canceled", ended=_time(match[2]), resilver=match[1] == "resilver")
    if match := _OPEN.match(text):
        return _open(text, "scanning" if match[2] == "in progress" else "paused", match)
    raise ValueError(f"'zpool status' tells of a scan in unknown words: {text.splitlines()[0]!r}")


def _open(text: str, state: ScanState, match: re.Match[str]) -> PoolScan:
    issued, whole, repaired = _ISSUED.search(text), _TOTAL.search(text), _REPAIRED.search(text)
    # OpenZFS 2.2 has how much is to be issued, without what is skipped, where 2.1 has what is to be scanned.
    total = (issued and issued[2]) or (whole and whole[1])
    if issued is None or not total:
        raise ValueError(f"'zpool status' does not tell how far a scan is: {text!r}")
    started = _STARTED.search(text)
    rate = parse_size(issued[3]) if state == "scanning" and issued[3] else 0
    return PoolScan(
        state,
        started=_time(started[1] if started else match[3]),
        total=parse_size(total),
        done=parse_size(issued[1]),
        rate=float(rate) or None,
        repaired=parse_size(repaired[1]) if repaired else 0,
        resilver=match[1] == "resilver",
    )


def _time(date: str) -> float:
    return float(timegm(strptime(date, "%a %b %d %H:%M:%S %Y")))


def _errors(text: str) -> int:
    first = text.strip().splitlines()[0] if text.strip() else ""
    if first == "No known data errors":
        return 0
    if match := re.match(r"(\d+) data errors?, use '-v' for a list", first):
        return int(match[1])
    raise ValueError(f"'zpool status' tells of errors in unknown words: {first!r}")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table of devices: how far it is indented, its name, and its counted checksum errors."""

    depth: int
    name: str
    checksums: int | None


def _rows(config: str) -> list[_Row]:
    """The rows of the table of devices. Raises ValueError where there is none."""
    lines = [line for line in config.splitlines() if line.strip()]
    if not lines or lines[0].split() != ["NAME", "STATE", "READ", "WRITE", "CKSUM"]:
        raise ValueError("'zpool status' printed no table of devices")
    found = []
    for line in lines[1:]:
        text = line.expandtabs()
        match = _DEVICE.match(text)
        name = match[1] if match else text.strip()
        counted = int(match[2]) if match and match[2] and match[2].isdecimal() else None
        found.append(_Row(len(text) - len(text.lstrip()), name, counted))
    return found


def _wrong(rows: Sequence[_Row]) -> int:
    """The CKSUM column of all devices that have none below them."""
    pairs = zip(rows, [*rows[1:], None], strict=True)
    return sum(row.checksums or 0 for row, below in pairs if below is None or below.depth <= row.depth)


def _vdevs(rows: Sequence[_Row]) -> Iterator[TopVdev]:
    """The top-level vdevs: the pool's own come first, below its name, then those below the name of another role."""
    if not rows:
        return
    role, top = "normal", rows[0].depth + 2
    heads = [index for index, row in enumerate(rows) if row.depth <= top]
    for index, following in zip(heads, [*heads[1:], len(rows)], strict=True):
        row = rows[index]
        if row.depth < top:
            role = "normal" if index == 0 else row.name
        else:
            below = rows[index:following]
            yield TopVdev(row.name, role, tuple(one.name for one in below if one.name.startswith("/")))
