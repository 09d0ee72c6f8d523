"""What 'zvaultctl adopt' says beside its tables."""

from __future__ import annotations

from zvault.api.backups import SteeringDocument
from zvault.cli.verbs.adopt import list_steering_notes


def steering(name: str, tool: str, **places: list[str]) -> SteeringDocument:
    found: SteeringDocument = {
        "property": name, "tool": tool, "source": [], "received": [], "local": [], "above": []
    }  # fmt: skip
    found.update(places)  # type: ignore[typeddict-item]
    return found


def test_properties_of_one_tool_in_the_same_places_are_told_of_together() -> None:
    """znapzend writes eighteen into each plan: what the first run would do was above two screens of them."""
    plan = [steering(f"org.znapzend:{number:02}", "znapzend", source=["tank/data"]) for number in range(18)]
    other = steering("autobackup:a", "zfs-autobackup", source=["tank/data"])
    elsewhere = steering("org.znapzend:x", "znapzend", source=["tank/other"])
    assert list_steering_notes([other, *plan, elsewhere]) == [
        "autobackup:a steers zfs-autobackup:",
        "  set on tank/data: it stays out of the vault, unless 'receive.let_in' names it",
        "org.znapzend:00, org.znapzend:01, org.znapzend:02 and 15 more steer znapzend:",
        "  set on tank/data: they stay out of the vault, unless 'receive.let_in' names them",
        "org.znapzend:x steers znapzend:",
        "  set on tank/other: it stays out of the vault, unless 'receive.let_in' names it",
    ]


def test_what_was_set_by_hand_has_a_command_for_each() -> None:
    two = [steering(name, "syncoid", local=["cold/a", "cold/my mail"]) for name in ("syncoid:a", "syncoid:b")]
    assert list_steering_notes(two) == [
        "syncoid:a, syncoid:b steer syncoid:",
        "  set by hand on cold/a, cold/my mail, where zvault leaves them. To remove them:",
        "    zfs inherit syncoid:a cold/a",
        "    zfs inherit syncoid:a 'cold/my mail'",
        "    zfs inherit syncoid:b cold/a",
        "    zfs inherit syncoid:b 'cold/my mail'",
    ]
