"""zvaultctl status and vault: what a person sees at 3 a.m., and what a monitor reads."""

import json
import re
import time

import pytest

from tests.unit.cli.api_documents import HOUR, backup, device, status, store, trouble, vault
from zvault.ops.state.pool_health import PoolCondition

DOWN = {"state": "down", "health": None, "size": None, "allocated": None, "free": None}
LATE = {"lag_seconds": 5 * HOUR, "late": True}


def test_status_when_all_is_well(daemon, ctl):
    daemon.documents["GET /v1/status"] = status(
        backup(), backup("lab", last_result=None, max_lag_seconds=None)
    )
    said = ctl("status")
    assert said.code == 0
    assert said.lines[0] == "all is well: 2 backups, 1 vault"
    assert said.lines[3].split("  ")[0] == "BACKUP"
    assert "next:" not in said.out


def test_what_makes_snapshots_only_is_no_backup(daemon, ctl):
    alone = backup("lab", vault=None, into=None, lag_seconds=None, max_lag_seconds=None, proofs=None)
    daemon.documents["GET /v1/status"] = status(
        backup(), {**alone, "verdict": backup()["verdict"], "snapshot_age_seconds": HOUR}
    )
    said = ctl("status")
    assert said.code == 0
    assert said.lines[0] == "all is well: 1 backup, 1 source with snapshots only, 1 vault"
    (row,) = [line.split() for line in said.lines if line.startswith("lab ")][:1]
    assert row[:5] == ["lab", "-", "ok", "idle", "-"]
    assert any(
        line.startswith("lab makes snapshots only, and backs nothing up: the newest is 1h old")
        for line in said.lines
    )


def test_of_a_shared_vault_it_tells_who_has_it_and_what_another_host_claims(daemon, ctl):
    turn = {
        "waits": "peer has the vault",
        "claimed_by": "peer",
        "claimed_lag": HOUR,
        "own_lag": 50 * HOUR,
        "skipped": 3,
    }
    shared = vault(hosts=["lab", "peer"], held_by="peer")
    daemon.documents["GET /v1/status"] = status(backup(turn=turn), vaults=[shared])
    said = ctl("status").lines
    assert "home waits for its turn: peer has the vault" in said
    assert "home: last run by host peer, as that host says; its lag is 1h by that; 2d 2h as read here" in said
    assert "cold is shared by lab, peer: peer has it" in said


def test_status_tells_what_is_wrong_why_and_what_next(daemon, ctl):
    daemon.documents["GET /v1/status"] = status(
        backup(),
        backup("mail", **LATE, last_result="failed", last_error=trouble()),
        backup(
            "slow",
            late=True,
            lag_seconds=None,
            last_success=None,
            last_run=None,
            last_result=None,
            next_run=None,
        ),
        vaults=[vault(), vault("usb", health="DEGRADED", devices=[device(state="gone", detail="unplugged")])],
        warnings=["the new configuration is not valid"],
    )
    said = ctl("status")
    assert said.code == 1
    assert said.lines[:2] == [
        "1 of 3 backups needs attention: mail failed",
        "1 of 3 backups is not known to be well: slow new",
    ]
    assert said.lines[2:4] == ["1 of 2 vaults needs attention: usb DEGRADED", "zvaultd has 1 warning"]
    assert "warning: the new configuration is not valid" in said.lines
    mail = said.lines[said.lines.index("backup mail: failed") :]
    assert mail[1] == "           lag: 5h, at most 3h is wanted"
    assert "           why: zfs receive: out of space" in mail
    assert "          next: make room" in mail
    slow = said.lines[said.lines.index("backup slow: new") :]
    assert slow[1:4] == [
        "           lag: unknown, at most 3h is wanted",
        "  last success: never",
        "      last run: never",
    ]
    assert "       unknown: never ran: nothing of it is known to be on the vault" in slow
    assert "          next: start it with 'zvaultctl run slow'" in slow
    assert any("cold-0 gone (nbdkit:file /srv/cold.img): unplugged" in line for line in said.lines)


