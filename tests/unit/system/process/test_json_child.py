"""A conversation with a child in lines of JSON: long ones, deadlines, and a child that ends or misbehaves."""

import asyncio

import pytest

from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from tests.unit.system.process.open_files import no_more_fds, python
from zvault.core.errors import DeadlineExceeded, ToolFailed, ToolMissing
from zvault.system.process import json_child
from zvault.system.process.json_child import JsonChild

ECHO = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    print(json.dumps({"value": json.loads(line)}), flush=True)
"""

SLEEPS = f"import time; time.sleep({FOR_EVER})"


async def converse(code: str) -> JsonChild:
    return await JsonChild.start(python(code))


async def test_questions_and_answers() -> None:
    async with no_more_fds():
        child = await converse(ECHO)
        assert await child.read(PATIENCE) == {"ready": True}
        for number in range(20):
            assert await child.ask({"number": number, "name": "tank/my data"}, PATIENCE) == {
                "value": {"number": number, "name": "tank/my data"}
            }
        await child.close()


@pytest.mark.parametrize("size", [70_000, 5_000_000])
async def test_long_questions_and_long_answers(size: int) -> None:
    child = await converse(ECHO)
    await child.read(PATIENCE)
    answer = await child.ask({"names": "x" * size}, PATIENCE)
    assert len(answer["value"]["names"]) == size
    assert await child.ask({"after": 1}, PATIENCE) == {"value": {"after": 1}}
    await child.close()


async def test_a_child_that_does_not_answer_is_put_down() -> None:
    child = await converse(SLEEPS)
    with pytest.raises(DeadlineExceeded, match=r"did not answer within 0\.3 s"):
        await asyncio.wait_for(child.ask({}, 0.3), PATIENCE)
    assert child._process.returncode == -9


async def test_the_deadline_holds_also_while_the_question_is_being_sent() -> None:
    child = await converse(SLEEPS)
    with pytest.raises(DeadlineExceeded):
        await asyncio.wait_for(child.ask({"names": "x" * 5_000_000}, 0.3), PATIENCE)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; print('no such module', file=sys.stderr); sys.exit(1)", "no such module"),
        ("", "without a word"),
        ("raise RuntimeError('it broke')", "RuntimeError: it broke"),
        ("import sys; sys.stdin.readline(); sys.exit('later')", "later"),
        ("import os; os.kill(os.getpid(), 9)", "killed by signal 9"),
    ],
)
async def test_a_child_that_ends_is_asked_for_its_last_words(code: str, words: str) -> None:
    async with no_more_fds():
        child = await converse(code)
        with pytest.raises(ToolFailed) as failure:
            await child.ask({"a": 1}, PATIENCE)
        assert failure.value.why == words


async def test_a_child_that_ended_between_two_questions_says_so() -> None:
    child = await converse("import sys; sys.stdin.readline(); print('{}', flush=True); sys.exit('enough')")
    assert await child.ask({}, PATIENCE) == {}
    await eventually(lambda: child._process.returncode is not None)
    for _ in range(2):
        with pytest.raises(ToolFailed) as failure:
            await child.ask({"names": "x" * 1_000_000}, PATIENCE)
        assert failure.value.why == "enough"


async def test_a_child_that_closes_its_mouth_but_lives_is_put_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_child, "KILL_GRACE", 0.3)
    child = await converse(f"import os; os.close(1); {SLEEPS}")
    with pytest.raises(ToolFailed):
        await asyncio.wait_for(child.ask({}, FOR_EVER), PATIENCE)
    assert child._process.returncode == -9


@pytest.mark.parametrize("code", ["print('hello?', flush=True)", "print('[1, 2', flush=True)", "print('[]')"])
async def test_an_answer_that_is_none_ends_the_conversation(code: str) -> None:
    child = await converse(code + "\nimport time; time.sleep(0.5)")
    with pytest.raises(ToolFailed):
        await child.read(PATIENCE)
    assert child._process.returncode is not None


async def test_an_answer_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_child, "LONGEST_ANSWER", 1 << 20)
    child = await converse("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    with pytest.raises(ToolFailed, match="cannot be understood"):
        await asyncio.wait_for(child.read(PATIENCE), PATIENCE)
    assert child._process.returncode is not None


async def test_what_a_child_said_before_it_ended_is_read() -> None:
    child = await converse("input(); print('{\"files\": 1}'); print('{\"done\": true}')")
    assert await child.ask({}, PATIENCE) == {"files": 1}
    await eventually(lambda: not child.runs)
    await asyncio.sleep(0.05)
    assert await child.read(PATIENCE) == {"done": True}
    with pytest.raises(ToolFailed, match="without a word"):
        await child.read(PATIENCE)


async def test_a_missing_child_is_named() -> None:
    with pytest.raises(ToolMissing, match="nowhere"):
        await JsonChild.start(["nowhere"])
