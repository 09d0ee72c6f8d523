"""Whatever lies in the files that zvaultd remembers things in: what cannot be read is not known, and nothing fails."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.daemon.known_proofs import PROOFS_FOLDER, KnownProofs
from zvault.daemon.monitors.stall_monitor import list_heard_crashes, read_positions
from zvault.ops.state.environment import Environment
from zvault.ops.state.records import Records
from zvault.system.process.runner import HostRunner
from zvault.system.record_store import RecordStore, read_boot_id

ODD: tuple[Any, ...] = (
    None,
    7,
    -1.5,
    float("inf"),
    float("nan"),
    "text",
    [],
    [1],
    [[1, 2, 3]],
    {},
    {"1f": []},
    {"x": {}},
)
NAMES = ("1f", "b", "cold", "cold.0", "stalls", "crashes")
KEYS = (
    "way", "datasets", "places", "txg", "at", "found", "since", "newest", "state", "last", "born", "held", "errors",
    "damages", "wounds", "noted", "half_received", "excused", "foreign", "doubted", "vault", "pool", "storage",
    "given_up", "turn", "snapshots", "until", "proofs", "record", "event", "texts", "reading", "month", "months",
)  # fmt: skip


def list_readers(folder: Path) -> dict[str, Callable[[], object]]:
    """By folder of records, what reads one of them."""
    paths = Paths(folder, folder / "run", folder / "state")
    records = Records.at(paths)
    config = Config.model_validate(
        {"vault": {"cold": {"pool": "cold"}}, "backup": {"b": {"source": "tank", "vault": "cold"}}}
    )
    env = Environment.of(config, paths, HostRunner())
    way = env.way(config.backup["b"])
    heard = RecordStore(paths.run / "heard")
    return {
        "state/exposed": lambda: records.exposed.last("b", way),
        "state/places": lambda: records.places.last(0x1F, "tank"),
        "state/progress": lambda: records.progress.get(0x1F),
        "state/condition": lambda: records.conditions.get("cold"),
        "state/replaced": lambda: records.replaced.of("b"),
        "state/unchanged": lambda: records.unchanged.until("b"),
        "state/pools": lambda: records.pools.last(config.vault["cold"]),
        "state/costs": lambda: records.costs._get("cold.0"),
        f"state/{PROOFS_FOLDER}": lambda: KnownProofs(env).noted("b"),
        "run/heard": lambda: (read_positions(heard), list_heard_crashes(heard)),
    }


@pytest.mark.parametrize("odd", [*ODD, "nothing"], ids=repr)
@pytest.mark.parametrize("folder", sorted(list_readers(Path("/nowhere"))))
def test_a_record_of_another_form_is_no_record(tmp_path: Path, folder: str, odd: Any) -> None:
    data = {} if odd == "nothing" else dict.fromkeys(KEYS, odd)
    for name in NAMES:
        file = tmp_path / folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"boot_id": read_boot_id(), "time": 1.0, "data": data}))
    list_readers(tmp_path)[folder]()
