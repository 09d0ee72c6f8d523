"""Another host, with a program in ssh's place that runs what it is given in this host's shell."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.unit.patience import eventually
from zvault.core.address import Address
from zvault.core.errors import DeadlineExceeded, HostUnreachable, Refused, ToolFailed, ToolMissing
from zvault.system.process.runner import HostRunner
from zvault.zfs.client import Zfs
from zvault.zfs.host import LARGE, SESSIONS, SshHost
from zvault.zfs.stream_stages import HELPERS

SSH = """#!/bin/sh
case "$*" in *"-O stop"*) echo stop >>{folder}/log; exit 0;; esac
for command; do :; done
case "$*" in *ControlPath=none*) echo own;; *c-%C*) echo commands;; *s-%C*) echo streams;; esac >>{folder}/log
if [ -e {folder}/broken ]; then cat {folder}/broken >&2; exit 255; fi
PATH={folder}/there:/usr/bin:/bin exec /bin/sh -c "$command"
"""
ZFS = '#!/bin/sh\ncase "$1" in version) echo zfs-2.3.9-1; echo zfs-kmod-2.3.9-1;; *) {body};; esac\n'


def program(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the other host's programs are; ``log`` beside it tells each ssh."""
    program(tmp_path / "bin" / "ssh", SSH.format(folder=tmp_path))
    program(tmp_path / "there" / "zfs", ZFS.format(body='echo "$@"'))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return tmp_path / "there"


def host(there: Path, *, sudo: bool = False) -> SshHost:
    return SshHost(HostRunner(), Address("peer", "root"), there.parent / "sockets", sudo=lambda: sudo)


def log(there: Path) -> list[str]:
    return (there.parent / "log").read_text().split()


async def test_it_is_asked_once_what_it_has(there: Path) -> None:
    peer = host(there)
    results = await asyncio.gather(*(peer.run(["zfs", "get", str(number)]) for number in range(4)))
    assert [result.stdout for result in results] == [f"get {number}\n" for number in range(4)]
    assert log(there) == ["commands"] * 5
    assert await peer.tools() <= set(HELPERS)
    assert results[0].tool == "zfs get", "not ssh"
    assert (there.parent / "sockets").stat().st_mode & 0o777 == 0o700


async def test_not_more_at_once_than_sshd_takes_on_one_connection(there: Path) -> None:
    count = there.parent / "count"
    body = f"echo + >>{count}; sleep 0.3; echo - >>{count}"
    program(there / "zfs", ZFS.format(body=body))
    peer = host(there)
    await asyncio.gather(*(peer.run(["zfs", "get"]) for _ in range(SESSIONS + 4)))
    at_once = most = 0
    for sign in count.read_text().split():
        at_once += 1 if sign == "+" else -1
        most = max(most, at_once)
    assert most == SESSIONS


async def test_a_command_that_fails_there_is_told_with_the_host(there: Path) -> None:
    program(there / "zfs", ZFS.format(body='echo "cannot open" >&2; exit 1'))
    peer = host(there)
    assert (await peer.run(["zfs", "list"], check=False)).returncode == 1
    with pytest.raises(ToolFailed, match="zfs list failed on ssh://root@peer: cannot open"):
        await peer.run(["zfs", "list"])


async def test_a_lost_link_starts_a_new_connection_and_asks_anew(there: Path) -> None:
    peer = host(there)
    await peer.run(["zfs", "get"])
    broken = there.parent / "broken"
    broken.write_text("Timeout, server peer not responding.\n")
    with pytest.raises(HostUnreachable, match="lost the link"):
        await peer.run(["zfs", "get"])
    broken.unlink()
    await peer.run(["zfs", "get"])
    assert log(there) == ["commands"] * 3 + ["stop"] + ["commands"] * 2


async def test_a_command_that_hangs_there_gets_the_next_one_a_new_connection(there: Path) -> None:
    program(there / "zfs", ZFS.format(body="sleep 20"))
    peer = host(there)
    with pytest.raises(DeadlineExceeded):
        await peer.run(["zfs", "get"], deadline=1.0)
    assert log(there)[-1] == "stop"


@pytest.mark.parametrize("how", ["deadline", "cancelled"])
async def test_no_look_follows_one_that_hangs_in_that_hosts_kernel(there: Path, how: str) -> None:
    """Of a process that sleeps in the kernel there no end of a connection is an end."""
    asked = there.parent / "asked"
    program(there / "zfs", ZFS.format(body=f"echo x >>{asked}; sleep 20"))
    program(there / "ps", "#!/bin/sh\necho 'Ss   /sbin/init'; echo 'D+   zfs get -Hp used cold/a'\n")
    peer, look = host(there), ["zfs", "list", "-Hp", "cold"]
    if how == "deadline":
        with pytest.raises(DeadlineExceeded):
            await peer.run(look, deadline=1.0)
    else:
        looking = asyncio.ensure_future(peer.run(look))
        await eventually(asked.exists)
        looking.cancel()
        await asyncio.wait([looking])
    for _ in range(3):
        with pytest.raises(DeadlineExceeded, match="its kernel has not answered since") as refused:
            await peer.run(["zfs", "get", "-Hp", "used", "cold/a"])
    assert "'zfs get -Hp used cold/a'" in refused.value.why
    assert asked.read_text() == "x\n"
    program(there / "zfs", ZFS.format(body='echo "$@"'))
    assert (await peer.run(["zfs", "list", "tank"])).stdout == "list tank\n", "another pool answers"
    program(there / "ps", "#!/bin/sh\necho 'S    zfs get -Hp used cold/a'\n")
    assert (await peer.run(look)).stdout == "list -Hp cold\n"
    (there / "ps").unlink()
    assert (await peer.run(look)).stdout == "list -Hp cold\n"


