"""A document is the same JSON, whether it is encoded row by row or in one go."""

import asyncio
import json
import threading
from typing import Any, ClassVar

import pytest
from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.patience import eventually
from zvault.api import routes
from zvault.daemon.api import streaming
from zvault.daemon.api.handler import count_document_rows, encode_document, make_handler
from zvault.system.side_threads import MOST_IN_LOOP

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_row_by_row_it_is_the_same(document: Any) -> None:
    assert encode_document(document) == json.dumps(document).encode()


def test_a_document_is_long_by_its_lists() -> None:
    assert count_document_rows({"datasets": [1, 2], "snapshots": [3], "vault": "cold"}) == 3
    assert count_document_rows([1, 2]) == 0


class Row(dict[str, Any]):
    """A row that notes in which thread it died."""

    died: ClassVar[list[int]] = []

    def __del__(self) -> None:
        self.died.append(threading.get_ident())


def test_the_rows_of_a_large_document_die_beside_the_loop() -> None:
    """A million verdicts kept the loop from its turn for 0.9 s, once they had been sent."""
    count, mine = MOST_IN_LOOP + 1, threading.get_ident()
    kept: list[Row] = []

    async def answer(_: object) -> Any:
        rows = [Row(snapshot=f"tank@{number}") for number in range(count)]
        kept.extend(rows[:7])
        return {"backup": "b", "vault": None, "prune": rows, "freed": {}, "over_limit": []}

    async def live() -> bytes:
        handler = make_handler(routes.PRUNE_PLAN, answer)
        response: Any = await handler.serve(make_mocked_request("GET", "/v1/prune/b"))
        await eventually(lambda: len(Row.died) == count - len(kept))  # what somebody keeps stays
        assert mine not in Row.died
        body: bytes = response.body
        return body

    assert len(json.loads(asyncio.run(live()))["prune"]) == count
    assert kept[0] == {"snapshot": "tank@0"}


async def test_the_document_at_the_end_of_a_long_answer_is_encoded_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """'find' may find a version of each file in each snapshot."""
    threads: list[int] = []
    encode = streaming.encode_document

    def note_thread(document: object) -> bytes:
        threads.append(threading.get_ident())
        return encode(document)

    class Response:
        data = b""

        async def write(self, data: bytes) -> None:
            self.data += data

    monkeypatch.setattr(streaming, "encode_document", note_thread)
    for count in (3, MOST_IN_LOOP + 1):
        found = {"versions": [{"path": f"{number}"} for number in range(count)], "unread": {}}
        response: Any = Response()
        await streaming._write_last(response, {"answer": found})
        assert json.loads(response.data) == {"answer": found}
        assert response.data.endswith(b"}\n")
        assert (threads.pop() == threading.get_ident()) is (count == 3)
