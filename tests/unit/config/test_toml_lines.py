from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.config.toml_lines import KeyPath, KeyPositions, find_line, show_key

ODD = r'''# every way to write a key, and values that look like keys
top = 1
"quoted key" = 2
'literal.key' = 3
"esc\u0061ped" = 4
a.b."c d".e = 5
text = """
[not.a.table]
x = "still text" \
""" # a comment with "quotes"
more = """a ""quoted"" end"""""
lit = """''"""
raw = \'\'\'
y = [1,
\'\'\'
list = [ # comment, with ] in it
  1, "]", [2, { in = "x,}", deep = [ { z = 1 } ] }],
  # another
  { k = 'v' },
]
inline = { p.q = 1, "r s" = { t = [ ] }, u = {} }
when = 1979-05-27 07:32:00-08:00
neg = -1_000.5e+3
  indented	=	"tab" #c
[ table . "sub table" ]
k=1
[[array]]
n = 0
[array.child]
m = 0
[[array.inner]]
i = 0
[[array.inner]]
i = 1
[[array]]
n = 1
[[array.inner]]
i = 10
[other]
array.x = 1
'''.replace("\\'", "'")


def paths(value: object, above: KeyPath = ()) -> Iterator[KeyPath]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        yield from paths(inner, (*above, key))


def check(text: str) -> None:
    """A text tomllib takes has a line for every key, on which the key stands; any text is scanned without an error."""
    positions = KeyPositions(text)
    lines = text.replace("\r\n", "\n").split("\n")
    assert all(1 <= line <= len(lines) for line in positions.lines.values())
    try:
        data = tomllib.loads(text)
    except (ValueError, RecursionError):
        return
    for path in paths(data):
        line = positions.lines[path]
        key = path[-1]
        if isinstance(key, str) and key.isalnum() and key.isascii() and "\\" not in text:
            assert key in lines[line - 1]


def test_odd_but_valid() -> None:
    tomllib.loads(ODD)
    check(ODD)
    check(ODD.replace("\n", "\r\n"))


@pytest.mark.parametrize(
    ("path", "start"),
    [
        (("top",), "top"),
        (("escaped",), '"esc'),
        (("a", "b", "c d", "e"), "a.b"),
        (("more",), "more"),
        (("list", 2), "  1,"),
        (("list", 2, 1, "deep", 0, "z"), "  1,"),
        (("list", 3, "k"), "  { k"),
        (("inline", "r s", "t"), "inline"),
        (("indented",), "  indented"),
        (("table", "sub table"), "[ table"),
        (("array", 0), "[[array]]"),
        (("array", 0, "inner", 1, "i"), "i = 1"),
        (("array", 1, "inner", 0, "i"), "i = 10"),
        (("other", "array", "x"), "array.x"),
    ],
)
def test_lines(path: KeyPath, start: str) -> None:
    line = KeyPositions(ODD).line(path)
    assert line is not None
    assert ODD.splitlines()[line - 1].startswith(start)


@settings(deadline=None)
@given(st.text(alphabet="[]{}=.,#\"'\\ab \n\t\r1"))
@example('a = """\\')
@example("[[[[")
@example("a = [" * 200)
@example("a = " + "{a=" * 200)
@example("a = 'x\n'b' = 1")
def test_any_text_is_scanned(text: str) -> None:
    check(text)


@settings(max_examples=cases(300), deadline=None)
@given(st.data())
def test_mutations(data: st.DataObject) -> None:
    """Cuts, copies and swaps of a rich text: what is still valid is still located, the rest does no harm."""
    text = ODD
    for _ in range(data.draw(st.integers(1, 3))):
        a, b = sorted(data.draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        to = data.draw(st.integers(0, len(text)))
        text = data.draw(
            st.sampled_from(
                [text[:a] + text[b:], text[:to] + text[a:b] + text[to:], text[:a] + "x=[]\n" + text[a:]]
            )
        )
    check(text)


@settings(max_examples=cases(300), deadline=None)
@given(st.data())
def test_lines_of_valid_texts(data: st.DataObject) -> None:
    """Whole lines left out or moved keep many texts valid, so that this compares with tomllib often."""
    lines = ODD.split("\n[", 1)[0].splitlines() + ("[" + ODD.split("\n[", 1)[1]).splitlines()
    keep = data.draw(st.lists(st.sampled_from(range(len(lines))), unique=True, max_size=12))
    check("\n".join(lines[i] for i in sorted(keep)))


def test_a_long_file_is_scanned_in_a_moment() -> None:
    text = "".join(f'[backup.b{i}]\nsource = "tank/{i}"\nexclude = ["tank/{i}/x"]\n' for i in range(5000))
    assert KeyPositions(text).line(("backup", "b4999", "exclude", 0)) == 15000


def test_what_is_unknown_gets_its_table() -> None:
    lines = KeyPositions("\n[a]\nb = { c = 1 }\n").lines
    assert find_line(lines, ("a", "b", "x", 3)) == 3
    assert find_line(lines, ("a", "x")) == 2
    assert find_line(lines, ("x",)) is None


def test_keys_as_people_write_them() -> None:
    assert show_key(("vault", "cold", "device", 0, "timeout")) == "vault.cold.device[0].timeout"
    assert show_key(("vault", 'a "b"\n.c', "pool")) == 'vault."a \\"b\\"\\u000a.c".pool'
    assert show_key(("",)) == '""'
