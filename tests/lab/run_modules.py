"""On the host: runs each test module in a guest of its own, several at once on each CPU, the slowest first.

A lab module may import what only the guest has, so the host never imports it: it reads the tests' names from
the source, and replays the reports that come from the guest. At its top level a module may say what it wants:
`LAB = {"mem": "4G", "timeout": 900, "init": "none"}`, `"peer": True` for a second guest it can reach by ssh,
`"peer-system": "debian12"` to have that be an older system,
`"alone": True` for a CPU that it shares with no other guest, `"peers": True` for the benchmarks' tools from PyPI in
/share/peers, `"s3-servers": True` for S3 servers that are not Ceph in /share/s3-servers, `"in_order": True` if its
tests go on from what those before them left, or `LAB = {"where": "host"}` to be an ordinary module.
"""

import json
import os
import queue
import random
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import cache
import pytest
from collect_modules import LAB, LabItem, LabModule, settings
from recording import RECORD_TO, RecordedModule
from replay_reports import Doubts, Location, Replay, stop_if_asked
from report_to_host import BACKWARDS

TEST_TIMEOUT_S = 900
MODULE_TIMEOUT_S = 900
OUTPUT_TAIL = 80
FAULTS = tuple(f"ZVAULT_FAULT_{word}" for word in ("SEEDS", "FIRST", "SCRIPT", "SMALLER", "STORAGE"))
PASSED_ON = ("ZVAULT_ALL", "ZVAULT_LAG_SEED", "ZVAULT_LAG_STEPS", *FAULTS)
"""What is set here is set in the guests, too."""
GUESTS_A_CPU = 2
"""As tests/lab/run has places for."""
MEMORY_SHARE = 0.9
"""Of the memory that is free when the tests begin, what the guests may have together."""
FILLED = 0.5
"""Of its memory, what a guest is counted with: four were seen to fill a third of theirs."""
TABLE = LAB.parents[1] / "docs" / "reference" / "lab-times.md"
"""What each module took when it was last recorded: the slowest begin first."""
# Tests asked for with their parameters, by the name without them, which is all the host knows.
PARAMETRISED: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()
GUESTS: pytest.StashKey[list["Guest"]] = pytest.StashKey()
DOUBTS: pytest.StashKey[Doubts] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How many may be unsteady."""
    parser.addoption(
        "--unsteady",
        type=int,
        default=0,
        metavar="N",
        help="if at most N lab tests fail, run each once more in a fresh guest: one that passes there is told as"
        " unsteady, with its failure, and fails nothing",
    )

    parser.addoption(
        "--shuffle",
        type=int,
        metavar="SEED",
        help="run the lab's modules, and the tests of each, in an order drawn from this number",
    )
    parser.addoption(
        "--backwards",
        action="store_true",
        help="run the tests of each module from the last to the first, but for modules that say in_order: what fails"
        " goes on from a test before it",
    )
    parser.addoption(
        "--record",
        action="store_true",
        help="write what each module of the lab took to docs/reference/lab-times.md",
    )
    parser.addoption(
        "--branches",
        type=Path,
        metavar="DIR",
        help="write which branches of zvault each lab test took, and its times, to this folder",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Take the parameters off the tests asked for, and keep them for the guest."""
    full = config.stash.setdefault(PARAMETRISED, {})
    for index, argument in enumerate(config.args):
        base, bracket, _ = argument.partition("[")
        if bracket and "::" in base and Path(base.partition("::")[0]).resolve().is_relative_to(LAB):
            path, _, name = base.partition("::")
            relative = Path(path).resolve().relative_to(config.rootpath).as_posix()
            full.setdefault(f"{relative}::{name}", []).append(f"{relative}::{argument.partition('::')[2]}")
            config.args[index] = base


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> LabModule | None:
    """Lab modules are the guest's, but for those that say otherwise."""
    if not module_path.is_relative_to(LAB) or settings(module_path).get("where") == "host":
        return None
    return LabModule.from_parent(parent, path=module_path)


