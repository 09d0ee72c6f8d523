"""What vaults' block stores cost, from what their servers tell, over restarts and nonsense."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zvault.config.schema import Config
from zvault.core.cost.prices import BILLED_GIGABYTE
from zvault.ops.state import costs
from zvault.ops.state.costs import CostBook, list_uncounted, make_store_reading
from zvault.system.record_store import RecordStore

BEGIN = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
DAY = 86400.0
TEXT = """
[vault.cold]
pool = "cold"
[[vault.cold.device]]
nbd = "zvault:zv/cold endpoint=https://s3.example.org size=1T"
{prices}
"""
PRICES = 'prices = { put = 0.005, get = 0.0004, stored = 0.023, download = 0.09, currency = "$" }'


class Host:
    """An environment at a time that is set."""

    def __init__(self, text: str = TEXT.format(prices=PRICES)) -> None:
        self.now, self.zone = BEGIN, UTC
        self.clock = SimpleNamespace(time=lambda: self.now)
        self.config = Config.model_validate(tomllib.loads(text))


def seen(book: CostBook, host: Host, found: Any) -> None:
    """A look at the moment that the server's word is of."""
    host.now = found["devices"][0]["store"]["at"]
    book.look(host, found)  # type: ignore[arg-type]


def vault(at: float, *, stored: int = 0, uuid: str = "a", name: str = "cold", **asked: int) -> Any:
    store = {"at": at, "uuid": uuid, "asked": asked, "stored_bytes": stored}
    return {"name": name, "devices": [{"name": f"{name}-0", "store": store}]}


@pytest.fixture
def book(tmp_path: Path) -> CostBook:
    return CostBook(RecordStore(tmp_path, boot_id="boot"))


def test_a_vault_of_which_nothing_is_known_has_no_cost(book: CostBook) -> None:
    host: Any = Host()
    assert book.document(host, "cold") is None
    assert book.document(host, "another") is None
    book.look(host, {"name": "cold", "devices": [{"name": "cold-0", "store": None}]})  # type: ignore[typeddict-item]
    assert book.document(host, "cold") is None


SECOND = """[[vault.cold.device]]
nbd = "{}"
{}
"""


def test_what_one_of_two_stores_cost_is_not_what_both_do(book: CostBook) -> None:
    other = SECOND.format("zvault:zv/more endpoint=https://s3.example.org size=1T", PRICES)
    host: Any = Host(TEXT.format(prices=PRICES) + other)
    seen(book, host, vault(BEGIN))
    found = book.document(host, "cold")
    assert found is not None
    assert (found["cost"], found["forecast"]) == (None, None)


@pytest.mark.parametrize(
    ("nbd", "prices", "told"),
    [
        ("nbdkit:S3 bucket=zv key=meta object-size=4K size=200G", "", "nbdkit's S3"),
        ("s3backer:zv/cold size=1T blockSize=128k", "", "s3backer"),
        ("tcp:nbd.example.org", PRICES, "NBD"),
        ("tcp:nbd.example.org", "", None),
        ("nbdkit:file /var/lib/cold.img", "", None),
        ("zvault:zv/more endpoint=https://s3.example.org size=1T", PRICES, None),
    ],
)
def test_what_nobody_counts_is_named(nbd: str, prices: str, told: str | None) -> None:
    host: Any = Host(TEXT.format(prices=PRICES) + SECOND.format(nbd, prices))
    found: Any = {"name": "cold", "devices": [{"name": "cold-0"}, {"name": "cold-1"}]}
    assert list_uncounted(host, found) == ([f"cold-1 ({told})"] if told else [])
    assert list_uncounted(host, {**found, "devices": []}) == ([f"device 2 ({told})"] if told else [])


