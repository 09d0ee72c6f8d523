"""Scripts of faults: what is drawn, how a storage behaves by one, how one is made smaller, and how zvault is judged."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "lab"))
import fault_script
from fault_script import Fault, Outcome, Script, behave_at, draw_script, format_script, parse_script

SEEDS = range(400)


def test_a_seed_gives_one_script_and_seeds_give_every_fault_in_every_operation() -> None:
    scripts = [draw_script(seed) for seed in SEEDS]
    assert scripts == [draw_script(seed) for seed in SEEDS]
    drawn = {(script.operation, fault.name) for script in scripts for fault in script.faults}
    assert drawn == {
        (operation, name) for operation in fault_script.OPERATIONS for name in fault_script.NAMES
    }
    assert {len(script.faults) for script in scripts} == {1, 2, 3}
    kinds = {kind for script in scripts for fault in script.faults for kind in fault.kinds}
    assert kinds == set(fault_script.KINDS)


def test_what_is_drawn_ends_and_can_be() -> None:
    for script in map(draw_script, SEEDS):
        assert script.end <= fault_script.LATEST + fault_script.LONGEST
        names = [fault.name for fault in script.faults]
        assert sum(name in fault_script.FOR_GOOD for name in names) <= 1
        assert sum(name in {"shrink", "grow"} for name in names) <= 1
        for fault in script.faults:
            assert bool(fault.kinds) == (fault.name in {"stall", "slow", "error"})
            assert (fault.lasts == 0) == (fault.name in fault_script.FOR_GOOD)
        assert behave_at(script.faults, script.end) == behave_at((), 0)


def test_a_line_of_text_is_the_same_script() -> None:
    for script in map(draw_script, SEEDS):
        assert parse_script(format_script(script)) == script
    assert parse_script("run: 0.5 stall write,flush for 4; 2 back by 3") == Script(
        "run", (Fault(0.5, "stall", 4.0, ("write", "flush")), Fault(2.0, "back", amount=3.0))
    )


@pytest.mark.parametrize(
    "text",
    [
        "run 1 vanish for 2",
        "dance: 1 vanish for 2",
        "run: 1 fly for 2",
        "run: 1 stall walk for 2",
        "run: 1 vanish for 2 by 3",
    ],
)
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"has|none of|not all of"):
        parse_script(text)


def test_all_that_lasts_is_so_at_once() -> None:
    faults = parse_script(
        "run: 0 stall read for 4; 1 slow write,flush by 2 for 4; 2 error flush for 1; 2 shrink by 7 for 9"
    ).faults
    assert behave_at(faults, 0.5).stalled == {"read"}
    now = behave_at(faults, 2.5)
    assert (now.stalled, now.delays, set(now.errors), now.grown) == (
        {"read"},
        {"write": 2.0, "flush": 2.0},
        {"flush"},
        -7,
    )
    assert behave_at(faults, 4.5).stalled == set()
    assert behave_at(faults, 4.5).delays
    assert behave_at(faults, 11) == behave_at((), 0)
    readonly = behave_at(parse_script("run: 0 read-only for 1").faults, 0.5)
    assert set(readonly.errors) == {"write", "flush", "trim", "zero"}
    assert readonly.read_only
    assert not behave_at(parse_script("run: 0 vanish for 1").faults, 0.5).listens


def test_connections_end_where_the_server_is_another_one() -> None:
    faults = parse_script(
        "run: 1 vanish for 2; 2 stall read for 1; 3 power; 4 half for 1; 5 rename for 1"
    ).faults
    assert fault_script.list_breaks(faults) == [1, 3, 5]


def test_a_smaller_script_is_found_that_fails_still() -> None:
    script = parse_script("run: 0.7 vanish for 3.3; 1.9 stall read,write,flush for 7.7; 3.1 back by 9.5")

    def fails(tried: Script) -> bool:
        return any(
            fault.name == "stall" and "flush" in fault.kinds and fault.lasts > 3 for fault in tried.faults
        )

    assert format_script(fault_script.minimize_script(script, fails)) == "run: 0 stall flush for 7"
    assert fault_script.minimize_script(script, lambda _: False) == script
    tries = []
    fault_script.minimize_script(script, lambda tried: bool(tries.append(tried)) or True, tries=5)
    assert len(tries) == 5


WELL = Outcome(well=True)


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (WELL, []),
        (replace(WELL, well=False, advice="reboot", well_after=None), []),
        (replace(WELL, well=False, advice="vault up", well_after=True), []),
        (replace(WELL, well=False), ["nothing tells what to do"]),
        (replace(WELL, well=False, advice="scrub", well_after=False), ["did not help: scrub"]),
        (replace(WELL, lost=("tank/home",)), ["acknowledged and lost: tank/home"]),
        (replace(WELL, slowest=15.1), ["took 15.1 s"]),
        (replace(WELL, stuck=("zpool clear cold",)), ["in D"]),
        (replace(WELL, daemon_died=True), ["did not survive"]),
    ],
)
def test_what_is_wrong_is_told(outcome: Outcome, wrong: list[str]) -> None:
    told = fault_script.judge_outcome(outcome)
    assert len(told) == len(wrong)
    for line, words in zip(told, wrong, strict=True):
        assert words in line
