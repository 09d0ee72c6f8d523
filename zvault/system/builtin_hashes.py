"""Python's own hashes in place of OpenSSL's, for processes that need no TLS: its library is 4 MB, and slow to load.

zvault hashes some words at a time in them, for which Python's SHA-256 is as good. Some distributions build Python
without hashes of its own; there OpenSSL's stay in use.
"""

from __future__ import annotations

import importlib.util
import sys

BUILTIN_HASH_MODULES = ("_sha2", "_sha256")
"""The module of SHA-256 since Python 3.12, and before."""

HASH_MODULES = ("_hashlib", "hashlib", "hmac")


def use_builtin_hashes() -> None:
    """Use them in what is imported from now on."""
    if "_hashlib" not in sys.modules and any(map(importlib.util.find_spec, BUILTIN_HASH_MODULES)):
        sys.modules["_hashlib"] = None  # type: ignore[assignment]


def use_openssl_hashes() -> None:
    """Let what is imported from now on have OpenSSL's again."""
    if sys.modules.get("_hashlib", True) is None:
        for name in HASH_MODULES:
            sys.modules.pop(name, None)
