"""apt upgrades zvault while a stream runs, removes it, purges it and installs it again."""

from __future__ import annotations

import backup
import pytest
from journal import find_denials, list_warnings
from machine import Machine
from stick import OLD, Switch, install


@pytest.fixture(scope="module")
def machine(make_machine: Switch) -> Machine:
    it = make_machine("upgrade")
    it.start()
    install(it, OLD)
    it.run("systemctl enable --now zvaultd", check=False)
    backup.make_source(it)
    return it


def test_an_upgrade_in_the_middle_of_a_stream(machine: Machine) -> None:
    run = backup.begin_run(machine, 40)
    assert "0.0.9" in machine.run("zvaultctl --version")
    before = machine.run("systemctl show -P MainPID zvaultd")
    told = install(machine)
    assert "0.0.9" not in machine.run("zvaultctl --version")
    machine.eventually("systemctl is-active -q zvaultd")
    assert machine.run("systemctl show -P MainPID zvaultd") != before
    assert "Traceback" not in told
    ended = next(one for one in backup.list_runs(machine) if one["id"] == run)
    # It waits for a run that ends soon; what takes longer is put down, and goes on by itself.
    assert ended["result"] in {"ok", "interrupted"}, ended
    if ended["result"] == "interrupted":
        machine.eventually("zvaultctl history -H | grep -c catch-up", seconds=120)
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)


def test_it_is_removed_with_its_vault_up_and_put_back(machine: Machine) -> None:
    machine.run("zvaultctl vault up cold", seconds=300)
    machine.run("DEBIAN_FRONTEND=noninteractive apt-get remove -y zvault", seconds=600)
    assert "cold" not in machine.run("zpool list -Ho name")
    assert machine.run("pgrep nbdkit; cat /sys/block/nbd0/pid", check=False).status != 0
    machine.run(
        "! command -v zvaultctl && test -e /etc/zvault/zvault.toml && test -e /var/lib/zvault/history.sqlite"
    )
    install(machine)
    machine.run("systemctl start zvaultd")
    assert len(backup.list_runs(machine)) >= 2, "its history went on"
    assert backup.finish(machine)["result"] == "ok"


def test_a_purge_leaves_what_is_the_users(machine: Machine) -> None:
    held = machine.run("zfs get -rHpt snapshot userrefs tank")
    told = machine.run("DEBIAN_FRONTEND=noninteractive apt-get purge -y zvault", seconds=600)
    assert "/etc/zvault is left as it is" in told
    assert machine.run("zfs get -rHpt snapshot userrefs tank") == held
    left = machine.run(
        "find / -xdev -name '*zvault*' -not -path '/proc/*' -not -path '/tank/*' -not -path '/var/log/*'"
        " -not -path '/sys/*' -not -path '/run/*' | sort"
    )
    assert left.split() == ["/etc/zvault", "/etc/zvault/zvault.toml"]
    machine.run("systemctl daemon-reload && ! systemctl cat zvaultd")
    machine.run("test -e /srv/cold.img")


def test_installed_again_it_finds_its_vault(machine: Machine) -> None:
    install(machine)
    machine.run("systemctl enable --now zvaultd")
    assert backup.finish(machine)["result"] == "ok"
    backup.compare(machine)
    assert find_denials(machine) == []
    assert machine.find_crash() == ""
    assert machine.run("systemctl --failed --no-legend") == ""
    assert list_warnings(machine, "-u zvaultd", "-u 'zvault-*'") == []
