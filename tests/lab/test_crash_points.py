"""The daemon killed with SIGKILL between any two calls to the world outside, and in the middle of each that changes it.

``crash_at.py`` finds the boundaries by a run that is only watched, then the daemon dies at one after the other. After
each, before anything else happens, every base is still there and protected; the next daemon's run puts all right.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import crash_at
import crash_world
import pytest
import world
from crash_world import Pair, api, bases, history, points, run_now, run_of
from world import DISK, eventually, sh

LAB = {"mem": "3G", "timeout": 2400}

EVERY = bool(os.environ.get("ZVAULT_ALL"))
"""Whether to die at every boundary; else once at each kind of them, whichever dataset it is for."""

HOOKED = Path("/run/hooked")
"""What hooks before make, and hooks after take away."""

PREPARE = r"""
set -eu
release() {
    zfs list -Hrt snapshot -o name "$1" | while read -r snap; do
        zfs holds -H "$snap" | while IFS="$(printf '\t')" read -r name hold rest; do zfs release "$hold" "$name"; done
    done
}
snapname=zvault_$(date -u -d '1 hour ago' +%FT%TZ)

# One dataset is new: it goes in full.
if zfs list 'tank/my new' >/dev/null 2>&1; then
    release 'tank/my new'
    release 'cold/lab/tank/my new'
    zfs destroy -r 'tank/my new'
    zfs destroy -r 'cold/lab/tank/my new'
fi
zfs create 'tank/my new'

# Of one a receive was interrupted; so it was of another, but what that was sending is gone.
for name in half stale; do
    head -c 300000 /dev/urandom >/tank/$name/file
    base=$(zfs list -Ht snapshot -s createtxg -o name tank/$name | tail -n 1)
    zfs snapshot tank/$name@$snapname
    zfs send -i "$base" tank/$name@$snapname | head -c 150000 | zfs receive -s -u cold/lab/tank/$name 2>/dev/null || :
    [ "$(zfs get -Ho value receive_resume_token cold/lab/tank/$name)" != - ]
done
zfs destroy tank/stale@$snapname

for name in home 'my new'; do
    head -c 20000 /dev/urandom >"/tank/$name/file"
done
"""

FORGET = r"""
set -eu
zfs list -Hrt snapshot -o name tank cold/lab | while read -r snap; do
    zfs holds -H "$snap" | while IFS="$(printf '\t')" read -r name hold rest; do zfs release "$hold" "$name"; done
    zfs destroy "$snap"
