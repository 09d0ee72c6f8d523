"""What to do about what a check found, in words."""

from __future__ import annotations

from zvault.blockstore.maintenance.check_report import CheckReport


def advise_on_check(report: CheckReport) -> str:
    """The next step; "" where there is none."""
    if report.well and not report.strays:
        return ""
    if report.well:
        return "strays only take room: a server's checkpoints remove most; --repair --yes removes all"
    if report.root is None:
        return "bring back an older version of what is damaged, if the bucket keeps versions"
    told = []
    if report.lost:
        told.append(
            "'zpool scrub' of the vault's pool finds what the lost blocks belong to (what was free is no loss), and"
            " 'zvaultctl heal' brings it back from the source"
        )
    if report.of("past"):
        told.append(
            "a moment of the past is lost where what it needs is: nothing brings that back but another copy"
        )
    if report.cut is not None:
        told.insert(
            0,
            "bring back what of the log cannot be read, if the bucket keeps versions; else '--repair --cut-log' shows"
            " what is lost, asks, and repairs the store",
        )
    elif any(one.kind not in ("slots", "past") for one in report.problems):
        told.insert(
            0, "'zvaultctl blockstore check PLACE --repair --yes' repairs the store, while nobody uses it"
        )
    return "; then ".join(told)
