"""Whether another host that shares a backup's vault has made the run that this one skips."""

from __future__ import annotations

from zvault.api.runs import RunDocument
from zvault.core.sharing.shared_note import SharedRunOutcome
from zvault.ops.vaults.shared_vault import SharedVault


def find_other_hosts_run(
    shared: SharedVault, backup: str, last: RunDocument | None, now: float
) -> str | None:
    """The host whose run of a backup ended well, as it says, after ``last``, this host's own newest; None if there is
    none, or that is not known.

    ``now``: seconds since the epoch. A run that was cut short counts from its beginning: nobody knows when it ended.
    """
    run, note = shared.last(backup), shared.note
    if run is None or note is None or run.host == shared.host or run.outcome is not SharedRunOutcome.DONE:
        return None
    if last is None:
        return run.host
    since = last["started"] if last["result"] == "interrupted" else last["ended"] or last["started"]
    return run.host if now - run.age - note.at_most(shared.clock()) > since else None