done
zfs destroy -r cold/lab
zfs list -Hrt bookmark -o name tank | while read -r mark; do zfs destroy "$mark"; done
"""


def kind(point: str) -> str:
    """A boundary, whichever dataset and hook it is for."""
    name = point.partition("\t")[0]
    name = re.sub(r"(tank|cold)(/(my new|[^ @#/]+))*([@#]\w+)?", "DATASET", name)
    name = re.sub(r"DATASET( DATASET)+", "DATASETS", name)
    return re.sub(r"\b(sh )?(run|snapshot)(?=$|/DATASET)", "SCOPE", name)


IN_THE_MIDDLE = re.compile("run: during (snapshot|zfs receive -s|stream in helper|destroy (tank|cold))")
"""Calls to die in the middle of, even where not every boundary has its turn."""


def chosen(found: list[str]) -> list[list[str]]:
    """All boundaries; or one before each kind of call that changes something, and in the middle of the weightiest.

    It is not always the first of a kind, so that every dataset has its turn. Beside it are others of its kind, in case
    it is not reached: how many calls a run needs depends on what was seen when.
    """
    if EVERY:
        return [[point] for point in found]
    kinds = defaultdict(list)
    for point in found:
        twin = point.replace(" before ", " during ")
        changes = (twin != point and twin in found) or re.search("before (lease|history|logind)|after", point)
        if changes or IN_THE_MIDDLE.match(point):
            kinds[kind(point)].append(point)
    return [[points[turn % len(points)], *points[:2]] for turn, points in enumerate(kinds.values())]


class Crashing(Pair):
    """The pair under a daemon that can be killed where one wants."""

    prepare = PREPARE

    def source(self) -> None:
        super().source()
        for name in ("half", "stale"):
            sh("zfs", "create", f"tank/{name}")
        before, after = (json.dumps(["sh", "-c", f"{verb} {HOOKED}.$1", "sh"]) for verb in ("touch", "rm"))
        one = "{{ before = [{}], after = [{}] }}"
        hooks = [one.format(before[:-1] + f', "{n}"]', after[:-1] + f', "{n}"]') for n in ("run", "snapshot")]
        self.backup_extra = f"hooks = {hooks[0]}\nsnapshot = {{ hooks = {hooks[1]} }}\n"

    def start(self) -> None:
        crash_world.drop_in()
        super().start()

    def clean(self) -> None:
        super().clean()
        crash_world.DROP_IN.unlink(missing_ok=True)
        sh("systemctl", "daemon-reload")
        sh("rm", "-rf", str(crash_at.FOLDER))

    def warm(self) -> list[str]:
        """The boundaries of a run that does everything: those before it left enough to prune on both sides."""
        for _ in range(4):
            sh("sh", "-c", "date >/tank/home/now")
            run_now()
            time.sleep(1)
        self.make_ready()
        traced()
        run_now()
        self.is_right()
        found = traced()
        print(*found, sep="\n")
        return found

    def make_ready(self) -> None:
        """Have something for the next run to do."""
        sh("sh", "-c", self.prepare)

    def vault_bases(self) -> dict[str, str]:
        """What is the base of what, shown to be protected."""
        return bases()

    def is_right(self) -> None:
        """After a good run all is on both sides, and nothing is left behind."""
        crash_world.bases_advanced()
        crash_world.same_files()
        assert world.leases() == ["/run/zvault/lease/vault/cold"]
        self.no_hook_is_left()

    def no_hook_is_left(self) -> None:
        """Whatever was opened before is closed after."""
        assert not list(HOOKED.parent.glob(f"{HOOKED.name}*")), "a hook after did not run"
        eventually(world.inhibitors, lambda: not world.inhibitors())

    def crash(self, point: str, then: str = "") -> bool:
        """Die at one boundary of a run, look, start again, see that all comes right; False if it is not reached.

        With ``then`` the next daemon dies, too, while it starts.
        """
        self.make_ready()
        before = self.vault_bases()
        newest = history(1)[0]["id"]
        # The run that made up for the last crash has ended, too: that is no word of this one's end.
        (crash_at.FOLDER / "trace").unlink(missing_ok=True)
        crash_at.arm(point)
        api("POST", "/v1/run/tank")
        if not died(point):
            return False
        assert before.keys() <= self.vault_bases().keys()
        reached = True
        if then:
            crash_at.arm(then)
            sh("systemctl", "start", "zvaultd", check=False)
            if reached := died(then):
                assert before.keys() <= self.vault_bases().keys()
        sh("systemctl", "start", "zvaultd")
        self.comes_right(newest)
        self.is_right()
        return reached

    def comes_right(self, before: str) -> None:
        """The next daemon takes up what was cut off, by itself if it can know of it.

        ``before``: the last run before that one. Whether that one's id was told is a matter of how soon it died.
        """
        new = list(itertools.takewhile(lambda one: one["id"] != before, history()))
        newest, cut = history(1)[0], next((one for one in new if one["trigger"] == "hand"), None)
        if cut is None:
            assert not new, "it died before it wrote down that it began"
            run_now()
        elif cut["result"] == "interrupted":
            assert newest["trigger"] == "catch-up"
            assert run_of(newest["id"])["result"] == "ok", run_of(newest["id"])
            assert "zvaultd was killed" in cut["error"]["why"]
            assert "did not end" in world.journal("BACKUP=tank", "PRIORITY=4")
        else:
            assert cut["result"] == "ok", cut


class OnDevice(Crashing):
    """The same with a vault on an NBD device that is up on demand."""

    prepare = "head -c 20000 /dev/urandom >/tank/home/file"

    def source(self) -> None:
        super().source()
        sh("zpool", "destroy", "cold")

    def config_text(self) -> str:
        plain = 'pool = "cold"\nup = "always"\n'
        device = f'[[vault.cold.device]]\nnbd = "nbdkit:file {DISK}/vault.img"\nsize = "256M"\n'
        return super().config_text().replace(plain, f'pool = "cold"\ncreate = true\n{device}')

    def vault_bases(self) -> dict[str, str]:
        """Only the source can be asked: the vault may be half up. That it shares them is seen later."""
        here, guid = points("tank"), self.guid
        for name, one in here.items():
            assert any(f"zvault:{guid}" in tags for tags in one.holds.values()), f"{name}: {one}"
            assert any(mark.startswith(f"zvault_{guid}_") for marks in one.marks.values() for mark in marks)
        return dict.fromkeys(here, "")

    def is_right(self) -> None:
        world.nothing_left()
        self.no_hook_is_left()
        assert api("POST", "/v1/vaults/cold/up")
        crash_world.bases_advanced()
        crash_world.same_files()
        self.guid = crash_world.vault_guid()
        assert api("POST", "/v1/vaults/cold/down")
        world.nothing_left()


def traced() -> list[str]:
    """The boundaries that were passed since the last time."""
    lines = (crash_at.FOLDER / "trace").read_text().splitlines()
    (crash_at.FOLDER / "trace").unlink()
    return lines


def died(point: str) -> bool:
    """Wait until it did, and systemd has cleared away what it left running; False if it was not reached."""
    gone, trace = crash_at.FOLDER / "died", crash_at.FOLDER / "trace"
    last = f"{point.partition(':')[0]}: after the last call\t1\n"

    def ended() -> bool:
        # It is noted before it dies there: where it is to die at the last one, that note tells nothing.
        passed = f"{point}\n" != last and trace.exists() and trace.read_text().endswith(last)
        return gone.exists() or passed

    eventually(f"death at {point}", ended, seconds=240, every=0.05)
    trace.unlink()
    if not gone.exists():
        (crash_at.FOLDER / "at").unlink()
        return False
    gone.unlink()
    eventually("the end of its children", lambda: world.service("ActiveState") == "failed", every=0.05)
    return True


@pytest.fixture
def tank() -> Iterator[Crashing]:
    it = Crashing()
    it.clean()
    it.source()
    yield it
    it.clean()


def all_of(tank: Crashing, points: list[list[str]], crash: Callable[[str], bool]) -> None:
    """Die at one boundary of each kind; tell of all that went wrong at the end."""
    wrong: dict[str, str] = {}
    missed = []

    def reached(point: str) -> bool:
        began = time.monotonic()
        try:
            return crash(point)
        except AssertionError as error:
            wrong[point] = str(error)
            print(f"WRONG {point}: {error}")
            tank.clean()
            tank.source()
            tank.start()
            tank.warm()
            return True
        finally:
            print(f"{time.monotonic() - began:5.1f} s {point!r}", flush=True)

    for some in points:
        if not any(map(reached, some)):
            missed.append(some)
    print(f"died at {len(points) - len(missed)}; not reached:", missed)
    assert not wrong
    # How many calls a run needs depends on what was seen when; hardly anything else may be missing.
    assert len(missed) <= len(points) // 20 + 1


def all_are_there(found: list[str], least: int, kinds: set[str]) -> None:
    """That there are so many boundaries and all these kinds among them, or the test has shrunk unseen."""
    assert len(found) >= least
    assert not {one for one in kinds if not any(one in point for point in found)}


CHANGES = {
    "snapshot tank",
    "zfs send -vP -t TOKEN",
    "zfs send -vP -L -c -e -p tank",
    "stream in helper: tank",
    "zfs receive -s",
    "zfs receive -A",
    "hold",
    "bookmark",
    "release",
    "destroy_bookmarks",
    "destroy tank",
    "destroy cold",
    "lease put",
    "lease drop",
    "logind",
    "history begin",
    "history end",
    "touch",
    "rm",
}


@pytest.mark.timeout(1500)
def test_a_run_that_does_everything(tank):
    tank.start()
    found = tank.warm()
    all_are_there(found, 100, CHANGES)
    print(f"{len(found)} boundaries of {len({kind(point) for point in found})} kinds")
    all_of(tank, chosen(found), tank.crash)


def test_the_first_run_of_all(tank):
    """Only what the other one does not have: the filesystems above the first dataset."""
    tank.prepare = FORGET
    tank.start()
    run_now()
    tank.is_right()
    found = [point for point in traced() if "zfs create" in point]
    all_are_there(found, 2, {"during zfs create -u"})
    all_of(tank, chosen(found), tank.crash)


@pytest.mark.timeout(900)
def test_a_start_after_a_crash(tank):
    tank.start()
    run = next(point for point in tank.warm() if "before sh -c rm" in point)
    assert tank.crash(run)
    found = [point for point in traced() if point.startswith("start: ")]
    print(*found, sep="\n")
    all_are_there(found, 8, {"before lease put vault/cold", "during sh -c rm"})
    all_of(tank, chosen(found)[:: 1 if EVERY else 2], lambda point: tank.crash(run, then=point))


DEVICE_CHANGES = {
    "during systemctl --quiet start",
    "during systemctl --quiet stop",
    "during zpool import",
    "during zpool export",
    "before lease put device",
    "before lease drop device",
    "before lease drop vault/cold",
}


@pytest.mark.timeout(900)
def test_a_vault_on_a_device():
    """A few boundaries about the device; those of all of its own calls are in test_device_faults.py."""
    tank = OnDevice()
    tank.clean()
    try:
        tank.source()
        tank.start()
        found = tank.warm()
        all_are_there(found, 60, DEVICE_CHANGES)
        device = [point for point in found if re.search("systemctl|zpool|nbd|lease (put|drop)", point)]
        all_of(tank, chosen(device)[:: 1 if EVERY else 4], tank.crash)
    finally:
        tank.clean()
