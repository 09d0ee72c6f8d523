"""The kinds of value a field may have: how each is written in TOML, checked, and called in the reference.

Each table refuses an unknown key; problems.py says so in words."""

from __future__ import annotations

import difflib
import json
import math
import re
import zoneinfo
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler, PrivateAttr
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer, NbdSpec, TcpServer, UnixServer, parse_nbd
from zvault.config.device_specs.rbd import RbdImage, parse_rbd
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.core import name_rules, names, units
from zvault.core.address import Address, Source, parse_address, parse_source, parse_sources
from zvault.core.policy import cron_schedule
from zvault.core.property_selection import check_user_property
from zvault.core.snapshot_form import check_form


class ConfigTable(BaseModel):
    """A TOML table: nothing unknown in it, no silent conversions, never changed after it was read.

    Defaults are written as a user would write them, and go through the same checks.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


class NamedTable(ConfigTable):
    """A table among others of its kind, as ``[vault.NAME]``. Its name is no key of it: the table around it gives it."""

    _name: str = PrivateAttr(default="")

    @property
    def name(self) -> str:
        """The NAME in ``[vault.NAME]``; empty for a table that stands in no configuration."""
        return self._name

    def named(self, name: str) -> Self:
        """The same table, which knows its name from now on."""
        self._name = name
        return self


def parse_default(text: str) -> Any:
    """A default as a user would write it; validate_default turns it into the field's type."""
    return text


@dataclass(frozen=True)
class TextForm:
    """Marks a value that is written as a TOML string and parsed.

    ``kind`` and ``hint`` are what the reference calls it and says of it. ``parse`` raises ValueError with the
    reason. Values of the types ``ready`` are taken as they are, for tables made in code.
    """

    kind: str
    hint: str
    example: str
    parse: Callable[[str], Any]
    ready: tuple[type, ...] = ()

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.validate)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "string", "title": self.kind, "examples": [self.example]}

    def validate(self, value: object) -> Any:
        """The parsed value. Raises ValueError."""
        if self.ready and isinstance(value, self.ready):
            return value
        if not isinstance(value, str):
            raise ValueError(
                f'must be a string ({self.kind}, as in "{self.example}"), not {describe_value(value)}'
            )
        return self.parse(value)


@dataclass(frozen=True)
class TextsForm(TextForm):
    """The same, or several in an array, which ``parse_all`` makes one value of."""

    parse_all: Callable[[Sequence[str]], Any] = list

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        one = super().__get_pydantic_json_schema__(schema, handler)
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}

    def validate(self, value: object) -> Any:
        """The parsed value. Raises ValueError."""
        if not isinstance(value, list):
            return super().validate(value)
        for one in value:
            if not isinstance(one, str):
                raise ValueError(
                    f'must have strings only (as in "{self.example}"), not {describe_value(one)}'
                )
        return self.parse_all(value)


@dataclass(frozen=True)
class OneOrMore:
    """Marks an array of strings for which one string may stand, where it has only that."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(
            lambda value: [value] if isinstance(value, str) else value, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        array = handler(schema)
        return {"anyOf": [array["items"], array]}


@dataclass(frozen=True)
class VaultsForm(TextForm):
    """Marks the vaults of one backup: an array of names, or a table with the keys of each that are its own."""

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        one = super().__get_pydantic_json_schema__(schema, handler)
        array = {"type": "array", "items": one, "minItems": 1}
        return {"anyOf": [one, array, {"type": "object", "additionalProperties": {"type": "object"}}]}

    def validate(self, value: object) -> dict[str, dict[str, Any]]:
        """The keys of each vault's own by its name. Raises ValueError."""
        if isinstance(value, dict):
            for name, keys in value.items():
                self.parse(name)
                if not isinstance(keys, dict):
                    raise ValueError(f"must have a table for {quote_text(name)}, not {describe_value(keys)}")
            found = dict(value)
        else:
            names = [value] if isinstance(value, str) else value
            if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
                raise ValueError(
                    f'must be an array of names, as in ["cold", "shelf"], or a table, not {describe_value(value)}'
                )
            found = {self.parse(one): {} for one in names}
            if len(found) < len(names):
                twice = next(one for one in names if names.count(one) > 1)
                raise ValueError(f"names {quote_text(twice)} twice: a backup goes into each vault once")
        if not found:
            raise ValueError("names no vault")
        return found


AnyText = TypeVar("AnyText")

Several = Annotated[list[AnyText], OneOrMore()]
"""An array of strings, or one string in place of an array of it alone."""


def describe_value(value: object) -> str:
    """A TOML value in words, short and on one line: ``the integer 5``, ``a table``."""
    match value:
        case bool():
            text = f"the boolean {str(value).lower()}"
        case int():
            text = f"the integer {value}" if abs(value) < 10**20 else "a huge integer"
        case float():
            text = f"the float {value}"
        case str():
            text = f"the string {quote_text(value)}"
        case list():
            text = "an array"
        case dict():
            text = "a table"
        case datetime() | date() | time():
            text = f"the date or time {value}"
        case _:
            text = f"a value of type {type(value).__name__}"
    return text


