"""The form of a snapshot's name, strftime-like: which are taken, names made by one, and times read back. Pure.

A form is taken only if each second gives a name of its own, and names sort as their times do: fields of a fixed width,
the largest first, in a zone whose offset never changes; or the seconds since the epoch first, and then anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

from zvault.core.names import make_snapname, parse_snapname, parse_snapname_time

DEFAULT_FORM = "_%Y-%m-%dT%H:%M:%SZ"
"""The form that zvault's names have where none is configured, in UTC. Names of it are always known."""

_WIDTHS = {"Y": 4, "m": 2, "d": 2, "j": 3, "H": 2, "M": 2, "S": 2, "s": 10}
_ORDERS = (("Y", "m", "d", "H", "M", "S"), ("Y", "j", "H", "M", "S"), ("s",))
_TOKEN = re.compile(r"%(.?)|([A-Za-z0-9_.:-])|(.)", re.DOTALL)
_SEPARATORS = "_-.:"

_FROM, _TO = 1969, 9998
"""Years outside of which a zone could lead out of the calendar."""

SAMPLE_MOMENTS = tuple(
    datetime(2026, 11, 21, 9, 8, 7, tzinfo=UTC) + timedelta(days=97.3 * n) for n in range(4)
)

FormToken = tuple[str, bool]
"""A field's letter (True), or literal text."""


@lru_cache(maxsize=64)
def _tokens(form: str) -> tuple[FormToken, ...]:
    """The parts of a form. Raises ValueError."""
    found: list[FormToken] = []
    for match in _TOKEN.finditer(form):
        field, literal, other = match.groups()
        if other is not None:
            raise ValueError(
                f"{form!r} has {other!r}: a snapshot's name has letters, digits and _ - . : only"
            )
        if literal is not None:
            found.append((literal, False))
        elif field in _WIDTHS:
            found.append((field, True))
        else:
            raise ValueError(
                f"%{field} in {form!r} is not taken: %Y %m %d (or %j) %H %M %S and %s are. Names of months or days, "
                "years of two digits and hours of twelve do not sort as time does, and '+' and '%' are not allowed in "
                "a snapshot's name"
            )
    return tuple(found)


def is_fixed_zone(zone: str) -> bool:
    """True if a time zone has one offset for ever, by its IANA name: others may change at any time, by law."""
    return zone in {"UTC", "Etc/UTC", "Zulu", "Etc/Zulu", "GMT"} or zone.startswith("Etc/GMT")


def check_form(form: str) -> None:
    """Check what can be told of a form without its zone. Raises ValueError."""
    tokens = _tokens(form)
    if not tokens or tokens[0][1] or tokens[0][0] not in _SEPARATORS:
        raise ValueError(
            f"{form!r} must begin with one of {' '.join(_SEPARATORS)}, to part it from the prefix"
        )
    fields = tuple(dict.fromkeys(letter for letter, field in tokens if field))
    if (
        fields[:1] == ("s",)
        or fields[: len(_ORDERS[0])] == _ORDERS[0]
        or fields[: len(_ORDERS[1])] == _ORDERS[1]
    ):
        return
    missing = [f"%{one}" for one in _ORDERS[0] if one not in fields and not (one in "md" and "j" in fields)]
    if missing and "s" not in fields:
        raise ValueError(
            f"{form!r} lacks {' '.join(missing)}: two moments would give one name. It needs %Y %m %d %H %M %S, or %s"
        )
    raise ValueError(
        f"{form!r} does not sort as time does: the larger comes first, %Y %m %d (or %Y %j) %H %M %S, or %s alone"
    )


def check_zone(form: str, zone: str) -> None:
    """Check a form that was checked against its zone. Raises ValueError with the reason."""
    begins = next(letter for letter, field in _tokens(form) if field)
    if begins != "s" and not is_fixed_zone(zone):
        raise ValueError(
            f"in {zone}, {form!r} would give two moments one name, or names that do not sort as time does, when its "
            "clocks go back: use UTC, a zone such as Etc/GMT-1 that never changes, or a form that begins with %s"
        )
    for when in SAMPLE_MOMENTS:
        known = parse_snapname_time(render_snapname(form, "p", when, ZoneInfo(zone)))
        if known is not None and known != int(when.timestamp()):
            raise ValueError(f"{form!r} in {zone} looks like a time in UTC, which it is not: leave out the Z")


