"""Properties of datasets: as they were set or came with a stream, and setting them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

from zvault.core.errors import ToolFailed, refuse_unparsable
from zvault.core.model import VaultProperty
from zvault.core.names import SnapshotName
from zvault.core.refusals import find_cure
from zvault.core.units import is_number
from zvault.system.process.runner import ToolRunner
from zvault.zfs.whole_listing import list_whole

PROPERTIES_DEADLINE = 300.0

DATASETS_IN_ARGV = 500

NOT_COMPARED = frozenset(
    {
        "mountpoint", "canmount", "readonly", "volmode", "sharenfs", "sharesmb", "snapdev", "snapdir", "keylocation",
        "quota", "refquota", "reservation", "refreservation", "volsize",
    }
)  # fmt: skip
"""What a vault sets itself or keeps out (zfs/stream_argv.py), and what a snapshot carries itself."""


async def read_values(
    host: ToolRunner, datasets: Sequence[str], column: Literal["value", "received"]
) -> dict[str, dict[str, str]]:
    """By dataset and property, what is set there (``value``), or what a stream brought (``read_received_properties``).

    zvault's own properties are left out. Raises ToolFailed.
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        result = await host.run(
            ["zfs", "get", "-Hp", "-s", "local,received", "-o", f"name,property,{column}", "all", *some],
            deadline=PROPERTIES_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise ToolFailed("cannot read the properties of datasets", result.complaint())
        for line in result.stdout.splitlines():
            # A user property may hold a newline: what follows it is no line of its own.
            name, key, value = [*line.split("\t", 2), "-", "-"][:3]
            if name not in some:
                continue
            if is_compared(key) and value != "-":
                found[name][key] = value
    return dict(found)


def is_compared(name: str) -> bool:
    """True if a property has to be the same on a source and its vault."""
    return name not in NOT_COMPARED and not name.startswith("org.zvault:")


async def read_own_settings(host: ToolRunner, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """By dataset or snapshot, all that is set on it, by ``zfs set`` or a stream, exact: what a stream brings of it.

    One of which that cannot be told for certain is left out. Raises ToolFailed.
    """
    found = await _settings(host, names, "-s", "local,received")
    return {name: {key: one.value for key, one in of_it.items()} for name, of_it in found.items()}


async def read_settings(
    host: ToolRunner, names: Sequence[str], hidden: Sequence[str] = ()
) -> dict[str, dict[str, VaultProperty]]:
    """By dataset, all properties with what a stream brought of them. One of which that cannot be told for certain is
    left out. Raises ToolFailed.

    ``hidden`` are user properties that may have no value there though a stream brought one: 'zfs get all' lacks them.
    """
    found = await _settings(host, names)
    for name in hidden:
        told = await read_received_of_each(host, name, list(found))
        found = {dataset: of_it for dataset, of_it in found.items() if dataset in told}
        for dataset, of_it in found.items():
            of_it.setdefault(name, VaultProperty("-", told[dataset], "-"))
    return found


async def read_received_of_each(host: ToolRunner, name: str, datasets: Sequence[str]) -> dict[str, str]:
    """By dataset, what a stream brought of a property, "-" for nothing; without those of which that cannot be told for
    certain. Raises ToolFailed.
    """
    found: dict[str, str] = {}
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        result = await host.run(
            ["zfs", "get", "-Hp", "-o", "name,received", name, *some],
            deadline=PROPERTIES_DEADLINE,
            check=False,
        )
        if result.returncode != 0:
            raise ToolFailed(f"cannot read the property {name} of '{some[0]}'", result.complaint())
        rows = [line.split("\t") for line in result.stdout.splitlines()]
        # A user property may hold a newline or a tab: then a line is too many, or is none of this form.
        if [words[0] for words in rows] == list(some) and all(len(words) == 2 for words in rows):
            found |= {words[0]: words[1] for words in rows}
    return found


async def _settings(
    host: ToolRunner, names: Sequence[str], *options: str
) -> dict[str, dict[str, VaultProperty]]:
    found: dict[str, dict[str, VaultProperty]] = {}
    doubtful: set[str] = set()
    for start in range(0, len(names), DATASETS_IN_ARGV):
        some = names[start : start + DATASETS_IN_ARGV]
        columns = ["-o", "name,property,value,received,source"]
        result = await host.run(
            ["zfs", "get", "-Hp", *options, *columns, "all", *some], deadline=PROPERTIES_DEADLINE, check=False
        )
        if result.returncode != 0:
            raise ToolFailed("cannot read the properties of datasets", result.complaint())
        found |= {name: {} for name in some}
        last = ""
        for line in result.stdout.splitlines():
            words = line.split("\t")
            if len(words) != 5 or words[0] not in found or words[1] in found[words[0]]:
                # A user property may hold a newline or a tab: then nobody can tell what belongs to what.
                doubtful |= {last, words[0]}
                continue
            last = words[0]
            found[last][words[1]] = VaultProperty(*words[2:])
    return {name: of_it for name, of_it in found.items() if name not in doubtful}


async def read_local_properties(host: ToolRunner, dataset: str, *names: str) -> dict[str, str]:
    """Those of some properties that are set on the dataset itself. Empty where it does not exist."""
    result = await host.run(
        ["zfs", "get", "-Hp", "-s", "local", "-o", "property,value", ",".join(names), dataset],
        deadline=PROPERTIES_DEADLINE,
        check=False,
    )
    rows = (line.partition("\t") for line in result.stdout.splitlines())
    return {key: value for key, tab, value in rows if tab and key in names}


async def read_exact_properties(
    host: ToolRunner, datasets: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    """By dataset, the exact values of some properties, wherever they come from; without datasets that do not exist.

    Raises ToolFailed where nothing can be read.
    """
    return await _table(host, datasets, ",".join(names), "value")


async def read_user_property(
    host: ToolRunner, root: str, name: str, datasets: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """By dataset, the value of a user property and where it comes from, for ``root`` and these datasets below it.

    A value may hold lines that look like another dataset's, or end its own line early. Then a line is too many, of
    a name that is told twice, or of none of the datasets: so each is asked by itself. Raises ToolFailed.
    """
    return await _of_each(host, name, datasets, "-r", "-t", "filesystem,volume", where=[root])


async def read_each_property(
    host: ToolRunner, name: str, datasets: Sequence[str]
) -> dict[str, tuple[str, str]]:
    """By dataset, the value of any property, exact, and where it comes from (zfs get(8)). Raises ToolFailed."""
    found: dict[str, tuple[str, str]] = {}
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        found |= await _of_each(host, name, some, where=some)
    return found


async def _of_each(
    host: ToolRunner, name: str, datasets: Sequence[str], *options: str, where: Sequence[str]
) -> dict[str, tuple[str, str]]:
    result = await host.run(
        ["zfs", "get", "-Hp", *options, "-o", "name,value,source", name, *where],
        deadline=PROPERTIES_DEADLINE,
        check=False,
    )
    if result.returncode != 0:
        raise ToolFailed(f"cannot read the property {name} of '{where[0]}'", result.complaint())
    rows = [line.split("\t") for line in result.stdout.removesuffix("\n").split("\n")]
    found = {words[0]: (words[1], words[2]) for words in rows if len(words) == 3}
    if len(found) < len(rows) or found.keys() - set(datasets):
        found = {}
    return {
        dataset: found[dataset] if dataset in found else await _one_value(host, dataset, name)
        for dataset in datasets
    }


async def _one_value(host: ToolRunner, dataset: str, name: str) -> tuple[str, str]:
    """As ``read_user_property``, of one dataset: then what comes last is the source, whatever the value holds."""
    result = await host.run(
        ["zfs", "get", "-Hp", "-o", "value,source", name, dataset], deadline=PROPERTIES_DEADLINE, check=False
    )
    if result.returncode != 0:
        if "does not exist" in result.stderr:
            return "-", "-"
        raise ToolFailed(f"cannot read the property {name} of '{dataset}'", result.complaint())
    value, _, source = result.stdout.removesuffix("\n").rpartition("\t")
    return value, source


async def list_property_sources(
    host: ToolRunner, datasets: Sequence[str], sources: str
) -> dict[str, dict[str, str]]:
    """By dataset and property, where it comes from (zfs get(8)), of those from these ``sources`` (``zfs get -s``); of
    datasets that have any. Raises ToolFailed.

    No value is asked for, so none can look like a line of its own.
    """
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        result = await host.run(
            ["zfs", "get", "-Hp", "-s", sources, "-o", "name,property,source", "all", *some],
            deadline=PROPERTIES_DEADLINE,
            check=False,
        )
        if result.returncode != 0 and not all(
            "does not exist" in line for line in result.stderr.splitlines()
        ):
            raise ToolFailed("cannot list the properties of datasets", result.complaint())
        rows = (line.split("\t") for line in result.stdout.splitlines())
        for name, prop, source in (row for row in rows if len(row) == 3):
            found[name][prop] = source
    return dict(found)


async def read_own_property(host: ToolRunner, datasets: Sequence[str], name: str) -> dict[str, str]:
    """By dataset, a property as it is set on the dataset itself. Raises ToolFailed where nothing can be read."""
    found = await _table(host, datasets, name, "value", "-s", "local")
    return {dataset: values[name] for dataset, values in found.items() if name in values}


async def read_received_properties(
    host: ToolRunner, dataset: str, hidden: Sequence[str] = ()
) -> dict[str, str]:
    """Read what the last stream brought of properties, also of those that have another value here, or, ``hidden``,
    none.

    Raises ToolFailed.
    """
    found = (await _table(host, [dataset], "all", "received")).get(dataset, {})
    for name in hidden:
        found[name] = (await read_received_of_each(host, name, [dataset])).get(dataset, "-")
    return found


async def _table(
    host: ToolRunner, datasets: Sequence[str], names: str, column: str, *options: str
) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        result = await host.run(
            ["zfs", "get", "-Hp", *options, "-o", f"name,property,{column}", names, *some],
            deadline=PROPERTIES_DEADLINE,
            check=False,
        )
        # A dataset that does not exist is told of, and the others are listed all the same.
        if result.returncode != 0 and not all(
            "does not exist" in line for line in result.stderr.splitlines()
        ):
            raise ToolFailed("cannot read the properties of datasets", result.complaint())
        for line in result.stdout.splitlines():
            # A user property may hold a newline: what follows it is no line of its own.
            words = line.split("\t", 2)
            if len(words) == 3 and words[0] in some:
                found[words[0]].setdefault(words[1], words[2])
    return dict(found)


async def set_properties(host: ToolRunner, dataset: str, properties: Mapping[str, str]) -> None:
    """Set properties of one dataset, in one transaction. Raises ToolFailed."""
    words = [f"{key}={value}" for key, value in properties.items()]
    await host.run(["zfs", "set", *words, dataset], deadline=PROPERTIES_DEADLINE)


async def set_properties_on_all(
    host: ToolRunner, datasets: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Set the same properties on several datasets, with a program for many. One on which that fails keeps no other from
    having them. Raises ToolFailed.
    """
    words = [f"{key}={value}" for key, value in properties.items()]
    failed: list[str] = []
    for start in range(0, len(datasets), DATASETS_IN_ARGV):
        some = datasets[start : start + DATASETS_IN_ARGV]
        result = await host.run(["zfs", "set", *words, *some], deadline=PROPERTIES_DEADLINE, check=False)
        if result.returncode != 0:
            failed.append(result.complaint())
    if failed:
        raise ToolFailed(f"cannot set {', '.join(properties)}", failed[0], find_cure(failed[0]))


async def inherit_property(host: ToolRunner, dataset: str, name: str, *, as_received: bool = False) -> None:
    """Take a property away from a dataset; ``as_received`` has in force again what a stream brought, if one did.

    Raises ToolFailed.
    """
    await host.run(
        ["zfs", "inherit", *(["-S"] if as_received else []), name, dataset], deadline=PROPERTIES_DEADLINE
    )


async def inherit_parent_key(host: ToolRunner, dataset: str) -> None:
    """Have an encrypted dataset inherit its parent's key; both must be loaded. Raises ToolFailed."""
    await host.run(["zfs", "change-key", "-i", dataset], deadline=PROPERTIES_DEADLINE)


async def read_written(host: ToolRunner, dataset: str) -> dict[str, int]:
    """By snapname, what was written between each snapshot and the one before it, in bytes.

    Raises ToolFailed, also where one of them is so damaged that those behind it are not told.
    """
    argv = ["zfs", "get", "-Hp", "-d1", "-t", "snapshot", "-o", "name,value", "written", dataset]
    result = await list_whole(host, argv, PROPERTIES_DEADLINE)
    if result.returncode != 0:
        raise ToolFailed(f"what was written to '{dataset}' cannot be listed", result.complaint())
    with refuse_unparsable(f"what was written to '{dataset}'"):
        rows = [line.split("\t") for line in result.stdout.splitlines()]
        return {SnapshotName(name).snapname: int(value) for name, value in rows if is_number(value)}
