"""Snapshots, rules for them, and what retention says of each; drawn at random too."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from zvault.core.model import Snapshot
from zvault.core.names import DatasetName
from zvault.core.policy.retention import KeepDecision, KeepRules, decide_retention

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = (
    UTC,
    BERLIN,
    ZoneInfo("America/New_York"),
    ZoneInfo("Australia/Lord_Howe"),  # put forward and back by half an hour
    ZoneInfo("Asia/Kathmandu"),
    timezone(timedelta(hours=-9, minutes=-30)),
)
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC).timestamp()


def ours(snapshot: Snapshot) -> bool:
    return snapshot.snapname.startswith("z")


def snap(number: int, creation: float | datetime, snapname: str = "z") -> Snapshot:
    seconds = creation.timestamp() if isinstance(creation, datetime) else creation
    return Snapshot(DatasetName("tank/a"), f"{snapname}{number}", 10_000 + number, number, int(seconds))


def run(
    snapshots: list[Snapshot],
    rules: KeepRules,
    *,
    now: float = NOW,
    zone: tzinfo = UTC,
    protected: dict[int, str] | None = None,
) -> list[KeepDecision]:
    return decide_retention(snapshots, rules, now=now, zone=zone, protected=protected or {}, ours=ours)


def kept(verdicts: list[KeepDecision]) -> list[Snapshot]:
    return [verdict.snapshot for verdict in verdicts if verdict.keep]


def reasons(verdicts: list[KeepDecision]) -> dict[str, str]:
    return {verdict.snapshot.snapname: verdict.reason for verdict in verdicts}


PERIODS: dict[str, Callable[[datetime], str]] = {
    "hourly": lambda local: local.strftime("%Y-%m-%d %H %z"),
    "daily": lambda local: local.strftime("%Y-%m-%d"),
    "weekly": lambda local: local.strftime("%G-%V"),
    "monthly": lambda local: local.strftime("%Y-%m"),
    "yearly": lambda local: local.strftime("%Y"),
}


def label_period(length: int, local: datetime) -> str:
    """The number of a period of so many seconds by the wall clock, from a Monday; an hour that comes twice is two."""
    monday = datetime(1, 1, 1, tzinfo=UTC)
    number = (local.replace(tzinfo=UTC, fold=0) - monday) // timedelta(seconds=length)
    return f"{number}" if length >= 86400 else f"{number} {local.strftime('%z')}"


# What hypothesis draws: around the nights of a change, in gaps of minutes to months, with clocks that were set.

STARTS = [
    datetime(2026, 10, 24, 20, tzinfo=UTC),
    datetime(2026, 3, 28, 20, tzinfo=UTC),
    datetime(2026, 4, 4, 10, tzinfo=UTC),
    datetime(2020, 12, 27, 22, tzinfo=UTC),
]
GAPS = st.one_of(
    st.integers(0, 5400),
    st.sampled_from([900, 3600, 86400]),
    st.integers(0, 86400 * 60),
    st.integers(-86400 * 3, 0),
)


@st.composite
def histories(draw: st.DrawFn) -> list[Snapshot]:
    moment = draw(st.sampled_from(STARTS)).timestamp()
    snapshots = []
    for number, gap in enumerate(draw(st.lists(GAPS, max_size=30)), start=1):
        moment += gap
        snapshots.append(snap(number, moment, draw(st.sampled_from(["z", "z", "z", "user-"]))))
    return draw(st.permutations(snapshots))


counts = st.integers(0, 6)
rules_drawn = st.builds(
    KeepRules,
    last=counts,
    within=st.sampled_from([0.0, 3600.0, 86400.0, 86400.0 * 40]),
    hourly=counts,
    daily=counts,
    weekly=counts,
    monthly=counts,
    yearly=counts,
    periods=st.dictionaries(
        st.sampled_from([60, 900, 3 * 3600, 5 * 3600, 86400, 3 * 86400, 14 * 86400]), counts, max_size=3
    ).map(lambda drawn: tuple(drawn.items())),
    matching=st.sampled_from([(), (), ("z*7",), ("z1*", "nothing"), ("Z*",), ("user-*",), ("*",)]),
)


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[Snapshot], KeepRules, float, tzinfo, dict[int, str]]:
    snapshots = draw(histories())
    newest = max((one.creation for one in snapshots), default=int(NOW))
    protected = draw(st.sets(st.sampled_from(snapshots))) if snapshots else set()
    return (
        snapshots,
        draw(rules_drawn),
        newest + draw(st.integers(-7200, 86400)),
        draw(st.sampled_from(ZONES)),
        {one.guid: f"base of {one.snapname}" for one in protected},
    )


Case = tuple[list[Snapshot], KeepRules, float, tzinfo, dict[int, str]]


def judge(case: Case) -> list[KeepDecision]:
    snapshots, rules, now, zone, protected = case
    return run(snapshots, rules, now=now, zone=zone, protected=protected)