def render_snapname(form: str, prefix: str, when: datetime, zone: tzinfo) -> str:
    """The snapname of a moment (aware), of which fractions of a second are cut off."""
    utc = when.astimezone(UTC).replace(microsecond=0)
    local = utc.astimezone(zone)
    values = {
        "Y": local.year,
        "m": local.month,
        "d": local.day,
        "j": local.timetuple().tm_yday,
        "H": local.hour,
        "M": local.minute,
        "S": local.second,
        "s": int(utc.timestamp()),
    }
    parts = (f"{values[text]:0{_WIDTHS[text]}}" if field else text for text, field in _tokens(form))
    return prefix + "".join(parts)


@lru_cache(maxsize=64)
def _pattern(form: str) -> re.Pattern[str]:
    seen: set[str] = set()
    parts = []
    for text, field in _tokens(form):
        if not field:
            parts.append(re.escape(text))
        elif text in seen:
            parts.append(f"(?P={text})")
        else:
            seen.add(text)
            parts.append(f"(?P<{text}>[0-9]{{{_WIDTHS[text]}}})")
    return re.compile("".join(parts))


def parse_rendered_snapname(form: str, prefix: str, snapname: str, zone: tzinfo) -> datetime | None:
    """Return when a snapshot of that name was made, in UTC; None unless it has exactly the form."""
    match = _pattern(form).fullmatch(snapname.removeprefix(prefix))
    if match is None or not snapname.startswith(prefix):
        return None
    fields = {name: int(digits) for name, digits in match.groupdict().items()}
    try:
        if "s" in fields:
            when = datetime.fromtimestamp(fields["s"], UTC)
        elif _FROM <= fields["Y"] <= _TO:
            day = datetime(fields["Y"], fields.get("m", 1), fields.get("d", 1), tzinfo=zone)
            if "m" not in fields:
                day += timedelta(days=fields["j"] - 1)
            when = day.replace(hour=fields["H"], minute=fields["M"], second=fields["S"]).astimezone(UTC)
        else:
            return None
    except (ValueError, OverflowError):  # the form is right, the date is not: 2026-02-30
        return None
    return when if render_snapname(form, prefix, when, zone) == snapname else None


@dataclass(frozen=True, slots=True)
class SnapshotNames:
    """The names of a backup's snapshots: ``prefix`` and ``form``, in ``zone``; ``former`` forms are known as well."""

    prefix: str
    form: str = DEFAULT_FORM
    zone: str = "UTC"
    former: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        widths = (_WIDTHS[text] if field else 1 for text, field in _tokens(self.form))
        return len(self.prefix) + sum(widths)

    def make(self, when: datetime) -> str:
        """The snapname of a moment (aware)."""
        if self.form == DEFAULT_FORM and self.zone == "UTC":
            return make_snapname(self.prefix, when)
        return render_snapname(self.form, self.prefix, when, ZoneInfo(self.zone))

    def known(self, snapname: str) -> bool:
        """True if zvault gave this name for the backup, by the form of now or an earlier one."""
        return parse_snapname(self.prefix, snapname) is not None or _known(self, snapname)

    def takes_for_its_own(self, other: SnapshotNames) -> str | None:
        """A name that ``other`` gives and this one knows, if there is any."""
        return next((name for when in SAMPLE_MOMENTS if self.known(name := other.make(when))), None)


@lru_cache(maxsize=1 << 16)
def _known(names: SnapshotNames, snapname: str) -> bool:
    forms = [form for form in (names.form, *names.former) if form != DEFAULT_FORM]
    return any(
        parse_rendered_snapname(form, names.prefix, snapname, ZoneInfo(names.zone)) is not None
        for form in forms
    )
