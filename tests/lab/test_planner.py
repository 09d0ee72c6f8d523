"""What may befall datasets on either side: renamed, cloned, promoted, gone, changed on the vault. Real ZFS decides.

Each test looks at contents, at what was sent, and at what is left; nothing here believes what zvault says of itself.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from planner_world import (
    alike,
    guid,
    make,
    names,
    pages,
    plan,
    plan_after_snapshot,
    run,
    said,
    series,
    tank_for_test,  # noqa: F401
    write,
)
from world import (
    destroy_held,
    eventually,
    get,
    named_at,
    ok,
    release_all,
    sh,
    snapshot_hashes,
    snapshots,
    tamper,
)

LAB = {"mem": "4G", "timeout": 2250}
VAULT = "cold/lab/tank"
LITTLE = 1 << 20
"""Bytes: more than increments here have, less than any of the files that must not be sent again."""


def test_what_was_renamed_is_renamed_on_the_vault(tank):
    """Datasets with children, swapped names, a snapshot; nothing is sent again and every file is there."""
    for name in ("tank/a", "tank/a/kid", "tank/b", "tank/deep"):
        make(name)
    tank.start()
    run()
    was = {name: guid(f"cold/lab/{name}") for name in ("tank/a", "tank/a/kid", "tank/b", "tank/deep")}

    sh("zfs", "rename", "tank/a", "tank/t")
    sh("zfs", "rename", "tank/b", "tank/a")
    sh("zfs", "rename", "tank/t", "tank/b")
    make("tank/new")
    sh("zfs", "rename", "tank/deep", "tank/new/deep")
    snapname = snapshots("tank/b/kid")[-1]
    sh("zfs", "rename", f"tank/b/kid@{snapname}", "tank/b/kid@renamed by hand")
    shown = plan()
    assert shown["tank/a"]["changes"] == [
        f"rename {VAULT}/a to {VAULT}/a_zvault-moving: it follows tank/b",
        f"rename {VAULT}/b to {VAULT}/a: it follows tank/a",
    ]
    text = ok("plan", "tank").out
    print(text)
    assert f"first: rename {VAULT}/a to {VAULT}/a_zvault-moving" in text
    _, sent = run()
    print(said())
    assert 2000 << 10 < sent < (2000 << 10) + 2 * LITTLE, "only what is new was sent in full"
    assert f"rename {VAULT}/deep to {VAULT}/new/deep: it follows tank/new/deep" in said()
    assert guid(f"{VAULT}/b") == was["tank/a"]
    assert guid(f"{VAULT}/b/kid") == was["tank/a/kid"]
    assert guid(f"{VAULT}/a") == was["tank/b"]
    assert guid(f"{VAULT}/new/deep") == was["tank/deep"]
    for name in ("tank/a", "tank/b", "tank/b/kid", "tank/new", "tank/new/deep"):
        alike(name)
    assert {row["action"] for row in plan().values()} == {"nothing"}


def test_clones_begin_at_their_origin_and_promoted_ones_go_on(tank):  # noqa: PLR0915 - a story
    """Filesystems, a volume, an encrypted dataset; the way of zfs-promote(8); a base that another took over."""
    key = Path("/run/planner-key")
    key.write_text("a secret of some length")
    for name in ("tank/web", "tank/other"):
        make(name)
    secret = ("-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{key}")
    make("tank/secret", *secret)
    sh("zfs", "create", "-V", "8M", "tank/vol")
    tank.start()
    run()
    for name in ("web", "secret"):
        first = snapshots(f"tank/{name}")[0]
        sh("zfs", "clone", f"tank/{name}@{first}", f"tank/{name}-test")
        write(f"tank/{name}-test", "changed")
    sh("zfs", "clone", f"tank/vol@{snapshots('tank/vol')[0]}", "tank/vol-test")
    sh("zfs", "snapshot", "tank/other@by-hand")
    sh("zfs", "clone", "tank/other@by-hand", "tank/other-test")
    _, sent = run()
    # The vault lacks @by-hand; that clone begins at the one before it.
    for name in ("web", "secret", "vol", "other"):
        origin = f"{VAULT}/{name}@{snapshots(f'tank/{name}')[0]}"
        assert get(f"{VAULT}/{name}-test", "origin") == origin
    assert sent < LITTLE, "nothing was sent again"
    for name in ("tank/web-test", "tank/other-test"):
        alike(name)

    # Replaced by its clone, as zfs-promote(8) shows it; the vault does the same, and goes on.
    for name in ("web", "secret"):
        write(f"tank/{name}", "after")
    run()
    for name in ("web", "secret"):
        sh("zfs", "clone", f"tank/{name}@{snapshots(f'tank/{name}')[1]}", f"tank/{name}-next")
        write(f"tank/{name}-next", "next")
        sh("zfs", "promote", f"tank/{name}-next")
        sh("zfs", "rename", f"tank/{name}", f"tank/{name}-old")
        sh("zfs", "rename", f"tank/{name}-next", f"tank/{name}")
    print(ok("plan", "tank").out)
    _, sent = run()
    print(said())
    assert sent < 2 * LITTLE, "nothing was sent again"
    for name in ("tank/web", "tank/web-old", "tank/web-test"):
        alike(name)
    assert get(f"{VAULT}/web-old", "origin").startswith(f"{VAULT}/web@")
    sh("zfs", "load-key", "-L", f"file://{key}", f"{VAULT}/secret")
    # A promote makes the clone the encryption root, and ZFS wants its key anew.
    sh("zfs", "load-key", "-L", f"file://{key}", "tank/secret", check=False)
    for name in ("tank/secret", "tank/secret-old", "tank/secret-test"):
        alike(name)
    sh("zfs", "unload-key", f"{VAULT}/secret")

    # Its base is another's now, for somebody took all that came after: it is bookmarked first.
    base = snapshots("tank/other")[-1]
    sh("zfs", "clone", f"tank/other@{base}", "tank/taker")
    run()
    last = snapshots("tank/other")[-1]
    for line in sh("zfs", "holds", "-H", f"tank/other@{last}").splitlines():
        sh("zfs", "release", line.split("\t")[1], f"tank/other@{last}")
    for mark in sh("zfs", "list", "-Ht", "bookmark", "-o", "name", "tank/other").splitlines():
        sh("zfs", "destroy", mark)
    sh("zfs", "destroy", f"tank/other@{last}")
    release_all(f"{VAULT}/other")
    sh("zfs", "destroy", f"{VAULT}/other@{last}")
    sh("zfs", "promote", "tank/taker")
    write("tank/other", "more")
    write("tank/taker", "more")
    assert f"share is {base}, which tank/taker owns now" in plan_after_snapshot("tank/other")
    _, sent = run()
    assert sent < 2 * LITTLE
    alike("tank/other")
    alike("tank/taker")
    assert {row["action"] for row in plan().values()} == {"nothing"}


def test_changes_on_the_vault_stop_it_roll_it_back_or_set_it_aside(tank):  # noqa: PLR0915 - a story
    make("tank/a")
    make("tank/a/kid")
    tank.start()
    run()
    # A snapshot made there changes nothing: ZFS goes on over it, and so does zvault.
    sh("zfs", "snapshot", f"{VAULT}/a@mine")
    write("tank/a", "second")
    run()
    assert "mine" in snapshots(f"{VAULT}/a")
    alike("tank/a")

    tamper(f"{VAULT}/a", "with-changes")
    before = snapshots(f"{VAULT}/a")
    run(code=1)
    assert snapshots(f"{VAULT}/a") == before, "nobody told zvault that it may"
    row = plan()["tank/a"]
    print(row)
    assert (row["action"], row["changes"]) == ("conflict", [])
    assert "with-changes, newer than the base" in row["reason"]
    alike("tank/a/kid")

    # Told to, it rolls back; but not over what somebody holds.
    tank.reload(backup_extra='on_conflict = "rollback"')
    sh("zfs", "hold", "me", f"{VAULT}/a@with-changes")
    run(code=1)
    assert "@with-changes is held" in plan()["tank/a"]["reason"]
    assert snapshots(f"{VAULT}/a") == before
    sh("zfs", "release", "me", f"{VAULT}/a@with-changes")
    assert "giving up @with-changes" in plan()["tank/a"]["changes"][0]
    assert snapshots(f"{VAULT}/a") == before, "a plan changes nothing"
    run()
    assert f"roll {VAULT}/a back to @" in said()
    assert "with-changes" not in snapshots(f"{VAULT}/a")
    assert "mine" in snapshots(f"{VAULT}/a"), "what came before the base stays"
    alike("tank/a")

    # Set aside, nothing is given up, nothing is sent again, and what lies below comes back.
    tank.reload(backup_extra='on_conflict = "new-dataset"')
    tamper(f"{VAULT}/a", "with-changes")
    kid = guid(f"{VAULT}/a/kid")
    print(ok("plan", "tank").out)
    _, sent = run()
    print(said())
    assert sent < LITTLE
    alike("tank/a")
    alike("tank/a/kid")
    assert guid(f"{VAULT}/a/kid") == kid
    (aside,) = [name for name in names(VAULT) if "_zvault-conflict-" in name]
    assert snapshots(aside) == ["with-changes"]
    assert "written on the vault" in snapshot_hashes(f"{aside}@with-changes")
    gone = json.loads(ok("list", "-t", "gone", "-j").out)["gone"]
    assert [(row["vault_dataset"], row["state"]) for row in gone] == [(aside, "set aside")]

    # The same with the root: all that lies below comes back, though a run broke off in between.
    tamper(VAULT, "with-changes")
    run()
    alike("tank")
    assert guid(f"{VAULT}/a/kid") == kid
    (beside,) = [name for name in names("cold/lab") if name.rpartition("/")[2].startswith("tank_zvault-")]
    sh("zfs", "rename", "-u", f"{VAULT}/a", f"{beside}/a")
    _, sent = run()
    assert sent < LITTLE
    assert guid(f"{VAULT}/a/kid") == kid

    # Without a base in common no rollback helps.
    destroy_held(f"{VAULT}/a/kid")
    sh("zfs", "create", "-u", "-o", "canmount=off", f"{VAULT}/a/kid")
    sh("zfs", "snapshot", f"{VAULT}/a/kid@unlike")
    _, sent = run()
    assert sent > 2000 << 10
    alike("tank/a/kid")
    assert len([name for name in names(VAULT) if "/kid_zvault-conflict-" in name]) == 1
    assert {row["action"] for row in plan().values()} == {"nothing"}


def test_a_source_that_lost_its_snapshots_has_none_rolled_away(tank):
    """Even told to roll back, zvault gives up nothing that retention keeps: the source may have lost it on purpose."""
    make("tank/a")
    tank.keep, tank.backup_extra = (
        "{ source = { last = 9 }, vault = { last = 9 } }",
        'on_conflict = "rollback"',
    )
    tank.start()
    for number in range(5):
        write("tank/a", f"file {number}")
        run()
    there = snapshots(f"{VAULT}/a")
    assert len(there) == 5
    for name in [f"tank/a@{one}" for one in snapshots("tank/a")[1:]]:
        for line in sh("zfs", "holds", "-H", name).splitlines():
            sh("zfs", "release", line.split("\t")[1], name)
        sh("zfs", "destroy", name)
    for mark in sh("zfs", "list", "-Ht", "bookmark", "-o", "name", "tank/a").splitlines():
        sh("zfs", "destroy", mark)
    write("tank/a", "encrypted by somebody")
    run(code=1)
    assert snapshots(f"{VAULT}/a") == there
    row = plan()["tank/a"]
    print(row)
    assert (row["action"], row["changes"]) == ("conflict", [])
    assert f"it is not rolled back: retention keeps @{there[1]}, which the source has not" in row["reason"]
    alike("tank")

    # What it says helps: renamed, all of it stays, and the next run goes on.
    sh("zfs", "rename", f"{VAULT}/a", f"{VAULT}/a-of-old")
    run()
    alike("tank/a")
    assert snapshots(f"{VAULT}/a-of-old")[-4:] == there[1:]


def test_placeholders_become_real_and_what_is_gone_keeps_its_newest(tank):
    key = Path("/run/planner-key")
    key.write_text("a secret of some length")
    secret = ("-o", "encryption=on", "-o", "keyformat=passphrase", "-o", f"keylocation=file://{key}")
    for name in ("tank/up", "tank/up/low", "tank/gone", "tank/stays"):
        make(name)
    make("tank/enc", *secret)
    make("tank/enc/low")
    tank.exclude = '["tank", "tank/up", "tank/enc"]'
    tank.start()
    run()
    low = guid(f"{VAULT}/up/low")
    assert get(f"{VAULT}/up", "org.zvault:placeholder") == f"{VAULT}/up"
    assert get(f"{VAULT}/up/low", "org.zvault:placeholder") != f"{VAULT}/up/low"
    assert snapshots(f"{VAULT}/up") == snapshots(VAULT) == []

    tank.reload(exclude="[]")
    print(ok("plan", "tank").out)
    run()
    print(said())
    for name in ("tank", "tank/up", "tank/up/low"):
        alike(name)
    assert guid(f"{VAULT}/up/low") == low
    sh("zfs", "load-key", "-L", f"file://{key}", f"{VAULT}/enc")
    alike("tank/enc")
    sh("zfs", "unload-key", f"{VAULT}/enc")
    assert len(snapshots(f"{VAULT}/enc/low")) == 2, "it came back below, and was not sent again"

    # Gone from the source: told, kept as long as nothing says otherwise, and never pruned to nothing.
    for _ in range(3):
        run()
    sh("zfs", "snapshot", f"{VAULT}/gone@mine")
    for one in snapshots("tank/gone"):
        for line in sh("zfs", "holds", "-H", f"tank/gone@{one}").splitlines():
            sh("zfs", "release", line.split("\t")[1], f"tank/gone@{one}")
    sh("zfs", "destroy", "-r", "tank/gone")
    had = snapshots(f"{VAULT}/gone")
    run()
    assert snapshots(f"{VAULT}/gone") == had
    assert f"{VAULT}/gone" in ok("plan", "tank").out
    rows = ok("list", "-t", "gone", "-Hp", "-o", "name,state,vaulted").out.splitlines()
    assert f"{VAULT}/gone\tgone\t{len(had)}" in rows
    tank.reload(
        keep="{ source = { last = 9 }, gone = { within = '1s' } }", backup_extra='prune_limit = "100%"'
    )
    run()
    assert snapshots(f"{VAULT}/gone") == had[-2:], "the newest of ours, and what zvault did not make"
    assert len(snapshots(f"{VAULT}/stays")) > 4


def test_snapshots_that_zvault_did_not_make_and_a_backlog(tank):
    make("tank/a")
    tank.backup_extra = 'also = ["manual-*"]'
    tank.start()
    run()
    for snapname in ("manual-1", "auto-1", "manual-2"):
        sh("zfs", "snapshot", f"tank/a@{snapname}")
        write("tank/a", snapname)
    run()
    there = snapshots(f"{VAULT}/a")
    assert [snapname for snapname in there if not snapname.startswith("zvault_")] == ["manual-1", "manual-2"]
    assert get("tank/a@manual-1", "guid") == get(f"{VAULT}/a@manual-1", "guid")
    # They are nobody's to prune, on neither side.
    tank.reload(
        keep="{ source = { last = 1 }, vault = { last = 1 } }",
        backup_extra='also = ["*"]\nbacklog = "newest"\nprune_limit = "100%"',
    )
    for number in range(3):
        write("tank/a", f"more {number}")
        sh("zfs", "snapshot", f"tank/a@zvault_2026-01-0{number + 1}T00:00:00Z")
        sh("zfs", "snapshot", f"tank/a@extra-{number}")
    run()
    alike("tank/a")
    there = snapshots(f"{VAULT}/a")
    assert [snapname for snapname in there if not snapname.startswith("zvault_")] == ["manual-1", "manual-2"]
    assert len(there) == 3, there
    assert {"manual-1", "auto-1", "manual-2", "extra-0", "extra-2"} <= set(snapshots("tank/a"))


def test_many_datasets_are_one_series_and_come_page_by_page(tank):
    # By name alone "tank/a-b" would come between "tank/a" and what is below that.
    for name in ("tank/a", "tank/a/kid", "tank/a-b", "tank/late", "tank/my files", "tank/z"):
        make(name, kib=100)
    tank.start()
    run()
    (first,) = snapshots("tank/late")
    for name in names("tank"):
        write(name, "second", 100)
    sh("zpool", "sync", "tank")
    tamper(f"{VAULT}/late", "mine")
    eventually("the next second", lambda: int(time.time()) > named_at(first))
    run(code=1)
    second = snapshots("tank/late")[-1]
    assert named_at(second) > named_at(first)
    assert set(series("zvault_backup_lag_seconds")) == set(names("tank"))

    tank.reload(metrics_datasets=str(len(names("tank")) - 1))
    began = time.time()
    paged = pages(3)
    ended = time.time()
    assert [len(page) for page in paged] == [3, 3, 1]
    rows = [row for page in paged for row in page]
    assert sorted(row["dataset"] for row in rows) == sorted(names("tank"))
    lags = {row["dataset"]: row["lag_seconds"] for row in rows}
    late = lags.pop("tank/late")
    assert began - named_at(first) <= late <= ended - named_at(first)
    # Those of a later page are told later.
    assert all(began - named_at(second) <= lag <= ended - named_at(second) for lag in lags.values())
    lag = series("zvault_backup_lag_seconds")
    print(late, lags, lag)
    assert set(lag) == {"*"}
    assert late <= lag["*"] <= time.time() - named_at(first)
    assert series("zvault_backup_pending_snapshots") == {"*": 1}
    assert set(series("zvault_base_age_seconds")) == {"*"}

    # As many datasets as the limit have series of their own again.
    tank.reload(metrics_datasets=str(len(names("tank"))))
    assert set(series("zvault_backup_lag_seconds")) == set(names("tank"))
