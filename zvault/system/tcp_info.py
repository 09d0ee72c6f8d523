"""What TCP has in hand for ssh: ss(8), on this host or, within ssh, on the other. argv and parsing.

Bytes that a host has but cannot send yet tell a way that is full from a program that has nothing to send.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from zvault.core.diagnosis.observations import TcpPath

_OF_THIS_LOGIN = (
    'set -- $SSH_CONNECTION; exec ss -HtinO state established "( src [$3] and sport = :$4 and dst [$1] )"'
)
"""ssh tells the commands that it runs: client, its port, server, its port (ssh(1)). In brackets ss takes both kinds of
address, and an IPv4 one also for what a socket of both kinds has accepted."""

_FIELD = re.compile(r"\b(mss|rtt|unacked|notsent|busy|rwnd_limited):([\d.]+)")


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """One look at a connection. Bytes; ``rtt`` in seconds; ``busy`` and ``closed`` are seconds since it was made: with
    anything under way, and with the window of who receives shut.
    """

    ends: str
    unsent: int
    flying: int
    segment: int
    rtt: float
    busy: float
    closed: float


def sockets_argv() -> list[str]:
    """``ss`` of all connections of this host, with the programs that have them."""
    return ["ss", "-HtinpO", "state", "established"]


def login_sockets_argv() -> list[str]:
    """``ss`` on the other host, of the connections from this one that its sshd has."""
    return ["sh", "-c", _OF_THIS_LOGIN]


def parse_connections(text: str) -> list[TcpConnection]:
    """The connections told of. After iproute2's misc/ss.c, tcp_stats_print."""
    return [_connection(line) for line in text.splitlines()]


def parse_process_connections(text: str, program: str, pid: int) -> list[TcpConnection]:
    """Those of a process; of all by the name of its program, where it shares the one that another of them has."""
    lines = text.splitlines()
    own = [line for line in lines if f'("{program}",pid={pid},' in line]
    return [_connection(line) for line in own or lines if f'(("{program}",' in line]


def _connection(line: str) -> TcpConnection:
    words = line.split()
    found: dict[str, float] = {name: float(value) for name, value in _FIELD.findall(line)}
    segment = int(found.get("mss", 0))
    return TcpConnection(
        " ".join(words[2:4]),
        int(found.get("notsent", 0)),
        int(found.get("unacked", 0)) * segment,
        segment,
        found.get("rtt", 0.0) / 1000,
        found.get("busy", 0.0) / 1000,
        found.get("rwnd_limited", 0.0) / 1000,
    )


def summarize_path(looks: Sequence[Sequence[TcpConnection]]) -> TcpPath | None:
    """Sum up looks at all connections, for the busiest of those that were there all the time."""
    seen: dict[str, list[TcpConnection]] = {}
    for look in looks:
        for one in look:
            seen.setdefault(one.ends, []).append(one)
    steady = [rows for rows in seen.values() if len(rows) == len(looks) > 1]
    if not steady:
        return None
    rows = max(steady, key=lambda rows: (rows[-1].busy - rows[0].busy, sum(one.flying for one in rows)))
    first, last, count = rows[0], rows[-1], len(rows)
    worked = last.busy - first.busy
    return TcpPath(
        sum(one.unsent > 0 for one in rows) / count,
        sum(one.flying for one in rows) / count,
        last.segment,
        sum(one.rtt for one in rows) / count,
        (last.closed - first.closed) / worked if worked > 0 else 0.0,
    )
