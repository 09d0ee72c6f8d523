"""The feed hands each follower what its child tells, and whatever befalls the child costs no more than a listing."""

import asyncio
import sys
from pathlib import Path

import pytest

from zvault.zfs import change_feed
from zvault.zfs.change_feed import ChangeFeed
from zvault.zfs.pool.event_reader import ChangedDatasets

CHILD = """#!{python}
import sys
print('{{"ready": true}}', flush=True)
for number, line in enumerate(sys.stdin):
    {answer}
"""

TELLS = """print('{"lost": %s, "pools": [], "datasets": {"tank/%d": null}, "missed": %s}'
        % (("false", "true")[not number], number, ("false", "true")[not number]), flush=True)"""


class Heard:
    def __init__(self) -> None:
        self.all: list[ChangedDatasets] = []

    def followed(self) -> int:
        return 5

    def note(self, changed: ChangedDatasets) -> None:
        self.all.append(changed)


def child(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str) -> tuple[ChangeFeed, Heard]:
    """A feed whose child answers so."""
    program = tmp_path / "child"
    program.write_text(CHILD.format(python=sys.executable, answer=answer))
    program.chmod(0o755)
    monkeypatch.setattr(change_feed.sys, "executable", str(program))
    feed, heard = ChangeFeed(tmp_path / "note"), Heard()
    feed.follow(heard)
    return feed, heard


async def test_all_followers_hear_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feed, heard = child(monkeypatch, tmp_path, TELLS)
    late = Heard()
    await feed.collect()
    feed.follow(late)
    await asyncio.gather(feed.collect(), feed.collect())
    assert [one.datasets for one in heard.all] == [{f"tank/{number}": None} for number in range(3)]
    assert [(one.lost, one.missed) for one in heard.all] == [(True, True), (False, False), (False, False)]
    assert late.all == heard.all[1:]
    await feed.close()


async def test_nothing_is_started_for_who_asks_after_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed, heard = child(monkeypatch, tmp_path, TELLS)
    await feed.close()
    await feed.collect()
    assert feed._child is None
    assert heard.all[-1].lost


async def test_many_who_ask_at_once_are_served_by_two_questions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By one that begins after each of them asked."""
    feed, heard = child(monkeypatch, tmp_path, TELLS)
    await feed.collect()
    await asyncio.gather(*(feed.collect() for _ in range(10)))
    assert [one.datasets for one in heard.all] == [{f"tank/{number}": None} for number in range(3)]
    first = asyncio.ensure_future(feed.collect())
    while feed._asked == 3:
        await asyncio.sleep(0)
    await feed.collect()
    assert heard.all[-1].datasets == {"tank/4": None}, (
        "the question that was under way is no answer to a later one"
    )
    await first
    await feed.close()


@pytest.mark.parametrize("answer", ["sys.exit(1)", "print('[]', flush=True)", "print('{}', flush=True)"])
async def test_a_child_that_fails_is_missed_once_and_started_again_later(
    answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed, heard = child(monkeypatch, tmp_path, f"if number:\n        {answer}\n    else:\n        {TELLS}")
    for _ in range(4):
        await feed.collect()
    assert [(one.lost, one.missed) for one in heard.all[1:]] == [(True, True), (True, False), (True, False)]
    feed._try_again = 0.0
    await feed.collect()
    assert heard.all[-1].datasets == {"tank/0": None}
    await feed.close()


async def test_who_gives_up_waiting_leaves_nothing_untold(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed, heard = child(monkeypatch, tmp_path, f"import time; time.sleep(60 * (number == 1)); {TELLS}")
    await feed.collect()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await feed.collect()
    assert heard.all[-1] == ChangedDatasets(lost=True, missed=True)
    await feed.close()


async def test_a_suspend_makes_all_unknown_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feed, heard = child(monkeypatch, tmp_path, TELLS)
    await feed.collect()
    feed._asleep -= 60
    await feed.collect()
    await feed.collect()
    assert [one.lost for one in heard.all] == [True, True, False]
    assert heard.all[1].missed
    await feed.close()


async def test_on_a_host_without_openzfs_nothing_is_known_and_nothing_fails(tmp_path: Path) -> None:
    feed, heard = ChangeFeed(tmp_path / "note"), Heard()
    feed.follow(heard)
    await feed.collect()
    await feed.collect()
    assert heard.all == [ChangedDatasets(lost=True), ChangedDatasets(lost=True)]
    await feed.close()


async def test_its_child_is_told_that_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = tmp_path / "told"
    feed, _ = child(monkeypatch, tmp_path, f"open({str(told)!r}, 'a').write(line)\n    {TELLS}")
    await feed.collect()
    await feed.close()
    assert told.read_text().splitlines() == ['{"datasets": 5}', '{"end": true}']
