"""Credentials that systemd keeps for services: see systemd.exec(5), ImportCredential=."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from zvault.core.errors import NotFound

STORES = tuple(Path(folder, "credstore") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Where systemd finds those that are not encrypted; in its order."""

FOR_UNITS = (
    *(folder.with_name("credstore.encrypted") for folder in STORES),
    *(Path("/run/credentials", name) for name in ("@system", "@encrypted")),
)
"""Where it has those that only a unit gets."""

DROP_INS = tuple(Path(folder, "systemd/system") for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib"))
"""Where the drop-ins of units are, which may load more."""

_GIVEN_BY = r"^(?:Load|Set)Credential(?:Encrypted)?={}(?::|$)"


def find_keys_file(words: Mapping[str, str]) -> str | None:
    """The file with the keys to an object store, by a server's parameters ``credential`` or ``keys``; None: neither.

    Raises NotFound for a credential that is not there.
    """
    if credential := words.get("credential"):
        return str(find_credential_file(credential))
    return words.get("keys") or None


def find_credential_file(name: str, stores: tuple[Path, ...] = STORES) -> Path:
    """The file with a credential: the unit's own, or else, for what root runs by hand, the host's. Raises NotFound.

    What is encrypted (credstore.encrypted) is there only in a unit that imports it; zvault's units import ``zvault.*``.
    """
    given = os.environ.get("CREDENTIALS_DIRECTORY")
    folders = [*([Path(given)] if given else []), *stores]
    for path in (folder / name for folder in folders):
        if path.is_file():
            return path
    raise NotFound(
        f"there is no credential {name}",
        f"it is in none of {', '.join(map(str, folders))}",
        f"put it into /etc/credstore/{name}; a name that does not begin with 'zvault.' needs a drop-in with"
        f" ImportCredential={name} for zvaultd.service and zvault-blockstore@.service",
    )


def is_kept_for_units(
    name: str, folders: tuple[Path, ...] = FOR_UNITS, drop_ins: tuple[Path, ...] = DROP_INS
) -> bool:
    """True if a credential that credential_file does not find is one that systemd has for zvault's units. For root."""
    given = re.compile(_GIVEN_BY.format(re.escape(name)), re.MULTILINE)
    return any((folder / name).is_file() for folder in folders) or any(
        given.search(file.read_text(errors="replace"))
        for folder in drop_ins
        for file in folder.glob("zvault*.service.d/*.conf")
    )
