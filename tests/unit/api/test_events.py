"""Events and their documents: the form in which the API sends them is a promise to other programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.api.events import EVENT_KINDS, RunEvent, make_event_document, read_event

SENT = Path(__file__).with_name("events.jsonl").read_text().splitlines()
"""A line of the stream for each kind of event, and for each choice of optional fields, as events were sent as dicts."""


@pytest.mark.parametrize("line", SENT)
def test_an_event_is_sent_byte_for_byte_as_ever(line: str) -> None:
    event = read_event(json.loads(line))
    assert event is not None
    assert json.dumps(make_event_document(event)) == line


def test_every_kind_is_among_them() -> None:
    assert {json.loads(line)["event"] for line in SENT} == EVENT_KINDS.keys()


@given(st.sampled_from(list(EVENT_KINDS.values())).flatmap(st.from_type))
def test_an_event_comes_back_from_its_document(event: RunEvent) -> None:
    document = make_event_document(event)
    assert read_event(document) == event
    assert document["event"] == event.name
    assert None not in {
        document.get(key, "") for key in ("hook", "drift", "side", "over_limit", "files", "run_rate")
    }


def test_what_only_a_newer_daemon_knows_is_passed_over() -> None:
    head: dict[str, Any] = {"run": "r1", "backup": "home", "time": 7.5}
    assert read_event({"event": "something-new", **head, "text": "t"}) is None
    found = read_event({"event": "message", **head, "text": "t", "colour": "red"})
    assert found == EVENT_KINDS["message"](**head, text="t")  # type: ignore[call-arg]


def test_an_event_that_lacks_a_field_is_refused() -> None:
    with pytest.raises(ValueError, match=r"event snapshot: .*datasets"):
        read_event({"event": "snapshot", "run": "r1", "backup": "home", "time": 7.5, "snapname": "s"})
