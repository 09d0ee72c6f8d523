"""Nobody asks the kernel for the names of damaged objects while something is half received in full: it would crash."""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zvault
from tests.unit.patience import PATIENCE
from tests.unit.zfs.gate.hostile_bytes import token
from zvault.core.errors import Refused, ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool.name_permit import NamePermit
from zvault.zfs.pool.scrub import Scrubber
from zvault.zfs.repair.damage_name_guard import DamageNameGuard, NamesForbidden
from zvault.zfs.repair.half_received import parse_half_received, select_half_received

CODE = Path(zvault.__file__).parent

PERMITTED = {
    ("zfs/pool/scrub.py", "errors"),
    ("zfs/pool/scrub.py", "error_scrub"),
    ("zfs/diff.py", "diff_argv"),
}
"""What may build such an argv: two that take a permit, and ``zfs diff``. That asks for paths only in snapshots of a
dataset that is mounted, and what is half received in full has no snapshot and cannot be mounted."""

FULL = token({"object": 2, "offset": 0, "bytes": 5, "toguid": 9, "toname": "tank/a@s"})
INCREMENT = token({"object": 2, "offset": 0, "bytes": 5, "fromguid": 7, "toguid": 9, "toname": "tank/a@s"})


class Kernel:
    """A host whose kernel crashes where a real one does: ``half`` received datasets there are, and asked for names.

    Between any two of its steps another task may go on.
    """

    address = None

    def __init__(self, half: Sequence[str] = ()) -> None:
        self.half = set(half)
        self.crashed = False
        self.asked = 0
        self.fails = False

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        await asyncio.sleep(0)
        if argv[:2] == ["zfs", "get"]:
            code, out = (1, "") if self.fails else (0, "".join(self._lines(argv[-1])))
            return ProcessResult(tuple(argv), code, out, "cannot open: I/O error" if code else "", 0.0)
        assert asks_for_names(argv), argv
        self.asked += 1
        for _ in range(3):
            await asyncio.sleep(0)
            self.crashed |= bool(self.half)
        return ProcessResult(tuple(argv), 0, '{"pools": {"cold": {"errlist": []}}}', "", 0.0)

    def _lines(self, asked: str) -> Iterator[str]:
        for name in ("cold", "cold/a", "cold/b"):
            if asked in ("cold", name):
                yield f"{name}\tinconsistent\t{int(name in self.half)}\n{name}\treceive_resume_token\t-\n"


def asks_for_names(words: Sequence[object]) -> bool:
    """Whether the kernel is asked for names, or scrubs its error list, by these words of a command."""
    text = [str(word) for word in words]
    flags = [word for word in text if re.fullmatch("-[A-Za-z]+", word)]
    if "zfs" in text:
        return "diff" in text
    status = "status" in text and any("v" in word for word in flags)
    return "zpool" in text and (status or ("scrub" in text and any("e" in word for word in flags)))


def _strings(node: ast.AST) -> list[str]:
    return [
        one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)
    ]


def test_nothing_else_in_the_tree_builds_such_a_command() -> None:
    """By every list, tuple and call of the source: words that make the question, in whatever order they stand."""
    found = set()
    for path in CODE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"zpool|diff|\b(_act|_text)\b", source):
            continue  # no words of it stand here
        tree = ast.parse(source)
        for function in (
            one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        ):
            for node in ast.walk(function):
                if isinstance(node, ast.List | ast.Tuple | ast.Call) and _builds(node):
                    found.add((str(path.relative_to(CODE)), function.name))
    assert found == PERMITTED


def _builds(node: ast.AST) -> bool:
    words = [word for text in _strings(node) for word in text.split()]
    if isinstance(node, ast.Call):
        # Their program is named where they end up: zvault's own helpers take the rest.
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in {"_act", "_text"}:
            words += ["zpool", *(["status"] if name == "_text" else [])]
        elif any(" " in text for text in _strings(node)):
            return False  # a message
    return asks_for_names(words)


def test_no_other_way_into_the_kernel_is_used() -> None:
    ways = re.compile("obj_to_path|obj_to_stats|OBJ_TO_PATH|get_errlog|lzc_scrub|POOL_SCAN", re.ASCII)
    for path in CODE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not ways.search(source):
            continue  # parsing a module takes longer than all else here
        code = ast.unparse(ast.parse(source))
        used = [one for one in ways.findall(code) if f"``{one}" not in code and f"zfs_{one}" not in code]
        assert not used, path


def test_only_the_guard_issues_permits() -> None:
    makers = [
        str(path.relative_to(CODE))
        for path in CODE.rglob("*.py")
        if "NamePermit" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "NamePermit"
    ]
    assert makers == ["zfs/repair/damage_name_guard.py"]


def test_no_text_sends_a_person_there_without_saying_when_not_to() -> None:
    """Of pages and messages: one that says ``zpool status -v`` or ``scrub -e`` speaks of what is half received."""
    places = [CODE, CODE.parent / "docs", CODE.parent / "config"]
    pages = [page for place in places for kind in ("md", "yml", "html") for page in place.rglob(f"*.{kind}")]
    texts = {str(page): page.read_text(encoding="utf-8") for page in pages}
    texts |= {f"{path}: {text}": text for path in CODE.rglob("*.py") for text in _messages(path)}
    assert len(texts) > 1000
    silent = [
        where
        for where, text in texts.items()
        if re.search(r"zpool (status|scrub) -\w*[ve]\b", text) and not re.search(r"half[ -]received", text)
    ]
    assert not silent