def _share_programs(wanted: dict[str, Any], share: Path) -> None:
    """Give a guest the programs that its module wants and its tree lacks: it has no network."""
    if wanted.get("peers"):
        fetch = LAB.parent / "bench" / "get-peers"
        folder = subprocess.run([str(fetch)], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        shutil.copytree(folder, share / "peers", symlinks=True)  # a package may link to what is not there
    if wanted.get("s3-servers"):
        shutil.copytree(cache.s3_servers(), share / "s3-servers")


class Guest:
    """One module's run in its guest: of the tests of these names, which lie where ``expected`` says."""

    def __init__(
        self, module: LabModule, names: list[str], expected: dict[str, Location], config: pytest.Config
    ) -> None:
        self.module, self.names, self.expected, self.config = module, names, expected, config
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.process: subprocess.Popen[bytes] | None = None
        self.collected: list[str] = []
        """The tests with their parameters, in their order, once the guest has said them."""
        self.stopped = False
        self.seconds = 0.0
        self.usage: dict[str, float] = {}
        folder = config.getoption("branches", None)
        self.recorded = RecordedModule(folder, module.path.name) if folder else None
        # What a module says is for a CPU of its own; others of the same CPU take as much of it.
        self.timeout: int = settings(module.path).get("timeout", MODULE_TIMEOUT_S) * GUESTS_A_CPU

    def argv(self, share: Path) -> list[str]:
        """The command that runs the module in a guest."""
        wanted = settings(self.module.path)
        options = [f"--{name}={wanted[name]}" for name in ("mem", "init", "peer-system") if name in wanted]
        options += [f"--{name}" for name in ("peer", "alone") if wanted.get(name)]
        verbose = self.config.get_verbosity()
        backwards = self.config.getoption("backwards", False) and not wanted.get("in_order")
        return [
            *("setpriv", "--pdeathsig", "TERM", str(LAB / "run"), *options),
            *(f"--timeout={self.timeout}", f"--share={share}", f"--usage={share}/usage"),
            "--env=ZVAULT_LAB_REPORTS=/share/reports",
            *(f"--env={name}={value}" for name in PASSED_ON if (value := os.environ.get(name))),
            *([f"--env={BACKWARDS}=1"] if backwards else []),
            "--",
            *("python3", "-P", "-m", "pytest", "-p", "no:cacheprovider", f"--timeout={TEST_TIMEOUT_S}"),
            *(
                f"--tb={self.config.option.tbstyle}",
                *([f"-{'v' * verbose}"] if verbose > 0 else []),
                *self.names,
            ),
        ]

    def run(self) -> None:
        """Boot, pass on the events as they come, and say how it ended. Runs in a thread of its own."""
        share = Path(tempfile.mkdtemp(prefix="zvault-lab-"))
        began = time.monotonic()
        try:
            reports, output = share / "reports", share / "output"
            reports.touch()
            _share_programs(settings(self.module.path), share)
            with output.open("wb") as log, reports.open("rb") as lines:
                if self.stopped:
                    return
                self.process = subprocess.Popen(
                    self.argv(share),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ({RECORD_TO: str(self.recorded.folder)} if self.recorded else {}),
                )
                partial = b""
                while True:
                    ended = self.process.poll()
                    partial += lines.read()
                    *whole, partial = partial.split(b"\n")
                    for line in whole:
                        event = json.loads(line)
                        self.events.put(event)
                        if self.recorded and "report" in event:
                            self.recorded.add(event["report"])
                    if ended is not None:
                        break
                    time.sleep(0.05)
            with suppress(OSError, ValueError):
                self.usage = json.loads((share / "usage").read_text())
            text = output.read_text(errors="replace").splitlines()
            self.events.put({"ended": ended, "output": "\n".join(text[-OUTPUT_TAIL:])})
        except Exception as error:
            self.events.put({"ended": -1, "output": f"{type(error).__name__}: {error}"})
        finally:
            self.seconds = time.monotonic() - began
            shutil.rmtree(share, ignore_errors=True)

    @property
    def memory(self) -> int:
        """Bytes that the guest is expected to fill, with its peer if it has one."""
        wanted = settings(self.module.path)
        size = wanted.get("mem", "3G")
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}[size[-1].upper()]
        return int(int(size[:-1]) * unit * FILLED) * (2 if wanted.get("peer") else 1)

    @property
    def times(self) -> tuple[float, float, float, float]:
        """Seconds from boot to end, of these on the CPU, of these waiting; and those before, for a CPU."""
        queued, cpu = self.usage.get("waited", 0.0), self.usage.get("cpu", 0.0)
        wall = max(0.0, self.seconds - queued)
        return wall, cpu, max(0.0, wall - cpu), queued

    def stop(self) -> None:
        """End it now."""
        self.stopped = True
        if self.process and self.process.poll() is None:
            self.process.terminate()


