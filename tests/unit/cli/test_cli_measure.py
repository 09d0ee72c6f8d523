"""zvaultctl tune measure: what is told while it goes, and the tables at the end."""

import json

import pytest
from aiohttp import web

WHY = "Little's law: 76.2M/s in requests of 1M that take 52.5 ms each are 4.0 at once"
MEASURED = {
    "time": 1.0,
    "devices": ["rbd:rbd_meta/cold"],
    "way": "write",
    "points": [{"size": 1 << 20, "depth": 4, "bandwidth": 79.9e6, "latency": 0.0525}],
    "choices": [
        {"name": "zfs_dirty_data_max", "value": "2147483648", "why": "its end is a tenth of it"},
        {"name": "zfs_vdev_async_write_max_active", "value": "4", "why": WHY},
    ],
    "tries": [
        {"what": "worked out", "module": {}, "rate": 100 << 20, "stopped": False, "won": True},
        {"what": "OpenZFS's defaults", "module": {}, "rate": 90 << 20, "stopped": True, "won": False},
    ],
    "advice": "recordsize=1M at the source",
}
PATH = "/v1/vaults/cold/measure"


@pytest.fixture
def telling(daemon, monkeypatch):
    """The lines that the daemon answers."""
    lines = [{"text": "measuring /dev/rbd0"}, {"text": ""}]

    def answer(_, status=200):
        return web.Response(text="".join(json.dumps(line) + "\n" for line in lines), status=status)

    monkeypatch.setattr(web, "json_response", answer)
    daemon.documents[f"POST {PATH}"] = {}
    return lines


def test_the_points_the_tries_and_why(telling, ctl):
    telling.append({"answer": {"measured": MEASURED}})
    said = ctl("tune", "measure", "cold")
    assert (said.code, said.err) == (0, "measuring /dev/rbd0\n")
    cells = [line.split() for line in said.lines]
    assert ["1M", "4", "76.2M/s", "52.5ms"] in cells
    assert ["worked", "out", "100M/s", "kept"] in cells
    assert ["OpenZFS's", "defaults", "<90M/s", "stopped"] in cells
    assert ["zfs_dirty_data_max", "2G"] in cells
    assert WHY in said.out
    assert "recordsize=1M" in said.lines[-1]


def test_as_json(telling, ctl):
    telling.append({"answer": {"measured": MEASURED}})
    assert json.loads(ctl("tune", "measure", "cold", "-j").out)["measured"] == MEASURED


def test_what_went_wrong(telling, ctl):
    telling.append(
        {"error": {"reason": "busy", "what": "vault 'cold' is in use", "why": "by a run", "next": ""}}
    )
    said = ctl("tune", "measure", "cold")
    assert said.code == 1
    assert "vault 'cold' is in use" in said.err


def test_an_answer_that_breaks_off(telling, ctl):
    said = ctl("tune", "measure", "cold")
    assert said.code == 2
    assert "broke off" in said.err