async def test_a_long_look_that_goes_on_there_is_none_that_hangs(there: Path) -> None:
    """A listing reads, asleep in the kernel more often than not; that another look was cancelled is no word on it."""
    # It goes on until it is cancelled, however slow the machine is: behind one that ended another would be refused.
    waits = f"[ -e {there.parent}/go ] || until [ -e {there.parent}/end ]; do sleep 0.1; done"
    program(there / "zfs", ZFS.format(body=f"touch {there.parent}/$1; {waits}"))
    listing = "zfs list -Hp -r cold"
    program(there / "ps", f"#!/bin/sh\necho 'S    sudo -n {listing}'; echo 'D    {listing}'\n")
    peer = host(there)
    going = asyncio.ensure_future(peer.run(listing.split()))
    await eventually((there.parent / "list").exists)
    look = asyncio.ensure_future(peer.run(["zfs", "get", "-Hp", "used", "cold"]))
    await eventually((there.parent / "get").exists)
    look.cancel()
    await asyncio.wait([look])
    (there.parent / "go").touch()
    await peer.run(["zfs", "get", "-Hp", "used", "cold"])
    look = asyncio.ensure_future(peer.run(["zfs", "get", "-Hp", "used", "cold"]))
    going.cancel()
    await asyncio.wait([look, going])
    (there.parent / "end").touch()
    with pytest.raises(DeadlineExceeded, match="its kernel has not answered since"):
        await peer.run(["zfs", "get", "-Hp", "used", "cold"])


async def test_looks_at_once_after_one_that_had_no_answer_are_all_begun(there: Path) -> None:
    program(there / "zfs", ZFS.format(body="sleep 20"))
    program(there / "ps", "#!/bin/sh\nsleep 0.2\n")
    peer = host(there)
    with pytest.raises(DeadlineExceeded):
        await peer.run(["zfs", "list", "cold"], deadline=1.0)
    program(there / "zfs", ZFS.format(body='echo "$@"'))
    looks = await asyncio.gather(*(peer.run(["zfs", "list", "cold"]) for _ in range(3)))
    assert {look.stdout for look in looks} == {"list cold\n"}


async def test_zfs_that_is_not_there_is_missing(there: Path) -> None:
    (there / "zfs").unlink()
    with pytest.raises(ToolMissing, match="zfs is not installed on ssh://root@peer"):
        await host(there).run(["zfs", "list"])


async def test_sudo_is_for_zfs_and_zpool_alone(there: Path) -> None:
    program(there / "sudo", '#!/bin/sh\nshift; echo "as root:" "$@"\n')
    peer = host(there, sudo=True)
    assert (await peer.run(["zfs", "list"])).stdout == "as root: zfs list\n"
    assert (await peer.run(["zpool", "list"])).stdout == "as root: zpool list\n"
    assert (await peer.run(["echo", "me"])).stdout == "me\n"
    stage = (await peer.end()).stages([["zfs", "send"], ["cat"]])
    assert "sudo -n zfs send" in stage[0][-1]
    assert "sudo -n cat" not in stage[0][-1]


async def test_sudo_that_wants_a_password_is_told(there: Path) -> None:
    program(there / "sudo", "#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n")
    with pytest.raises(Refused, match="a password is required"):
        await host(there, sudo=True).run(["zfs", "list"])


async def test_a_large_stream_has_a_connection_of_its_own(there: Path) -> None:
    program(there / "mbuffer", "#!/bin/sh\ncat\n")
    peer = host(there)
    for size, control in ((100, "s-%C"), (LARGE, "none"), (None, "none")):
        end = await peer.end(size)
        assert "mbuffer" in end.tools
        assert any(word.endswith(control) for word in end.stages([["zfs", "send"]])[0])


async def test_many_names_get_through_however_long_they_are(there: Path) -> None:
    program(there / "zfs", ZFS.format(body="shift; printf '%s\\n' \"$@\""))
    names = [f"tank/{'x' * 200}{number}@s" for number in range(1500)]
    result = await host(there).run(["zfs", "holds", *names])
    assert result.stdout.split() == names


async def test_a_column_that_an_older_openzfs_lacks_is_left_out(there: Path) -> None:
    body = (
        'case "$*" in *snapshots_changed*) '
        "echo \"bad property list: invalid property 'snapshots_changed'\" >&2; exit 2;; "
        "get*) ;; "
        "*filesystem,volume*) printf 'tank\\tfilesystem\\t1\\t0\\t0\\t-\\toff\\t-\\n';; "
        "*) printf 'tank@a_1970-01-01T00:01:40Z\\t7\\t3\\n';; esac"
    )
    program(there / "zfs", ZFS.format(body=body))
    peer = host(there)
    zfs = Zfs(HostRunner(), peer)
    for _ in range(2):
        tree = await zfs.tree("tank")
        assert [snap.guid for snap in tree.datasets["tank"].snapshots] == [7]
    assert len(log(there)) == 1 + 4 + 3, "it is found out once"
