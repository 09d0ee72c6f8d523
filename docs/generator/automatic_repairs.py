"""docs/reference/automatic-repairs.md, from the table in zvault/core/policy/automatic_repairs.py."""

from __future__ import annotations

from zvault.core.policy.automatic_repairs import AUTOMATIC_REPAIRS, AutomaticRepair

INTRO = """\
<!-- Made by docs/generate.py from zvault/core/policy/automatic_repairs.py. Do not edit. -->

# What zvault repairs by itself

zvault repairs vaults without being asked. A repair on a wrong guess can be worse than the fault, so zvault must know
something before each. If it does not, it leaves the pool alone, and says what a person has to do.

zvault never runs `zpool export -f`, `zpool import -F` or `zpool trim -s`.

| command | for | known first | worse otherwise | how often | a person |
|---|---|---|---|---|---|
"""


def automatic_repairs() -> str:
    """The page."""
    return INTRO + "".join(_row(one) for one in AUTOMATIC_REPAIRS)


def _row(one: AutomaticRepair) -> str:
    first = "; ".join(known.says for known in one.first)
    cells = (f"`{one.command}`", one.when, first, one.worse, one.pace.describe(), one.person)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
