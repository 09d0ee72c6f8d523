"""How long a restore takes is measured where it is read, told everywhere, and of nothing that came out of memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import World, ctl, events, eventually, metrics, noise, ok, sh, status

LAB = {"mem": "3G", "timeout": 900}

MIB = 1 << 20
BIG = 160


@pytest.fixture
def tank() -> Iterator[World]:
    it = World()
    it.clean()
    it.source()
    noise(Path("/tank/big/more"), BIG)
    it.exclude = '["tank/scratch", "tank/home", "tank/my files", "tank/vol"]'
    it.delay = "filter=delay rdelay=20ms"
    it.backup_extra = 'max_restore = "1s"'
    yield it
    it.clean()


def told() -> dict[str, Any]:
    return dict(status()["backups"][0]["restore"])


def conditions() -> set[str]:
    return {one["condition"] for one in status()["backups"][0]["verdict"]["findings"]}


def reads(run: str) -> list[dict[str, Any]]:
    return [one for one in events(run) if one["event"] == "vault-read"]


def newest(trigger: str) -> str:
    found = json.loads(ctl("history", "-j").out)["runs"]
    return next(str(one["id"]) for one in found if one["trigger"] == trigger)


def drill_until(dataset: str) -> str:
    """Drill until it is the turn of a dataset; the id of that run."""
    for _ in range(3):
        if f"drill: {dataset} came back as" in ok("verify", "tank", "--level", "drill").out:
            return newest("verify")
    raise AssertionError(f"{dataset} was never drilled")


def test_a_drill_tells_how_long_all_of_it_takes(tank: World) -> None:
    tank.start()
    ok("run", "tank")
    held = sum(int(sh("zfs", "list", "-Hpo", "used", name)) for name in ("tank/big",))
    unknown = told()
    assert unknown["bytes"] == pytest.approx(held, rel=0.05), "what it is on the vault is known of the run"
    assert unknown["seconds"] is None
    assert conditions() == {"restore-unknown"}
    assert "time to restore: unknown" in ok("restore", "tank", "tank/big", "tank/back", "-n").out

    run = drill_until("tank/big")
    (read,) = reads(run)
    assert read["bytes"] == pytest.approx((BIG + 24) * MIB, rel=0.1)
    known = told()
    assert known["rate"] == pytest.approx(read["bytes"] / read["seconds"])
    assert known["seconds"] == pytest.approx(known["bytes"] / known["rate"])
    assert (known["measured_by"], known["measured_bytes"]) == ("drill", read["bytes"])
    assert conditions() == {"restore-slow"}, known
    assert metrics()['zvault_backup_restore_seconds{backup="tank"}'] == pytest.approx(known["seconds"])
    assert metrics()['zvault_backup_max_restore_seconds{backup="tank"}'] == 1.0
    said = ctl("status")
    assert said.code == 1
    assert f"to restore all of tank takes {known['told'].partition(' at ')[0]} at " in said.out
    planned = json.loads(ok("restore", "tank", "tank/big", "tank/back", "-nj").out)["plan"]["time"]
    assert planned["seconds"] == pytest.approx(planned["bytes"] / known["rate"])

    sh("systemctl", "restart", "zvaultd")
    eventually("zvaultctl is served", lambda: ctl("status").code != 2)
    assert (told()["rate"], told()["bytes"]) == (known["rate"], known["bytes"])

    # It takes as long as was said: within a half, on a machine that is busy at times.
    ok("restore", "tank", "tank/big", "tank/back", "--no-compare")
    (restored,) = reads(newest("restore"))
    assert restored["seconds"] == pytest.approx(planned["seconds"], rel=0.5)
    assert told()["measured_by"] == "restore"


def test_what_came_out_of_memory_is_no_rate_of_the_vault(tank: World) -> None:
    tank.start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    first = drill_until("tank/big")
    # A send leaves nothing in memory, but takes what others have read (dmu_send.c, ARC_FLAG_CACHED_ONLY).
    ok("verify", "tank", "--level", "full")
    second = drill_until("tank/big")
    (cold,), warm = reads(first), reads(second)
    assert cold["bytes"] > 100 * MIB
    assert sum(one["bytes"] for one in warm) < cold["bytes"] / 2, "most of it was in ZFS's memory"
    ok("vault", "down", "cold")
    ok("verify", "tank", "--level", "full")
    (verified,) = reads(newest("verify"))
    assert (verified["kind"], verified["bytes"] > 100 * MIB) == ("verify", True)
    ok("scrub", "cold")
    (scrubbed,) = reads(newest("scrub"))
    assert (scrubbed["kind"], scrubbed["bytes"] > 100 * MIB) == ("scrub", True)


def most_at_once(run: str) -> int:
    """How many streams of a run were under way at the same time."""
    under_way, most = set[str](), 0
    for one in events(run):
        if one["event"] == "transfer-started":
            under_way.add(one["dataset"])
        elif one["event"] == "transfer-finished":
            under_way.discard(one["dataset"])
        most = max(most, len(under_way))
    return most


def test_datasets_come_back_as_many_at_once_as_the_vault_has_slots(tank: World) -> None:
    Path("/tank/big/more").unlink()
    for number in range(6):
        sh("zfs", "create", f"tank/big/{number}")
        noise(Path(f"/tank/big/{number}/noise"), 8)
    tank.start()
    ok("run", "tank")
    for slots in (4, 2):
        tank.vault_extra = f"create = true\ntransfers = {slots}"
        tank.configure()
        ok("check-config")
        sh("systemctl", "reload", "zvaultd")
        done = ok("restore", "tank", "tank/big", f"tank/back{slots}", "-r")
        assert "the same as in the snapshot" in done.out
        run = newest("restore")
        assert most_at_once(run) == slots
        last = [one for one in events(run) if one["event"] == "transfer-finished"][-1]
        assert last["run_bytes"] == last["run_total"] > 70 * MIB
        sh("zfs", "destroy", "-r", f"tank/back{slots}")
