"""Secrets in the words of a device: they would stand in argv, which every user of the host can read, and in the API."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import urlsplit

_NAMES = frozenset(
    {
        "access-key-secret", "aws-secret-access-key", "aws-session-token", "cookie", "password", "passphrase",
        "proxy-password", "secret", "secret-access-key", "secret-key", "session-token", "token",
    }
)  # fmt: skip
"""Parameters that hold one (of nbdkit's S3, curl, ssh and vddk plugins, of its luks filter, of ours)."""
_IN_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]*:[^/?#\s]*@")
_IN_HEADER = re.compile(r"(proxy-)?authorization\s*:|cookie\s*:|[\w-]*(token|key|secret)\s*:", re.IGNORECASE)
_VARIABLE = re.compile(
    r"(?i)(.*_|^|PG|MYSQL_?|AWS_?)(PASSWORD|PASSWD|PWD|PASSPHRASE|SECRET|TOKEN|(SECRET_?|ACCESS_?|API_?)KEY)"
)
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


def is_secret(name: str) -> bool:
    """True if a parameter of this name holds a secret, however it is written: some take "_" for "-"."""
    return name.lower().replace("_", "-") in _NAMES


def is_secret_variable(variable: str) -> bool:
    """True if a variable of the environment of this name holds a secret, as PGPASSWORD and API_TOKEN do."""
    return _VARIABLE.fullmatch(variable) is not None and variable not in {"PWD", "OLDPWD"}


def refuse_secrets_within(word: str) -> None:
    """See that a parameter has no password in a URL, and none in a header. Raises ValueError, without the secret."""
    name, equals, value = word.partition("=")
    if _IN_URL.search(word):
        where = f"{name}=…" if equals and "://" not in name else "the URL"
        raise ValueError(
            f"{where} has a password in its URL, which would show in the process list: leave user and password out of"
            " it, and put them where the server reads them from a file"
        )
    if equals and name.lower() == "header" and _IN_HEADER.match(value):
        raise ValueError(
            "header=… would show the secret in the process list: use header-script=, or cookie=+/path"
        )


def list_plain_endpoints(words: Iterable[str]) -> list[str]:
    """Addresses among these words that are spoken to without encryption, and are not on this host."""
    found = []
    for word in words:
        at = word.find("http://")
        if at < 0:
            continue
        url = word[at:]
        try:
            host = urlsplit(url).hostname
        except ValueError:
            host = None
        if host not in _LOCAL:
            found.append(url)
    return found
