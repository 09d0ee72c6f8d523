"""What a vault costs, in words and as metrics."""

from __future__ import annotations

from typing import Any

import pytest

from zvault.api.cost import CostDocument, describe_cost, describe_requests, describe_spending
from zvault.daemon.metrics.cost import collect_cost


def document(**more: Any) -> CostDocument:
    made: Any = {
        "since": 0.0,
        "at": 0.0,
        "put": 41204,
        "get": 3310,
        "list": 0,
        "delete": 2,
        "put_bytes": 1,
        "get_bytes": 1,
        "stored_bytes": 1,
        "currency": "$",
        "cost": 7.3512,
        "forecast": 9.6,
    }
    return made | more  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({}, "$7.35 this month, $9.60 at this pace"),
        ({"forecast": None}, "$7.35 this month"),
        ({"cost": None, "forecast": None}, ""),
        ({"currency": "CHF", "cost": 0.0021}, "0.0021 CHF this month, 9.60 CHF at this pace"),
    ],
)
def test_what_was_spent(more: dict[str, Any], text: str) -> None:
    assert describe_spending(document(**more)) == text


def test_what_nobody_counts_is_told_and_not_as_nothing() -> None:
    known = "$7.35 this month, $9.60 at this pace; 41,204 put, 3,310 get, 2 delete"
    assert describe_cost(document(), []) == known
    assert describe_cost(document(), ["a (s3backer)"]) == f"{known}; not counted: a (s3backer)"
    assert describe_cost(document(cost=None, put=0, get=0, delete=0), []) == "no requests"
    assert describe_cost(None, ["a (s3backer)", "b"]) == "not counted: a (s3backer), b"
    assert describe_cost(None, []) == ""


def test_what_was_asked() -> None:
    assert describe_requests(document()) == "41,204 put, 3,310 get, 2 delete"
    assert describe_requests(document(put=0, get=0, delete=0)) == "no requests"


def test_metrics_have_no_sample_of_what_is_not_known() -> None:
    known = [
        ("cloud", document()),
        ("new", document(forecast=None)),
        ("free", document(cost=None, forecast=None)),
        ("disk", None),
    ]
    found = {
        metric.name: {one.labels["vault"]: one.value for one in metric.samples}
        for metric in collect_cost(known)
    }
    assert found == {
        "zvault_vault_month_cost": {"cloud": 7.3512, "new": 7.3512},
        "zvault_vault_month_cost_forecast": {"cloud": 9.6},
    }
