"""Small increments within this host: through libzfs_core, in helpers that stay, and without a program for each."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
import world
from world import World, ctl, events, eventually, get, main_pid, ok, sh, snapshots, status

LAB = {"mem": "4G", "timeout": 1500}

UNIT = "zvault-device@cold-0.service"
COUNT = 20
NAMES = [f"tank/d{number:02}" for number in range(COUNT)]
CHILD = "lzc_stream_child.py"


@dataclass
class Many(World):
    """Datasets with little in them."""

    size: str = "512M"
    delay: str = ""
    vault_extra: str = 'create = true\nup = "always"\nstall = "20s"'

    def config_text(self) -> str:
        """Its device waits for longer than the test stops it."""
        return super().config_text().replace('timeout = "20s"', 'timeout = "200s"')

    def source(self) -> None:
        world.make_tank("512M")
        for name in NAMES:
            sh("zfs", "create", name)
        sh("zfs", "create", "-s", "-V", "16M", "-o", "compression=off", "tank/vol")
        sh("zfs", "set", "compression=lz4", "com.example:note=of two words", "quota=200M", NAMES[1])
        self.write()

    def write(self) -> None:
        """16 KiB more in each."""
        for name in NAMES:
            (Path("/") / name / "file").write_bytes(os.urandom(16 << 10))
        self.write_volume(int.from_bytes(os.urandom(4), "big"))


@pytest.fixture(scope="module")
def tank() -> Iterator[Many]:
    it = Many()
    it.clean()
    it.source()
    with programs_told():
        it.start()
        ok("run", "tank")
        check_first_copy(called_since())
        yield it
        it.clean()


def check_first_copy(programs: list[str]) -> None:
    """A stream each, and nothing else for a dataset alone: the parents of all were asked for once."""
    print(*programs, sep="\n")
    sent = [argv for argv in programs if re.match(r"zfs (send|receive)|mbuffer", argv)]
    assert len([argv for argv in sent if argv.startswith("zfs send")]) == COUNT + 2
    others = [argv for argv in programs if argv not in sent]
    alone = {argv for argv in others if len(set(re.findall(r"tank/d\d\d", argv))) == 1}
    assert not alone
    # zvaultd also looks at lags and vaults meanwhile.
    assert len([argv for argv in others if re.fullmatch(r"zfs list -H -o name \S+", argv)]) < 10


def copy(name: str) -> str:
    return f"cold/lab/{name}"


def run(*words: str) -> str:
    """A run that goes well; its id."""
    time.sleep(1.1)  # a snapshot's name holds whole seconds
    return str(ok("run", "-j", "tank", *words).json()["run"]["id"])


def helpers() -> set[int]:
    """The processes that wait for small streams, or have one."""
    found = subprocess.run(["pgrep", "-f", CHILD], capture_output=True, text=True)
    return {int(pid) for pid in found.stdout.split()}


CALLS = Path("/run/zvault-lab-calls")
"""Command lines of the programs that wrap zfs and mbuffer, one a line."""

WRAPPED = {"zfs": "/usr/sbin/zfs", "mbuffer": "/usr/bin/mbuffer"}


@contextmanager
def programs_told() -> Iterator[None]:
    """Have every call of zfs and mbuffer by the daemon written down: they come first on its PATH."""
    wrappers = [Path("/usr/local/sbin") / name for name in WRAPPED]
    for wrapper in wrappers:
        wrapper.write_text(
            f'#!/bin/sh\necho "{wrapper.name} $*" >>{CALLS}\nexec {WRAPPED[wrapper.name]} "$@"\n'
        )
        wrapper.chmod(0o755)
    try:
        yield
    finally:
        for path in (*wrappers, CALLS):
            path.unlink(missing_ok=True)


def called_since(before: int = 0) -> list[str]:
    """The calls so far, without the first ones."""
    return CALLS.read_text().splitlines()[before:]


class Seen:
    """Sees which programs the daemon started while a block ran."""

    def __enter__(self) -> Seen:
        self._before = len(called_since())
        return self

    def __exit__(self, *_: object) -> None:
        self.programs = called_since(self._before)

    def streams(self) -> list[str]:
        return [argv for argv in self.programs if re.match(r"zfs (send|receive)|mbuffer", argv)]


def now() -> str:
    """A snapshot's name of this second, which no other has."""
    time.sleep(1.1)
    return f"zvault_{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


def guids(root: str) -> dict[str, str]:
    out = sh("zfs", "get", "-rHp", "-t", "snapshot", "-o", "name,value", "guid", root)
    pairs = (line.split("\t") for line in out.splitlines())
    return {name.removeprefix(root): guid for name, guid in pairs}


def newest_is_there(name: str) -> None:
    newest = snapshots(name)[-1]
    assert get(f"{name}@{newest}", "guid") == get(f"{copy(name)}@{newest}", "guid")


