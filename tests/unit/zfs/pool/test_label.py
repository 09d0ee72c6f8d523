"""Labels as zdb(8) of OpenZFS 2.3.9 prints them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from zvault.core.errors import Refused
from zvault.system.process.runner import ProcessResult
from zvault.zfs.pool import label as labels_of
from zvault.zfs.pool.label import (
    PartMissing,
    Shrunk,
    is_label_active,
    label_part,
    parse_label_host,
    parse_label_vdev,
    read_vdevs,
    refuse_partial_pool,
    refuse_shrunk_device,
)

LABEL = """------------------------------------
LABEL 0 
------------------------------------
    version: 5000
    name: 'vb'
    state: 1
    pool_guid: 4935537179051349987
    hostid: 34843063
    hostname: 'zvault-lab'
    top_guid: 1742252320500209310
    guid: {guid}
    vdev_children: 2
    vdev_tree:
        type: '{kind}'
        id: {number}
        guid: 1742252320500209310
        children[0]:
            type: 'disk'
            id: 0
"""  # noqa: W291 - so zdb prints it
POOL = 4935537179051349987


class Labels:
    """A host whose devices have these labels."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels

    async def run(self, argv: Sequence[str], **_: object) -> ProcessResult:
        return ProcessResult(tuple(argv), 0, self.labels[argv[-1]], "", 0.0)


def test_a_pool_that_was_not_exported_is_active():
    assert not is_label_active(LABEL)
    assert is_label_active(LABEL.replace("state: 1", "state: 0"))
    assert not is_label_active("failed to unpack label 0\n")


def test_a_labels_host():
    assert parse_label_host(LABEL) == ("zvault-lab", 0x213A9B7)
    assert parse_label_host("failed to unpack label 0\n") is None


@pytest.mark.parametrize("line", ["hostid: 34843063", "pool_guid: 4935537179051349987", "id: 1"])
def test_a_number_of_thousands_of_digits_is_none(line: str):
    text = LABEL.format(guid=1, kind="mirror", number=1).replace(line, line + "0" * 5000)
    assert parse_label_host(text) == (None if "hostid" in line else ("zvault-lab", 0x213A9B7))
    assert parse_label_vdev(text) == ((POOL, 1, "mirror") if "hostid" in line else None)


def test_the_vdev_that_a_device_is_of():
    assert parse_label_vdev(LABEL.format(guid=1, kind="mirror", number=1)) == (POOL, 1, "mirror")
    assert parse_label_vdev("failed to unpack label 0\n") is None


async def test_the_devices_of_each_vdev():
    labels = {
        "/a": LABEL.format(guid=1, kind="mirror", number=0),
        "/b": LABEL.format(guid=2, kind="mirror", number=0),
        "/c": LABEL.format(guid=3, kind="disk", number=1),
    }
    assert await read_vdevs(POOL, ["/c", "/a", "/b"], Labels(labels)) == {1: ["/c"], 0: ["/a", "/b"]}


@pytest.mark.parametrize(
    ("label", "why"),
    [
        ("", "no label of that pool"),
        (LABEL.replace(str(POOL), "7").format(guid=1, kind="disk", number=0), "no label of that pool"),
        (LABEL.format(guid=1, kind="raidz", number=0), "it is part of a raidz"),
    ],
)
async def test_what_must_not_be_written_to(label, why):
    with pytest.raises(Refused, match=why):
        await read_vdevs(POOL, ["/a"], Labels({"/a": label}))


def label(number: int, *, state: int = 1, children: int = 2) -> str:
    text = LABEL.format(guid=number + 5, kind="disk", number=number)
    return text.replace("state: 1", f"state: {state}").replace(
        "vdev_children: 2", f"vdev_children: {children}"
    )


def test_a_label_tells_which_part_of_the_pool_a_device_is():
    assert label_part(label(1), "vb") == (POOL, 1, 2)
    assert label_part(label(1), "another") is None
    assert label_part(label(1, state=2), "vb") is None, "it was destroyed"
    assert label_part("", "vb") is None


async def test_a_pool_of_which_a_part_is_missing_is_told_as_that():
    with pytest.raises(PartMissing, match="devices of it are missing") as told:
        await refuse_partial_pool("vb", ["/a", "/blank"], Labels({"/a": label(0), "/blank": ""}))
    assert "consists of 2 top-level devices, and /a, /blank has 1 of them" in told.value.why


@pytest.mark.parametrize(
    "labels",
    [{"/a": ""}, {"/a": label(0, children=1)}, {"/a": label(0), "/b": label(1)}, {"/a": label(0, state=2)}],
)
async def test_what_has_no_pool_or_all_of_it_is_not(labels: dict[str, str]):
    await refuse_partial_pool("vb", list(labels), Labels(labels))


ASIZE = "        asize: 532152320\n"
"""What 2.3.9 wrote for a device of 512 MiB."""


@pytest.mark.parametrize(
    ("size", "shrunk"), [(400 << 20, True), ((512 << 20) - 512, True), (512 << 20, False), (None, False)]
)
async def test_a_device_that_is_smaller_than_its_pool_needs_is_told(
    monkeypatch: pytest.MonkeyPatch, size: int | None, shrunk: bool
):
    monkeypatch.setattr(labels_of, "find_size", lambda _: size)
    text = label(0).replace("        children[0]", ASIZE + "        children[0]")
    host = Labels({"/dev/nbd0": text})
    if not shrunk:
        await refuse_shrunk_device("vb", ["/dev/nbd0"], host)
        return
    with pytest.raises(Shrunk, match="too small") as told:
        await refuse_shrunk_device("vb", ["/dev/nbd0"], host)
    assert f"{512 << 20} bytes" in told.value.next
