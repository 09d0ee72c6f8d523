"""Devices of somebody else's that a vault's pool needs."""

from __future__ import annotations

import pytest

from zvault.core.integrity.pool_devices import TopVdev, list_foreign_devices

OWN = {"/dev/nbd0", "/dev/nbd1"}
MAIN = TopVdev("/dev/nbd0", "normal", ("/dev/nbd0",))


@pytest.mark.parametrize(
    ("vdev", "foreign"),
    [
        (TopVdev("/dev/sdb", "normal", ("/dev/sdb",)), ["/dev/sdb"]),
        (TopVdev("/dev/sdb", "special", ("/dev/sdb",)), ["/dev/sdb"]),
        (TopVdev("/dev/sdb", "logs", ("/dev/sdb",)), ["/dev/sdb"]),
        (TopVdev("/dev/sdb", "l2cache", ("/dev/sdb",)), []),
        (TopVdev("/dev/sdb", "spares", ("/dev/sdb",)), []),
        (TopVdev("mirror-1", "normal", ("/dev/sdb", "/dev/sda")), ["/dev/sda", "/dev/sdb"]),
        (TopVdev("mirror-1", "normal", ("/dev/sdb", "/dev/nbd1")), []),
        (TopVdev("raidz1-1", "normal", ("/dev/nbd1", "/dev/sdb", "/dev/nbd2")), ["/dev/nbd2", "/dev/sdb"]),
        (TopVdev("raidz2-1", "normal", ("/dev/nbd1", "/dev/sdb", "/dev/nbd2")), []),
        (TopVdev("draid1:2d:3c:0s-1", "normal", ("/dev/nbd1", "/dev/sdb", "/dev/nbd0")), []),
        (TopVdev("indirect-1", "normal", ()), []),
        (TopVdev("/dev/nbd1", "special", ("/dev/nbd1",)), []),
    ],
)
def test_only_what_the_pool_needs_and_the_vault_has_not_is_foreign(vdev: TopVdev, foreign: list[str]) -> None:
    assert list_foreign_devices([MAIN, vdev], OWN) == foreign