def _messages(path: Path) -> Iterator[str]:
    """What a module says that may speak of zpool, without its docstrings: those are for who reads the code."""
    source = path.read_text(encoding="utf-8")
    if "zpool" not in source:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Expr):
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.JoinedStr):
                    yield " ".join(_strings(child))
                elif isinstance(child, ast.Constant) and isinstance(child.value, str):
                    yield child.value


@pytest.mark.parametrize(
    ("line", "half"),
    [
        ("inconsistent\t1", True),
        ("inconsistent\t0", False),
        ("inconsistent\t-", True),
        ("receive_resume_token\t-", False),
        (f"receive_resume_token\t{FULL}", True),
        (f"receive_resume_token\t{INCREMENT}", False),
        (f"receive_resume_token\t{FULL[:-2]}", True),
    ],
)
def test_what_is_half_received(line: str, half: bool) -> None:
    assert parse_half_received(f"cold/a\t{line}\n") == (["cold/a"] if half else [])


async def test_a_permit_is_given_for_a_pool_in_which_all_is_whole() -> None:
    host, guard = Kernel(), DamageNameGuard()
    async with guard.permit_names(host, "cold") as permit:  # type: ignore[arg-type]
        assert await Scrubber(host).errors(permit) == []
        await Scrubber(host).error_scrub(permit)
    assert (host.asked, host.crashed) == (2, False)
    with pytest.raises(Refused):
        await Scrubber(host).errors(permit)
    assert host.asked == 2


async def test_a_full_receive_that_waits_for_the_question_tells_so() -> None:
    """A heal, or the recheck after a scrub, may last for hours."""
    guard, kernel = DamageNameGuard(), Kernel()
    begun = asyncio.Event()

    async def receive() -> None:
        async with guard.receive_full(None, "cold", "b"):
            begun.set()

    async with guard.permit_names(kernel, "cold"):
        task = asyncio.create_task(receive())
        await asyncio.sleep(0)
        assert "damaged in the pool cold" in (guard.describe_wait("b") or "")
        assert guard.describe_wait("a") is None
        assert not begun.is_set()
    await asyncio.wait_for(task, PATIENCE)
    assert guard.describe_wait("b") is None
    async with guard.permit_names(kernel, "cold"):
        task = asyncio.create_task(receive())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert guard.describe_wait("b") is None, "one that was put down waits no more"


async def test_none_is_given_while_anything_is_half_received_or_nobody_can_tell() -> None:
    host, guard = Kernel(["cold/b"]), DamageNameGuard()
    with pytest.raises(NamesForbidden, match="half received: cold/b") as refused:
        async with guard.permit_names(host, "cold"):  # type: ignore[arg-type]
            pass
    assert refused.value.datasets == ("cold/b",)
    host.fails = True
    with pytest.raises(ToolFailed):
        async with guard.permit_names(host, "cold"):  # type: ignore[arg-type]
            pass
    assert host.asked == 0


async def test_what_is_whole_or_gone_is_half_received_no_more() -> None:
    host = Kernel(["cold/b"])
    assert await select_half_received(host, ["cold/a", "cold/b"]) == ["cold/b"]


Moves = st.lists(st.sampled_from(["ask", "scrub", "receive", "cut off", "give up"]), min_size=2, max_size=12)


@given(Moves)
def test_whatever_goes_on_at_once_nobody_asks_at_the_wrong_moment(moves: list[str]) -> None:
    """Questions and full receives, begun in any order and each at work while the others are."""

    async def world() -> None:
        host, guard = Kernel(), DamageNameGuard()

        async def ask(*, scrub: bool) -> None:
            try:
                async with guard.permit_names(host, "cold") as permit:  # type: ignore[arg-type]
                    scrubber = Scrubber(host)
                    await (scrubber.error_scrub(permit) if scrub else scrubber.errors(permit))
            except NamesForbidden:
                pass

        async def receive(*, whole: bool) -> None:
            async with guard.receive_full(None, "cold"):
                await asyncio.sleep(0)
                host.half.add("cold/a")
                await asyncio.sleep(0)
                if whole:
                    host.half.discard("cold/a")

        tasks: list[asyncio.Task[Any]] = []
        for move in moves:
            if move in ("ask", "scrub"):
                tasks.append(asyncio.ensure_future(ask(scrub=move == "scrub")))
            elif move in ("receive", "cut off"):
                tasks.append(asyncio.ensure_future(receive(whole=move == "receive")))
            else:
                host.half.clear()
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.gather(*tasks), PATIENCE)
        assert not host.crashed

    asyncio.run(world())


def test_the_kernel_of_this_test_crashes() -> None:
    """Else the property would hold for a guard that does nothing."""

    async def world() -> bool:
        host = Kernel(["cold/a"])
        await Scrubber(host).errors(NamePermit("cold"))
        return host.crashed

    assert asyncio.run(world())