def test_status_warns_while_prune_limit_holds_anything_back(daemon, ctl):
    daemon.documents["GET /v1/status"] = status(backup(held_back=2))
    said = ctl("status")
    assert said.code == 1
    assert said.lines[0] == "1 of 1 backup needs attention: home held-back"
    told = " ".join(line.strip() for line in said.lines)
    assert (
        "allows: prune_limit holds snapshots of 2 datasets back; the next runs prune them, oldest first"
        in told
    )
    assert "next: 'zvaultctl prune home -n --over-limit' shows what is to go; if it is too much, make" in told


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (status(backup()), 0),
        (status(backup(last_result=None)), 0),
        (status(backup(**LATE)), 1),
        (status(backup(lag_seconds=None)), 3),
        (status(backup(lag_seconds=None, last_result=None)), 3),
        (status(backup(lag_seconds=None), backup("mail", **LATE)), 1),
        (status(backup(last_result="failed")), 1),
        (status(backup(last_result="partial")), 1),
        (status(backup(last_result="interrupted")), 1),
        (status(backup(held_back=0)), 0),
        (status(backup(held_back=2)), 1),
        (status(backup(), warnings=["no logind"]), 1),
        (status(vaults=[vault(**DOWN, scrub=PoolCondition(0.0).document())]), 0),
        (status(vaults=[vault(**DOWN)]), 3),
        (status(vaults=[vault(state="partial")]), 1),
        (status(vaults=[vault(state="gone")]), 1),
        (status(vaults=[vault(health="SUSPENDED")]), 1),
        (status(vaults=[vault(error=trouble())]), 1),
    ],
)
def test_the_exit_status_of_status(daemon, ctl, found, code):
    daemon.documents["GET /v1/status"] = found
    assert {ctl("status", *flags).code for flags in ((), ("-H",), ("-j",))} == {code}


def test_status_of_some(daemon, ctl):
    daemon.documents["GET /v1/status"] = status(backup(), backup("mail", **LATE))
    assert ctl("status", "home").code == 0
    assert ctl("status", "mail", "cold").code == 1
    said = ctl("status", "hom")
    assert said.code == 2
    assert "no backup or vault 'hom'" in said.err


RESTORE = {
    "seconds": 22800.0,
    "bytes": 980 << 30,
    "rate": 41.0 * (1 << 20),
    "measured": 1_790_000_000.0 - 3 * 86400,
    "measured_by": "drill",
    "measured_bytes": 1 << 30,
    "told": "6h 20m at 41M/s, by the drill of 3d ago",
}


def test_status_tells_how_long_a_restore_takes_and_by_what(daemon, ctl):
    others = [backup(name) for name in ("a", "b")]
    daemon.documents["GET /v1/status"] = status(
        backup(restore=RESTORE, max_restore_seconds=4 * HOUR), *others
    )
    said = ctl("status")
    header, *rows = said.lines[3:7]
    assert [row[header.index("RESTORE") :].split("  ")[0].strip() for row in rows] == [
        "6h 20m",
        "unknown",
        "unknown",
    ]
    told = [line for line in said.lines if line.startswith("to restore")]
    assert told == [
        "to restore all of home takes 6h 20m at 41M/s, by the drill of 3d ago; at most 4h is wanted"
    ]
    assert ctl("status", "-Hp").cells[0][-2:] == ["22800", "14400"]
    many = [backup(f"b{number}", restore=RESTORE) for number in range(11)]
    daemon.documents["GET /v1/status"] = status(*many)
    assert not [line for line in ctl("status").lines if line.startswith("to restore")]
    assert len([line for line in ctl("status", "b3", "b7").lines if line.startswith("to restore")]) == 2


def test_status_for_scripts(daemon, ctl):
    running = backup(state="running", bytes_done=1 << 20, bytes_total=1 << 21, last_error=trouble())
    daemon.documents["GET /v1/status"] = status(running)
    assert ctl("status", "-Hp").cells == [
        [
            *(
                "backup",
                "home",
                "ok",
                "running",
                "723",
                "10800",
                "1790000000",
                "1790000000",
                "ok",
                "1790003600",
            ),
            *("1048576", "2097152", "the stream broke", "-", "-"),
        ],
        [
            *("vault", "cold", "ok", "up", "coldpool", "ONLINE"),
            *(str(1 << 40), str(1 << 38), str(3 << 38), "home", "-"),
        ],
    ]
    assert "running 50%" in ctl("status").out


def test_what_is_not_known_to_be_proven_is_not_said_to_be_never(daemon, ctl):
    for proofs, said in ((None, "unknown"), ({}, "never")):
        daemon.documents["GET /v1/status"] = status(backup(proofs=proofs))
        header, row = ctl("status").lines[3:5]
        assert row[header.index("PROVEN") :].split()[0] == said


def test_a_run_that_waits_says_since_when_why_and_until_when(daemon, ctl):
    waits = {
        "retry_at": time.time() + 350,
        "retry_since": time.time() - 65,
        "retry_error": trouble(what="no answer"),
    }
    waiting = backup(state="waiting", next_run=None, last_error=trouble(what="long ago"), **waits)
    daemon.documents["GET /v1/status"] = status(waiting)
    said = ctl("status")
    # However slow the test is by then.
    assert re.search(r"   this run: failed 1m \d+s ago \(", said.out)
    assert re.search(r"\), and tries again in 5m( \d+s)? \(", said.out)
    assert "error: no answer" in said.out
    assert "long ago" not in said.out
    assert "next run: by hand only, once this one has ended" in said.out
    assert ctl("status", "-H").cells[0][-3] == "no answer"


