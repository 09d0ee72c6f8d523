"""Which addresses only this host can connect to. Pure."""

from __future__ import annotations

import ipaddress

LOCAL_NAME = "localhost"


def is_loopback(host: str) -> bool:
    """True if only this host can connect to an address."""
    if host.lower() == LOCAL_NAME:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
