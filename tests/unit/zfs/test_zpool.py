"""The command that makes a pool."""

import pytest

from zvault.zfs.zpool import NewPool, Vdev

HEAD = ["zpool", "create", "-o", "cachefile=none"]


@pytest.mark.parametrize(
    ("vdevs", "words"),
    [
        ([Vdev("data", ("/a",))], "/a"),
        ([Vdev("data", ("/a",)), Vdev("data", ("/b",))], "/a /b"),
        ([Vdev("special", ("/s",)), Vdev("data", ("/a",))], "/a special /s"),
        (
            [Vdev("data", ("/a", "/b")), Vdev("special", ("/s", "/t")), Vdev("data", ("/c", "/d", "/e"))],
            "mirror /a /b mirror /c /d /e special mirror /s /t",
        ),
    ],
)
def test_vdevs(vdevs: list[Vdev], words: str):
    assert NewPool("cold", vdevs, {}, {}).argv() == [*HEAD, "cold", *words.split()]


def test_properties():
    new = NewPool("cold", [Vdev("data", ("/a b",))], {"ashift": "12"}, {"atime": "off"})
    assert new.argv() == [*HEAD, "-o", "ashift=12", "-O", "atime=off", "cold", "/a b"]