def test_what_was_asked_since_the_first_look_costs(book: CostBook) -> None:
    host: Any = Host()
    seen(book, host, vault(BEGIN, put=1000, stored=100 * BILLED_GIGABYTE))
    seen(
        book,
        host,
        vault(
            BEGIN + 15 * DAY, put=201_000, get=50_000, get_bytes=BILLED_GIGABYTE, stored=100 * BILLED_GIGABYTE
        ),
    )
    host.now = BEGIN + 15 * DAY
    found = book.document(host, "cold")
    assert found is not None
    assert (found["put"], found["get"], found["get_bytes"], found["stored_bytes"]) == (
        200_000,
        50_000,
        BILLED_GIGABYTE,
        100 * BILLED_GIGABYTE,
    )
    assert found["cost"] == pytest.approx(1.0 + 0.02 + 0.09 + 1.15)
    assert found["forecast"] is not None
    assert found["forecast"] > found["cost"]
    assert (found["currency"], found["since"], found["at"]) == ("$", BEGIN, BEGIN + 15 * DAY)


def test_what_lies_there_costs_while_the_vault_is_down(book: CostBook) -> None:
    host: Any = Host()
    seen(book, host, vault(BEGIN, stored=1000 * BILLED_GIGABYTE))
    host.now = BEGIN + 30 * DAY - 1
    found = book.document(host, "cold")
    assert found is not None
    assert found["cost"] == pytest.approx(23, rel=1e-3)


def test_without_prices_requests_are_told_all_the_same(book: CostBook) -> None:
    host: Any = Host(TEXT.format(prices=""))
    seen(book, host, vault(BEGIN, put=5))
    seen(book, host, vault(BEGIN + 1, put=8))
    host.now = BEGIN + 1
    found = book.document(host, "cold")
    assert found is not None
    assert (found["put"], found["cost"], found["forecast"]) == (3, None, None)


def test_a_killed_daemon_misses_nothing(tmp_path: Path) -> None:
    host: Any = Host()
    host.now = BEGIN + 400
    seen(CostBook(RecordStore(tmp_path, boot_id="one")), host, vault(BEGIN, put=10))
    later = CostBook(RecordStore(tmp_path, boot_id="two"))
    seen(later, host, vault(BEGIN + 400, put=25))
    later.close()
    found = CostBook(RecordStore(tmp_path, boot_id="two")).document(host, "cold")
    assert found is not None
    assert found["put"] == 15


def test_a_vault_that_does_nothing_writes_nothing(tmp_path: Path) -> None:
    host: Any = Host()
    store = RecordStore(tmp_path, boot_id="boot")
    book = CostBook(store)
    seen(book, host, vault(BEGIN, put=10))
    store.drop("cold/0")
    seen(book, host, vault(BEGIN + 2 * costs.WRITTEN_EVERY, put=10))
    assert store.names() == []
    seen(book, host, vault(BEGIN + 3 * costs.WRITTEN_EVERY, put=11))
    assert store.names() == ["cold/0"]


@pytest.mark.parametrize(
    "text", ["", "{}", '{"boot_id": "b", "time": 1, "data": {"at": 1, "days": {"x": []}}}']
)
def test_a_damaged_record_begins_anew(tmp_path: Path, text: str) -> None:
    host: Any = Host()
    (tmp_path / "cold").mkdir()
    (tmp_path / "cold" / "0").write_text(text)
    book = CostBook(RecordStore(tmp_path, boot_id="boot"))
    seen(book, host, vault(BEGIN, put=10))
    found = book.document(host, "cold")
    assert found is not None
    assert found["put"] == 0


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"at": "now"},
        {"uuid": 7},
        {"asked": [1]},
        {"asked": {"put": -1}},
        {"asked": {"put": "many"}},
        {"asked": {"put": 1 << 70}},
        {"stored_bytes": None},
    ],
)
def test_a_server_that_tells_nonsense_is_not_believed(told: dict[str, Any]) -> None:
    whole = {"at": 1.0, "uuid": "a", "asked": {"put": 1}, "stored_bytes": 5}
    found: Any = whole | told if told else {"at": 1.0}
    assert make_store_reading(found) is None
    assert make_store_reading(whole) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e300, -1e300, 0.0, BEGIN + 3601])
def test_a_time_that_cannot_be_is_not_believed(book: CostBook, at: float) -> None:
    host: Any = Host()
    seen(book, host, vault(BEGIN, put=10))
    book.look(host, vault(at, put=99, stored=1 << 50))
    found = book.document(host, "cold")
    assert found is not None
    assert (found["put"], found["stored_bytes"]) == (0, 0)
