"""What sysfs says of block devices."""

from pathlib import Path

from zvault.system.block_devices import find_size, has_label_link, is_read_only_device, name_whole_device


def test_a_partition_is_known_by_sysfs_and_not_by_its_name(tmp_path: Path) -> None:
    whole = tmp_path / "devices/virtual/block/nbd0"
    (whole / "nbd0p1").mkdir(parents=True)
    (whole / "nbd0p1" / "partition").write_text("1\n")
    links = tmp_path / "class/block"
    links.mkdir(parents=True)
    for target in (whole, whole / "nbd0p1"):
        (links / target.name).symlink_to(target)
    assert name_whole_device("/dev/nbd0p1", tmp_path) == "/dev/nbd0"
    assert name_whole_device("/dev/nbd0", tmp_path) == "/dev/nbd0"
    assert name_whole_device("/srv/nbd0p1", tmp_path) == "/srv/nbd0p1"
    assert name_whole_device("/dev/nbd7p1", tmp_path) == "/dev/nbd7p1"


def test_whether_it_is_read_only_and_its_size(tmp_path: Path) -> None:
    folder = tmp_path / "class/block/nbd0"
    folder.mkdir(parents=True)
    (folder / "size").write_text("2048\n")
    (folder / "ro").write_text("1\n")
    assert is_read_only_device("/dev/nbd0", tmp_path)
    assert find_size("/dev/nbd0", tmp_path) == 1 << 20
    (folder / "ro").write_text("0\n")
    assert not is_read_only_device("/dev/nbd0", tmp_path)
    assert not is_read_only_device("/dev/nbd1", tmp_path)
    assert find_size("/srv/nbd0", tmp_path) is None


def test_a_disk_is_there_while_udev_links_it_by_its_label(tmp_path: Path) -> None:
    disk = tmp_path / "sdb1"
    for label, written in (("usb", "usb"), ("my disk", "my\\x20disk"), ("a-b_c.d:e", "a-b_c.d:e")):
        assert not has_label_link(label, tmp_path)
        (tmp_path / written).symlink_to(disk)
        assert not has_label_link(label, tmp_path), "the link is there yet, and the disk is not"
        disk.touch()
        assert has_label_link(label, tmp_path)
        disk.unlink()
    assert not has_label_link("usb", tmp_path / "none")
