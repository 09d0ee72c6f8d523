"""What is set on many datasets: read in one form on both sides, set with few calls. libzfs itself runs in the lab."""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.core.model import VaultProperty
from zvault.system.process.runner import ProcessResult
from zvault.zfs import compare_settings
from zvault.zfs.lzc import DATASETS_PER_REQUEST, SET_AT_ONCE, Lzc, LzcFailure

RECORD = "org.zvault:source-properties"


class Helper(Lzc):
    """A helper process that answers as the real one: ``told`` by name, or None where it has no libzfs."""

    def __init__(self, told: Mapping[str, Any] | None, refused: Sequence[str] = ()) -> None:
        super().__init__()
        self.told, self.refused = told, refused
        self.calls: list[tuple[str, list[str]]] = []
        self.error: Exception | None = None

    async def _call(self, what: str, call: str, of: Iterable[str], **arguments: Any) -> Any:
        names = list(arguments["names"] if call == "settings" else arguments["values"])
        self.calls.append((call, names))
        if self.error is not None:
            raise self.error
        if call == "settings":
            return self.told if self.told is None else {n: self.told[n] for n in names if n in self.told}
        return [name for name in names if name in self.refused]


class Host:
    """Prints what it is given, and notes what it is asked; ``bad`` are datasets on which nothing can be set."""

    def __init__(self, out: str = "", *bad: str) -> None:
        self.out, self.bad = out, bad
        self.ran: list[list[str]] = []

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        self.ran.append(list(argv))
        wrong = [name for name in argv if name in self.bad]
        return ProcessResult(
            tuple(argv), int(bool(wrong)), self.out, f"cannot set on {wrong}" if wrong else "", 0.0
        )


def side(host: Host, lzc: Lzc | None) -> Any:
    return SimpleNamespace(host=host, lzc=lzc)


async def test_on_this_host_the_helper_tells_what_is_set_and_what_streams_brought() -> None:
    mine = Helper({"tank/a": {"set": {"atime": ["0", False], "com.x:y": ["a\nb", True]}, "received": {}}})
    its = Helper(
        {
            "cold/a": {
                "set": {"atime": ["0", True], "readonly": ["1", False], "canmount": ["2", False]},
                "received": {"atime": "0", "canmount": "1", "mountpoint": "/a"},
            }
        }
    )
    host = Host()
    found = await compare_settings.read_both_settings(
        side(host, mine), ["tank/a", "tank/a@s"], side(host, its), ["cold/a"]
    )
    assert found == (
        {"tank/a": {"atime": "0", "com.x:y": "a\nb"}},
        {
            "cold/a": {
                "atime": VaultProperty("0", "0", "received"),
                "readonly": VaultProperty("1", "-", "local"),
                "canmount": VaultProperty("2", "1", "local"),
                "mountpoint": VaultProperty("-", "/a", "-"),
            }
        },
    )
    assert host.ran == []


async def test_a_helper_is_asked_for_so_many_at_a_time() -> None:
    names = [f"tank/d{number}" for number in range(2 * DATASETS_PER_REQUEST + 1)]
    helper = Helper({name: {"set": {}, "received": {}} for name in names})
    assert list(await helper.settings(names)) == names
    assert [len(asked) for _, asked in helper.calls] == [DATASETS_PER_REQUEST, DATASETS_PER_REQUEST, 1]


@pytest.mark.parametrize("far", ["source", "vault", "neither has libzfs"])
async def test_both_sides_are_always_read_in_the_same_way(far: str) -> None:
    """Numbers as they are stored on one side and words on the other would differ where nothing does."""
    helper = Helper(None if far.startswith("neither") else {})
    here = side(Host("tank/a\tatime\toff\t-\tlocal\n"), None if far == "source" else helper)
    there = side(Host("cold/a\tatime\toff\toff\treceived\n"), None if far == "vault" else helper)
    assert await compare_settings.read_both_settings(here, ["tank/a"], there, ["cold/a"]) == (
        {"tank/a": {"atime": "off"}},
        {"cold/a": {"atime": VaultProperty("off", "off", "received")}},
    )


async def test_where_the_helper_died_zfs_is_asked() -> None:
    helper = Helper({})
    helper.error = ToolFailed("the helper process ended", "signal 6")
    here, there = Host("tank/a\tatime\toff\t-\tlocal\n"), Host("cold/a\tatime\toff\toff\treceived\n")
    found = await compare_settings.read_both_settings(
        side(here, helper), ["tank/a"], side(there, helper), ["cold/a"]
    )
    assert found[0] == {"tank/a": {"atime": "off"}}
    await compare_settings.set_property_on_each(side(there, helper), RECORD, {"cold/a": "1"})
    assert there.ran[-1] == ["zfs", "set", f"{RECORD}=1", "cold/a"]
    helper.error = DeadlineExceeded("the helper process", "it hangs")
    with pytest.raises(DeadlineExceeded):
        await compare_settings.read_both_settings(
            side(here, helper), ["tank/a"], side(there, helper), ["cold/a"]
        )


async def test_without_libzfs_one_is_told_so() -> None:
    with pytest.raises(ToolMissing):
        await Helper(None).settings(["tank"])


async def test_on_this_host_a_record_is_set_on_all_in_few_calls_and_without_programs() -> None:
    host, helper = Host(), Helper({})
    values = {f"cold/d{number}": str(number % 3) for number in range(SET_AT_ONCE + 1)}
    await compare_settings.set_property_on_each(side(host, helper), RECORD, values)
    assert [len(names) for _, names in helper.calls] == [SET_AT_ONCE, 1]
    assert host.ran == []
    await compare_settings.set_property_on_each(side(host, helper), RECORD, {})
    assert len(helper.calls) == 2


async def test_what_the_helper_cannot_set_zfs_is_asked_for_and_says_why() -> None:
    host, helper = Host("", "cold/bad"), Helper({}, ["cold/b", "cold/bad"])
    values = {"cold/a": "1", "cold/b": "2", "cold/bad": "3"}
    with pytest.raises(ToolFailed) as failure:
        await compare_settings.set_property_on_each(side(host, helper), RECORD, values)
    assert "cold/bad" in failure.value.why
    assert host.ran == [["zfs", "set", f"{RECORD}=2", "cold/b"], ["zfs", "set", f"{RECORD}=3", "cold/bad"]]


async def test_where_the_helper_fails_or_is_far_zfs_sets_all_with_a_program_for_each_value() -> None:
    helper = Helper({})
    helper.error = LzcFailure("cannot set", "a runtime error", [])
    values = {"cold/a": "none", "cold/b": "quota=1", "cold/c": "none"}
    for lzc in (helper, None):
        host = Host()
        await compare_settings.set_property_on_each(side(host, lzc), RECORD, values)
        assert host.ran == [
            ["zfs", "set", f"{RECORD}=none", "cold/a", "cold/c"],
            ["zfs", "set", f"{RECORD}=quota=1", "cold/b"],
        ]


async def test_one_value_that_cannot_be_set_keeps_no_other_from_being_set() -> None:
    host = Host("", "cold/a")
    with pytest.raises(ToolFailed):
        await compare_settings.set_property_on_each(side(host, None), RECORD, {"cold/a": "1", "cold/b": "2"})
    assert host.ran[1:] == [["zfs", "set", f"{RECORD}=2", "cold/b"]]