def properties(name: str) -> dict[str, tuple[str, ...]]:
    """All that is set on a dataset, or came with a stream: value, received value, source."""
    out = sh("zfs", "get", "-Hp", "-o", "property,value,received,source", "all", name)
    rows = (line.split("\t") for line in out.splitlines())
    return {key: tuple(rest) for key, *rest in rows if rest[1] != "-" or rest[2] in {"local", "received"}}


def test_twenty_small_increments_start_no_program_each(tank: Many) -> None:
    tank.write()
    with Seen() as seen:
        run_id = run()
    assert [event for event in events(run_id) if event["event"] == "transfer-finished"]
    assert seen.programs, "it looks often enough to see any"
    assert seen.streams() == []
    assert helpers()
    for name in (*NAMES, "tank/vol"):
        newest_is_there(name)
        newest = snapshots(name)[-1]
        if name != "tank/vol":
            assert world.snapshot_hashes(f"{copy(name)}@{newest}") == world.snapshot_hashes(
                f"{name}@{newest}"
            )
    finished = [event for event in events(run_id) if event["event"] == "transfer-finished"]
    assert all(event["bytes"] > 16 << 10 for event in finished if event["dataset"] in NAMES)


def test_as_many_programs_for_twenty_datasets_as_for_one(tank: Many) -> None:
    def programs() -> list[str]:
        with Seen() as seen:
            run("--no-snapshot")
        return [argv for argv in seen.programs if argv.startswith("zfs ")]

    run()
    tank.write()
    sh("zfs", "snapshot", f"{NAMES[0]}@{now()}")
    one = programs()
    made = now()
    sh("zfs", "snapshot", *(f"{name}@{made}" for name in NAMES))
    twenty = programs()
    for name in NAMES:
        newest_is_there(name)
    print(*one, "--", *twenty, sep="\n")
    # How many there are depends on how often zvaultd looks at lags and vaults meanwhile: often, where the machine is
    # slow. One for each dataset would name each of them alone. What looks between two events may do so with a few, and
    # the first has a snapshot more to be pruned than the others.
    named = [set(re.findall(r"tank/d\d\d", argv)) - {NAMES[0]} for argv in twenty]
    alone = {name for names in named if len(names) == 1 for name in names}
    assert len(alone) < 3, alone
    assert not [argv for argv in twenty if argv.startswith("zfs get") and " all " in argv]


def test_a_record_on_twenty_datasets_is_set_without_programs_and_at_once(tank: Many) -> None:
    record = "org.zvault:source-properties"
    run()
    before = {name: get(copy(name), record) for name in NAMES}
    assert {"none", "quota=209715200"} <= set(before.values())
    for name in NAMES:
        sh("zfs", "inherit", record, copy(name))
    earlier = max(map(int, written(record)), default=0)  # the pool's history forgets its oldest
    with Seen() as seen:
        run("--no-snapshot")
    assert not [argv for argv in seen.programs if argv.startswith("zfs set")]
    assert {name: get(copy(name), record) for name in NAMES} == before
    groups = Counter(group for group in written(record) if int(group) > earlier)
    print(groups)
    assert groups.total() >= COUNT
    assert len(groups) == 1, "they share a transaction group"
    # That was seen by the listing, too: nothing is left to be set.
    with Seen() as seen:
        run("--no-snapshot")
    assert {name: get(copy(name), record) for name in NAMES} == before


def written(record: str) -> list[str]:
    """The transaction group of each time that a property was set in the vault's pool, by the pool's own history."""
    sh("zpool", "sync", "cold")
    found = re.findall(
        r"\[txg:(\d+)\] set cold/lab/\S+ \(\d+\) (\S+?)=", sh("zpool", "history", "-i", "cold")
    )
    return [group for group, name in found if name == record]


def test_properties_are_as_programs_leave_them_and_changed_ones_are_sent(tank: Many) -> None:
    before = {name: properties(copy(name)) for name in (NAMES[0], NAMES[1], "tank/vol")}
    assert before[NAMES[1]]["com.example:note"] == ("of two words", "of two words", "received")
    assert before[NAMES[1]]["readonly"][2] == "local"
    # What somebody set on the vault is set right again, as 'zfs receive -o' does, and nothing else is touched.
    sh("zfs", "set", "readonly=off", "checksum=sha256", copy(NAMES[1]))
    tank.write()
    with Seen() as seen:
        run()
    assert seen.streams() == []
    expected = before[NAMES[1]] | {"checksum": ("sha256", "-", "local")}
    assert properties(copy(NAMES[1])) == expected
    assert {name: properties(copy(name)) for name in (NAMES[0], "tank/vol")} == {
        name: before[name] for name in (NAMES[0], "tank/vol")
    }
    sh("zfs", "inherit", "checksum", copy(NAMES[1]))
    sh("zfs", "inherit", "com.example:note", NAMES[1])
    sh("zfs", "set", "atime=off", NAMES[2])
    tank.write()
    with Seen() as seen:
        run()
    sent = " ".join(argv for argv in seen.streams() if argv.startswith("zfs send"))
    assert NAMES[1] in sent
    assert NAMES[2] in sent
    assert NAMES[3] not in sent
    assert "com.example:note" not in properties(copy(NAMES[1]))
    assert get(copy(NAMES[2]), "atime") == "off"


