"""What zvault repairs without being asked: what it has to know first, and what the repair can make worse. Pure.

docs/reference/automatic-repairs.md is made of this table. Each precondition names a test in which it does not hold:
nothing is done then. A repair that is added gets a row.

The repairs of a pool that is imported ask the table itself (``require_known``): what it lists is checked, in its order,
and a precondition that is added there stops the repair until the code has a check for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Precondition:
    """What has to be known before a repair, in words; ``test``: the test of a case in which it is not so."""

    key: str
    says: str
    test: str


@dataclass(frozen=True, slots=True)
class AutomaticRepair:
    """One repair. ``command``: what is run. ``when``: what it is for.

    ``first``: what is known before it. ``worse``: what it makes worse where that is not so. ``often``: how often it may
    be tried. ``person``: when somebody has to act.
    """

    command: str
    when: str
    first: tuple[Precondition, ...]
    worse: str
    often: str
    person: str

    async def require_known(self, checks: Mapping[str, Callable[[], Awaitable[None]]]) -> None:
        """Make the check of each precondition, in the table's order; each raises where what it is for is not so.

        Raises LookupError, and checks nothing, where the checks are not those of the preconditions.
        """
        keys = [one.key for one in self.first]
        if set(keys) != set(checks):
            raise LookupError(
                f"{self.command} needs checks of {', '.join(keys)}, and has {', '.join(checks)}"
            )
        for key in keys:
            await checks[key]()


IN_PAUSES = "after 5, 10, 20 s, up to every two minutes, and with each run"

REVIVE = "tests/unit/ops/vaults/test_clear_suspended_pool.py::"

MULTIHOST_OFF, CUT_OFF, ANSWERS = "multihost-off", "cut-off", "answers"
TAKES_WRITES, OWN, AS_NEW, COPIES = "takes-writes", "own", "as-new", "copies"
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
    "`zpool reopen` each half second for 30 s, `zpool clear` once in these, and only while the kernel keeps the device",
    "end the program that has the device open, if one has; reboot, where a `zpool clear` by hand hangs with it",
)

END_DISCARDS = AutomaticRepair(
    "discards off (discard_max_bytes = 0)",
    "a trim was under way as the device was lost",
    (
        Precondition(
            "trims",
            "`zpool status -t` says that a trim is under way",
            REVIVE + "test_a_trim_that_cost_the_device_is_not_gone_on_with",
        ),
    ),
    "what is freed is not given back to the store until the vault goes down",
    "once, after a device was lost",
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

AUTOMATIC_REPAIRS = (
    CLEAR_POOL,
    CLOSE_DEVICE,
    AutomaticRepair(
        "nbd-client, rbd device map",
        "a device was lost",
        (
            Precondition(
                "own",
                "no other host has had the image or the store since, by its lock, lease, note or epoch",
                "tests/unit/devices/rbd/test_shut_out.py::test_one_that_another_host_has_had_since_is_not",
            ),
        ),
        "the pool's data in memory would be written over another host's changes",
        IN_PAUSES,
        "reboot, where another host had it",
    ),
    AutomaticRepair(
        "nbd-client -d, rbd device unmap",
        "a vault goes down, or a lost device is cleared away",
        (
            Precondition(
                "closed",
                "no pool, file system or layer has the device open exclusively",
                "tests/unit/devices/rbd/test_image_lease.py::test_a_mapping_that_a_pool_has_open_stays",
            ),
            Precondition(
                "no-connection",
                "of NBD, no connection of it lives any more",
                "tests/unit/devices/nbd/test_still_open.py::"
                "test_the_number_is_left_to_them_only_where_nothing_reaches_the_store",
            ),
        ),
        "whoever has it open would have its requests fail",
        "once for each move of the vault",
        "end the program that is named",
    ),
    END_DISCARDS,
    ABANDON_POOL,
    AutomaticRepair(
        "zpool import -o readonly=on",
        "nothing can be written to the pool",
        (
            Precondition(
                "read-only",
                "the kernel calls a device read-only, or ZFS says that it can read the pool and not write to it",
                "tests/unit/ops/vaults/test_readonly_import.py::test_it_is_imported_as_far_as_that_can_be",
            ),
        ),
        "nothing: no byte of the pool changes",
        "each time the vault comes up",
        "make the store writable, or update OpenZFS",
    ),
    AutomaticRepair(
        "zpool import -f",
        "another host had the vault last and did not export it",
        (
            Precondition(
                "hosts",
                "the vault names several `hosts`",
                "tests/unit/ops/vaults/test_readonly_import.py::test_the_pool_of_a_vault_of_one_host_is_not_forced",
            ),
            Precondition(
                "shut-out",
                "the other one is shut out of the storage by lease, epoch or blocklist",
                "tests/unit/ops/vaults/test_shared_vault.py::test_a_lease_that_changed_hands_is_not_taken",
            ),
        ),
        "two hosts that write to one pool destroy it",
        "once a turn",
        "of a vault of one host always: `zvaultctl vault take`",
    ),
    AutomaticRepair(
        "zpool scrub -e, never while something is half received",
        "errors are left of what was half received",
        (
            Precondition(
                "whole",
                "nothing is half received in the pool",
                "tests/unit/zfs/repair/test_damage_name_guard.py::"
                "test_none_is_given_while_anything_is_half_received_or_nobody_can_tell",
            ),
        ),
        "it crashes the kernel while something is",
        "every few minutes, until the errors are read again",
        "never: the next whole scrub tells too",
    ),
    AutomaticRepair(
        "blocks written in their places (heal)",
        'blocks of the vault are damaged, and `heal = "auto"`',
        (
            Precondition(
                "same-sum",
                "the bytes have the checksum of the block pointer",
                "tests/unit/zfs/repair/test_block_writer.py::test_bytes_that_do_not_fit_are_never_written",
            ),
            Precondition(
                "two-hosts",
                "of a weak checksum two hosts have them alike",
                "tests/unit/zfs/repair/test_block_writer.py::"
                "test_what_one_other_host_sends_is_not_believed_for_its_fletcher_sums",
            ),
        ),
        "other bytes would become the backup",
        "once for each damage, and with `zvaultctl heal`",
        "where nobody has the block any more",
    ),
    AutomaticRepair(
        "zfs receive -A",
        "a stream that broke off cannot be resumed",
        (
            Precondition(
                "useless",
                "the resume token names a snapshot that is gone, or ZFS refused the stream for the token",
                "tests/unit/core/replication/test_dataset_plan_cases.py::"
                "test_an_interrupted_receive_is_resumed_and_the_rest_follows",
            ),
            Precondition(
                "may-destroy",
                "the backup may destroy on the vault",
                "tests/unit/core/replication/test_dataset_plan_cases.py::"
                "test_who_may_destroy_nothing_on_the_vault_says_who_can_give_a_stale_token_up",
            ),
        ),
        "what was received of the stream has to be sent again",
        "once for each token",
        "where the backup may destroy nothing on the vault",
    ),
)
