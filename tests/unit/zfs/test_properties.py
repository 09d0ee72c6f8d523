"""What is set on datasets, and what a stream brought, from what ``zfs get`` prints."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.errors import ToolFailed
from zvault.core.model import VaultProperty
from zvault.system.process.runner import ProcessResult
from zvault.zfs import properties


class Prints:
    """A host on which every command prints the same."""

    def __init__(self, stdout: str, code: int = 0) -> None:
        self.stdout, self.code = stdout, code
        self.asked: list[list[str]] = []

    async def run(
        self, argv: Sequence[str], *, deadline: float = 60.0, stdin: bytes | None = None, check: bool = True
    ) -> ProcessResult:
        self.asked.append(list(argv))
        return ProcessResult(
            tuple(argv), self.code, self.stdout, "cannot open 'tank/a': dataset does not exist", 0.0
        )


def lines(*rows: tuple[str, ...]) -> str:
    return "".join("\t".join(row) + "\n" for row in rows)


async def test_settings_have_the_value_the_received_one_and_the_source() -> None:
    host = Prints(
        lines(
            ("cold/a", "mountpoint", "/cold/a", "/a", "default"),
            ("cold/a", "com.x:y", "two words", "two words", "received"),
            ("cold/b", "quota", "0", "-", "default"),
        )
    )
    assert await properties.read_settings(host, ["cold/a", "cold/b", "cold/c"]) == {
        "cold/a": {
            "mountpoint": VaultProperty("/cold/a", "/a", "default"),
            "com.x:y": VaultProperty("two words", "two words", "received"),
        },
        "cold/b": {"quota": VaultProperty("0", "-", "default")},
        "cold/c": {},
    }


class Answers(Prints):
    """Prints one thing after the other."""

    def __init__(self, *texts: str) -> None:
        super().__init__(texts[0])
        self.texts = list(texts)

    async def run(self, argv: Sequence[str], **more: Any) -> ProcessResult:
        self.stdout = self.texts.pop(0)
        return await super().run(argv, **more)


async def test_what_a_stream_brought_of_a_property_without_a_value_is_asked_for_by_itself() -> None:
    whole = lines(("cold/a", "atime", "off", "-", "local"), ("cold/b", "atime", "on", "-", "default"))
    host = Answers(whole, lines(("cold/a", "me"), ("cold/b", "-")))
    found = await properties.read_settings(host, ["cold/a", "cold/b"], ["a:b"])
    assert found["cold/a"]["a:b"] == VaultProperty("-", "me", "-")
    assert found["cold/b"]["a:b"] == VaultProperty("-", "-", "-")
    assert host.asked[1] == ["zfs", "get", "-Hp", "-o", "name,received", "a:b", "cold/a", "cold/b"]
    # What is in it may look like another dataset's: then nothing is certain of any.
    host = Answers(whole, lines(("cold/a", "me"), ("cold/b", "x"), ("cold/b", "-")))
    assert await properties.read_settings(host, ["cold/a", "cold/b"], ["a:b"]) == {}
    host = Answers(lines(("cold/a", "atime", "off")), lines(("cold/a", "me")))
    assert await properties.read_received_properties(host, "cold/a", ["a:b"]) == {"atime": "off", "a:b": "me"}


async def test_of_the_source_only_what_is_set_there_is_asked_for() -> None:
    host = Prints(lines(("tank/a", "atime", "off", "-", "local")))
    assert await properties.read_own_settings(host, ["tank/a", "tank/a@s"]) == {
        "tank/a": {"atime": "off"},
        "tank/a@s": {},
    }
    assert host.asked[0][:5] == ["zfs", "get", "-Hp", "-s", "local,received"]


@pytest.mark.parametrize(
    "rest",
    [
        "tank/a\tcom.x:y\tof two\nlines\t-\tlocal\n",
        "tank/a\tcom.x:y\tof two\n\nlines\t-\tlocal\n",
        "tank/a\tcom.x:y\ta\ttab\t-\tlocal\n",
        "tank/a\tcom.x:y\tx\ntank/a\tatime\ton\t-\tlocal\n",
        "tank/a\tcom.x:y\tx\nelse\twhere\tgoes\tthis\tline\n",
    ],
)
async def test_where_a_value_looks_like_more_lines_nothing_is_known_of_the_dataset(rest: str) -> None:
    before = lines(("tank/b", "atime", "off", "-", "local"), ("tank/a", "atime", "off", "-", "local"))
    found = await properties.read_own_settings(Prints(before + rest), ["tank/a", "tank/b"])
    assert found == {"tank/b": {"atime": "off"}}


async def test_one_that_is_gone_leaves_all_unknown() -> None:
    with pytest.raises(ToolFailed):
        await properties.read_settings(Prints("", 1), ["tank/a"])


class Zfs:
    """A host with a user property on datasets, told as ``zfs get`` does: what a value holds is not escaped."""

    def __init__(self, values: dict[str, tuple[str, str]]) -> None:
        self.values = values
        self.asked: list[list[str]] = []

    async def run(
        self, argv: Sequence[str], *, deadline: float = 60.0, stdin: bytes | None = None, check: bool = True
    ) -> ProcessResult:
        self.asked.append(list(argv))
        if argv[-1] not in self.values:
            return ProcessResult(tuple(argv), 1, "", f"cannot open '{argv[-1]}': dataset does not exist", 0.0)
        rows = self.values if "-r" in argv else {argv[-1]: self.values[argv[-1]]}
        named = "-r" in argv
        out = "".join(
            f"{name}\t{value}\t{source}\n" if named else f"{value}\t{source}\n"
            for name, (value, source) in rows.items()
        )
        return ProcessResult(tuple(argv), 0, out, "", 0.0)


LINE = st.text("\t\ntrue", max_size=6)
FORGED = st.lists(
    st.sampled_from(["x", "tank/a\ttrue\tlocal", "tank/b\tfalse\tlocal", "tank/c", "\t"]), max_size=4
)


@given(
    st.dictionaries(
        st.sampled_from(["tank", "tank/a", "tank/b"]),
        st.tuples(
            st.one_of(LINE, FORGED.map("\n".join)),
            st.sampled_from(["local", "received", "inherited from tank"]),
        ),
        min_size=1,
    )
)
async def test_a_value_cannot_speak_for_another_dataset(values: dict[str, tuple[str, str]]) -> None:
    values = {"tank": ("-", "-"), **values}
    assert await properties.read_user_property(Zfs(values), "tank", "a:b", list(values)) == values


async def test_one_that_is_gone_by_now_has_no_value() -> None:
    host = Zfs({"tank": ("true", "local")})
    found = await properties.read_user_property(host, "tank", "a:b", ["tank", "tank/gone"])
    assert found == {"tank": ("true", "local"), "tank/gone": ("-", "-")}
    assert len(host.asked) == 2


async def test_a_property_that_cannot_be_read_is_told() -> None:
    with pytest.raises(ToolFailed, match="a:b of 'tank'"):
        await properties.read_user_property(Prints("", 1), "tank", "a:b", ["tank"])
