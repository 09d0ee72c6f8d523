"""This host's id, and what zpool's words say of another's. The words are OpenZFS 2.3.9's."""

from pathlib import Path

import pytest

from zvault.core.errors import Busy, Refused
from zvault.zfs.pool.hostid import make_foreign_host_error, read_hostid

LAST = """cannot import 'cold': pool was previously in use from another system.
Last accessed by peer (hostid=badcafe) at Sat Nov 21 22:30:14 2026
The pool can be imported, use 'zpool import -f' to import the pool.
"""


def test_hostid(tmp_path: Path):
    file, parameter = tmp_path / "hostid", tmp_path / "spl_hostid"
    assert read_hostid(file, parameter) == 0
    file.write_bytes(bytes.fromhex("fecaad0b"))
    parameter.write_text("0\n")
    assert read_hostid(file, parameter) == 0x0BADCAFE
    parameter.write_text("305419896\n")
    assert read_hostid(file, parameter) == 0x12345678
    file.write_bytes(bytes(4))
    parameter.write_text("0\n")
    assert read_hostid(file, parameter) == 0


def test_who_had_it_last():
    error = make_foreign_host_error("cold", LAST)
    assert isinstance(error, Refused)
    assert "peer (hostid badcafe), since Sat Nov 21 22:30:14 2026" in error.why
    nameless = make_foreign_host_error("cold", LAST.replace("peer (hostid=badcafe)", " (hostid=0)"))
    assert nameless is not None
    assert "a host without a name (without a hostid)" in nameless.why


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            "cannot import 'cold': pool is imported on peer (hostid: 0xbadcafe)\nExport the pool on the other system",
            Busy,
            "in use on peer (hostid badcafe)",
        ),
        (
            "Cannot import 'cold': pool has the multihost property on and the\nsystem's hostid is not set.",
            Refused,
            "has no hostid",
        ),
    ],
)
def test_multihost(said: str, kind: type[Exception], words: str):
    error = make_foreign_host_error("cold", said)
    assert isinstance(error, kind)
    assert words in str(error)


def test_other_troubles_are_none_of_a_host():
    assert make_foreign_host_error("cold", "cannot import 'cold': no such pool available\n") is None
