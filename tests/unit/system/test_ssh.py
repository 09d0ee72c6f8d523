"""ssh's argv, the scripts it carries (run by this host's shell), and what its complaints amount to."""

import subprocess
from pathlib import Path

import pytest

from zvault.core.address import Address
from zvault.core.errors import HostUnreachable, Refused, ZvaultError
from zvault.system import ssh

PEER = Address("peer", "root", 2222)


def sh(command: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run what sshd would give to a login shell."""
    return subprocess.run(["/bin/sh", "-c", command], input=given, capture_output=True, timeout=20)


def test_a_command_shares_a_connection_and_never_asks() -> None:
    argv = ssh.ssh_argv(PEER, Path("/run/zvault/ssh/c-%C"), "true")
    assert argv[:4] == ["ssh", "-T", "-x", "-a"]
    assert argv[-7:] == ["-l", "root", "-p", "2222", "--", "peer", "true"]
    options = {argv[i + 1] for i, word in enumerate(argv) if word == "-o"}
    assert {"BatchMode=yes", "ControlMaster=auto", "ControlPath=/run/zvault/ssh/c-%C"} <= options
    assert "ControlPath=none" in ssh.ssh_argv(PEER, None, "true")
    assert not any("Strict" in word or "KnownHosts" in word for word in argv), "ssh_config's own rule holds"


@pytest.mark.parametrize("address", [PEER, Address("filer1"), Address("fd00::7", "backup")])
def test_where_an_argv_goes_can_be_told(address: Address) -> None:
    assert ssh.find_ssh_address(ssh.ssh_argv(address, None, "exec sh -c 'zfs send -p 1 -- x'")) == address


@pytest.mark.parametrize("argv", [["zfs", "send", "--", "x"], ["ssh", "x"], ["mbuffer"]])
def test_other_programs_go_nowhere(argv: list[str]) -> None:
    assert ssh.find_ssh_address(argv) is None


NAMES = ["tank/my files@a", "it's", '$HOME `id` \\ "', "", "*", "a\nb", "!!", r"\n\041%s", "\\\n!'\n"]


@pytest.mark.parametrize("names", [NAMES, *([name] for name in NAMES)])
def test_words_arrive_as_they_are(names: list[str]) -> None:
    command = ssh.make_shell_command(ssh.exec_script(["printf", "%s|", *names]))
    done = sh(command)
    assert done.stdout.decode() == "".join(f"{name}|" for name in names)
    assert not set("\n!") & set(command), "csh takes neither within quotes"


def test_several_commands_and_a_program_of_many_lines_are_one_line_for_a_login_shell_that_is_csh() -> None:
    program = "import sys\nif sys.argv[1] != 'b':\n    print(sys.argv[1])\n"
    script = ssh.join_all_script([["python3", "-I", "-c", program, "a!"], ["echo", "c"]])
    command = ssh.make_shell_command(script)
    assert not set("\n!") & set(command)
    assert sh(command).stdout.decode() == "a!\nc\n"


def test_a_long_script_goes_through_standard_input() -> None:
    names = [f"{'x' * 200}{number}" for number in range(2000)]
    command, given = ssh.make_shell_input(ssh.exec_script(["printf", "%s\n", *names]))
    assert len(command) < 100
    done = sh(command, given)
    assert done.stdout.decode().split() == names
    command, given = ssh.make_shell_input(ssh.exec_script(["cat"]))
    assert sh(command, given + b"not for cat").stdout == b""


def test_the_folders_where_zfs_is_are_searched_last_and_messages_are_english() -> None:
    done = sh(ssh.make_shell_command('echo "$PATH"; echo "$LC_ALL"; env | grep -c "^LC_ALL="'))
    path, locale, exported = done.stdout.decode().split()
    assert path.endswith(":/usr/local/sbin:/usr/sbin:/sbin")
    assert (locale, exported) == ("C.UTF-8", "1")


def test_all_commands_run_and_one_failure_is_told() -> None:
    done = sh(ssh.make_shell_command(ssh.join_all_script([["echo", "a b"], ["false"], ["echo", "c"]])))
    assert (done.returncode, done.stdout) == (1, b"a b\nc\n")
    assert sh(ssh.make_shell_command(ssh.join_all_script([["true"], ["true"]]))).returncode == 0


@pytest.mark.parametrize(
    ("commands", "status"),
    [
        ([["cat"]], 0),
        ([["cat"], ["cat"]], 0),
        ([["sh", "-c", "cat; exit 3"], ["cat"], ["cat"]], 3),
        ([["cat"], ["sh", "-c", "cat; exit 4"], ["cat"]], 4),
        ([["cat"], ["cat"], ["sh", "-c", "cat; exit 5"]], 5),
        ([["cat"], ["no-such-program"]], 127),
        ([["sh", "-c", "kill -9 $$"], ["cat"]], 137),
    ],
)
def test_a_pipe_fails_with_what_failed_first(commands: list[list[str]], status: int) -> None:
    done = sh(ssh.make_shell_command(ssh.pipe_script(commands)), b"through")
    assert done.returncode == status
    if status < 100:
        assert done.stdout == b"through"


def test_a_sender_whose_receiver_died_is_not_the_one_to_blame() -> None:
    """The reader's status comes first, because it ended first."""
    done = sh(
        ssh.make_shell_command(ssh.pipe_script([["sh", "-c", "sleep 0.2; yes"], ["sh", "-c", "exit 6"]]))
    )
    assert done.returncode == 6


def test_the_commands_of_a_pipe_hold_no_descriptors_of_the_script() -> None:
    done = sh(
        ssh.make_shell_command(ssh.pipe_script([["sh", "-c", "ls /proc/self/fd >&2; cat"], ["cat"]])), b"x"
    )
    assert {b"0", b"1", b"2"} <= set(done.stderr.split())
    assert not {b"3", b"4"} & set(done.stderr.split()) - {b"3"}, "ls has 3 for the folder itself"


@pytest.mark.parametrize(
    ("said", "kind", "words"),
    [
        (
            "@@@\n@  WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\n@@@\nHost key verification failed.\n",
            Refused,
            ["shows another host key", "ssh-keygen -R [peer]:2222"],
        ),
        (
            "No ED25519 host key is known for peer and you have requested strict checking.\n"
            "Host key verification failed.\n",
            Refused,
            ["is not known", "'ssh -p 2222 root@peer' once"],
        ),
        ("root@peer: Permission denied (publickey,password).\n", Refused, ["does not let", "ssh-copy-id"]),
        (
            "ssh: connect to host peer port 22: Connection refused",
            HostUnreachable,
            ["cannot reach", "refused"],
        ),
        ("ssh: connect to host peer port 22: No route to host", HostUnreachable, ["cannot reach"]),
        ("ssh: connect to host peer port 22: Connection timed out", HostUnreachable, ["cannot reach"]),
        (
            "ssh: Could not resolve hostname peer: Name or service not known",
            HostUnreachable,
            ["cannot reach", "resolve"],
        ),
        (
            "kex_exchange_identification: read: Connection reset by peer",
            HostUnreachable,
            ["cannot reach"],
        ),
        ("Timeout, server peer not responding.\n", HostUnreachable, ["lost the link"]),
        ("client_loop: send disconnect: Broken pipe\n", HostUnreachable, ["lost the link"]),
        ("Connection to peer closed by remote host.\n", HostUnreachable, ["lost the link"]),
        (
            "mux_client_request_session: read from master failed: Broken pipe",
            HostUnreachable,
            ["lost the link"],
        ),
        ("", HostUnreachable, ["lost the link", "without a word"]),
    ],
)
def test_what_ssh_complains_of_is_told(said: str, kind: type[ZvaultError], words: list[str]) -> None:
    error = ssh.make_ssh_error(PEER, said)
    assert type(error) is kind
    assert error.next
    for word in words:
        assert word in str(error)
