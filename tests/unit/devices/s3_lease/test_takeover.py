"""Who may take a lease, on a store in memory that keeps to conditions as a real one does."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from zvault.config.tables.device import Device
from zvault.core.errors import Busy, DeviceGone, HeldElsewhere, Refused
from zvault.devices.s3_lease import lease_object as lease_module
from zvault.devices.s3_lease import takeover as takeover_module
from zvault.devices.s3_lease.lease_object import (
    BucketPlace,
    LeaseContent,
    LeaseLost,
    LeaseObject,
    LeaseObjectStore,
    is_own_lease,
)
from zvault.devices.s3_lease.takeover import BootClock, acknowledge_shutout, take_lease, take_lease_over

PLACE = BucketPlace.of(["bucket=zv", "key=cold"])
MINE = LeaseContent("here", "10.0.0.1", "machine-here", "boot-here", 1000.0, 60.0)
THEIRS = LeaseContent("there", "10.0.0.2", "machine-there", "boot-there", 500.0, 60.0)


@dataclass
class Memory:
    """One object and a clock; ``meanwhile`` is what the rest of the world does while somebody sleeps."""

    place: BucketPlace = PLACE
    lease: LeaseContent | None = None
    put_at: float = 0.0
    now: float = 1000.0
    number: int = 0
    meanwhile: Callable[[Memory], None] = lambda _: None
    said: list[str] = field(default_factory=list)

    def read(self) -> LeaseObject | None:
        return (
            None if self.lease is None else LeaseObject(self.lease, str(self.number), self.now - self.put_at)
        )

    def put(self, lease: LeaseContent, etag: str | None) -> str:
        if etag != (None if self.lease is None else str(self.number)):
            raise LeaseLost
        self.number += 1
        self.lease, self.put_at = lease, self.now
        return str(self.number)

    def refuse_without_conditions(self, lease: LeaseContent, *, at_once: bool) -> None:
        assert lease.host

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile(self)

    @property
    def store(self) -> LeaseObjectStore:
        return cast(LeaseObjectStore, self)

    @property
    def clock(self) -> BootClock:
        return BootClock(lambda: self.now, self.sleep)

    def take(self, mine: LeaseContent = MINE, *, resume: bool = False) -> str:
        return take_lease(self.store, mine, resume=resume, say=self.said.append, clock=self.clock)

    def take_over(self, of: LeaseContent = THEIRS) -> str:
        return take_lease_over(self.store, MINE, of.boot, self.said.append, self.clock)


def test_a_lease_is_of_this_host_by_machine_and_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "machine-id").write_text("machine-here\n")
    monkeypatch.setattr(lease_module, "MACHINE_ID", tmp_path / "machine-id")
    monkeypatch.setattr(socket, "gethostname", lambda: "here")
    assert is_own_lease(MINE)
    assert is_own_lease(replace(MINE, boot="the one before"))
    assert not is_own_lease(replace(MINE, machine="another by that name"))
    assert not is_own_lease(replace(MINE, host="there"))
    (tmp_path / "machine-id").unlink()
    assert not is_own_lease(MINE)


@pytest.mark.parametrize("before", [None, replace(THEIRS, held=False), MINE])
def test_it_is_had_where_nobody_else_has_it(before: LeaseContent | None):
    memory = Memory(lease=before)
    memory.take()
    assert memory.lease == MINE


@dataclass
class Unsure(Memory):
    """A store that answers the next put with an error: after somebody else's, after doing it, or doing nothing."""

    fate: str = ""

    def put(self, lease: LeaseContent, etag: str | None) -> str:
        fate, self.fate = self.fate, ""
        if fate == "theirs":
            super().put(THEIRS, etag)
        elif fate == "done":
            super().put(lease, etag)
        if fate:
            raise DeviceGone("the lease cannot be had", "the store answers 500", "try again")
        return super().put(lease, etag)


@pytest.mark.parametrize("before", [None, replace(THEIRS, held=False), MINE])
def test_an_error_while_it_is_put_is_told_by_what_is_there_then(before: LeaseContent | None):
    faster = Unsure(lease=before, fate="theirs")
    with pytest.raises(Busy, match="held by there"):
        faster.take()
    assert faster.lease == THEIRS
    done = Unsure(lease=before, fate="done")
    assert done.take() == str(done.number)
    assert done.lease == MINE
    nothing = Unsure(lease=before, fate="nothing")
    with pytest.raises(DeviceGone, match="cannot be had"):
        nothing.take()
    assert nothing.lease == before


@pytest.mark.parametrize("age", [1.0, 10_000.0])
def test_another_hosts_is_never_taken_unasked_however_old(age: float):
    memory = Memory(lease=THEIRS, put_at=1000.0 - age)
    with pytest.raises(Busy, match="held by there") as caught:
        memory.take()
    assert "there (10.0.0.2) has held it since 1970-01-01 00:08:20 UTC" in caught.value.why
    assert memory.lease == THEIRS