def test_a_verification_asks_for_words_only_of_what_differs(tank: Many) -> None:
    run()
    with Seen() as seen:
        ok("verify", "tank", "--level", "guids")
    assert not [argv for argv in seen.programs if argv.startswith("zfs get") and " all " in argv]
    sh("zfs", "set", "compression=gzip", NAMES[1])
    with Seen() as seen:
        done = ctl("verify", "tank", "--level", "guids")
    sh("zfs", "set", "compression=lz4", NAMES[1])
    assert done.code == 1, done.out + done.err
    assert f"{NAMES[1]}: property compression: source gzip, vault lz4" in done.out + done.err
    asked = [argv.split(" all ")[1] for argv in seen.programs if " all " in argv]
    assert asked == [NAMES[1], copy(NAMES[1])]


def test_what_a_property_holds_is_compared_as_it_is_stored(tank: Many) -> None:
    odd = "two\nlines, a\ttab\tand ä"
    sh("zfs", "set", f"com.example:odd={odd}", NAMES[4])
    tank.write()
    with Seen() as seen:
        run()
    assert any(NAMES[4] in argv for argv in seen.streams()), "programs bring it"
    tank.write()
    with Seen() as seen:
        run()
    assert seen.streams() == [], "the vault has it"
    sh("zfs", "set", f"com.example:odd={odd}.", NAMES[4])
    tank.write()
    with Seen() as seen:
        run()
    assert [argv for argv in seen.streams() if NAMES[4] in argv]
    assert get(copy(NAMES[4]), "com.example:odd") == get(NAMES[4], "com.example:odd")
    sh("zfs", "inherit", "com.example:odd", NAMES[4])
    tank.write()
    run()
    assert "com.example:odd" not in properties(copy(NAMES[4]))


def test_a_property_of_a_snapshot_comes_with_it(tank: Many) -> None:
    tank.write()
    made = now()
    sh("zfs", "snapshot", f"{NAMES[0]}@{made}")
    sh("zfs", "set", "com.example:of=this", f"{NAMES[0]}@{made}")
    run("--no-snapshot")
    assert get(f"{copy(NAMES[0])}@{made}", "com.example:of") == "this"


def test_several_snapshots_at_once_arrive_each_with_its_guid(tank: Many) -> None:
    for _ in range(3):
        tank.write()
        made = now()
        sh("zfs", "snapshot", *[f"{name}@{made}" for name in NAMES])
    with Seen() as seen:
        run()
    assert seen.streams() == []
    for name in NAMES:
        newest_is_there(name)
        its = guids(copy(name))
        assert all(its[snap] == guid for snap, guid in guids(name).items())


def test_a_helper_that_hangs_is_left_and_replaced(tank: Many) -> None:
    """The vault's server stands still while small streams are received: they are stopped, and the next run goes on."""
    run()
    idle = helpers()
    assert idle
    tank.write()
    time.sleep(1.1)
    sh("systemctl", "kill", "--signal=STOP", UNIT)
    try:
        # Cancelled after 'stall', and left half a minute later: they hang in the kernel, where no signal reaches them.
        done = ctl("run", "-j", "tank", timeout=280)
        assert done.code == 1, done.out + done.err
        assert "stood still" in done.out + done.err
        assert status()["daemon"], "the daemon answers while they hang"
    finally:
        sh("systemctl", "kill", "--signal=CONT", UNIT)
    eventually("what hung to have ended", lambda: not idle & helpers())
    run()
    assert helpers() - idle
    for name in NAMES:
        newest_is_there(name)


def test_a_daemon_that_is_killed_leaves_no_helper_and_the_next_goes_on(tank: Many) -> None:
    tank.write()
    run()
    old = helpers()
    assert old
    tank.write()
    time.sleep(1.1)
    ok("run", "--no-wait", "tank")
    before = main_pid()
    sh("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "zvaultd")
    world.restarted(before)
    eventually("the helpers of before to have ended", lambda: not old & helpers())
    eventually("what was interrupted to be over", lambda: status()["backups"][0]["state"] == "idle")
    run()
    for name in NAMES:
        newest_is_there(name)
