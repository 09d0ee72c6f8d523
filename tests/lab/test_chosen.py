"""What a backup may choose: properties on the vault, whichever way a stream takes and whatever was there before."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import world
from world import World, ctl, events, get, let_root_in_by_ssh, named_at, ok, sh, shell, snapshots, status

from zvault.core.replication.receive_properties import SETTABLE_PROPERTIES

LAB = {"mem": "3G", "timeout": 1200, "in_order": True}

RECORD = "org.zvault:receive-properties"
NOTE = "org.example:note"
STEERS = ("autobackup:offsite", "com.sun:auto-snapshot", "org.znapzend:enabled")
SET = f'set = {{ "{NOTE}" = "false", atime = "off", compression = "zstd-7", checksum = "sha512" }}'
LEFT = 'leave_out = ["recordsize", "org.example:owner"]'
NAMES = ["tank", "tank/a", "tank/vol"]


class Chosen(World):
    """A few small datasets and a volume, with properties of their own; the vault stays up."""

    receive = ""

    def source(self) -> None:
        world.DISK.mkdir(exist_ok=True)
        sh("truncate", "-s", "512M", str(world.DISK / "tank.img"))
        sh("zpool", "create", "-O", "mountpoint=/tank", "tank", str(world.DISK / "tank.img"))
        own = ("recordsize=64K", "checksum=sha256", "org.example:owner=me", f"{NOTE}=true", "compression=lz4")
        sh("zfs", "create", *(word for one in own for word in ("-o", one)), "tank/a")
        sh("zfs", "create", "-o", f"{NOTE}=true", "-V", "16M", "tank/vol")

    def choose(self, receive: str) -> None:
        self.backup_extra = f"receive = {{ {receive} }}" if receive else ""
        self.configure()
        sh("systemctl", "reload", "zvaultd")


@pytest.fixture(scope="module")
def tank() -> Iterator[Chosen]:
    it = Chosen(exclude="[]", delay="", keep="{ source = { last = 2 }, vault = { last = 3 } }")
    it.backup_extra = f"receive = {{ {SET}, {LEFT} }}"
    it.clean()
    it.source()
    it.start()
    ok("vault", "up", "cold")
    yield it
    it.clean()


def run(name: str = "tank") -> str:
    """A run that goes well; its id."""
    time.sleep(1.1)  # a snapshot's name holds whole seconds
    return str(ok("run", "-j", name).json()["run"]["id"])


def said(run_id: str) -> str:
    return "\n".join(str(one.get("text")) for one in events(run_id) if one["event"] in {"message", "warning"})


def source_of(name: str, prop: str) -> str:
    return sh("zfs", "get", "-Hpo", "source", prop, name).strip().partition(" ")[0]


def in_force(name: str) -> bool:
    """Whether a dataset of the vault is as SET and LEFT have it."""
    chosen = {NOTE: "false", "compression": "zstd-7", "checksum": "sha512"}
    volume = get(name, "type") == "volume"
    if not volume:
        chosen["atime"] = "off"
    found = {key: get(name, key) for key in chosen}
    assert get(name, "readonly") == "on"
    left = [source_of(name, key) for key in ("recordsize", "org.example:owner") if not volume or ":" in key]
    return found == chosen and "received" not in left and "local" not in left


def test_every_value_that_is_taken_is_printed_as_it_is_written(tank: Chosen) -> None:
    """So what is in force can be held against what is configured."""
    sh("zfs", "create", "-o", "mountpoint=none", "tank/values")
    unlike = []
    for name, known in SETTABLE_PROPERTIES.items():
        values = re.findall(r"[a-z0-9][a-z0-9,-]*", re.sub(r"\([^)]*\)\?|\([^)]*\)", "", known.values))
        values += {
            "compression": [f"zstd-{level}" for level in range(1, 20)]
            + [f"gzip-{level}" for level in (1, 2, 3, 4, 5, 7, 8, 9)]
            + [f"zstd-fast-{level}" for level in (*range(2, 11), *range(20, 101, 10), 500, 1000)],
            "dedup": [
                f"{sum}{verify}"
                for sum in ("sha256", "sha512", "skein", "blake3")
                for verify in ("", ",verify")
            ],
        }.get(name, [])
        if known.size:
            values += [str(known.size[0]), str(known.size[1])]
        for value in values:
            sh("zfs", "set", f"{name}={value}", "tank/values")
            if (printed := get("tank/values", name)) != value:
                unlike.append((name, value, printed))
    assert unlike == []
    sh("zfs", "destroy", "tank/values")


def test_first_incremental_small_and_resumed(tank: Chosen) -> None:
    run()
    assert [name for name in NAMES if not in_force(f"cold/lab/{name}")] == []

    # A large one goes through programs, a small one through a helper.
    for size in (12 << 20, 4096):
        Path("/tank/a/file").write_bytes(os.urandom(size))
        run()
        assert [name for name in NAMES if not in_force(f"cold/lab/{name}")] == []

    # One that was interrupted before anybody chose anything, and is resumed.
    sh("zfs", "create", "-o", "checksum=sha256", "-o", f"{NOTE}=true", "tank/new")
    Path("/tank/new/file").write_bytes(os.urandom(4 << 20))
    sh("zfs", "snapshot", "tank/new@zvault_2026-01-01T00:00:00Z")
    shell(
        "set +o pipefail; zfs send -L -c -e -p tank/new@zvault_2026-01-01T00:00:00Z | head -c 2000000 |"
        " zfs receive -s -u -x mountpoint cold/lab/tank/new",
        check=False,
    )
    assert get("cold/lab/tank/new", "receive_resume_token").startswith("1-")
    (plan,) = [one for one in events(run()) if one["event"] == "plan"]
    assert {row["dataset"]: row["action"] for row in plan["datasets"]}["tank/new"] == "resume"
    assert in_force("cold/lab/tank/new")
    world.destroy_held("tank/new")
    world.destroy_held("cold/lab/tank/new")


def test_what_is_changed_by_hand_or_by_configuration_is_put_right_with_nothing_to_send(tank: Chosen) -> None:
    run()
    sh("zfs", "set", "compression=off", "cold/lab/tank/a")
    sh("zfs", "inherit", "-S", NOTE, "cold/lab/tank/vol")
    columns = ("-o", "name,property,value,received,source")
    there = sh("zfs", "get", "-Hp", *columns, "all", "tank/a", "cold/lab/tank/a")
    told = said(run())
    # A small stream takes no programs, and brings no properties: what the backup chooses does not change that.
    assert "compression is set to zstd-7" in told, there
    assert f"{NOTE} is set to false" in told
    assert [name for name in NAMES if not in_force(f"cold/lab/{name}")] == []
    assert "is set to" not in said(run()), "twice is once"

    # Without the choice all is as the source has it, but for what never comes from there.
    sh("zfs", "set", "logbias=throughput", "cold/lab/tank/a")
    tank.choose("")
    told = said(run())
    assert "compression is as the source has it" in told
    assert "checksum is as in the dataset above" in told
    for key in ("compression", "recordsize", "org.example:owner", NOTE):
        assert (get("cold/lab/tank/a", key), source_of("cold/lab/tank/a", key)) == (
            get("tank/a", key),
            "received",
        )
    assert get("cold/lab/tank/a", "checksum") == "on"
    assert get("cold/lab/tank/a", "logbias") == "throughput", "what the administrator set stays"
    assert source_of("cold/lab/tank/a", RECORD) not in {"local", "received"}
    tank.choose(f"{SET}, {LEFT}")
    run()
    assert [name for name in NAMES if not in_force(f"cold/lab/{name}")] == []


def seen(name: str) -> set[str]:
    """Those of STEERS that a dataset shows to another tool, set on it or from above."""
    return {prop for prop in STEERS if get(name, prop) != "-"}


def test_what_steers_other_tools_stays_out(tank: Chosen) -> None:
    """In a first stream, a large one, a small one, and where nothing is sent; until it is let in."""
    for prop in STEERS:
        sh("zfs", "set", f"{prop}=true", "tank/a")
    sh("zfs", "create", *(word for prop in STEERS for word in ("-o", f"{prop}=true")), "tank/steered")
    names = ("tank/a", "tank/steered")
    run()  # tank/steered in full, tank/a with properties to bring
    assert [seen(f"cold/lab/{name}") for name in names] == [set(), set()]
    for size in (12 << 20, 4096):
        Path("/tank/a/file").write_bytes(os.urandom(size))
        run()
        assert [seen(f"cold/lab/{name}") for name in names] == [set(), set()]
    # What an older zvault let in goes with the first run of a daemon or a configuration.
    for prop in STEERS:
        sh("zfs", "inherit", "-S", prop, "cold/lab/tank/a")
    sh("zfs", "inherit", RECORD, "cold/lab/tank/a")
    assert seen("cold/lab/tank/a") == set(STEERS)
    tank.choose(f"{SET}, {LEFT}, let_in = ['com.sun:auto-snapshot*']")
    told = said(str(ok("run", "-j", "--no-snapshot", "tank").json()["run"]["id"]))  # nothing is sent
    assert "autobackup:offsite is as in the dataset above" in told
    assert "com.sun:auto-snapshot is as the source has it" in told
    assert [seen(f"cold/lab/{name}") for name in names] == [{"com.sun:auto-snapshot"}] * 2
    tank.choose(f"{SET}, {LEFT}")
    run()
    assert [seen(f"cold/lab/{name}") for name in names] == [set(), set()]
    ok("restore", "tank", f"tank/steered@{snapshots('tank/steered')[-1]}", "tank/steered-back")
    assert seen("tank/steered-back") == set(STEERS), "a restore gives back what the source had"
    for name in ("tank/steered", "tank/steered-back", "cold/lab/tank/steered"):
        world.destroy_held(name)
    for prop in STEERS:
        sh("zfs", "inherit", prop, "tank/a")
    run()


def test_a_source_s_own_record_undoes_nothing(tank: Chosen) -> None:
    sh("zfs", "set", "logbias=throughput", "cold/lab/tank/a")
    sh("zfs", "set", f"{RECORD}=logbias readonly compression", "tank/a")
    tank.choose("")
    run()
    run()
    assert get("cold/lab/tank/a", "logbias") == "throughput"
    assert get("cold/lab/tank/a", "readonly") == "on"
    assert source_of("cold/lab/tank/a", RECORD) != "received"
    sh("zfs", "inherit", RECORD, "tank/a")
    tank.choose(f"{SET}, {LEFT}")
    run()


def test_a_restore_gives_back_what_the_source_had(tank: Chosen) -> None:
    Path("/run/key").write_bytes(os.urandom(32))
    key = ("-o", "encryption=on", "-o", "keyformat=raw", "-o", "keylocation=file:///run/key")
    sh("zfs", "create", *key, "-o", "compression=gzip", "-o", "recordsize=32K", "tank/secret")
    sh("zfs", "set", "org.example:owner=you", "tank/secret")
    run()
    assert in_force("cold/lab/tank/secret")
    for name in ("tank/a", "tank/secret"):
        back = f"{name}-back"
        ok("restore", "tank", f"{name}@{snapshots(name)[-1]}", back)
        for prop in ("compression", "recordsize"):
            assert (name, get(back, prop)) == (name, get(name, prop))
        for prop in (NOTE, "org.example:owner"):
            assert (name, get(back, prop)) == (name, get(name, prop))
        assert source_of(back, RECORD) not in {"local", "received"}
        world.destroy_held(back)
    world.destroy_held("tank/secret")
    world.destroy_held("cold/lab/tank/secret")


def test_snapshots_only(tank: Chosen) -> None:
    """No vault: made and pruned on the source, and nothing says that it backs anything up."""
    sh("zfs", "create", "-p", "tank/lone/below")
    tank.extra = """
