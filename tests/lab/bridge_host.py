"""The host's half of the bridge: a guest for each test module, two at once if there are two CPUs.

A lab module may import what only the guest has, so the host never imports it: it reads the tests' names from
the source, and replays the reports that come from the guest. At its top level a module may say what it wants:
`LAB = {"mem": "4G", "timeout": 900, "init": "none"}`, `"peer": True` for a second guest it can reach by ssh, or
`LAB = {"where": "host"}` to be an ordinary module.
"""

import ast
import functools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from bridge_replay import Doubts, Location, Replay, stop_if_asked

LAB = Path(__file__).resolve().parent
TEST_TIMEOUT_S = 900
MODULE_TIMEOUT_S = 900
OUTPUT_TAIL = 80
# Tests asked for with their parameters, by the name without them, which is all the host knows.
PARAMETRISED: pytest.StashKey[dict[str, list[str]]] = pytest.StashKey()
GUESTS: pytest.StashKey[list["Guest"]] = pytest.StashKey()
DOUBTS: pytest.StashKey[Doubts] = pytest.StashKey()


@functools.cache
def parsed(path: Path) -> ast.Module:
    """A module's source."""
    return ast.parse(path.read_bytes(), str(path))


def settings(path: Path) -> dict[str, Any]:
    """A module's own LAB, if it has one."""
    for node in parsed(path).body:
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value and ast.unparse(targets[0]) == "LAB":
            return dict(ast.literal_eval(node.value))
    return {}


class LabItem(pytest.Item):
    """A test function in a guest: perhaps several tests, by parameters."""

    def __init__(self, *, line: int, **more: Any) -> None:
        super().__init__(**more)
        self.line = line

    def runtest(self) -> None:
        """Never called: the guest runs it."""
        raise NotImplementedError

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, self.line, self.name


def tests_in(parent: pytest.Collector, body: list[ast.stmt]) -> Iterator[pytest.Item | pytest.Collector]:
    """The tests and test classes among statements, as pytest names them by default."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            yield LabItem.from_parent(parent, name=node.name, line=node.lineno - 1)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield LabClass.from_parent(parent, name=node.name, body=node.body)


class LabClass(pytest.Collector):
    """A test class in a guest."""

    def __init__(self, *, body: list[ast.stmt], **more: Any) -> None:
        super().__init__(**more)
        self.body = body

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its methods."""
        return tests_in(self, self.body)


class LabModule(pytest.File):
    """A test module that runs in a guest."""

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        """Its functions and classes."""
        return tests_in(self, parsed(self.path).body)


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


class Guest:
    """One module's run in its guest: of the tests of these names, which lie where ``expected`` says."""

    def __init__(
        self, module: LabModule, names: list[str], expected: dict[str, Location], config: pytest.Config
    ) -> None:
        self.module, self.names, self.expected, self.config = module, names, expected, config
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.process: subprocess.Popen[bytes] | None = None
        self.stopped = False
        self.seconds = 0.0
        self.timeout: int = settings(module.path).get("timeout", MODULE_TIMEOUT_S)

    def argv(self, share: Path) -> list[str]:
        """The command that runs the module in a guest."""
        wanted = settings(self.module.path)
        options = [f"--{name}={wanted[name]}" for name in ("mem", "init") if name in wanted]
        options += ["--peer"] if wanted.get("peer") else []
        verbose = self.config.get_verbosity()
        return [
            *("setpriv", "--pdeathsig", "TERM", str(LAB / "run"), *options),
            *(f"--timeout={self.timeout}", f"--share={share}"),
            "--env=ZVAULT_LAB_REPORTS=/share/reports",
            *(f"--env=ZVAULT_ALL={every}" for every in filter(None, [os.environ.get("ZVAULT_ALL")])),
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
            with output.open("wb") as log, reports.open("rb") as lines:
                if self.stopped:
                    return
                self.process = subprocess.Popen(
                    self.argv(share), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
                partial = b""
                while True:
                    ended = self.process.poll()
                    partial += lines.read()
                    *whole, partial = partial.split(b"\n")
                    for line in whole:
                        self.events.put(json.loads(line))
                    if ended is not None:
                        break
                    time.sleep(0.05)
            text = output.read_text(errors="replace").splitlines()
            self.events.put({"ended": ended, "output": "\n".join(text[-OUTPUT_TAIL:])})
        except Exception as error:
            self.events.put({"ended": -1, "output": f"{type(error).__name__}: {error}"})
        finally:
            self.seconds = time.monotonic() - began
            shutil.rmtree(share, ignore_errors=True)

    def stop(self) -> None:
        """End it now."""
        self.stopped = True
        if self.process and self.process.poll() is None:
            self.process.terminate()


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


def second_guests(guests: list[Guest], doubts: Doubts, config: pytest.Config) -> list[Guest]:
    """For the tests that failed, of each module."""
    of: dict[LabModule, dict[str, Location]] = {}
    for guest in guests:
        found = {
            name: at for name, at in doubts.places.items() if name.startswith(f"{guest.module.nodeid}::")
        }
        if found:
            of[guest.module] = found
    return [Guest(module, list(expected), expected, config) for module, expected in of.items()]


def run_guests(guests: list[Guest], session: pytest.Session, doubts: Doubts, here: list[pytest.Item]) -> None:
    """Run guests, and these ordinary tests, until all are told."""
    # What may take longest begins first: then the CPUs end at about the same time.
    guests = sorted(guests, key=lambda guest: -guest.timeout)
    waiting: queue.SimpleQueue[Guest] = queue.SimpleQueue()
    for guest in guests:
        waiting.put(guest)
    workers = [threading.Thread(target=run_all, args=(waiting,)) for _ in os.sched_getaffinity(0)]
    session.config.stash.setdefault(GUESTS, []).extend(guests)
    try:
        # One CPU is left to the tests that start guests of their own, until they are done.
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


def run_all(waiting: queue.SimpleQueue[Guest]) -> None:
    """Run one guest after another while there are any."""
    with suppress(queue.Empty):
        while True:
            waiting.get_nowait().run()


def run_here(items: list[pytest.Item], session: pytest.Session) -> None:
    """Run the tests that are this host's own; pytest's own loop would take a failure so far for one of collection."""
    for item, following in zip(items, [*items, None][1:], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        stop_if_asked(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which modules took longest: they decide how long everything takes; and what was unsteady."""
    guests = sorted(config.stash.get(GUESTS, []), key=lambda guest: -guest.seconds)
    if len(guests) > 1:
        terminalreporter.section("seconds of each guest")
        for guest in guests:
            terminalreporter.write_line(f"{guest.seconds:6.0f}  {guest.module.nodeid}")
    if DOUBTS in config.stash:
        config.stash[DOUBTS].summary(terminalreporter)
