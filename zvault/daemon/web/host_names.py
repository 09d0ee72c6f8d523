"""Under which names a server answers."""

from __future__ import annotations

from collections.abc import Collection

from zvault.core.loopback import LOCAL_NAME, is_loopback


def is_known_host(name: str, configured: str, hosts: Collection[str] = ()) -> bool:
    """True if a request's Host header may mean a server that listens on the host ``configured``.

    Where only this host can connect, a foreign name is that of a web page whose name was made to lead here, to have a
    browser on this host read for it (DNS rebinding). Under which names other hosts reach this one is not known, unless
    ``hosts`` says it.
    """
    name = name.strip().lower()
    host = name.partition("]")[0].removeprefix("[") if name.startswith("[") else name.partition(":")[0]
    known = {configured.lower(), *(one.lower() for one in hosts)}
    if not is_loopback(configured) and not hosts:
        return True
    return host in {*known, LOCAL_NAME} or is_loopback(host)
