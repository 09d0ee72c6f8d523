"""What steers another tool is known by its name, stays out unless it is let in, and is told of each side."""

from __future__ import annotations

import pytest

from zvault.core.replication.receive_properties import ReceiveProperties
from zvault.core.replication.steering_properties import (
    STEERING_TOOLS,
    SteeringProperty,
    check_let_in,
    find_steered_tool,
    leave_out_steering,
    list_left_out_steering,
    list_steering,
    select_steering,
)


@pytest.mark.parametrize(
    ("name", "tool"),
    [
        ("autobackup:offsite", "zfs-autobackup"),
        ("com.sun:auto-snapshot", "zfs-auto-snapshot"),
        ("com.sun:auto-snapshot:daily", "zfs-auto-snapshot"),
        ("org.znapzend:src_plan", "znapzend"),
        ("org.zrepl.x:placeholder", "zrepl"),
        ("zrepl:placeholder", "zrepl"),
        ("syncoid:sync", "syncoid"),
        ("sanoid:x", "sanoid"),
        ("bzfs.job:x", "bzfs"),
        ("zfs-auto-snapshot:label", "zfs-auto-snapshot"),
        ("org.example:autobackup", ""),
        ("my.autobackup:x", ""),
        ("compression", ""),
        ("bzfs", ""),
    ],
)
def test_by_its_name(name: str, tool: str) -> None:
    assert find_steered_tool(name) == tool
    assert select_steering([name]) == ((name,) if tool else ())


def test_only_what_is_let_in_comes_in() -> None:
    names = ["com.sun:auto-snapshot", "com.sun:auto-snapshot:daily", "autobackup:a", "autobackup:b", "a:b"]
    assert select_steering(names, ["com.sun:auto-snapshot*"]) == ("autobackup:a", "autobackup:b")
    assert select_steering(names, ["autobackup:b", "com.sun:auto-snapshot"]) == (
        "autobackup:a",
        "com.sun:auto-snapshot:daily",
    )
    assert select_steering(names, ["*"]) == ()


@pytest.mark.parametrize("pattern", [*STEERING_TOOLS, "*", "autobackup:offsite", "com.sun:auto-snapshot:*"])
def test_what_may_be_let_in(pattern: str) -> None:
    check_let_in(pattern)


@pytest.mark.parametrize("pattern", ["org.example:x", "mountpoint", "org.zvault:*", "com.sun:*", ""])
def test_nothing_else_may_be_let_in(pattern: str) -> None:
    with pytest.raises(ValueError, match="no property that steers another tool"):
        check_let_in(pattern)


def test_what_a_backup_sets_is_not_left_out() -> None:
    own = ReceiveProperties({"com.sun:auto-snapshot": "false"}, ("a:b",))
    found = leave_out_steering(own, ["com.sun:auto-snapshot", "autobackup:x", "c:d"], [])
    assert (found.values, found.left_out) == (own.values, ("a:b", "autobackup:x"))
    assert leave_out_steering(own, ["autobackup:x"], ["autobackup:*"]) is own


def test_the_record_tells_what_is_left_out() -> None:
    assert list_left_out_steering("-autobackup:x -recordsize -a:b com.sun:auto-snapshot") == ("autobackup:x",)
    assert list_left_out_steering("") == ()


def test_each_side_is_told_apart() -> None:
    here = {"tank": {"autobackup:x": "local", "atime": "local"}, "tank/a": {"autobackup:x": "received"}}
    there = {
        "cold/tank": {"autobackup:x": "received", "syncoid:sync": "local", "bzfs:a": "inherited from cold"},
        "cold/tank/a": {"autobackup:x": "inherited from cold/tank", "bzfs:a": "inherited from cold"},
    }
    assert list_steering(here, there) == [
        SteeringProperty("autobackup:x", "zfs-autobackup", ["tank", "tank/a"], ["cold/tank"]),
        SteeringProperty("bzfs:a", "bzfs", above=["cold"]),
        SteeringProperty("syncoid:sync", "syncoid", local=["cold/tank"]),
    ]
    assert list_steering({}, {"cold": {"a:b": "local"}}) == []


def test_what_a_tool_reads_only_where_it_is_set_is_not_told_of_what_is_below() -> None:
    """Each replica of zrepl's lies below placeholders, and inherits the property that makes them such."""
    there = {"cold/sink/lab/tank": {"zrepl:placeholder": "inherited from cold/sink/lab"}}
    assert list_steering({}, there) == []
    there["cold/sink/lab/tank"]["zrepl:placeholder"] = "local"
    assert list_steering({}, there) == [
        SteeringProperty("zrepl:placeholder", "zrepl", local=["cold/sink/lab/tank"])
    ]