def pytest_report_header() -> str:
    """Which OpenZFS the guests have."""
    return f"lab: OpenZFS {cache.zfs()}"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the lab's modules in guests, two side by side, and what is left as usual beside them."""
    config = session.config
    modules: dict[LabModule, list[LabItem]] = {}
    for item in session.items:
        if isinstance(item, LabItem) and (module := item.getparent(LabModule)):
            modules.setdefault(module, []).append(item)
    broken = session.testsfailed and not config.option.continue_on_collection_errors
    if not modules or config.option.collectonly or broken:
        return None
    doubts = config.stash[DOUBTS] = Doubts(config.getoption("unsteady", 0))
    guests = [first_guest(module, items, config) for module, items in modules.items()]
    guests = in_order(guests, config.getoption("shuffle", None))
    here = [item for item in session.items if not isinstance(item, LabItem)]
    run_guests(guests, session, doubts, here)
    if doubts.worth_a_second_run:
        run_guests(second_guests(guests, doubts, config), session, doubts.second_run(), [])
    doubts.tell(session)
    return True


def first_guest(module: LabModule, items: list[LabItem], config: pytest.Config) -> Guest:
    """For all that is asked for of a module."""
    asked = config.stash[PARAMETRISED]
    names = [name for item in items for name in asked.get(item.nodeid, [item.nodeid])]
    return Guest(module, names, {item.nodeid: item.location for item in items}, config)


def in_order(guests: list[Guest], seed: int | None) -> list[Guest]:
    """What takes longest begins first: then the CPUs end at about the same time. Or as the seed has it."""
    if seed is None:
        known = recorded()
        return sorted(guests, key=lambda guest: -known.get(guest.module.path.name, guest.timeout))
    chance = random.Random(seed)
    for guest in guests:
        if not settings(guest.module.path).get("in_order"):
            chance.shuffle(guest.names)
    return sorted(guests, key=lambda _: chance.random())


def second_guests(guests: list[Guest], doubts: Doubts, config: pytest.Config) -> list[Guest]:
    """For the tests that failed, of each module, and those that they go on from."""
    second: list[Guest] = []
    for guest in guests:
        failed = {
            name: at for name, at in doubts.places.items() if name.startswith(f"{guest.module.nodeid}::")
        }
        if failed:
            names = list(failed)
            if settings(guest.module.path).get("in_order"):
                names = names_up_to_last(guest.collected, names)
            second.append(Guest(guest.module, names, failed, config))
    return second


def names_up_to_last(names: list[str], wanted: list[str]) -> list[str]:
    """The tests of a module up to the last that is wanted: what those before it left is what it goes on from."""
    places = [names.index(name) for name in wanted if name in names]
    return names[: max(places) + 1] if places else wanted


class Waiting:
    """Guests to run, in their order, as soon as there is memory for each."""

    def __init__(self, guests: list[Guest]) -> None:
        self.guests = guests
        self.free = free_memory() * MEMORY_SHARE
        self.running = 0
        self.changed = threading.Condition()

    def work(self) -> None:
        """Run one guest after another while there are any."""
        while (guest := self._next()) is not None:
            try:
                guest.run()
            finally:
                with self.changed:
                    self.running -= 1
                    self.free += guest.memory
                    self.changed.notify_all()

    def _next(self) -> Guest | None:
        with self.changed:
            while self.guests:
                for guest in self.guests:
                    if guest.memory <= self.free or not self.running:
                        self.guests.remove(guest)
                        self.free -= guest.memory
                        self.running += 1
                        return guest
                self.changed.wait()
            return None


