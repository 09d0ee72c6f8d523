#!/usr/bin/env python3
"""Write the pages that come from the code, or, with ``--check``, say which are out of date."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

# They import zvault, found only by the line above.
from generator import (  # noqa: E402
    api,
    automatic_repairs,
    cli,
    configuration,
    health,
    man,
    metrics,
    object_stores,
    refusals,
    schema,
    turns,
    vault_life,
)

PAGES: dict[str, Callable[[], str]] = {
    "docs/reference/configuration.md": configuration.configuration,
    "config/zvault.schema.json": schema.schema,
    "docs/reference/cli.md": cli.cli,
    "docs/reference/metrics.md": metrics.metrics,
    "docs/reference/health.md": health.health,
    "docs/reference/refusals.md": refusals.refusals,
    "docs/reference/automatic-repairs.md": automatic_repairs.automatic_repairs,
    "docs/reference/api.md": api.api,
    "docs/reference/object-stores.md": object_stores.object_stores,
    "docs/explanation/vaults.md": vault_life.vaults,
    "docs/explanation/several-hosts.md": turns.several_hosts,
}


def main() -> int:
    """Write or check every page; 1 when a checked page is out of date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a page is out of date"
    )
    check = parser.parse_args().check
    stale = 0
    made = {name: make() for name, make in PAGES.items()}
    made |= {f"docs/man/{name}": text for name, text in man.pages().items()}
    for name, text in made.items():
        page = ROOT / name
        old = page.read_text(encoding="utf-8") if page.exists() else ""
        if old == text:
            continue
        if check:
            stale += 1
            diff = difflib.unified_diff(old.splitlines(True), text.splitlines(True), name, "generated")
            sys.stderr.writelines(list(diff)[:40])
            sys.stderr.write(f"{name} is out of date: run docs/generate.py\n")
        else:
            page.parent.mkdir(parents=True, exist_ok=True)
            page.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {name}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