def quote_text(text: str) -> str:
    """A string in quotes on one line, shortened to 60 characters."""
    return json.dumps(text if len(text) <= 60 else text[:59] + "…", ensure_ascii=False)


def suggest_nearest(word: str, known: list[str]) -> str:
    """``; did you mean "…"?`` with the known word most like ``word``, or nothing when none is like it."""
    folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), folded, n=1)
    return f'; did you mean "{folded[near[0]]}"?' if near else ""


def _checked(check: Callable[[str], None]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        check(text)
        return text

    return parse


# zpool_name_valid() in libzfs_pool.c: what would read as a kind of vdev on a command line.
_RESERVED_POOLS = re.compile(r"(?:mirror|raidz|draid|spare).*|log")


def _check_pool(text: str) -> None:
    if "/" in text:
        raise ValueError(f"is the name of a pool, without a path: {quote_text(names.DatasetName(text).pool)}")
    name_rules.check_dataset_name(text)
    if _RESERVED_POOLS.fullmatch(text):
        raise ValueError(f"{quote_text(text)} is no name for a pool: ZFS keeps it for a kind of vdev")


def _check_host(text: str) -> None:
    if "/" in text:
        raise ValueError('must be one name without "/"')
    name_rules.check_dataset_name(f"pool/{text}")


def _check_zone(text: str) -> None:
    try:
        zoneinfo.ZoneInfo(text)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        hint = suggest_nearest(text, sorted(zoneinfo.available_timezones())) or ', as in "Europe/Vienna"'
        raise ValueError(f"{quote_text(text)} is not a time zone this host knows{hint}") from None


def split_address(text: str) -> tuple[str, int]:
    """Host (without brackets) and port of ``127.0.0.1:9712`` or ``[::]:9712``. Raises ValueError."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", text)
    if match is None:
        raise ValueError(
            f'{quote_text(text)} is not HOST:PORT, as in "127.0.0.1:9712", or in "[::]:9712" for every address'
        )
    port = int(match[3])
    if not 0 < port < 65536:
        raise ValueError(f"port {port} is not between 1 and 65535")
    return match[1] or match[2], port


def _parse_listen(text: str) -> str | None:
    if text == "off":
        return None
    split_address(text)
    return text


def _parse_size(text: str) -> int:
    size = units.parse_size(text)
    if size <= 0:
        raise ValueError("must be more than nothing")
    return size


def _parse_share(text: str) -> float:
    number = text.removesuffix("%").strip()
    try:
        percent = float(number)
    except ValueError:
        percent = math.nan
    if number == text or not 1 <= percent <= 100:
        raise ValueError(f'must be from "1%" to "100%", not {quote_text(text)}')
    return percent / 100


def _check_snapname_pattern(text: str) -> None:
    if not text:
        raise ValueError("an empty pattern matches no snapshot")
    for sign in "@/":
        if sign in text:
            raise ValueError(
                f'{quote_text(text)} can match no snapshot: a name after "@" has no {quote_text(sign)} in it; '
                'patterns look like "*-12-31T*"'
            )


def _check_absolute(text: str) -> None:
    if not text.startswith("/") or not text.isprintable():
        raise ValueError(f"{quote_text(text)} is not an absolute path")


def _check_block_path(text: str) -> None:
    if not re.fullmatch(r"/dev/[^\x00-\x1f\x7f]+", text) or "/.." in text:
        raise ValueError(f"{quote_text(text)} is not the path of a device, as in /dev/nvme0n1p4")


# systemd.unit(5); a template needs its instance.
_UNIT = re.compile(
    r"[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]+)?\.(service|target|mount|automount|socket|path|timer|device)"
)


def _check_unit(text: str) -> None:
    if not _UNIT.fullmatch(text):
        raise ValueError(f"{quote_text(text)} is not the name of a systemd unit, as in wg-quick@wg0.service")
    if text.startswith("zvault"):
        raise ValueError(f"{text} is zvault's own: it is ordered already")


DurationField = Annotated[
    float,
    TextForm(
        "duration",
        "numbers with `ms`, `s`, `m`, `h`, `d` or `w`, the longest first",
        "2h30m",
        units.parse_duration,
    ),
]
SizeField = Annotated[
    int, TextForm("size", "a number with `K`, `M`, `G`, `T` or `P`, in powers of 1024", "128M", _parse_size)
]
ShareField = Annotated[float, TextForm("share", "a percentage, from `1%` to `100%`", "50%", _parse_share)]
SnapnamePattern = Annotated[
    str,
    TextForm(
        "snapshot pattern",
        "the name of a snapshot after `@`, in which `*` stands for anything, `?` for one character and "
        "`[ab]` for one of these",
        "*-12-31T*",
        _checked(_check_snapname_pattern),
    ),
]
WordField = Annotated[
    str,
    TextForm(
        "name",
        "letters, digits, `_`, `.` and `-`, at most 64, the first a letter or digit",
        "cold",
        _checked(name_rules.check_word),
    ),
]
VaultsField = Annotated[
    dict[str, Any],
    VaultsForm(
        "vaults",
        "the names of vaults in an array, or a table for each with the keys that are its own",
        "cold",
        _checked(name_rules.check_word),
    ),
]
BackupNameField = Annotated[
    str,
    TextForm(
        "backup's name",
        "the name of a backup; of one with several vaults, with `@` and the vault's name",
        "home@cold",
        _checked(name_rules.check_backup_name),
    ),
]
BlockPath = Annotated[
    str, TextForm("path", "an absolute path below `/dev`", "/dev/nvme0n1p4", _checked(_check_block_path))
]
FilePath = Annotated[
    str, TextForm("path", "an absolute path", "/etc/ceph/ceph.conf", _checked(_check_absolute))
]
FolderPath = Annotated[
    str, TextForm("path", "an absolute path", "/etc/zvault/tls", _checked(_check_absolute))
]
MountPoints = Annotated[
    tuple[str, ...],
    TextsForm(
        "mount points",
        "an absolute path, or several in an array",
        "/mnt/disk",
        lambda text: (_checked(_check_absolute)(text),),
        (tuple,),
        lambda texts: tuple(map(_checked(_check_absolute), texts)),
    ),
]
UnitNames = Annotated[
    tuple[str, ...],
    TextsForm(
        "units",
        "the name of a systemd unit, or several in an array",
        "wg-quick@wg0.service",
        lambda text: (_checked(_check_unit)(text),),
        (tuple,),
        lambda texts: tuple(map(_checked(_check_unit), texts)),
    ),
]
PoolName = Annotated[str, TextForm("pool", "the name of a ZFS pool", "cold", _checked(_check_pool))]
SourceName = Annotated[
    Source,
    TextsForm(
        "source",
        "the full name of a ZFS dataset, after `ssh://[user@]host[:port]/` if it is on another host; or an array of "
        "such, all of one pool",
        "tank/data",
        parse_source,
        ready=(Source,),
        parse_all=parse_sources,
    ),
]
HostAddress = Annotated[
    Address,
    TextForm(
        "host address", "`ssh://[user@]host[:port]`", "ssh://root@filer1", parse_address, ready=(Address,)
    ),
]
HostName = Annotated[
    str, TextForm("host name", "one component of a dataset's name", "filer1", _checked(_check_host))
]
PatternField = Annotated[
    str,
    TextForm(
        "pattern",
        "a dataset's full name, in which `*` stands for anything within one component and `**` for any depth",
        "tank/scratch/**",
        _checked(name_rules.check_pattern),
    ),
]
UserProperty = Annotated[
    str,
    TextForm(
        "user property",
        "the name of a ZFS user property, with a `:`",
        "org.example:backup",
        _checked(check_user_property),
    ),
]
TemplateField = Annotated[
    str,
    TextForm(
        "template",
        "a dataset's path in which `{host}`, `{dataset}`, `{path}` and `{pool}` are filled in",
        "{host}/{dataset}",
        _checked(name_rules.check_target_template),
    ),
]
SnapnameForm = Annotated[
    str,
    TextForm(
        "form of a name",
        "what follows the prefix: `_`, `-`, `.` or `:` first, then letters, digits and `%Y` `%m` `%d` (or `%j`, the "
        "day of the year) `%H` `%M` `%S`, in this order, or `%s`, the seconds since 1970, and then anything",
        "-%Y%m%d-%H%M%S",
        _checked(check_form),
    ),
]
TimeZone = Annotated[
    str, TextForm("time zone", "a name from the IANA database", "Europe/Vienna", _checked(_check_zone))
]
ListenField = Annotated[
    str, TextForm("address", "`HOST:PORT`, IPv6 in brackets", "127.0.0.1:9712", _parse_listen)
]
NbdServer = Annotated[
    NbdSpec,
    TextForm(
        "NBD server",
        "`zvault:BUCKET/KEY setting=value …`, `nbdkit:PLUGIN key=value … filter=NAME …`, "
        "`s3backer:BUCKET[/PREFIX] option=value …`, "
        "`unix:/path[?export=NAME]` or `tcp:host[:port][/export]`",
        "nbdkit:file /var/lib/zvault/cold.img",
        parse_nbd,
        ready=(BlockstoreServer, NbdkitServer, S3backerServer, UnixServer, TcpServer),
    ),
]
RbdImageName = Annotated[
    RbdImage,
    TextForm(
        "RBD image",
        "`pool/image` or `pool/namespace/image`",
        "rbd_meta/cold",
        parse_rbd,
        ready=(RbdImage,),
    ),
]
CalendarField = Annotated[
    cron_schedule.CronSchedule,
    TextForm(
        "schedule",
        "one of systemd's words (`minutely`, `hourly`, `daily`, `weekly`, `monthly`, `quarterly`, "
        "`semiannually`, `yearly`) or the five fields of cron(5)",
        "hourly",
        cron_schedule.parse_schedule,
        ready=(cron_schedule.CronSchedule,),
    ),
]
IntervalField = Annotated[
    cron_schedule.ScheduleInterval,
    TextForm(
        "interval", "a duration", "15m", cron_schedule.parse_every, ready=(cron_schedule.ScheduleInterval,)
    ),
]
