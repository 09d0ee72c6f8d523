"""nbdkit's argv and script, and the backing file."""

import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.config.device_specs.nbd import NbdkitServer, parse_nbd
from zvault.core.errors import ToolFailed
from zvault.devices.layer import DeviceSlot
from zvault.devices.nbd.nbdkit import find_first_complaint, has_backing_file, make_backing_file, nbdkit_argv
from zvault.devices.server_unit import DeviceServer, exec_shell_script
from zvault.system.process.runner import HostRunner


def test_command():
    spec = parse_nbd("nbdkit:file /srv/cold.img filter=delay rdelay=35ms filter=rate rate=60M")
    assert isinstance(spec, NbdkitServer)
    assert nbdkit_argv(spec, Path("/run/zvault/device/cold-0.sock")) == [
        "nbdkit",
        "-f",
        "-U",
        "/run/zvault/device/cold-0.sock",
        "--filter=delay",
        "--filter=rate",
        "file",
        "/srv/cold.img",
        "rdelay=35ms",
        "rate=60M",
    ]


def test_the_script_becomes_the_program():
    assert exec_shell_script(["nbdkit", "-f", "/srv/a b"]) == "#!/bin/sh\nexec nbdkit -f '/srv/a b'\n"


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=4))
def test_the_shell_passes_on_every_word_as_it_is(words: list[str]):
    done = subprocess.run(
        ["/bin/sh", "-c", exec_shell_script(["printf", "%s\\0", "first", *words])],
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().split("\0")[:-1] == ["first", *words]


def test_names_that_follow_from_a_slot():
    slot = DeviceSlot("cold.1-a", 3, Path("/run/zvault/device"))
    assert slot.name == "cold.1-a-3"
    assert slot.lease == "device/cold.1-a/3"
    assert slot.server == DeviceServer("cold.1-a-3", Path("/run/zvault/device"))
    assert slot.server.unit == "zvault-device@cold.1-a-3.service"
    assert str(slot.server.script) == "/run/zvault/device/cold.1-a-3"
    assert str(slot.server.socket) == "/run/zvault/device/cold.1-a-3.sock"


def test_the_longest_vaults_socket_fits_into_sun_path():
    assert len(str(DeviceSlot("v" * 64, 999, Path("/run/zvault/device")).server.socket)) <= 107


@given(st.tuples(st.from_regex(r"[a-z0-9-]{1,5}", fullmatch=True), st.integers(0, 99)), st.data())
def test_no_two_slots_share_a_name(first: tuple[str, int], data: st.DataObject):
    second = data.draw(st.tuples(st.from_regex(r"[a-z0-9-]{1,5}", fullmatch=True), st.integers(0, 99)))
    same = DeviceSlot(*first, Path("/")).name == DeviceSlot(*second, Path("/")).name
    assert same == (first == second)


def test_first_complaint():
    text = 'nbdkit: error: cannot open plugin "x"\n\nTo add this functionality you might need to install\n'
    assert find_first_complaint(text) == 'cannot open plugin "x"'
    assert find_first_complaint("\n") == "it gave no reason"


@pytest.mark.parametrize("name", ["cold.img", "a 'b' \"c\" $d ü", "-rf"])
async def test_a_backing_file_is_made_sparse_and_private(tmp_path: Path, name: str):
    path = tmp_path / name
    await make_backing_file(str(path), 10 << 30, HostRunner())
    assert path.stat().st_size == 10 << 30
    assert path.stat().st_blocks == 0
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_backing_file_with_content_is_left_as_it_is(tmp_path: Path):
    path = tmp_path / "cold.img"
    path.write_text("something")
    path.chmod(0o640)
    await make_backing_file(str(path), 1 << 30, HostRunner())
    assert path.read_text() == "something"
    assert path.stat().st_mode & 0o777 == 0o640
    # Empty is what an interrupted start leaves.
    path.write_text("")
    await make_backing_file(str(path), 1 << 20, HostRunner())
    assert path.stat().st_size == 1 << 20


async def test_whether_there_is_a_backing_file(tmp_path: Path):
    path = tmp_path / "a 'b' $c"
    assert not await has_backing_file(str(path), HostRunner())
    path.touch()
    assert not await has_backing_file(str(path), HostRunner()), "an empty one is none"
    path.write_text("x")
    assert await has_backing_file(str(path), HostRunner())
    assert path.read_text() == "x"


async def test_a_backing_file_that_cannot_be_made(tmp_path: Path):
    with pytest.raises(ToolFailed, match="No such file or directory"):
        await make_backing_file(str(tmp_path / "no" / "such"), 1 << 20, HostRunner())


def test_quoting_agrees_with_the_configuration():
    spec = parse_nbd("nbdkit:file '/srv/a b' filter=delay rdelay=1")
    assert isinstance(spec, NbdkitServer)
    assert parse_nbd(str(spec)) == spec
    assert shlex.split(exec_shell_script(nbdkit_argv(spec, Path("/s"))).splitlines()[1])[1:] == nbdkit_argv(
        spec, Path("/s")
    )
