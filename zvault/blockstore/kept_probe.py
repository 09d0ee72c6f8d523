"""What the last probe of a place found, kept on this host: for ``blockstore info``, and to compare with."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST = 1 << 20
"""Characters read of one."""


def probe_file(folder: Path, identity: Sequence[str]) -> Path:
    """Where the probe of the place with this identity is kept."""
    return folder / f"{hashlib.sha256(chr(0).join(identity).encode()).hexdigest()[:16]}.json"


def keep_probe(folder: Path, identity: Sequence[str], report: Mapping[str, Any]) -> None:
    """Write it in the place of the last one. Raises OSError."""
    folder.mkdir(mode=0o755, exist_ok=True)
    file = probe_file(folder, identity)
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(report, indent=1), encoding="utf-8")
    scratch.replace(file)


def read_probe(folder: Path, identity: Sequence[str]) -> dict[str, Any] | None:
    """The last one; None where there is none that can be read."""
    try:
        with probe_file(folder, identity).open(encoding="utf-8") as file:
            found = json.loads(file.read(LONGEST))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("verdicts"), list) else None


def describe_probe(report: Mapping[str, Any]) -> str:
    """What a store was good for, in words; "" where the document is of another form."""
    try:
        good = [str(one["use"]) for one in report["verdicts"] if one["good"]]
    except (KeyError, TypeError):
        return ""
    return f"good for {', '.join(good)}" if good else "good for nothing that zvault does"
