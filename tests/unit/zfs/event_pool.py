"""A pool and its ``zfs`` command in memory, which posts an event of whatever changes as the kernel does."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zvault.core.names import split_snapshot
from zvault.zfs.parse_listing import DATASET_COLUMNS, SENT
from zvault.zfs.pool.event_reader import HISTORY_EVENT, POOL, KernelEvent

PLACES = 8
"""Events that the kernel keeps here."""

TOKEN = "1-a-{}-b"


@dataclass
class FakeDataset:
    """One dataset."""

    guid: int
    changed: int = 0
    written: int = 0
    origin: str = "-"
    token: str = "-"
    sent: str = ""
    points: dict[str, tuple[int, int]] = field(default_factory=dict)


class FakePool:
    """A pool ``tank``. Whatever changes posts its event first, as the kernel does."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.datasets: dict[str, FakeDataset] = {}
        self.away: dict[str, FakeDataset] = {}
        self.events: list[KernelEvent] = []
        self.posted = 0
        self.failures = 0
        self.complete = True
        self.held: dict[int, set[str]] = {}
        self.deferred: set[int] = set()
        self.stopped: list[tuple[str, int, int]] = []
        for name in ("tank", "tank/a", "tank/a/b", "tank/c"):
            self.datasets[name] = FakeDataset(next(self._numbers))

    def post(self, dataset: str, logged: str, details: str = "") -> None:
        of_snapshots = "@" in dataset and logged in {"snapshot", "destroy", "defer_destroy"}
        if of_snapshots and not self.complete:
            return
        self.posted += 1
        event = KernelEvent(self.posted, HISTORY_EVENT, "tank", dataset, logged, details)
        self.events = [*self.events, event][-PLACES:]

    # Changes: each takes two numbers, which choose what it is done to

    def _pick(self, number: int) -> str:
        return sorted(self.datasets)[number % len(self.datasets)]

    def _below(self, name: str) -> list[str]:
        return [one for one in self.datasets if one == name or one.startswith(f"{name}/")]

    def create(self, one: int, other: int) -> None:
        name = f"{self._pick(one)}/{'xyz'[other % 3]}"
        if name not in self.datasets and name.count("/") < 4:
            self.post(name, "create")
            self.datasets[name] = FakeDataset(next(self._numbers))

    def destroy(self, one: int, _: int) -> None:
        name = self._pick(one)
        if name != "tank":
            for below in reversed(self._below(name)):
                self.post(below, "destroy")
                del self.datasets[below]

    def rename(self, one: int, other: int) -> None:
        name = self._pick(one)
        to = f"{name.rpartition('/')[0]}/{'xyz'[other % 3]}"
        if name != "tank" and to not in self.datasets:
            self.post(name, "rename")
            for below in self._below(name):
                self.datasets[to + below[len(name) :]] = self.datasets.pop(below)
            for dataset in self.datasets.values():
                if dataset.origin.startswith((f"{name}@", f"{name}/")):
                    dataset.origin = to + dataset.origin[len(name) :]

    def snapshot(self, one: int, other: int) -> None:
        self._add(self._pick(one), "@", other, "snapshot")

    def bookmark(self, one: int, other: int) -> None:
        self._add(self._pick(one), "#", other, "bookmark")

    def _add(self, name: str, sign: str, number: int, logged: str) -> None:
        dataset, short = self.datasets[name], f"{sign}s{number % 4}_1970-01-01T00:01:0{number % 4}Z"
        if short not in dataset.points:
            self.post(name + short if sign == "@" else name, logged)
            new = next(self._numbers)
            dataset.points[short] = new, new
            if sign == "@":
                dataset.changed, dataset.written = new, 0

    def bookmark_of(self, one: int, other: int) -> None:
        """A bookmark of one of its snapshots: it has that one's GUID, and its date as long as that one is there."""
        name = self._pick(one)
        dataset = self.datasets[name]
        snaps = sorted(short for short in dataset.points if short[0] == "@")
        if snaps and f"#of{other % 2}" not in dataset.points:
            self.post(name, "bookmark")
            dataset.points[f"#of{other % 2}"] = dataset.points[snaps[other % len(snaps)]]

    def copy_bookmark(self, one: int, other: int) -> None:
        """Into its dataset, or into a clone of that one: the event names the dataset that it was copied from."""
        name = self._pick(one)
        clones = [to for to, each in self.datasets.items() if each.origin.startswith(f"{name}@")]
        to = [name, *clones][other % (1 + len(clones))]
        marks = sorted(short for short in self.datasets[name].points if short[0] == "#")
        if marks and f"#copy{other % 2}" not in self.datasets[to].points:
            self.post(name, "bookmark", "name=copy creation_txg=9 source_guid=12")
            self.datasets[to].points[f"#copy{other % 2}"] = self.datasets[name].points[marks[0]]

    def _snaps(self, name: str) -> list[str]:
        return sorted(short for short in self.datasets[name].points if short[0] == "@")

    def _chosen(self, one: int, other: int) -> tuple[str, str]:
        """A dataset and one of its snapshots, if it has any."""
        name = self._pick(one)
        snaps = self._snaps(name)
        return name, snaps[other % len(snaps)] if snaps else ""

    def hold(self, one: int, other: int) -> None:
        name, short = self._chosen(one, other)
        if short:
            self.post(name + short, "hold")
            self.held.setdefault(self.datasets[name].points[short][0], set()).add(f"tag{other}")

    def release(self, one: int, _: int) -> None:
        name = self._pick(one)
        for short in self._snaps(name):
            guid = self.datasets[name].points[short][0]
            if self.held.get(guid):
                self.post(name + short, "release")
                self.held[guid].pop()
                if not self.held[guid] and guid in self.deferred:
                    self._drop(name, short)

    def defer_destroy(self, one: int, other: int) -> None:
        name, short = self._chosen(one, other)
        if short and self.held.get(self.datasets[name].points[short][0]):
            self.post(name + short, "defer_destroy")
            self.deferred.add(self.datasets[name].points[short][0])
        elif short:
            self._drop(name, short)

    def _drop(self, name: str, short: str) -> None:
        self.post(name + short, "destroy")
        del self.datasets[name].points[short]
        self.datasets[name].changed = next(self._numbers)

    def _new_snapshot(self, name: str, short: str) -> None:
        self.post(name + short, "snapshot")
        new = next(self._numbers)
        self.datasets[name].points[short] = new, new
        self.datasets[name].changed = new

    def rename_snapshot(self, one: int, other: int) -> None:
        name, short = self._chosen(one, other)
        points, new = self.datasets[name].points, f"@r{other % 3}"
        if short and new not in points:
            self.post(name + short, "rename")
            points[new] = points.pop(short)
            self.datasets[name].changed = next(self._numbers)
            for each in self.datasets.values():
                each.origin = name + new if each.origin == name + short else each.origin

    def replace_snapshot(self, one: int, other: int) -> None:
        """Another one of the same name."""
        name, short = self._chosen(one, other)
        if short:
            self._drop(name, short)
            self._new_snapshot(name, short)

    def replace_dataset(self, one: int, _: int) -> None:
        """Another one of the same name, with a snapshot of the same name."""
        name = self._pick(one)
        if name != "tank" and self._below(name) == [name]:
            shorts = self._snaps(name)[:1]
            self.post(name, "destroy")
            self.datasets[name] = FakeDataset(next(self._numbers))
            self.post(name, "create")
            for short in shorts:
                self._new_snapshot(name, short)

    def rollback(self, one: int, _: int) -> None:
        name = self._pick(one)
        self.post(f"{name}/%rollback", "clone swap")
        self.post(f"{name}/%rollback", "destroy")
        self.datasets[name].written = 0

    def remove(self, one: int, other: int) -> None:
        name = self._pick(one)
        dataset = self.datasets[name]
        if dataset.points:
            short = sorted(dataset.points)[other % len(dataset.points)]
            self.post(
                name + short if short[0] == "@" else name, "destroy" if short[0] == "@" else "remove bookmark"
            )
            del dataset.points[short]
            if short[0] == "@":
                dataset.changed = next(self._numbers)

    def clone(self, one: int, other: int) -> None:
        name, to = self._pick(one), f"tank/clone{other % 2}"
        snaps = sorted(short for short in self.datasets[name].points if short[0] == "@")
        if snaps and to not in self.datasets:
            self.post(to, "clone")
            self.datasets[to] = FakeDataset(next(self._numbers), origin=name + snaps[-1])

    def promote(self, one: int, _: int) -> None:
        name = self._pick(one)
        dataset = self.datasets[name]
        owner, short = split_snapshot(dataset.origin) if dataset.origin != "-" else ("", "")
        if owner in self.datasets and f"@{short}" in self.datasets[owner].points:
            self.post(name, "promote")
            before = self.datasets[owner]
            moved = {key: at for key, at in before.points.items() if key == f"@{short}"}
            dataset.points |= moved
            dataset.origin, before.origin = before.origin, f"{name}@{short}"
            for key in moved:
                del before.points[key]
            dataset.changed = before.changed = next(self._numbers)

    def set_short(self, one: int, other: int) -> None:
        self.post(self._pick(one), "set")
        self.datasets[self._pick(one)].sent = f"flags{other % 5}"

    def set_long(self, one: int, other: int) -> None:
        """An event beyond 6 KiB is not posted; its number is used up all the same."""
        self.posted, self.failures = self.posted + 1, self.failures + 1
        self.datasets[self._pick(one)].sent = f"long{other % 5}"

    def write(self, one: int, other: int) -> None:
        self.datasets[self._pick(one)].written += 1 + other

    def receive(self, one: int, _: int) -> None:
        name = self._pick(one)
        if self.datasets[name].token == "-":
            self.post(f"{name}/%recv", "receive")
            self.datasets[name].token = TOKEN.format(0)

    def receive_more(self, one: int, other: int) -> None:
        dataset = self.datasets[self._pick(one)]
        if dataset.token != "-":
            dataset.token = TOKEN.format(other)

    def receive_end(self, one: int, other: int) -> None:
        """It is given up, or makes a snapshot, and with -F another one goes before."""
        name = self._pick(one)
        dataset = self.datasets[name]
        if dataset.token == "-":
            return
        if other % 3:
            self.post(f"{name}/%recv", "finish receiving")
            if other % 3 == 1:
                for short in self._snaps(name)[-1:]:
                    self._drop(name, short)
            self.post(f"{name}/%recv", "clone swap")
            if f"@new{other % 4}" not in dataset.points:
                self._new_snapshot(name, f"@new{other % 4}")
        self.post(f"{name}/%recv", "destroy")
        dataset.token = "-"

    def another_pool(self, one: int, other: int) -> None:
        for number in range(other % (PLACES + 2)):
            self.posted += 1
            event = KernelEvent(
                self.posted, HISTORY_EVENT, "other", f"other/{one}", ("set", "rename")[number % 2]
            )
            self.events = [*self.events, event][-PLACES:]

    def export(self) -> None:
        self._of_the_pool("export")
        self.away, self.datasets = self.datasets, {}

    def import_again(self) -> None:
        self._of_the_pool("import")
        self.datasets = self.away

    def _of_the_pool(self, what: str) -> None:
        self.posted += 1
        self.events = [*self.events, KernelEvent(self.posted, f"{POOL}{what}", "tank")][-PLACES:]

    def move(self, name: str, to: str) -> None:
        """Rename a dataset, with all below it."""
        self.post(name, "rename")
        for below in self._below(name):
            self.datasets[to + below[len(name) :]] = self.datasets.pop(below)

    def scrub(self, *_: int) -> None:
        self.post("", "scan setup")

    def odd(self, one: int, _: int) -> None:
        """An event of a kind that OpenZFS does not have yet."""
        name = self._pick(one)
        self.post(name, "sideways")
        for below in self._below(name):
            self.datasets[below].sent = "odd"

    def forget_events(self, *_: int) -> None:
        self.events = []

    CHANGES = (
        *(create, destroy, rename, snapshot, snapshot, bookmark, remove, remove, clone, promote, set_short),
        *(bookmark_of, copy_bookmark, hold, hold, release, defer_destroy, rename_snapshot, replace_snapshot),
        *(replace_dataset, rollback),
        *(set_long, write, receive, receive_more, receive_end, another_pool, scrub, odd, forget_events),
    )

    # The zfs command

    def answer(self, argv: Sequence[str]) -> tuple[int, str, str]:
        if argv[1] == "holds":
            return self._holds(argv[3:])
        names = argv[argv.index("-o") + (2 if argv[1] == "list" else 3) :]
        if argv[argv.index("-o") + 1] == "name,creation":
            return self._created(names)
        if argv[argv.index("-t") + 1] == "snapshot":
            return self._named(names)
        recursive = "-r" in argv
        chosen, complaints = [], []
        for name in names:
            if name in self.datasets:
                chosen += self._below(name) if recursive else [name]
            else:
                complaints.append(f"cannot open '{name}': dataset does not exist\n")
        lines: list[str] = []
        for name in chosen:
            if argv[1] == "get":
                sent = self.datasets[name].sent
                lines += [f"{name}\t{SENT}\t{sent}"] if sent else []
            elif "snapshot,bookmark" in argv or "bookmark" in argv:
                points = self.datasets[name].points.items()
                signs = "@#" if "snapshot,bookmark" in argv else "#"
                lines += [f"{name}{short}\t{g}\t{txg}" for short, (g, txg) in points if short[0] in signs]
            else:
                lines.append(self._line(name))
        return int(bool(complaints)), "".join(f"{line}\n" for line in lines), "".join(complaints)

    def _holds(self, names: Sequence[str]) -> tuple[int, str, str]:
        there = {
            name + short: at[0] for name, one in self.datasets.items() for short, at in one.points.items()
        }
        lines = [
            f"{name}\t{tag}\tnow\n" for name in names for tag in sorted(self.held.get(there.get(name, 0), ()))
        ]
        gone = [f"cannot open '{name}': dataset does not exist\n" for name in names if name not in there]
        return int(bool(gone)), "".join(lines), "".join(gone)

    def _named(self, names: Sequence[str]) -> tuple[int, str, str]:
        there = {name + short: at for name, one in self.datasets.items() for short, at in one.points.items()}
        lines = [f"{name}\t{there[name][0]}\t{there[name][1]}\n" for name in names if name in there]
        gone = [f"cannot open '{name}': dataset does not exist\n" for name in names if name not in there]
        return int(bool(gone)), "".join(lines), "".join(gone)

    def _created(self, names: Sequence[str]) -> tuple[int, str, str]:
        there = {
            name + short: at[0] for name, one in self.datasets.items() for short, at in one.points.items()
        }
        lines = [f"{name}\t{there[name]}\n" for name in names if name in there]
        gone = [f"cannot open '{name}': dataset does not exist\n" for name in names if name not in there]
        return int(bool(gone)), "".join(lines), "".join(gone)

    def _line(self, name: str) -> str:
        one = self.datasets[name]
        row: Mapping[str, object] = {
            "name": name,
            "type": "filesystem",
            "guid": one.guid,
            "used": one.written,
            "written": one.written,
            "receive_resume_token": one.token,
            "encryptionroot": name if one.guid % 3 == 0 else "tank",
            "origin": one.origin,
            "snapshots_changed": one.changed or "-",
        }
        return "\t".join(str(row[column]) for column in DATASET_COLUMNS)
