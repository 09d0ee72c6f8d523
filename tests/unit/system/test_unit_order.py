"""The drop-in by which systemd stops zvaultd before what its vaults are reached by."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from zvault.core.errors import ToolFailed
from zvault.system.process.runner import ProcessResult
from zvault.system.system_bus import UnitState
from zvault.system.systemd_units import make_inactive_error
from zvault.system.unit_order import ORDER_DROP_IN, format_order, order_daemon


class Systemd:
    """Runs nothing; counts what it was told to read again."""

    def __init__(self) -> None:
        self.asked: list[Sequence[str]] = []
        self.error: ToolFailed | None = None

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        self.asked.append(argv)
        if self.error is not None:
            raise self.error
        return ProcessResult(tuple(argv), 0, "", "", 0.0)


async def test_it_is_written_once_for_all_units_and_goes_with_the_last(tmp_path: Path) -> None:
    systemd, drop_in = Systemd(), tmp_path / ORDER_DROP_IN
    assert not await order_daemon([], systemd, tmp_path)  # type: ignore[arg-type]
    assert await order_daemon(["wg-quick@wg0.service", "a.service", "a.service"], systemd, tmp_path)  # type: ignore[arg-type]
    assert "\n[Unit]\nAfter=a.service wg-quick@wg0.service\n" in drop_in.read_text()
    assert not await order_daemon(["a.service", "wg-quick@wg0.service"], systemd, tmp_path)  # type: ignore[arg-type]
    assert systemd.asked == [["systemctl", "daemon-reload"]]
    assert await order_daemon([], systemd, tmp_path)  # type: ignore[arg-type]
    assert not drop_in.exists()
    assert len(systemd.asked) == 2


async def test_without_systemd_nothing_is_written(tmp_path: Path) -> None:
    systemd = Systemd()
    assert not await order_daemon(["a.service"], systemd, tmp_path / "none")  # type: ignore[arg-type]
    assert systemd.asked == []


async def test_what_systemd_did_not_read_is_tried_again(tmp_path: Path) -> None:
    systemd = Systemd()
    systemd.error = ToolFailed("systemctl failed", "no answer")
    with pytest.raises(ToolFailed):
        await order_daemon(["a.service"], systemd, tmp_path)  # type: ignore[arg-type]
    systemd.error = None
    assert await order_daemon(["a.service"], systemd, tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("units", [["b.service"], []])
async def test_who_is_killed_before_systemd_has_read_it_has_it_read_later(
    tmp_path: Path, units: list[str]
) -> None:
    """Nothing runs after a kill, so what is on disk then is what the next start finds."""
    systemd, killed = Systemd(), tmp_path / "killed"
    now = tmp_path / "now"
    now.mkdir()
    await order_daemon(["a.service"], systemd, now)  # type: ignore[arg-type]

    class Killed(Systemd):
        async def run(self, argv: Sequence[str], **more: object) -> ProcessResult:
            shutil.copytree(now, killed)
            return await super().run(argv, **more)

    assert await order_daemon(units, Killed(), now)  # type: ignore[arg-type]
    assert await order_daemon(units, systemd, killed)  # type: ignore[arg-type]
    assert not await order_daemon(units, systemd, killed)  # type: ignore[arg-type]
    assert (killed / ORDER_DROP_IN).exists() == bool(units)


def test_it_orders_and_requires_nothing() -> None:
    assert format_order([]) == ""
    assert "Requires" not in format_order(["a.service"]).replace("requires_unit", "")
    assert "Wants" not in format_order(["a.service"])


def test_a_unit_that_is_not_active_is_told_with_what_starts_it() -> None:
    stopped = UnitState("wg-quick@wg0.service", loaded=True, active="inactive", result="", main_pid=0)
    error = make_inactive_error("tcp:nas of vault cold", stopped)
    assert error.what == "wg-quick@wg0.service is inactive, and tcp:nas of vault cold is reached by it"
    assert error.next.startswith("'systemctl start wg-quick@wg0.service'")
    unknown = UnitState("wg.service", loaded=False, active="inactive", result="", main_pid=0)
    assert make_inactive_error("x", unknown).what.startswith("wg.service is unknown to systemd")
