"""A document is the same JSON, whether it is encoded row by row or in one go."""

import asyncio
import json
import threading
from typing import Any, ClassVar

from aiohttp.test_utils import make_mocked_request
from hypothesis import given
from hypothesis import strategies as st

from zvault.api import routes
from zvault.daemon.api.handler import _count_rows, _encode, make_handler
from zvault.system.side_threads import MOST_IN_LOOP, compute_aside

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=3), some, max_size=3),
    max_leaves=12,
)


@given(VALUES)
def test_row_by_row_it_is_the_same(document: Any) -> None:
    assert _encode(document) == json.dumps(document).encode()


def test_a_document_is_long_by_its_lists() -> None:
    assert _count_rows({"datasets": [1, 2], "snapshots": [3], "vault": "cold"}) == 3
    assert _count_rows([1, 2]) == 0


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
        await compute_aside(MOST_IN_LOOP + 1, None, lambda: None)  # in the same thread, so after that
        assert len(Row.died) == count - len(kept), "what somebody keeps stays"
        assert mine not in Row.died
        body: bytes = response.body
        return body

    assert len(json.loads(asyncio.run(live()))["prune"]) == count
    assert kept[0] == {"snapshot": "tank@0"}