def free_memory() -> int:
    """Bytes of memory that this host can give to guests."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(fields["MemAvailable"].split()[0]) * 1024


def recorded() -> dict[str, float]:
    """The seconds that each module took when the table was last made."""
    rows = (line.split("|") for line in TABLE.read_text().splitlines()) if TABLE.exists() else ()
    return {
        row[1].strip(" `"): float(row[2]) for row in rows if len(row) > 3 and row[1].startswith(" `test_")
    }


def run_guests(guests: list[Guest], session: pytest.Session, doubts: Doubts, here: list[pytest.Item]) -> None:
    """Run guests, and these ordinary tests, until all are told."""
    waiting = Waiting(list(guests))
    places = len(os.sched_getaffinity(0)) * GUESTS_A_CPU
    workers = [threading.Thread(target=waiting.work) for _ in range(places)]
    session.config.stash.setdefault(GUESTS, []).extend(guests)
    try:
        # One place is left to the tests that start guests of their own, until they are done.
        for worker in workers[1:]:
            worker.start()
        run_here(here, session)
        workers[0].start()
        for guest in guests:
            Replay(session, guest, doubts).all()
    finally:
        for guest in guests:
            guest.stop()
        for worker in workers:
            if worker.ident is not None:
                worker.join()


def run_here(items: list[pytest.Item], session: pytest.Session) -> None:
    """Run the tests that are this host's own; pytest's own loop would take a failure so far for one of collection."""
    for item, following in zip(items, [*items, None][1:], strict=True):
        with recorded_here(item):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        stop_if_asked(session)


@contextmanager
def recorded_here(item: pytest.Item) -> Iterator[None]:
    """Have the guests that a test of this host starts recorded for its module."""
    folder = item.config.getoption("branches", None)
    if not folder:
        yield
        return
    recorded = RecordedModule(folder, item.path.name)
    os.environ[RECORD_TO] = str(recorded.folder)
    began = time.time()
    try:
        yield
    finally:
        del os.environ[RECORD_TO]
        recorded.add({"nodeid": item.nodeid, "when": "call", "start": began, "stop": time.time()})


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what each module took: that decides how long everything takes; and what was unsteady."""
    guests = sorted(config.stash.get(GUESTS, []), key=lambda guest: -guest.seconds)
    if guests:
        terminalreporter.section("seconds of each guest: all, on the CPU, waiting for something, for a CPU")
        for guest in guests:
            terminalreporter.write_line(
                "{:6.0f} {:6.0f} {:6.0f} {:6.0f}".format(*guest.times) + f"  {guest.module.nodeid}"
            )
        sums = [sum(column) for column in zip(*(guest.times for guest in guests), strict=True)]
        terminalreporter.write_line("{:6.0f} {:6.0f} {:6.0f} {:6.0f}".format(*sums) + "  all guests")
    if config.getoption("record", None):
        record(guests)
    if DOUBTS in config.stash:
        config.stash[DOUBTS].summary(terminalreporter)


def record(guests: list[Guest]) -> None:
    """Make the table of what each module takes."""
    rows = [
        "| `{}` | {:.0f} | {:.0f} | {:.0f} |".format(guest.module.path.name, *guest.times) for guest in guests
    ]
    sums = [sum(column) for column in zip(*(guest.times for guest in guests), strict=True)]
    rows.append("| all | {:.0f} | {:.0f} | {:.0f} |".format(*sums))
    TABLE.write_text(TABLE_HEAD + "\n".join(rows) + "\n")


TABLE_HEAD = """\
<!-- Made by `make lab T="tests/lab --record"`. Do not edit. -->

# What each lab module takes

In seconds, when the whole lab ran on two CPUs: from its guest's boot to its end, on the CPU (the guest's kernel and all
its processes), and waiting, be it for a timer, for the disk or for another guest that has the same CPU.
`tests/lab/run_modules.py` starts the slowest first.

| module | wall | CPU | waited |
|---|---|---|---|
"""
