"""Vaults that several hosts share: which storage is refused, which hosts and sources."""

from __future__ import annotations

import platform
from collections.abc import Callable

import pytest

from zvault.config.schema import Config

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HOSTS = 'hosts = ["here", "b", "c"]\n'
STORE = '[[vault.cold.device]]\nnbd = "zvault:zv/cold size=10T endpoint=https://s3.example.org"\n'


@pytest.fixture(autouse=True)
def _called_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "node", lambda: "here")


def vault(*lines: str, device: str = STORE, hosts: str = HOSTS) -> str:
    return '[vault.cold]\npool = "cold"\n' + hosts + "".join(f"{line}\n" for line in lines) + device


def backup(source: str) -> str:
    return f'[backup.filer]\nsource = "{source}"\nvault = "cold"\n'


def test_a_block_store_is_shared_and_its_hosts_keep_their_order(good: Good) -> None:
    config = good(vault() + backup("ssh://root@filer/tank"))
    assert config.vault["cold"].hosts == ["here", "b", "c"]


def test_an_image_with_a_lease_is_shared(good: Good) -> None:
    image = '[[vault.cold.device]]\nrbd = "rbd/cold"\nlease = "2m"\n'
    config = good(vault(device=image) + backup("ssh://root@filer/tank"))
    assert config.vault["cold"].device[0].lease_bound == 120.0


def test_without_hosts_a_vault_is_one_hosts(good: Good) -> None:
    assert good(vault(hosts="") + backup("tank")).vault["cold"].hosts == []


@pytest.mark.parametrize(
    ("device", "why"),
    [
        ('rbd = "rbd/cold"', "an RBD image's lock never runs out, so the hosts need a lease beside it"),
        ('rbd = "rbd/cold"\nmap = "rbd-nbd"', "an image has no lease: leave map out"),
        ('rbd = "rbd/cold"\nexclusive = false', "nothing keeps two hosts from writing"),
        (
            'rbd = "rbd/cold"\nlease = "5m"\ncache = { bcache = "/dev/disk/by-id/x", mode = "writethrough" }',
            "what its cache has is on one host alone",
        ),
        ('nbd = "nbdkit:S3 bucket=zv key=cold size=1T"', "a host that was frozen can still overwrite some"),
        ('nbd = "nbdkit:file /var/lib/cold.img"', "an NBD server does not know which host may write"),
        ('nbd = "tcp:nas.example.org/cold"', "an NBD server does not know which host may write"),
        (
            'nbd = "s3backer:zv/cold size=1T blockSize=128k accessFile=/etc/zvault/s3backer"',
            "an NBD server does not know which host may write",
        ),
        ('nbd = "zvault:zv/cold size=1T"\nexclusive = false', "there is no lease"),
        (
            'nbd = "zvault:zv/cold size=1T mode=writeback journal=/var/lib/j"',
            "in the journal of one host alone",
        ),
        (
            'nbd = "zvault:zv/cold size=1T"\ncache = { bcache = "/dev/disk/by-id/x", mode = "writethrough" }',
            "what its cache has is on one host alone",
        ),
    ],
)
def test_storage_that_cannot_shut_a_host_out_is_refused_with_the_reason(
    problems: Problems, device: str, why: str
) -> None:
    (line,) = problems(vault(device=f"[[vault.cold.device]]\n{device}\n"))
    assert line.startswith("zvault.toml:3: vault.cold.hosts: cannot share device[0]: ")
    assert why in line
    assert line.endswith(
        "several hosts can share only zvault:BUCKET/KEY devices, and RBD images with a lease"
    )


@pytest.mark.parametrize("storage", ["zvault:zv/meta size=1T", "tcp:nas.example.org/meta"])
def test_several_devices_are_refused_for_their_leases_may_be_those_of_several_hosts(
    problems: Problems, storage: str
) -> None:
    other = f'[[vault.cold.device]]\nvdev = "special"\nnbd = "{storage}"\n'
    (line,) = problems(vault(device=STORE + other))
    assert (
        "vault.cold.hosts: share a vault of one device, and this one has 2: each device has a lease" in line
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (vault(device=""), "this vault has none: its pool is one host's own"),
        (vault('host = "ssh://root@attic"', device=""), "imported on another host: remove host"),
        (vault('up = "always"'), "take turns"),
        (vault(hosts='hosts = ["here"]\n'), "must be from 2 to 256 hosts"),
        (vault(hosts='hosts = ["here", "b", "here"]\n'), "each named once"),
    ],
)
def test_what_else_is_refused(problems: Problems, text: str, why: str) -> None:
    (line,) = problems(text)
    assert line.startswith("zvault.toml:3: vault.cold.hosts: ")
    assert why in line


def test_a_host_that_is_none_of_them(problems: Problems) -> None:
    (line,) = problems(vault(hosts='hosts = ["hero", "b"]\n'))
    assert line == (
        'zvault.toml:3: vault.cold.hosts: this host is called "here" and is none of them; did you mean "hero"?: name it'
        " as 'hostname' prints it, or leave the vault out of this host's configuration"
    )


def test_a_source_that_each_host_would_find_on_itself(problems: Problems) -> None:
    (line,) = problems(vault() + backup("tank/data"))
    assert line.startswith("zvault.toml:7: backup.filer.source: it is on this host, and vault cold is shared")
    assert line.endswith("as in ssh://root@here/tank/data")
