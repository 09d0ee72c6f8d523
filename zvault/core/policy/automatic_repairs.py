"""What zvault repairs without being asked: what it has to know first, and what the repair can make worse. Pure.

docs/reference/automatic-repairs.md is made of this table. Each row names a test in which what has to be known is not
so: nothing is done then. A repair that is added gets a row.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AutomaticRepair:
    """One repair. ``command``: what is run. ``when``: what it is for.

    ``first``: what is known before it. ``worse``: what it makes worse where that is not so. ``often``: how often it may
    be tried. ``person``: when somebody has to act. ``test``: the test of a case in which it must not be done.
    """

    command: str
    when: str
    first: str
    worse: str
    often: str
    person: str
    test: str


IN_PAUSES = "after 5, 10, 20 s, up to every two minutes, and with each run"

AUTOMATIC_REPAIRS = (
    AutomaticRepair(
        "zpool clear",
        "a pool is suspended, or lost a device",
        "the pool has not `multihost=on`; each device answers a read; no label names another host as the last user; "
        "the Ceph pools below it take writes",
        "with `multihost=on` it hangs every zpool command of every pool; after another host it writes over that host's "
        "changes; with a device that does not answer it never ends",
        IN_PAUSES,
        "reboot, where the pool has `multihost=on` or another host had it; else bring the storage back",
        "tests/unit/ops/vaults/test_revive.py::test_a_suspended_pool_with_multihost_on_is_left_as_it_is",
    ),
    AutomaticRepair(
        "zpool clear, before its device is back",
        "ZFS has a device open whose server is gone",
        "the device was disconnected, so nothing that waits for it goes on waiting; with `multihost=on`, the pool was "
        "not suspended within 15 s",
        "before the disconnect it never ends",
        "each 3 s, for 30 s",
        "end the program that has the device open, if one has",
        "tests/unit/ops/vaults/test_revive.py::"
        "test_one_that_has_just_lost_its_device_is_not_cleared_before_it_is_suspended",
    ),
    AutomaticRepair(
        "nbd-client, rbd device map",
        "a device was lost",
        "no other host has had the image or the store since, by its lock, lease, note or epoch",
        "the pool's data in memory would be written over another host's changes",
        IN_PAUSES,
        "reboot, where another host had it",
        "tests/unit/devices/rbd/test_shut_out.py::test_one_that_another_host_has_had_since_is_not",
    ),
    AutomaticRepair(
        "nbd-client -d, rbd device unmap",
        "a vault goes down, or a lost device is cleared away",
        "no pool, file system or layer has the device open exclusively; of NBD, no connection of it lives any more",
        "whoever has it open would have its requests fail",
        "once for each move of the vault",
        "end the program that is named",
        "tests/unit/devices/nbd/test_still_open.py::"
        "test_the_number_is_left_to_them_only_where_nothing_reaches_the_store",
    ),
    AutomaticRepair(
        "discards off (discard_max_bytes = 0)",
        "a trim was under way as the device was lost",
        "`zpool status -t` says that a trim is under way",
        "what is freed is not given back to the store until the vault goes down",
        "once, after a device was lost",
        "make `timeout` longer than the slowest discard before the next trim",
        "tests/unit/ops/vaults/test_revive.py::test_a_trim_that_cost_the_device_is_not_gone_on_with",
    ),
    AutomaticRepair(
        "zpool import -o readonly=on",
        "nothing can be written to the pool",
        "the kernel calls a device read-only, or ZFS says that it can read the pool and not write to it",
        "nothing: no byte of the pool changes",
        "each time the vault comes up",
        "make the store writable, or update OpenZFS",
        "tests/unit/ops/vaults/test_readonly_import.py::test_it_is_imported_as_far_as_that_can_be",
    ),
    AutomaticRepair(
        "zpool import -f",
        "another host had the vault last and did not export it",
        "the vault names several `hosts`, and the other one is shut out of the storage by lease, epoch or blocklist",
        "two hosts that write to one pool destroy it",
        "once a turn",
        "of a vault of one host always: `zvaultctl vault take`",
        "tests/unit/ops/vaults/test_shared_vault.py::test_a_lease_that_changed_hands_is_not_taken",
    ),
    AutomaticRepair(
        "zpool scrub -e, never while something is half received",
        "errors are left of what was half received",
        "nothing is half received in the pool",
        "it crashes the kernel while something is",
        "every few minutes, until the errors are read again",
        "never: the next whole scrub tells too",
        "tests/unit/zfs/repair/test_damage_name_guard.py::"
        "test_none_is_given_while_anything_is_half_received_or_nobody_can_tell",
    ),
    AutomaticRepair(
        "blocks written in their places (heal)",
        'blocks of the vault are damaged, and `heal = "auto"`',
        "the bytes have the checksum of the block pointer; of a weak checksum two hosts have them alike",
        "other bytes would become the backup",
        "once for each damage, and with `zvaultctl heal`",
        "where nobody has the block any more",
        "tests/unit/zfs/repair/test_block_writer.py::"
        "test_what_one_other_host_sends_is_not_believed_for_its_fletcher_sums",
    ),
    AutomaticRepair(
        "zfs receive -A",
        "a stream that broke off cannot be resumed",
        "the resume token names a snapshot that is gone, or ZFS refused the stream for the token",
        "what was received of the stream has to be sent again",
        "once for each token",
        "where the backup may destroy nothing on the vault",
        "tests/unit/core/replication/test_dataset_plan_cases.py::"
        "test_who_may_destroy_nothing_on_the_vault_says_who_can_give_a_stale_token_up",
    ),
)
