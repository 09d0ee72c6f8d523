"""What ss tells of connections, as iproute2 6.15 prints it, and what several looks come to."""

from __future__ import annotations

import pytest

from zvault.core.diagnosis.observations import TcpPath
from zvault.system import tcp_info

LINE = (
    "0      {queue}           10.99.0.2:22        10.99.0.1:{port}  cubic wscale:7,7 rto:204 rtt:50.5/1.2 ato:40"
    " mss:1448 pmtu:1500 rcvmss:536 advmss:1448 cwnd:200 bytes_sent:1 segs_out:9 data_segs_out:8 send 45Mbps"
    " lastsnd:1 pacing_rate 9Mbps delivery_rate 5Mbps busy:{busy}ms rwnd_limited:{closed}ms(1.0%) unacked:{unacked}"
    " rcv_space:14600 rcv_ssthresh:64088 {unsent}minrtt:0.4\n"
)


def line(port: int = 40000, unsent: int = 0, unacked: int = 10, busy: int = 1000, closed: int = 0) -> str:
    told = f"notsent:{unsent} " if unsent else ""
    return LINE.format(queue=unsent, port=port, unsent=told, unacked=unacked, busy=busy, closed=closed)


def test_a_line_of_ss():
    (one,) = tcp_info.parse_connections(line(unsent=65160, unacked=100, busy=1500, closed=20))
    assert one == tcp_info.TcpConnection(
        "10.99.0.2:22 10.99.0.1:40000", 65160, 144800, 1448, 0.0505, 1.5, 0.02
    )


def owned(port: int, program: str, pid: int) -> str:
    return f'{line(port).rstrip()} users:(("{program}",pid={pid},fd=3))\n'


def test_the_connections_of_a_program():
    told = owned(1, "ssh", 9) + owned(2, "ssh", 10) + owned(3, "sshd", 9) + line(4)
    assert [one.ends[-1] for one in tcp_info.parse_process_connections(told, "ssh", 9)] == ["1"]
    assert [one.ends[-1] for one in tcp_info.parse_process_connections(told, "ssh", 11)] == ["1", "2"], (
        "one of them is shared"
    )
    assert tcp_info.parse_process_connections(line(), "ssh", 9) == []


def test_the_busiest_of_those_that_were_there_all_the_time():
    looks = [
        tcp_info.parse_connections(
            line(1, unacked=1, busy=1000)
            + line(2, unsent=9 * (number % 2), busy=1000 * number, closed=100 * number)
            + (line(3, unsent=9, busy=9000) if number else "")
        )
        for number in range(4)
    ]
    found = tcp_info.summarize_path(looks)
    assert found == TcpPath(0.5, 14480, 1448, pytest.approx(0.0505), pytest.approx(0.1))


def test_nothing_is_told_of_nothing():
    assert tcp_info.summarize_path([]) is None
    assert tcp_info.summarize_path([[], []]) is None
    assert tcp_info.summarize_path([tcp_info.parse_connections(line())]) is None, "one look is none"
