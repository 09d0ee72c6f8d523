"""Every route of the API, defined once: the daemon registers its handlers by it, zvaultctl calls by it, and the list in
docs/reference/api.md is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

from zvault.api.answers import StartedAnswer
from zvault.api.backups import (
    ForecastDocument,
    HoldsAnswer,
    ListAnswer,
    PlanDocument,
    PruneDocument,
    ReapBody,
)
from zvault.api.browse import DiffBody, DiffDocument, LookBody, PathPastDocument, SessionAnswer, SessionBody
from zvault.api.diagnosis import DoctorDocument, FitDocument
from zvault.api.events import EventHead
from zvault.api.explain import ExplainDocument
from zvault.api.notify import NotifyAnswer, NotifyTestAnswer, NotifyTestBody, ReportAnswer
from zvault.api.restore import (
    FilesPlanDocument,
    FindBody,
    FoundDocument,
    MountBody,
    MountedAnswer,
    RestoreBody,
    RestorePlanDocument,
)
from zvault.api.runs import HistoryAnswer, PruneBody, RunBody, VerifyBody
from zvault.api.status import StatusDocument
from zvault.api.tuning import MeasuredAnswer, TuningDocument
from zvault.api.vaults import (
    AcceptOlderAnswer,
    AcceptOlderBody,
    BeginAnewBody,
    ClosedAnswer,
    ClosePastBody,
    CreationAnswer,
    HealBody,
    OpenPastBody,
    PastAnswer,
    PoolHistoryAnswer,
    ScrubAnswer,
    ScrubBody,
    TakeBody,
    TakeoverAnswer,
    VaultAnswer,
    VaultsAnswer,
)
from zvault.core.errors import Refused

A = TypeVar("A")

RoutePermission = Literal["read", "operate", "act"]
"""Who may use a route: "read" is open to root and the group zvault, "operate" to root and the group zvault-operator,
"act" to root alone.
"""

AnswerForm = Literal["document", "lines", "events"]
"""How an answer comes: one document; lines of text, and the document in the last one (api/answers.py); events."""


@dataclass(frozen=True, slots=True, eq=False)
class ApiRoute(Generic[A]):
    """One route: what is asked for how, what it does, and the document it answers.

    ``path`` has names in braces. ``query`` has an example for each parameter, all of which may be left out.
    ``body`` is the object that may be sent, ``other`` another document that may be the answer.
    """

    method: Literal["GET", "POST"]
    path: str
    answer: type[A]
    does: str
    may: RoutePermission
    other: type[A] | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: type | None = None
    form: AnswerForm = "document"

    def target(self, arguments: Mapping[str, object]) -> str:
        """Path and query with these arguments; those that are None are left out of the query.

        Raises TypeError, and Refused for an empty name, which would be another route or none.
        """
        path, query = self.path, {}
        for name, value in arguments.items():
            if f"{{{name}}}" in path:
                if value == "":
                    raise Refused(
                        f"the name of the {name} is empty",
                        "nothing has an empty name",
                        "give a name; if it came out of a variable, see that that is set",
                    )
                path = path.replace(f"{{{name}}}", quote(str(value), safe="", errors="surrogateescape"))
            elif name not in self.query:
                raise TypeError(f"{self.method} {self.path} has no argument '{name}'")
            elif value is not None:
                query[name] = str(value)
        if "{" in path:
            raise TypeError(f"{self.method} {self.path} lacks arguments: {path}")
        return f"{path}?{urlencode(query, errors='surrogateescape')}" if query else path


def _read(path: str, answer: type[A], does: str, query: Mapping[str, str] | None = None) -> ApiRoute[A]:
    return ApiRoute("GET", path, answer, does, "read", query=query or {})


def _act(
    path: str, answer: type[A], does: str, body: type | None = None, query: Mapping[str, str] | None = None
) -> ApiRoute[A]:
    return ApiRoute("POST", path, answer, does, "act", body=body, query=query or {})


STATUS = _read("/v1/status", StatusDocument, "Everything at a glance.")
VAULTS = _read("/v1/vaults", VaultsAnswer, "All vaults.")
CREATION = _read(
    "/v1/vaults/{vault}/creation", CreationAnswer, "The commands that making its pool would run, by device."
)
POOL_HISTORY = _read(
    "/v1/vaults/{vault}/earlier-pools",
    PoolHistoryAnswer,
    "The pools that the vault had: while any is known, no new one is made for it.",
)
TAKEOVER = _read(
    "/v1/vaults/{vault}/takeover",
    TakeoverAnswer,
    "Who has the vault, and the commands that taking it over would run, by device.",
)
LIST = _read(
    "/v1/list",
    ListAnswer,
    "Datasets, and what vaults have besides; snapshots with `snapshots=1`. Of one backup also "
    "[page by page](#pages).",
    {"backup": "NAME", "snapshots": "1", "limit": "1000", "after": "DATASET"},
)
PLAN = _read(
    "/v1/plan/{backup}",
    PlanDocument,
    "What a run would do. For root, a vault that is down is brought up to look at it.",
)
FORECAST = _read(
    "/v1/forecast/{backup}",
    ForecastDocument,
    "What a run that began now would do, its snapshot included (none with `snapshot=0`). Touches nothing: of a vault"
    " that is down it says that nothing is known.",
    {"snapshot": "0"},
)
PRUNE_PLAN = _read(
    "/v1/prune/{backup}",
    PruneDocument,
    "What pruning would destroy; with `over_limit=1` also what `prune_limit` holds back.",
    {"over_limit": "1"},
)
HOLDS = _read("/v1/holds", HoldsAnswer, "zvault's holds and bookmarks on the sources.")
EXPLAIN = _read(
    "/v1/explain/{name}",
    ExplainDocument,
    "Why a dataset, or a snapshot (`DATASET@SNAPNAME`, with the `/` as `%2F`), was or was not snapshotted, sent,"
    " pruned, kept or healed. Brings no vault up.",
)
FIT = _read(
    "/v1/fit/{backup}",
    FitDocument,
    "What the backup's blocks come to on its vault's storage, and what the pool asks for itself: see"
    " [whether it fits](../how-to/before-the-first-byte.md).",
)
DOCTOR = _read(
    "/v1/doctor/{vault}",
    DoctorDocument,
    "What bounds the vault now, watched for so many seconds (1 to 60): see"
    " [why it is slow](../how-to/why-is-my-backup-slow.md). With `rights=1` also what its Ceph users may not do.",
    {"seconds": "5", "rights": "1"},
)
TUNING = _read("/v1/tuning", TuningDocument, "Module parameters: what is wanted, set, and why.")
HISTORY = _read(
    "/v1/history",
    HistoryAnswer,
    "Past runs, the newest first; of a vault, its scrubs and healings.",
    {"backup": "NAME", "limit": "20"},
)
NOTIFY = _read("/v1/notify", NotifyAnswer, "Whom zvaultd tells of what is wrong, and how that goes.")
REPORT = _read(
    "/v1/report/{every}",
    ReportAnswer,
    "What is reported of the last `weekly` or `monthly` period, as text and as HTML.",
)
EVENTS = ApiRoute(
    *("GET", "/v1/events", EventHead),
    "[Events](#events) as they happen, one JSON object a line; of one run from its beginning.",
    "read",
    query={"run": "ID"},
    form="events",
)
NOTIFY_TEST = _act(
    "/v1/notify/test",
    NotifyTestAnswer,
    "Sends a test to a target, or to all; see [being told](../how-to/be-told.md).",
    NotifyTestBody,
)
RUN = ApiRoute("POST", "/v1/run/{backup}", StartedAnswer, "Starts a run.", "operate", body=RunBody)
PRUNE = _act("/v1/prune/{backup}", StartedAnswer, "Prunes now.", PruneBody)
REAP = _act(
    "/v1/holds/reap",
    HoldsAnswer,
    "Releases the holds and bookmarks that no vault needs; see `zvaultctl holds`.",
    ReapBody,
)
RESTORE = _act("/v1/restore", StartedAnswer, "Starts a restore.", RestoreBody)
RESTORE_PLAN: ApiRoute[RestorePlanDocument | FilesPlanDocument] = ApiRoute(
    *("POST", "/v1/restore/plan", RestorePlanDocument),
    "What such a restore would do: of datasets, or of files.",
    "act",
    other=FilesPlanDocument,
    body=RestoreBody,
)
FIND = _act("/v1/find", FoundDocument, "Finds the versions of files in a vault.", FindBody)
MOUNT = ApiRoute(
    *("POST", "/v1/mount", MountedAnswer),
    "Mounts a snapshot of a vault, read-only; [it tells how it goes](#long-answers). Who closes the connection has it"
    " unmounted.",
    "act",
    body=MountBody,
    form="lines",
)
BROWSE = ApiRoute(
    *("POST", "/v1/browse", PathPastDocument),
    "The versions of a path over the snapshots of both sides, and of the names in it where it is a folder;"
    " [it tells how it goes](#long-answers). A vault that is down is brought up, and the snapshots are held meanwhile.",
    "act",
    body=LookBody,
    form="lines",
)
BROWSE_SESSION = ApiRoute(
    *("POST", "/v1/browse/session", SessionAnswer),
    "Keeps a vault up and a dataset's snapshots held for as long as its client stays: requests that name its `session`"
    " are answered from what is open, once a first line has come.",
    "act",
    body=SessionBody,
    form="lines",
)
DIFF = ApiRoute(
    *("POST", "/v1/diff", DiffDocument),
    "What differs between two snapshots of a dataset: paths, or the lines of one file;"
    " [it tells how it goes](#long-answers).",
    "act",
    body=DiffBody,
    form="lines",
)
VERIFY = _act("/v1/verify/{backup}", StartedAnswer, "Starts a verification.", VerifyBody)
VAULT_UP = _act(
    "/v1/vaults/{vault}/up",
    VaultAnswer,
    "Brings the vault up. With `follow=1` [it tells how it goes](#long-answers).",
    query={"follow": "1"},
)
VAULT_DOWN = _act(
    "/v1/vaults/{vault}/down",
    VaultAnswer,
    "Takes the vault down; `follow=1` as above.",
    query={"follow": "1"},
)
OPEN_PAST = _act(
    "/v1/vaults/{vault}/past/open",
    PastAnswer,
    "Opens the vault as it was at a moment that its block store keeps, read-only, beside it; `follow=1` as above.",
    OpenPastBody,
    query={"follow": "1"},
)
CLOSE_PAST = _act(
    "/v1/vaults/{vault}/past/close",
    ClosedAnswer,
    "Closes it again; `follow=1` as above.",
    ClosePastBody,
    query={"follow": "1"},
)
VAULT_CREATE = _act(
    "/v1/vaults/{vault}/create",
    VaultAnswer,
    "Makes the vault's pool; `follow=1` as above.",
    query={"follow": "1"},
)
VAULT_GROW = _act(
    "/v1/vaults/{vault}/grow",
    VaultAnswer,
    "Has the vault's pool use all of its devices, which were grown; `follow=1` as above.",
    query={"follow": "1"},
)
BEGIN_ANEW = _act(
    "/v1/vaults/{vault}/begin-anew",
    PoolHistoryAnswer,
    "Forgets the pools that the vault had, so that it may get a new one.",
    BeginAnewBody,
)
ACCEPT_OLDER = _act(
    "/v1/vaults/{vault}/accept-older",
    AcceptOlderAnswer,
    "Has backups go on from what a vault has whose store was put back to an older state.",
    AcceptOlderBody,
)
TAKE = _act("/v1/vaults/{vault}/take", VaultAnswer, "Takes the vault over from another host.", TakeBody)
SCRUB: ApiRoute[StartedAnswer | ScrubAnswer] = ApiRoute(
    *("POST", "/v1/vaults/{vault}/scrub", StartedAnswer),
    'Begins a scrub or goes on with one; "pause" and "stop" put scrubs off.',
    "operate",
    other=ScrubAnswer,
    body=ScrubBody,
)
HEAL = _act("/v1/vaults/{vault}/heal", StartedAnswer, "Begins to heal what is damaged.", HealBody)
MEASURE = ApiRoute(
    *("POST", "/v1/vaults/{vault}/measure", MeasuredAnswer),
    "Measures the vault's device; [it tells how it goes](#long-answers). Who closes the connection stops it.",
    "act",
    form="lines",
)

ROUTES: tuple[ApiRoute[Any], ...] = tuple(
    one for one in list(globals().values()) if isinstance(one, ApiRoute)
)
"""All of them, in this order."""
