"""Every native property that OpenZFS 2.3 and 2.4 can set comes in with a stream, or is kept out: none is forgotten."""

from __future__ import annotations

import pytest

from zvault.core.replication.receive_properties import (
    COMES_IN,
    KEEP_OUT,
    SET_HERE,
    SETTABLE_PROPERTIES,
    UNRECEIVABLE_PROPERTIES,
    VOLUME_KEEP_OUT,
    find_lacking,
    find_unlisted,
    list_excluded_properties,
)
from zvault.zfs.gate.check import REFUSED_PROPERTIES
from zvault.zfs.parse_listing import parse_settable
from zvault.zfs.stream_argv import receive_argv

USAGE = """missing property argument
usage:
\tget [-rHp] [-j [--json-int]] [-d max] [-o "all" | field[,...]]
\t    <"all" | property[,...]> [filesystem|volume|snapshot|bookmark] ...

The following properties are supported:

\tPROPERTY              EDIT  INHERIT   VALUES

\tavailable               NO       NO   <size>
\tencryptionroot          NO       NO   <filesystem | volume>
\taclinherit             YES      YES   discard | noallow | restricted | passthrough | passthrough-x
\tcanmount               YES       NO   on | off | noauto
\tcasesensitivity         NO      YES   sensitive | insensitive | mixed
\tusersecret             YES      YES   on | off
\tuserused@...            NO       NO   <size>
\tuserquota@...          YES       NO   <size> | none
\twritten@<snap>          NO       NO   <size>

Sizes are specified in bytes with standard units such as K, M, G, etc.
"""

# fmt: off
SETTABLE_2_3 = (
    "aclinherit", "aclmode", "acltype", "atime", "canmount", "casesensitivity", "checksum", "compression",
    "context", "copies", "dedup", "defcontext", "devices", "direct", "dnodesize", "encryption", "exec",
    "filesystem_limit", "fscontext", "keylocation", "logbias", "longname", "mlslabel", "mountpoint", "nbmand",
    "normalization", "overlay", "prefetch", "primarycache", "quota", "readonly", "recordsize",
    "redundant_metadata", "refquota", "refreservation", "relatime", "reservation", "rootcontext",
    "secondarycache", "setuid", "sharenfs", "sharesmb", "snapdev", "snapdir", "snapshot_limit",
    "special_small_blocks", "sync", "utf8only", "version", "volblocksize", "volmode", "volsize", "volthreading",
    "vscan", "xattr", "zoned",
)
"""As ``zfs get`` of 2.3.9 lists them: what can be set, or inherited."""

ADDED_2_4 = (
    "defaultgroupobjquota", "defaultgroupquota", "defaultprojectobjquota", "defaultprojectquota",
    "defaultuserobjquota", "defaultuserquota",
)
# fmt: on


def test_what_zfs_can_set_is_read_from_its_usage() -> None:
    assert parse_settable(USAGE) == {"aclinherit", "canmount", "casesensitivity", "usersecret"}
    assert parse_settable("") == set()


@pytest.mark.parametrize("name", [*SETTABLE_2_3, *ADDED_2_4])
def test_each_is_in_one_list_only(name: str) -> None:
    lists = [COMES_IN, {*KEEP_OUT, *VOLUME_KEEP_OUT}, SET_HERE, UNRECEIVABLE_PROPERTIES]
    assert sum(name in one for one in lists) == 1, name


def test_what_no_list_has_is_kept_out() -> None:
    assert find_unlisted(SETTABLE_2_3) == ()
    assert find_unlisted({*SETTABLE_2_3, *ADDED_2_4, "usersecret"}) == ("usersecret",)
    argv = receive_argv("cold/a", "filesystem", unlisted=("usersecret",))
    assert argv[argv.index("usersecret") - 1] == "-x"


def test_the_gate_refuses_what_zfs_receive_cannot_leave_out() -> None:
    assert UNRECEIVABLE_PROPERTIES.keys() == REFUSED_PROPERTIES


def test_what_would_show_or_stop_a_dataset_never_comes_in() -> None:
    dangerous = {
        *("snapdev", "zoned", "context", "fscontext", "defcontext", "rootcontext"),
        *("filesystem_limit", "snapshot_limit", "mountpoint", "sharenfs", "sharesmb", "volmode"),
    }
    assert dangerous <= {*list_excluded_properties("filesystem")}
    applies = dangerous - {"zoned", "filesystem_limit", "mountpoint", "sharenfs", "sharesmb", "volmode"}
    assert applies <= {*list_excluded_properties("volume")}
    assert not dangerous & SETTABLE_PROPERTIES.keys()


def test_what_a_zfs_does_not_have_it_is_not_told_to_leave_out() -> None:
    """FreeBSD's calls it ``jailed``, and refuses a receive with ``-x zoned``: nothing could be backed up to one."""
    freebsd = {*SETTABLE_2_3, "jailed"} - {"zoned"}
    assert find_lacking(SETTABLE_2_3) == frozenset()
    assert find_lacking(()) == frozenset(), "nothing is known: as on Linux"
    assert find_lacking(freebsd) == {"zoned"}
    assert find_unlisted(freebsd) == ("jailed",)
    argv = receive_argv(
        "cold/a", "filesystem", unlisted=find_unlisted(freebsd), lacking=find_lacking(freebsd)
    )
    assert argv[argv.index("jailed") - 1] == "-x"
    assert "zoned" not in argv
    assert "zoned" in receive_argv("cold/a", "filesystem")
