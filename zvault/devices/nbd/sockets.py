"""Which connections to a server live, as the kernel lists its sockets (proc_pid_net(5)).

A dead NBD connection shows nowhere in sysfs, and to read from the device to find out would take as long as it
takes. But its socket leaves these lists at once, and to read them never waits for anything.
"""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path

PROC_NET = Path("/proc/net")

_LISTENS = 0x10000
"""__SO_ACCEPTCON in the kernel's include/linux/net.h."""
_UNIX_CONNECTED, _TCP_ESTABLISHED = "03", "01"


def is_unix_listening(path: str, proc_net: Path = PROC_NET) -> bool:
    """True if a server listens on a unix socket, as far as this network namespace can see."""
    return any(int(flags, 16) & _LISTENS for flags, _, _ in _unix_sockets(path, proc_net))


def list_unix_links(path: str, proc_net: Path = PROC_NET) -> set[str]:
    """The connections that a unix socket's server has accepted, by inode."""
    return {
        inode
        for flags, state, inode in _unix_sockets(path, proc_net)
        if state == _UNIX_CONNECTED and inode != "0" and not int(flags, 16) & _LISTENS
    }


def list_tcp_links(address: str, port: int, proc_net: Path = PROC_NET) -> set[str]:
    """The established connections from this host to a server's numeric address, by their own end."""
    remote = f"{encode_kernel_address(address)}:{port:04X}"
    table = "tcp6" if ":" in address else "tcp"
    rows = (line.split() for line in _lines(proc_net / table))
    return {row[1] for row in rows if row[2] == remote and row[3] == _TCP_ESTABLISHED}


def encode_kernel_address(address: str) -> str:
    """An IP address as /proc/net/tcp has it: 32-bit words in the host's byte order, in hexadecimal."""
    packed = ipaddress.ip_address(address.partition("%")[0]).packed
    words = (int.from_bytes(packed[i : i + 4], sys.byteorder) for i in range(0, len(packed), 4))
    return "".join(f"{word:08X}" for word in words)


def _unix_sockets(path: str, proc_net: Path) -> list[tuple[str, str, str]]:
    """(flags, state, inode) of the sockets bound to a path."""
    rows = (line.split(maxsplit=7) for line in _lines(proc_net / "unix"))
    return [(row[3], row[5], row[6]) for row in rows if len(row) == 8 and row[7] == path]


def _lines(table: Path) -> list[str]:
    """A table's rows without its heading; none where the kernel lacks that protocol."""
    try:
        return table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()[1:]
    except FileNotFoundError:
        return []
