"""Which folders are mount points, by the kernel's own list."""

from pathlib import Path

from zvault.system.mount import is_mount_point

LIST = r"""22 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 22 0:26 / /mnt/slow\040disk rw,relatime shared:2 - ext4 /dev/loop0 rw
31 22 0:27 / /mnt/größe rw - autofs systemd-1 rw
32 22 0:28 /below /mnt/bound rw,relatime shared:1 master:4 - ext4 /dev/vda1 rw
"""


def test_what_is_mounted_and_what_is_not(tmp_path: Path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(LIST, encoding="utf-8")
    for there in ("/", "/mnt/slow disk", "/mnt/slow disk/", "/mnt/größe", "/mnt/bound"):
        assert is_mount_point(there, mounts), there
    for none in ("/mnt", "/mnt/slow", "/mnt/slow disk/below", "/below", "/mnt/slow\\040disk"):
        assert not is_mount_point(none, mounts), none


def test_this_host():
    assert is_mount_point("/proc")
    assert not is_mount_point("/proc/self")
