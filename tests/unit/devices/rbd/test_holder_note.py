"""The note on an image says whatever who may write to its pool wants."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from zvault.config.device_specs.rbd import RbdImage
from zvault.devices.rbd.cluster import CephCluster
from zvault.devices.rbd.holder_note import HolderNote, read_holder_note
from zvault.system.process.runner import ProcessResult, ToolRunner

NOTE: dict[str, Any] = {"host": "elm", "client": "192.0.2.7:0/9", "boot": "b", "since": 1.0}


class Meta:
    """A cluster whose images have this note."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def run(self, argv: Sequence[str], **_: Any) -> ProcessResult:
        return ProcessResult(tuple(argv), 0, self.text, "", 0.0)


async def read(text: str) -> HolderNote | None:
    runner = cast(ToolRunner, Meta(text))
    return await read_holder_note(RbdImage("rbd", "", "cold"), CephCluster(), runner)


async def test_what_was_noted_is_read() -> None:
    note = await read(json.dumps(NOTE))
    assert note == HolderNote(**NOTE)
    assert note is not None
    assert note.words() == "elm, since 1970-01-01 00:00:01 UTC"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no note",
        "[" * 200_000,
        "7",
        json.dumps({**NOTE, "since": "long"}),
        json.dumps({**NOTE, "since": 1e300}),
        json.dumps({**NOTE, "since": None}),
        json.dumps({**NOTE, "more": 1}),
        json.dumps({"host": "elm"}),
    ],
    ids=range(9),
)
async def test_what_is_no_note_is_none(text: str) -> None:
    assert await read(text) is None