def test_of_one_that_is_scheduled_and_whose_next_run_is_not_known_it_is_not_said_that_there_is_none(
    daemon, ctl
):
    daemon.documents["GET /v1/status"] = status(backup(**LATE, scheduled=True, next_run=None))
    assert "next run: not known until its source and vault have been looked at" in ctl("status").out
    daemon.documents["GET /v1/status"] = status(backup(**LATE, scheduled=False, next_run=None))
    assert "next run: by hand only" in ctl("status").out


def test_vault_status(daemon, ctl):
    daemon.documents["GET /v1/vaults"] = {"vaults": [vault(), vault("usb", **DOWN, pinned=True)]}
    said = ctl("vault", "status", "cold")
    assert said.code == 0
    assert said.lines == [
        "      vault: cold",
        "       pool: coldpool",
        "      state: up, pool ONLINE",
        "       size: 1T, 256G allocated, 768G free",
        "    used by: home",
        "  inhibitor: taken 3d 1h ago: sleep waits",
        "",
        "    DEVICE  STATE  SIZE  PATH       SPEC",
        "    cold-0  up       1T  /dev/nbd0  nbdkit:file /srv/cold.img",
    ]
    assert ctl("vault", "status", "-H", "-o", "name,pinned").cells == [["cold", "no"], ["usb", "yes"]]
    assert ctl("vault", "status", "hot").code == 2


def test_vault_up_and_down(daemon, ctl):
    daemon.documents["POST /v1/vaults/cold/up"] = {"vault": vault()}
    daemon.documents["POST /v1/vaults/cold/down"] = {"vault": vault(state="down", health=None)}
    assert (
        ctl("vault", "up", "cold").out
        == "vault cold is up: pool coldpool ONLINE, 1T, 256G allocated, 768G free\n"
    )
    assert ctl("vault", "down", "cold").out == "vault cold is down\n"
    assert ctl("vault", "down", "cold", "-q").out == ""
    assert json.loads(ctl("vault", "up", "cold", "-j").out)["vault"] == vault()


def test_a_vault_that_did_not_come_up_is_a_failure(daemon, ctl):
    daemon.documents["POST /v1/vaults/cold/up"] = {
        "vault": vault(state="partial", error=trouble("device-gone"))
    }
    said = ctl("vault", "up", "cold")
    assert said.code == 1
    assert "next: make room" in said.err


def test_how_a_block_store_fares(daemon, ctl):
    daemon.documents["GET /v1/vaults"] = {"vaults": [vault(devices=[device(store=store())])]}
    said = ctl("vault", "status", "cold")
    assert said.code == 0
    line = "        writeback; 768M of 8G in its journal; 280G live, 312G in the bucket"
    assert line in said.lines
    assert "trouble" not in said.out
    kept = vault(devices=[device(store=store(moments=31, past_bytes=9 << 30))])
    daemon.documents["GET /v1/vaults"] = {"vaults": [kept]}
    assert f"{line}, 9G of it for 31 moments of its past" in ctl("vault", "status", "cold").lines


def test_a_block_store_in_trouble_needs_attention(daemon, ctl):
    troubled = vault(devices=[device(store=store(trouble="the store answers 503, for 4m", fenced=True))])
    daemon.documents["GET /v1/vaults"] = {"vaults": [troubled]}
    said = ctl("vault", "status", "cold")
    assert said.code == 1
    assert "        trouble: the store answers 503, for 4m" in said.lines
    assert "; another writer has it" in said.out
    daemon.documents["GET /v1/status"] = status(vaults=[troubled])
    said = ctl("status")
    assert said.code == 1
    assert said.lines[0] == "1 of 1 vault needs attention: cold troubled"
    assert any(
        "cold-0 up (nbdkit:file /srv/cold.img): the store answers 503, for 4m" in line for line in said.lines
    )


def test_what_a_block_store_could_not_put_away_is_told_of_a_vault_that_is_down(daemon, ctl):
    left = store(ready=False, trouble="3G is not in the bucket, but in its journal")
    down = vault(state="down", health=None, size=None, devices=[device(state="down", path=None, store=left)])
    daemon.documents["GET /v1/vaults"] = {"vaults": [down]}
    said = ctl("vault", "status", "cold")
    assert said.code == 1
    assert "        trouble: 3G is not in the bucket, but in its journal" in said.lines
