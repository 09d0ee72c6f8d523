"""Which events make a lag doubtful, and of which backups."""

from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.ops.ops_world import context
from zvault.daemon.pool_watch import PoolWatch
from zvault.ops.context import Context
from zvault.zfs.pool.event_reader import ChangedDatasets

BACKUPS: dict[str, dict[str, Any]] = {
    "home": {"source": "tank/home", "vault": "cold"},
    "far": {"source": "ssh://root@far/tank", "vault": "usb"},
    "but": {"source": "rpool", "vault": "usb", "exclude": ["rpool/docker", "rpool/docker/*"]},
    "made": {"source": "tank/home", "snapshots_only": True},
}


def watched(changed: ChangedDatasets) -> list[str]:
    """The backups that are doubted after a change."""
    where: Context = context()
    config = {
        "daemon": {"timezone": "UTC"},
        "vault": {"cold": {"pool": "cold"}, "usb": {"pool": "usb"}},
        "backup": BACKUPS,
    }
    where.env.config = type(where.env.config).model_validate(config)
    doubted: list[str] = []
    runs: Any = SimpleNamespace(doubt_lag=lambda backup, **_: doubted.append(backup))
    feed: Any = SimpleNamespace(follow=lambda _: None)
    PoolWatch(where, runs, feed).note(changed)
    return doubted


@pytest.mark.parametrize(
    ("changed", "doubted"),
    [
        # A rename, a promotion, an import: of the whole pool nothing is known.
        (ChangedDatasets(pools=["tank"]), ["home"]),
        (ChangedDatasets(pools=["cold"]), ["home"]),
        (ChangedDatasets(pools=["usb"]), ["far", "but"]),
        (ChangedDatasets(pools=["other"]), []),
        # Made anew, destroyed, rolled back.
        (ChangedDatasets(datasets={"tank/home": None}), ["home"]),
        (ChangedDatasets(datasets={"tank/home/ann": None}), ["home"]),
        (ChangedDatasets(datasets={"cold/host/tank/home": None}), ["home"]),
        (ChangedDatasets(datasets={"rpool/home": None}), ["but"]),
        # What is left out moves no lag, and may come and go all day: as the layers of containers do.
        (ChangedDatasets(datasets={"rpool/docker/0123abcd": None, "rpool/docker": None}), []),
        (ChangedDatasets(datasets={"tank": None, "tank/homes": None, "cold/host": None}), []),
        # Snapshots and bookmarks come and go all day.
        (ChangedDatasets(datasets={"tank/home": {"@daily"}, "cold/host/tank/home": {"#"}}), []),
        (ChangedDatasets(datasets={"tank/home": set()}), []),
        # Events were lost where they were had before; where none are had nothing is learned.
        (ChangedDatasets(lost=True, missed=True), ["home", "far", "but"]),
        (ChangedDatasets(lost=True), []),
        (ChangedDatasets(), []),
    ],
)
def test_what_concerns_a_whole_dataset_makes_its_lag_doubtful(
    changed: ChangedDatasets, doubted: list[str]
) -> None:
    assert watched(changed) == doubted
