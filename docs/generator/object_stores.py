"""The table of servers in docs/reference/object-stores.md, from what 'blockstore probe -j' said of each."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from generator.marked_part import with_part

PAGE = Path(__file__).resolve().parent.parent / "reference" / "object-stores.md"
PROBES = PAGE.parent / "probes"
BEGIN = "<!-- Made by docs/generate.py from docs/reference/probes. Do not edit up to the end mark. -->\n"
END = "<!-- The end of what docs/generate.py makes. -->\n"
USES = ("one host", "several hosts", "history", "lock", "recover")


def object_stores() -> str:
    """The page, with its part between the two marks made again."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(PROBES.glob("*.json"))]
    rows = [f"| server | asked on | {' | '.join(USES)} |", f"|---|---|{'---|' * len(USES)}"]
    rows += [_row(one) for one in found]
    why = [line for one in found for line in _reasons(one)]
    return with_part(PAGE, BEGIN, "\n" + "\n".join([*rows, "", *why]) + "\n\n", END)


def _row(report: dict[str, Any]) -> str:
    good = {one["use"]: "yes" if one["good"] else "no" for one in report["verdicts"]}
    day = datetime.fromtimestamp(report["at"], UTC).date().isoformat()
    return f"| {report['server']}, {report['setup']} | {day} | {' | '.join(good[use] for use in USES)} |"


def _reasons(report: dict[str, Any]) -> list[str]:
    """What a server did not hold, each a line of a list."""
    wrong = [f"{one['name']}: {one['came']}" for one in report["tries"] if one["held"] is not True]
    return [f"- {report['server']}: {'; '.join(wrong)}."] if wrong else []
