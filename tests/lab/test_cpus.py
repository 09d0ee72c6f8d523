"""Which CPU a guest gets: two share one, who measures has one alone, and who has to wait says for whom."""

import importlib.machinery
import importlib.util
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

LAB = {"where": "host"}
RUN = Path(__file__).parent / "run"
CPUS = sorted(os.sched_getaffinity(0), reverse=True)
PATIENCE_S = 120


@pytest.fixture(scope="module")
def run() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("lab_run", str(RUN))
    spec = importlib.util.spec_from_loader("lab_run", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def comes(look: Callable[[], bool]) -> None:
    """Wait for what has to come at last."""
    end = time.monotonic() + PATIENCE_S
    while not look():
        assert time.monotonic() < end
        time.sleep(0.05)


class Places:
    """Takes places for guests; what is not given back by the test is at its end."""

    def __init__(self, run: ModuleType, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.taken: list[list[object]] = []

    def take(self, label: str, *, alone: bool = False) -> int:
        cpu, locks = self.run.Cpus(self.folder, alone, label).take()
        self.taken.append(locks)
        return cpu

    def give(self, index: int) -> None:
        for lock in self.taken[index]:
            lock.close()


@pytest.fixture
def places(run: ModuleType, tmp_path: Path) -> Iterator[Places]:
    it = Places(run, tmp_path)
    yield it
    for index in range(len(it.taken)):
        it.give(index)


def test_guests_are_spread_and_then_share(places: Places) -> None:
    assert [places.take(str(number)) for number in range(2 * len(CPUS))] == CPUS * 2


def test_one_that_measures_has_its_cpu_alone(places: Places) -> None:
    mine = places.take("it measures", alone=True)
    others = [places.take(str(number)) for number in range(2 * (len(CPUS) - 1))]
    assert mine not in others


def test_who_waits_says_for_whom_and_goes_on(places: Places, capfd: pytest.CaptureFixture[str]) -> None:
    for number in range(2 * len(CPUS)):
        places.take(f"guest {number}")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(places.take("one more")))
    waiting.start()
    said: list[str] = []
    comes(lambda: said.append(capfd.readouterr().err) or "waiting for a CPU" in "".join(said))
    assert "guest 0" in "".join(said)
    assert not found
    places.give(0)
    waiting.join(PATIENCE_S)
    assert found == [CPUS[0]]


def test_one_that_measures_is_not_kept_waiting_by_those_that_come_after(places: Places) -> None:
    for number in range(2 * len(CPUS)):
        places.take(f"guest {number}")
    alone: list[int] = []
    waiting = threading.Thread(target=lambda: alone.append(places.take("it measures", alone=True)))
    waiting.start()
    said = places.folder / f"cpu-{CPUS[0]}-alone.lock"
    comes(lambda: said.exists() and said.read_text() == "it measures")
    places.give(0)  # one of the two that have the CPU it waits for
    late: list[int] = []
    another = threading.Thread(target=lambda: late.append(places.take("late")))
    another.start()
    time.sleep(0.5)
    assert late == [], "the place that is free on that CPU is kept"
    places.give(len(CPUS))
    waiting.join(PATIENCE_S)
    assert alone == [CPUS[0]]
    places.give(1 if len(CPUS) > 1 else -1)
    another.join(PATIENCE_S)
    assert len(late) == 1