[backup.lone]
source = "tank/lone"
snapshots_only = true
snapshot = { prefix = "lone" }
keep = { source = { last = 2 } }
prune_limit = "100%"
"""
    tank.exclude = '["tank/lone", "tank/lone/**"]'
    tank.choose("")
    pools = sh("zpool", "history", "-i", "cold")
    foreseen = ctl("run", "-n", "lone", "-j").json()
    assert (foreseen["vault"], foreseen["snapshotted"]) == (None, ["tank/lone", "tank/lone/below"])
    for _ in range(3):
        run("lone")
    for name in ("tank/lone", "tank/lone/below"):
        assert len(snapshots(name)) == 2
        assert all(one.startswith("lone_") for one in snapshots(name))
    sh("zpool", "sync")
    assert sh("zpool", "history", "-i", "cold") == pools, "no vault was touched"
    (told,) = [one for one in status()["backups"] if one["name"] == "lone"]
    assert (told["vault"], told["lag_seconds"], told["verdict"]["level"]) == (None, None, "ok")
    newest = named_at(snapshots("tank/lone")[-1])
    assert 0 <= told["snapshot_age_seconds"] <= time.time() - newest
    shown = ok("status", "lone").out
    assert "lone makes snapshots only, and backs nothing up: the newest is " in shown
    scraped = world.metrics()
    age = scraped['zvault_backup_snapshot_age_seconds{backup="lone",dataset="tank/lone"}']
    assert 0 <= age <= time.time() - newest
    assert [one for one in scraped if one.startswith("zvault_backup_lag_seconds") and '"lone"' in one] == []
    assert "makes snapshots only" in ok("plan", "lone").out
    for argv in (("verify", "lone"), ("restore", "lone", "tank/lone", "tank/back"), ("find", "lone", "x")):
        refused = ctl(*argv)
        assert refused.code != 0
        assert "has no vault" in refused.err, argv

    # After a restart, and without the history, the pool tells how old they are.
    sh("systemctl", "stop", "zvaultd")
    sh("sh", "-c", "rm -f /var/lib/zvault/history*")
    sh("zfs", "create", "tank/lone/new")
    tank.start()
    world.eventually("a dataset without any is told", lambda: "tank/lone/new" in ok_or_not("status", "lone"))
    run("lone")
    assert ctl("status", "lone").code == 0
    world.destroy_held("tank/lone")
    tank.extra, tank.exclude = "", "[]"
    tank.choose(f"{SET}, {LEFT}")


def test_names_of_ones_own(tank: Chosen) -> None:
    """Snapshots of an older form are sent, counted and pruned beside those of the new one."""
    tank.backup_extra = 'snapshot = { prefix = "mine" }\nprune_limit = "100%"'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    run()
    form = 'form = "-%Y%m%d-%H%M%S", timezone = "Etc/GMT-1"'
    tank.backup_extra = tank.backup_extra.replace("}", f", {form} }}")
    tank.configure()
    sh("systemctl", "reload", "zvaultd")
    for _ in range(2):
        before, began = snapshots("tank/a"), int(time.time())
        (plan,) = [one for one in events(run()) if one["event"] == "plan"]
        assert {row["action"] for row in plan["datasets"]} == {"incremental"}
        (made,) = set(snapshots("tank/a")) - set(before)
        creation = int(get(f"tank/a@{made}", "creation"))
        # In the zone that is an hour ahead of UTC.
        named = datetime.strptime(made, "mine-%Y%m%d-%H%M%S").replace(tzinfo=UTC).timestamp() - 3600
        assert began <= named <= creation
    # keep.source is last = 2: the first, of the older form, went by the rules, on both sides.
    mine = [one for one in snapshots("tank/a") if one.startswith("mine")]
    assert [one for one in mine if "T" in one] == []
    assert len(mine) == 2
    assert snapshots("cold/lab/tank/a")[-2:] == mine
    assert 0 <= status()["backups"][0]["lag_seconds"] <= time.time() - named
    # What could not have been made by a form is not zvault's.
    for name in ("mine-20261321-000000", "mine-today"):
        sh("zfs", "snapshot", f"tank/a@{name}")
    run()
    assert {"mine-20261321-000000", "mine-today"} <= set(snapshots("tank/a"))
    assert not {"mine-20261321-000000", "mine-today"} & set(snapshots("cold/lab/tank/a"))
    for name in ("mine-20261321-000000", "mine-today"):
        sh("zfs", "destroy", f"tank/a@{name}")
    tank.choose(f"{SET}, {LEFT}")


def ok_or_not(*argv: str) -> str:
    done = ctl(*argv)
    return done.out + done.err


@pytest.fixture
def by_ssh() -> Iterator[None]:
    with let_root_in_by_ssh():
        yield


def test_over_ssh(tank: Chosen, by_ssh: None) -> None:
    sh("zfs", "create", "-o", f"{NOTE}=true", "-o", "checksum=sha256", "-o", "recordsize=32K", "tank/far")
    for prop in STEERS:
        sh("zfs", "set", f"{prop}=true", "tank/far")
    tank.exclude = '["tank/far"]'
    tank.extra = f"""
[backup.far]
source = "ssh://root@localhost/tank/far"
vault = "cold"
[backup.far.receive]
{SET}
{LEFT}
"""
    tank.choose("")
    run("far")
    assert in_force("cold/localhost/tank/far")
    assert seen("cold/localhost/tank/far") == set()
    Path("/tank/far/file").write_text("more")
    sh("zfs", "set", "checksum=off", "cold/localhost/tank/far")
    run("far")
    assert in_force("cold/localhost/tank/far")
    assert seen("cold/localhost/tank/far") == set()
