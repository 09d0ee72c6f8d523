"""Debian's packages from their making to their purge: installed, upgraded in mid-stream, removed, put back.

The tests share one guest and come in order. Of what else a host needs, Debian's own packages are there.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from world import (
    CONFIG,
    Done,
    World,
    eventually,
    main_pid,
    noise,
    nothing_left,
    service,
    sh,
    shell,
    snapshot_hashes,
    snapshots,
    status,
)

LAB = {"mem": "4G", "timeout": 1200, "in_order": True}

SOURCE, MADE = Path("/src"), Path("/var/tmp/made")

OF_MAKE_INSTALL = (
    "/usr/lib/python3/dist-packages/zvault /usr/bin/zvaultd /usr/bin/zvaultctl /usr/share/zvault /usr/share/doc/zvault"
    " /usr/lib/systemd/system/zvault* /usr/lib/sysusers.d/zvault.conf /usr/lib/tmpfiles.d/zvault.conf"
    " /usr/share/man/man?/zvault* /usr/share/bash-completion/completions/zvaultctl"
    " /usr/share/zsh/vendor-completions/_zvaultctl /usr/share/fish/vendor_completions.d/zvaultctl.fish"
)


def ok(*argv: str) -> Done:
    """zvaultctl, of the version that is installed by then."""
    return Done(0, sh("zvaultctl", *argv), "")


def build(version: str) -> Path:
    """The packages of that version, in a folder of their own."""
    source, made = MADE / f"source-{version}", MADE / version
    shutil.copytree(
        SOURCE, source, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", ".git", "tests")
    )
    module, log = source / "zvault/__init__.py", source / "debian/changelog"
    module.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{version}"', module.read_text()))
    # Each version has its own date, as in life: Python takes a file of the same size and time for the same.
    dated = log.read_text().replace("12:00:00", f"12:00:{version[-1]}0")
    log.write_text(re.sub(r"\(.*?\)", f"({version}-1)", dated, count=1))
    sh("make", "-C", str(source), "deb", timeout=400)
    shutil.copytree(source / "build", made, ignore=shutil.ignore_patterns("deb"))
    return made


def install(made: Path, name: str = "zvault") -> None:
    sh("dpkg", "-i", *map(str, made.glob(f"{name}_*.deb")))


@pytest.fixture(scope="module")
def made() -> Path:
    """Where the packages are. What the lab installed is gone: the host never had a zvault."""
    built = build("0.1.0")
    shell(f"rm -rf {OF_MAKE_INSTALL}; systemctl daemon-reload; groupdel zvault || true")
    assert shutil.which("zvaultctl") is None
    return built


@pytest.fixture(scope="module")
def tank(made: Path) -> World:
    it = World(keep="{ source = { last = 3 }, vault = { last = 5 } }")
    it.clean()
    it.source()
    install(made)
    it.configure()
    return it


def test_lintian_has_nothing_to_say(made: Path) -> None:
    told = sh("lintian", "--fail-on", "none", *map(str, made.glob("*.deb")), timeout=400)
    assert not [line for line in told.splitlines() if line.startswith(("E:", "W:"))], told


def test_what_alerts_and_units_link_to_has_that_name(made: Path) -> None:
    (package,) = made.glob("zvault_*.deb")
    brought = set(re.findall(r"\./(usr/\S+)$", sh("dpkg-deb", "-c", str(package)), flags=re.M))
    links = re.findall(
        r"file:///(usr/share/doc/\S+)", Path("/src/config/prometheus/zvault.rules.yml").read_text()
    )
    assert len(links) > 20
    assert not set(links) - brought
    assert {"usr/share/doc/zvault/README.md", "usr/share/doc/zvault/zvault.toml"} <= brought


def test_manual_pages_read_well(made: Path) -> None:
    # The guest's dpkg leaves manual pages out, so they are read where the package was made of them.
    pages = list(MADE.glob("source-0.1.0/build/deb/zvault/debian/zvault/usr/share/man/*/*.gz"))
    assert len(pages) > 30
    for page in pages:
        words = shell(f"man -P cat --warnings -E UTF-8 -l {page} 2>&1")
        assert "SEE ALSO" in words
        assert "troff" not in words, words


def test_what_an_installation_brings(tank: World) -> None:
    assert "zvault 0.1.0" in sh("zvaultctl", "--version")
    assert "zvault" in sh("getent", "group", "zvault")
    assert sh("systemctl", "is-enabled", "zvaultd", check=False).strip() == "disabled"
    assert service("ActiveState") == "inactive", "there was no configuration that it could have begun with"
    assert Path("/usr/share/zvault/profiles/rbd-hdd.toml").exists()
    assert (
        "warn"
        not in sh("systemd-analyze", "verify", "--man=no", "/usr/lib/systemd/system/zvaultd.service").lower()
    )
    # This guest's dpkg leaves documentation out.
    wrong = sh("dpkg", "-V", "zvault", check=False).splitlines()
    assert not [line for line in wrong if "/usr/share/doc/" not in line and "/usr/share/man/" not in line]


def test_the_first_backup(tank: World) -> None:
    ok("check-config")
    sh("systemctl", "enable", "--now", "zvaultd")
    ok("run", "tank")
    newest = snapshots("tank/home")[-1]
    ok("vault", "up", "cold")
    assert snapshot_hashes(f"cold/lab/tank/home@{newest}") == snapshot_hashes(f"tank/home@{newest}")
    ok("vault", "down", "cold")


def test_names_are_completed(tank: World) -> None:
    ask = (
        "COMP_WORDBREAKS=$' \\t\\n\\\"\\'@><=;|&(:'; source /usr/share/bash-completion/completions/zvaultctl;"
        " COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}};"
        ' _zvaultctl; printf "%s\\n" "${{COMPREPLY[@]}}"'
    )

    def follows(line: str) -> list[str]:
        return sh("bash", "-c", ask.format(line=line)).split()

    assert follows("zvaultctl run t") == ["tank"]
    assert follows("zvaultctl vault up ") == ["cold"]
    assert "tank/home" in follows("zvaultctl restore tank tank/h")
    # To readline what follows an @ is a word of its own.
    assert follows("zvaultctl restore tank tank/home@zvault") == snapshots("tank/home")
    shown = sh("zsh", "-c", "source /usr/share/zsh/vendor-completions/_zvaultctl 2>&1 || true")
    assert "parse error" not in shown


def limited(tank: World, limit: str) -> None:
    """A limit, in force at once, also for a stream on its way."""
    tank.backup_extra = f'limit = "{limit}"'
    tank.configure()
    sh("systemctl", "reload", "zvaultd")


def test_an_upgrade_in_the_middle_of_a_stream(tank: World, made: Path) -> None:
    newer = build("0.1.1")
    limited(tank, "1M")
    noise(Path("/tank/big/more"), 40)
    sh("zpool", "sync", "tank")
    begun = ok("run", "tank", "--no-wait", "-j").json()["run"]["id"]
    eventually("some of it", lambda: (status()["backups"][0]["bytes_done"] or 0) > 8 << 20)
    # What is left takes less than a daemon that stops lets a run go on.
    limited(tank, "4M")
    before, state, guid = (
        main_pid(),
        Path("/var/lib/zvault"),
        sh("zpool", "get", "-Hpo", "value", "guid", "cold"),
    )
    kept = {path for path in state.rglob("*") if path.is_file() and "sqlite-" not in path.name}
    ran = [run["id"] for run in ok("history", "-j").json()["runs"]]
    install(newer)
    assert CONFIG.read_text() == tank.config_text()
    assert not [path for path in kept if not path.exists()], "its state is kept"
    assert [run["id"] for run in ok("history", "-j").json()["runs"]] == ran
    assert "zvault 0.1.1" in sh("zvaultctl", "--version")
    assert main_pid() not in {0, before}
    assert status()["daemon"]["version"] == "0.1.1"
    run = ok("history", "-j").json()["runs"][0]
    assert (run["id"], run["result"]) == (begun, "ok"), "the upgrade waited for its end"
    newest = snapshots("tank/big")[-1]
    ok("vault", "up", "cold")
    assert snapshot_hashes(f"cold/lab/tank/big@{newest}") == snapshot_hashes(f"tank/big@{newest}")
    assert sh("zpool", "get", "-Hpo", "value", "guid", "cold") == guid, "and its vault"
    ok("vault", "down", "cold")


def test_an_upgrade_starts_again_what_ran_though_it_is_not_enabled(tank: World, made: Path) -> None:
    sh("systemctl", "disable", "zvaultd")
    before = main_pid()
    install(made)
    assert main_pid() not in {0, before}
    assert sh("systemctl", "is-enabled", "zvaultd", check=False).strip() == "disabled"
    # What did not run does not run afterwards either.
    sh("systemctl", "stop", "zvaultd")
    install(MADE / "0.1.1")
    assert main_pid() == 0
    sh("systemctl", "enable", "--now", "zvaultd")
    assert status()["daemon"]["version"] == "0.1.1"


def test_the_second_package(tank: World, made: Path) -> None:
    install(MADE / "0.1.1", "zvault-blockstore")
    assert Path("/usr/lib/systemd/system/zvault-blockstore@.service").exists()
    sh("dpkg", "-r", "zvault-blockstore")


def test_removed_and_put_back(tank: World) -> None:
    ok("vault", "up", "cold")
    sh("dpkg", "-r", "zvault")
    nothing_left()
    assert shutil.which("zvaultctl") is None
    assert CONFIG.read_text() == tank.config_text()
    assert Path("/var/lib/zvault/history.sqlite").exists()
    install(MADE / "0.1.1")
    noise(Path("/tank/home/new"), 1)
    sh("systemctl", "start", "zvaultd")
    ok("run", "tank")
    runs = ok("history", "-j").json()["runs"]
    assert len(runs) >= 3, "its history went on"
    assert runs[0]["bytes"] < 8 << 20, "and so did its backups"


def test_a_purge_leaves_what_is_the_users(tank: World) -> None:
    held = sh("zfs", "get", "-rHpt", "snapshot", "userrefs", "tank")
    sh("dpkg", "-P", "zvault")
    assert not Path("/var/lib/zvault").exists()
    assert not Path("/run/zvault/zvaultd.sock").exists()
    assert CONFIG.exists()
    assert sh("zfs", "get", "-rHpt", "snapshot", "userrefs", "tank") == held
    assert tank.image.exists()
    assert not shell(
        "find / -xdev -name '*zvault*' -not -path '/src/*' -not -path '/var/tmp/*' -not -path '/proc/*'"
        " -not -path '/sys/*' -not -path '/var/lib/zvault-lab*' -not -path '/etc/zvault*'"
        " -not -path '/var/lib/systemd/*' -not -path '/share/*'"
    ).split()
    # The pool is there for whoever wants it next.
    install(MADE / "0.1.1")
    sh("systemctl", "start", "zvaultd")
    ok("run", "tank")
    assert len(snapshots("tank/home")) >= 2
