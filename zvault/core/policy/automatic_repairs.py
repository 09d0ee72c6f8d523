"""What zvault repairs without being asked: what it has to know first, and what the repair can make worse. Pure.

docs/reference/automatic-repairs.md is made of this table. Each precondition names a test in which it does not hold:
nothing is done then. A repair that is added gets a row.

Each repair asks its own row before it does anything: ``require_known`` where the checks ask a device or a pool,
``find_unmet`` where all is known already. What the row lists is checked, in its order, and a precondition that is added
there stops the repair until the code has a check for it. The waits between two tries are the row's, too. A test finds
where each row is asked (tests/unit/core/policy/test_automatic_repairs.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass

from zvault.core.policy.backoff import iterate_delays
from zvault.core.units import format_duration


@dataclass(frozen=True, slots=True)
class Precondition:
    """What has to be known before a repair, in words; ``test``: the test of a case in which it is not so."""

    key: str
    says: str
    test: str


@dataclass(frozen=True, slots=True)
class RepairPace:
    """How often a repair may be tried: ``until`` when, in words.

    ``first`` and ``longest``: seconds between two tries, which double; None where it is tried once. ``within``: seconds
    for all tries together; None where they go on. ``test``: a test in which it would be tried too often.
    """

    until: str
    test: str
    first: float | None = None
    longest: float | None = None
    within: float | None = None

    def iterate_waits(self) -> Iterator[float]:
        """Seconds to wait before each further try. Raises ValueError where there is none."""
        if self.first is None:
            raise ValueError(f"it is tried {self.until}")
        return iterate_delays(self.first, self.longest or self.first)

    def describe(self) -> str:
        """How often, in words."""
        if self.first is None:
            return self.until
        longest = self.longest or self.first
        if longest == self.first:
            words = f"every {format_duration(self.first)}"
        else:
            waits = ", ".join(format_duration(times * self.first) for times in (1, 2, 4))
            words = f"after {waits}, up to every {format_duration(longest)}"
        bound = "" if self.within is None else f" for {format_duration(self.within)}"
        return f"{words}{bound}, {self.until}"


@dataclass(frozen=True, slots=True)
class AutomaticRepair:
    """One repair. ``command``: what is run. ``when``: what it is for.

    ``first``: what is known before it. ``worse``: what it makes worse where that is not so. ``pace``: how often it may
    be tried. ``person``: when somebody has to act.
    """

    command: str
    when: str
    first: tuple[Precondition, ...]
    worse: str
    pace: RepairPace
    person: str

    def find_unmet(self, known: Mapping[str, bool]) -> Precondition | None:
        """The first precondition that does not hold by what is ``known`` of each; None where the repair may go on.

        Raises LookupError where something else is known than the preconditions.
        """
        self._refuse_others(known)
        return next((one for one in self.first if not known[one.key]), None)

    async def require_known(self, checks: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        """Make the check of each precondition, in the table's order; each raises where what it is for is not so.

        Raises LookupError, and checks nothing, where the checks are not those of the preconditions.
        """
        self._refuse_others(checks)
        for one in self.first:
            await checks[one.key]()

    def _refuse_others(self, given: Mapping[str, object]) -> None:
        keys = [one.key for one in self.first]
        if set(keys) != set(given):
            raise LookupError(f"{self.command} needs checks of {', '.join(keys)}, and has {', '.join(given)}")


IN_PAUSES = RepairPace(
    "and with each run",
    "tests/unit/daemon/monitors/test_vault_monitor.py::"
    "test_a_vault_is_not_repaired_again_before_the_pause_is_over",
    5.0,
    120.0,
)
"""The pace of all that a look at a vault repairs (ManagedVault.repair)."""

REVIVE = "tests/unit/ops/vaults/test_clear_suspended_pool.py::"

MULTIHOST_OFF, CUT_OFF, ANSWERS = "multihost-off", "cut-off", "answers"
TAKES_WRITES, OWN, AS_NEW, COPIES = "takes-writes", "own", "as-new", "copies"
CLOSED, NO_CONNECTION, TRIMS, NOT_WRITABLE = "closed", "no-connection", "trims", "not-writable"
HOSTS, SHUT_OUT, WHOLE = "hosts", "shut-out", "whole"
SAME_SUM, TWO_HOSTS = "same-sum", "two-hosts"
USELESS, MAY_DESTROY = "useless", "may-destroy"
"""Preconditions that code checks by their keys."""

CLEAR_POOL = AutomaticRepair(
    "zpool clear",
    "a pool is suspended, or lost a device",
    (
        Precondition(
            MULTIHOST_OFF,
            "the pool has not `multihost=on`",
            REVIVE + "test_a_suspended_pool_with_multihost_on_is_left_as_it_is",
        ),
        Precondition(
            ANSWERS,
            "each device answers a read",
            REVIVE + "test_one_that_stays_as_it_is_is_told_with_what_to_do",
        ),
        Precondition(
            TAKES_WRITES,
            "the Ceph pools below it take writes",
            REVIVE + "test_a_pool_whose_storage_takes_no_writes_is_not_cleared",
        ),
        Precondition(
            OWN,
            "no label names another host as the last user",
            REVIVE + "test_a_pool_that_another_host_had_since_is_not_cleared",
        ),
        Precondition(
            AS_NEW,
            "the devices have the newest transaction group that they had confirmed",
            REVIVE + "test_a_pool_whose_store_went_back_is_not_cleared",
        ),
    ),
    "with `multihost=on` it hangs every zpool command of every pool; after another host it writes over that host's "
    "changes; with a device that does not answer it never ends; over a store that went back it goes on without the "
    "blocks that the store lost",
    IN_PAUSES,
    "reboot, where the pool has `multihost=on`, another host had it, or its store stays older; else bring the storage "
    "back",
)

CLOSE_DEVICE = AutomaticRepair(
    "zpool reopen, or zpool clear where it is suspended, before its device is back",
    "ZFS has a device open whose server is gone",
    (
        Precondition(
            MULTIHOST_OFF,
            "with `multihost=on`, the pool was not suspended within 15 s",
            REVIVE + "test_one_that_has_just_lost_its_device_is_not_cleared_before_it_is_suspended",
        ),
        Precondition(
            CUT_OFF,
            "the device was disconnected, so nothing that waits for it goes on waiting",
            REVIVE + "test_a_pool_whose_device_cannot_be_cut_off_is_not_cleared",
        ),
    ),
    "before the disconnect it never ends; a clear of a pool that is not suspended yet, or a second one, hangs with the "
    "device open, and only a reboot ends that",
    RepairPace(
        "in each try to give the pool its device back, a clear once in these, and only while the device is kept open",
        REVIVE + "test_a_suspended_pool_is_cleared_once_without_its_device",
        0.5,
        within=30.0,
    ),
    "end the program that has the device open, if one has; reboot, where a `zpool clear` by hand hangs with it",
)

END_DISCARDS = AutomaticRepair(
    "discards off (discard_max_bytes = 0)",
    "a trim was under way as the device was lost",
    (
        Precondition(
            TRIMS,
            "`zpool status -t` says that a trim is under way",
            REVIVE + "test_a_trim_that_cost_the_device_is_not_gone_on_with",
        ),
    ),
    "what is freed is not given back to the store until the vault goes down",
    IN_PAUSES,
    "make `timeout` longer than the slowest discard before the next trim",
)

ABANDON_POOL = AutomaticRepair(
    "zpool clear and zpool export, over copies that are thrown away",
    "another host has taken a vault whose pool is still imported here",
    (
        Precondition(
            COPIES,
            "each device that the pool looks for came up as a copy whose writes stay on this host",
            "tests/unit/ops/vaults/test_abandon_pool.py::"
            "test_a_copy_that_is_not_where_the_pool_looks_is_not_used",
        ),
    ),
    "the pool's data in memory would be written over another host's changes",
    IN_PAUSES,
    "end what uses the pool; reboot, if that does not help",
)

RECONNECT_DEVICE = AutomaticRepair(
    "nbd-client, rbd device map",
    "a device was lost",
    (
        Precondition(
            OWN,
            "no other host has had the image or the store since, by its lock, lease, note or epoch",
            "tests/unit/devices/rbd/test_reconnect.py::test_an_image_that_another_host_had_since_is_not_mapped",
        ),
    ),
    "the pool's data in memory would be written over another host's changes",
    IN_PAUSES,
    "reboot, where another host had it",
)

UNMAP_DEVICE = AutomaticRepair(
    "nbd-client -d, rbd device unmap",
    "a vault goes down, or a lost device is cleared away",
    (
        Precondition(
            CLOSED,
            "no pool, file system or layer has the device open exclusively",
            "tests/unit/devices/test_stack_in_use.py::test_a_device_that_is_in_use_stays",
        ),
    ),
    "whoever has it open would have its requests fail",
    IN_PAUSES,
    "export the pool, unmount the file system, or end the program that is named",
)

LEAVE_NUMBER = AutomaticRepair(
    "another number for the device (NBD)",
    "the device was disconnected, and a program that reads it keeps its number",
    (
        Precondition(
            NO_CONNECTION,
            "no connection of it lives any more, or its server is zvault's own and ends next",
            "tests/unit/devices/nbd/test_still_open.py::"
            "test_the_number_is_left_to_them_only_where_nothing_reaches_the_store",
        ),
    ),
    "what the program writes would reach the store beside the pool's writes",
    IN_PAUSES,
    "end the program that is named",
)

IMPORT_READONLY = AutomaticRepair(
    "zpool import -o readonly=on",
    "nothing can be written to the pool",
    (
        Precondition(
            NOT_WRITABLE,
            "the kernel calls a device read-only, or ZFS says that it can read the pool and not write to it",
            "tests/unit/ops/vaults/test_readonly_import.py::test_it_is_imported_as_far_as_that_can_be",
        ),
    ),
    "nothing: no byte of the pool changes",
    IN_PAUSES,
    "make the store writable, or update OpenZFS",
)

FORCE_IMPORT = AutomaticRepair(
    "zpool import -f",
    "another host had the vault last and did not export it",
    (
        Precondition(
            HOSTS,
            "the vault names several `hosts`",
            "tests/unit/ops/vaults/test_readonly_import.py::test_the_pool_of_a_vault_of_one_host_is_not_forced",
        ),
        Precondition(
            SHUT_OUT,
            "the other one is shut out of each device by its lease, epoch or blocklist",
            "tests/unit/ops/vaults/test_readonly_import.py::"
            "test_the_pool_on_a_device_without_a_lease_is_not_forced",
        ),
    ),
    "two hosts that write to one pool destroy it",
    IN_PAUSES,
    "of a vault of one host always: `zvaultctl vault take`",
)

RECHECK_ERRORS = AutomaticRepair(
    "zpool scrub -e, never while something is half received",
    "errors are left of what was half received",
    (
        Precondition(
            WHOLE,
            "nothing is half received in the pool",
            "tests/unit/zfs/repair/test_damage_name_guard.py::"
            "test_none_is_given_while_anything_is_half_received_or_nobody_can_tell",
        ),
    ),
    "it crashes the kernel while something is",
    RepairPace(
        "until the errors have been read again",
        "tests/unit/daemon/monitors/test_scrub_heal_scheduler.py::"
        "test_errors_that_cannot_be_read_again_are_not_tried_before_the_pause_is_over",
        300.0,
    ),
    "never: the next whole scrub tells too",
)

HEAL_BLOCKS = AutomaticRepair(
    "blocks written in their places (heal)",
    'blocks of the vault are damaged, and `heal = "auto"`',
    (
        Precondition(
            SAME_SUM,
            "the bytes have the checksum of the block pointer",
            "tests/unit/zfs/repair/test_block_writer.py::test_bytes_that_do_not_fit_are_never_written",
        ),
        Precondition(
            TWO_HOSTS,
            "of a weak checksum two hosts have them alike",
            "tests/unit/zfs/repair/test_block_writer.py::"
            "test_what_one_other_host_sends_is_not_believed_for_its_fletcher_sums",
        ),
    ),
    "other bytes would become the backup",
    RepairPace(
        "once for each damage, and with `zvaultctl heal`",
        "tests/unit/daemon/monitors/test_scrub_heal_scheduler.py::test_what_a_healing_left_is_not_tried_again",
    ),
    "where nobody has the block any more",
)

GIVE_UP_RECEIVE = AutomaticRepair(
    "zfs receive -A",
    "a stream that broke off cannot be resumed",
    (
        Precondition(
            USELESS,
            "it is known why not: its snapshot is gone, it was begun with other flags, ZFS refused its resume token, or"
            " what came of it is damaged",
            "tests/unit/core/replication/test_dataset_plan_cases.py::"
            "test_an_interrupted_receive_is_resumed_and_the_rest_follows",
        ),
        Precondition(
            MAY_DESTROY,
            "the backup may destroy on the vault",
            "tests/unit/ops/replication/test_apply_changes.py::"
            "test_who_may_destroy_nothing_on_the_vault_gives_no_stream_up",
        ),
    ),
    "what was received of the stream has to be sent again",
    RepairPace(
        "once for each token",
        "tests/lab/test_resume.py::test_what_is_half_received_and_damaged_for_good_is_given_up_once",
    ),
    "where the backup may destroy nothing on the vault",
)

AUTOMATIC_REPAIRS = (
    CLEAR_POOL,
    CLOSE_DEVICE,
    RECONNECT_DEVICE,
    UNMAP_DEVICE,
    LEAVE_NUMBER,
    END_DISCARDS,
    ABANDON_POOL,
    IMPORT_READONLY,
    FORCE_IMPORT,
    RECHECK_ERRORS,
    HEAL_BLOCKS,
    GIVE_UP_RECEIVE,
)
