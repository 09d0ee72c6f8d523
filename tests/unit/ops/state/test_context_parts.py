"""The parts of the context: a reload is in force at once, and each pool's client is its own and is kept."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.unit.ops.ops_world import context
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.address import parse_address
from zvault.core.errors import NotFound
from zvault.ops.context import Context
from zvault.ops.state.environment import Environment
from zvault.system.process.runner import HostRunner


def config(host: str | None = None, **vaults: dict[str, str]) -> Config:
    daemon = {} if host is None else {"host": host}
    return Config.model_validate({"daemon": daemon, "vault": vaults})


def test_a_reload_is_in_force_for_whoever_looks_up_again() -> None:
    env = Environment.of(config(cold={"pool": "cold"}), Paths(), HostRunner())
    assert env.host == socket.gethostname()
    before = env.vault("cold")
    env.reconfigure(config("filer1", cold={"pool": "colder"}))
    assert env.host == "filer1"
    assert (before.pool, env.vault(before.name).pool) == ("cold", "colder")
    env.reconfigure(config())
    with pytest.raises(NotFound, match="no vault 'cold'"):
        env.vault("cold")


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [
        ("backup", "cold", "'cold' is a vault; known: home, tank"),
        ("vault", "tank", "'tank' is a backup; known: cold"),
        (
            "backup",
            "tank/home",
            "'tank/home' is a dataset, which is in the source of home, tank; known: home, tank",
        ),
        ("backup", "tank/a@x", "'tank/a' is a dataset, which is in the source of tank; known: home, tank"),
        ("backup", "tnak", "'tank' is the nearest; known: home, tank"),
        ("vault", "clod", "'cold' is the nearest; known: cold"),
        ("vault", "attic", "known: cold"),
        ("backup", "other/home", "known: home, tank"),
    ],
)
def test_a_name_of_something_else_is_told_what_it_is(kind: str, name: str, why: str) -> None:
    backups = {"tank": {"source": "tank", "vault": "cold"}, "home": {"source": "tank/home", "vault": "cold"}}
    known = Config.model_validate({"vault": {"cold": {"pool": "cold"}}, "backup": backups})
    env = Environment.of(known, Paths(), HostRunner())
    with pytest.raises(NotFound) as caught:
        getattr(env, kind)(name)
    assert (caught.value.what, caught.value.why) == (f"there is no {kind} '{name}'", why)


def test_a_vault_keeps_its_client_until_it_is_on_another_host() -> None:
    where = context()
    vault = where.env.vault("cold")
    first = where.clients.vault_zfs(vault)
    assert first is where.clients.vault_of(where.env.backup("b"))
    assert first is not where.clients.source_of(where.env.backup("b"))
    where.env.reconfigure(config(cold={"pool": "cold", "host": "ssh://root@attic"}))
    moved = where.clients.vault_zfs(where.env.vault("cold"))
    assert moved is not first
    assert moved.host.address == parse_address("ssh://root@attic")
    assert where.clients.zpool_of(vault) is where.clients.zpool


def test_what_outlives_a_boot_is_not_where_leases_are(tmp_path: Path) -> None:
    env = Environment.of(config(), Paths(run=tmp_path / "run", state=tmp_path / "state"), HostRunner())
    apart = Context.of(env).records
    assert apart.undo.directory == tmp_path / "run" / "lease"
    assert {one.directory.parent for one in (apart.hooks, apart.measured)} == {tmp_path / "state"}


def test_a_host_that_runs_this_is_awake() -> None:
    activity = context().activity
    assert not activity.asleep
    activity.awake.clear()
    assert activity.asleep


def test_where_a_dataset_goes_that_may_be_any_name() -> None:
    backup = {"source": "tank/data", "vault": "cold", "into": "a/{path}"}
    config = Config.model_validate({"vault": {"cold": {"pool": "cold"}}, "backup": {"data": backup}})
    env = Environment.of(config, Paths(), HostRunner())
    told = [
        env.counterpart_of(env.backup("data"), name) for name in ("tank/data", "tank/data/x", "tank", "x/y")
    ]
    assert told == ["cold/a", "cold/a/x", None, None]