def test_this_hosts_own_from_before_a_reboot_is_outlived():
    before = replace(MINE, boot="boot-before")
    memory = Memory(lease=before, put_at=980.0)
    memory.take()
    assert memory.lease == MINE
    assert memory.now - 980.0 > before.bound


def test_a_host_that_goes_by_the_same_identity_and_lives_is_not_outlived(monkeypatch: pytest.MonkeyPatch):
    def renew(memory: Memory) -> None:
        memory.put(replace(MINE, boot="clone"), str(memory.number))

    monkeypatch.setattr(takeover_module, "is_own_lease", lambda lease: lease.machine == MINE.machine)
    memory = Memory(lease=replace(MINE, boot="clone"), put_at=980.0, meanwhile=renew)
    with pytest.raises(HeldElsewhere, match="another machine with this host's name") as told:
        memory.take()
    assert "a clone of the other" in told.value.why
    assert "zgenhostid -f" in told.value.next
    assert memory.lease is not None
    assert memory.lease.boot == "clone"


@pytest.mark.parametrize("before", [THEIRS, replace(THEIRS, held=False)])
def test_a_pool_that_waits_for_its_device_gets_it_only_if_nobody_had_it(before: LeaseContent):
    with pytest.raises(Refused, match="another's meanwhile"):
        Memory(lease=before).take(resume=True)


@pytest.mark.parametrize("before", [MINE, replace(MINE, held=False)])
def test_a_pool_that_waits_for_its_device_gets_it_if_this_boot_had_it_last(before: LeaseContent):
    own = Memory(lease=before)
    own.take(resume=True)
    assert own.lease == MINE


def test_of_two_at_once_one_wins():
    memory = Memory(lease=THEIRS, put_at=990.0)
    seen = memory.read()
    assert seen is not None
    memory.put(replace(THEIRS, host="third", boot="third"), seen.etag)
    with pytest.raises(LeaseLost):
        memory.put(MINE, seen.etag)


def test_a_takeover_waits_for_the_bound_of_who_says_nothing():
    memory = Memory(lease=THEIRS, put_at=990.0)
    memory.take_over()
    assert memory.now >= 1000.0 + THEIRS.bound
    assert memory.lease == MINE


def test_a_takeover_ends_when_the_other_says_that_it_stopped():
    def notice(memory: Memory) -> None:
        acknowledge_shutout(memory.store, THEIRS)

    memory = Memory(lease=THEIRS, put_at=990.0, meanwhile=notice)
    memory.take_over()
    assert memory.now - 1000.0 < 5
    assert memory.said[-1] == "there has stopped its server, and says so"
    memory.take()
    assert memory.lease == MINE


def test_one_that_has_stopped_by_its_own_rule_is_not_waited_for():
    memory = Memory(lease=THEIRS, put_at=1000.0 - THEIRS.bound - 1)
    memory.take_over()
    assert memory.now == 1000.0
    assert memory.lease == MINE


def test_a_third_takes_over_from_the_second_and_the_first_may_still_write():
    second = replace(THEIRS, shut_out="boot-first", bound=90.0)
    memory = Memory(lease=second, put_at=995.0, meanwhile=lambda it: acknowledge_shutout(it.store, THEIRS))
    memory.take_over()
    assert memory.now >= 1000.0 + second.bound, "the word of one of the two was taken for both"


def test_a_takeover_that_was_not_finished_is_begun_anew_and_serves_nobody_before():
    memory = Memory(lease=replace(MINE, shut_out=THEIRS.boot), put_at=999.0)
    with pytest.raises(Busy, match="not to the end"):
        memory.take()
    memory.take_over(of=MINE)
    assert memory.now >= 1000.0 + MINE.bound
    memory.take()


def test_one_who_is_faster_is_told_of():
    def third(memory: Memory) -> None:
        memory.put(replace(THEIRS, host="third", boot="third"), str(memory.number))

    memory = Memory(lease=THEIRS, put_at=990.0, meanwhile=third)
    with pytest.raises(Busy, match="held by third"):
        memory.take_over()


@pytest.mark.parametrize("age", [10.0, THEIRS.bound + 1])
def test_nobody_is_shut_out_whom_nobody_was_shown(age: float):
    faster = replace(THEIRS, host="third", boot="boot-third")
    memory = Memory(lease=faster, put_at=1000.0 - age)
    with pytest.raises(Busy, match="held by third"):
        memory.take_over()
    assert memory.lease == faster


def test_what_the_object_holds():
    lease = LeaseContent.of_bytes(MINE.as_bytes())
    assert replace(lease, mark="") == MINE
    assert lease.as_bytes() != MINE.as_bytes(), "the same bytes have the same ETag"
    assert str(PLACE) == "s3://zv/cold.lease"


@pytest.mark.parametrize(("nbd", "bound"), [("nbdkit:S3 bucket=b key=k", 300.0), ("nbdkit:file /a", None)])
def test_which_devices_have_one(nbd: str, bound: float | None):
    assert Device.model_validate({"nbd": nbd}).lease_bound == bound
    assert Device.model_validate({"nbd": nbd, "exclusive": False}).lease_bound is None
