from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zvault.config.device_specs.nbd import NbdkitServer, TcpServer
from zvault.config.load_config import has_config, load_config
from zvault.config.paths import Paths
from zvault.config.schema import Config
from zvault.core.address import Address, Source
from zvault.core.errors import ConfigError
from zvault.core.policy.cron_schedule import ScheduleInterval, parse_schedule
from zvault.core.policy.retention import KeepRules
from zvault.core.replication.bandwidth import RateLimit, RateWindow

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

VAULT = '[vault.cold]\npool = "cold"\n'
BACKUP = '[backup.tank]\nsource = "tank"\nvault = "cold"\n'


def test_a_table_among_others_knows_its_name_and_has_no_key_for_it(good: Good, problems: Problems) -> None:
    config = good(VAULT + BACKUP)
    assert (config.vault["cold"].name, config.backup["tank"].name) == ("cold", "tank")
    assert config.backup["tank"].model_copy(update={"retries": 1}).name == "tank"
    assert "name" not in config.vault["cold"].model_dump()
    (problem,) = problems(VAULT + 'name = "other"\n')
    assert "name" in problem


def test_everything(good: Good) -> None:
    config = good(
        """
        [daemon]
        metrics = "[::]:9712"
        timezone = "Europe/Vienna"
        host = "3com"
        [vault.cold]
        pool = "cold"
        profile = "nbd-lan"
        create = true
        up = "always"
        [[vault.cold.device]]
        nbd = "nbdkit:file /var/lib/zvault/cold.img filter=delay wdelay=35ms"
        size = "1.5G"
        connections = 4
        timeout = "2m"
        [[vault.cold.device]]
        nbd = "tcp:nas"
        [backup.tank]
        source = "tank/my data"
        exclude = ["tank/my data/**/tmp", "**/cache"]
        vault = "cold"
        into = "hosts/{host}/{pool}/{dataset}"
        schedule = "30 2 * * mon-fri"
        snapshot = { prefix = "zv" }
        keep = { source = { last = 3, within = "1h30m" }, vault = { hourly = 48 } }
        send = { raw = true, properties = false }
        max_lag = "3h"
        [backup.home]
        source = "tank/home"
        vault = "cold"
        every = "15m"
        """
    )
    assert (config.daemon.metrics, config.daemon.timezone, config.daemon.host) == (
        "[::]:9712",
        "Europe/Vienna",
        "3com",
    )
    cold = config.vault["cold"]
    assert (cold.pool, cold.profile, cold.create, cold.up) == ("cold", "nbd-lan", True, "always")
    first, second = cold.device
    assert first.nbd == NbdkitServer("file", ("delay",), ("/var/lib/zvault/cold.img", "wdelay=35ms"))
    assert (first.size, first.connections, first.timeout) == (3 << 29, 4, 120.0)
    assert second.nbd == TcpServer("nas")
    assert (second.size, second.connections, second.timeout) == (None, 1, 90.0)
    tank = config.backup["tank"]
    assert (tank.source, tank.exclude) == (Source("tank/my data"), ["tank/my data/**/tmp", "**/cache"])
    assert tank.schedule == parse_schedule("30 2 * * mon-fri")
    assert (tank.every, tank.snapshot.prefix, tank.max_lag) == (None, "zv", 10800.0)
    assert tank.keep.source == KeepRules(last=3, within=5400.0)
    assert tank.keep.vault == KeepRules(hourly=48)
    assert (tank.send.raw, tank.send.properties, tank.send.large_blocks) == (True, False, True)
    assert config.backup["home"].every == ScheduleInterval(900.0)


def test_what_is_left_out(good: Good) -> None:
    config = good(VAULT + BACKUP)
    assert (config.daemon.metrics, config.daemon.timezone, config.daemon.host) == (
        "127.0.0.1:9712",
        None,
        None,
    )
    cold, tank = config.vault["cold"], config.backup["tank"]
    assert (cold.profile, cold.device, cold.create, cold.up) == ("local", [], False, "on-demand")
    assert (tank.exclude, tank.into, tank.schedule, tank.every) == ([], "{host}/{dataset}", None, None)
    assert (tank.keep.source, tank.keep.vault, tank.max_lag) == (KeepRules(), KeepRules(), None)


def test_an_empty_file_is_a_configuration(good: Good) -> None:
    assert good("") == Config()
    assert good(b"\xef\xbb\xbf[daemon]\r\nmetrics = 'off'\r\n").daemon.metrics is None


def test_conf_d_is_merged_and_hidden_files_are_not(good: Good) -> None:
    config = good(
        VAULT,
        **{
            "conf.d/20-b.toml": BACKUP,
            "conf.d/10-a.toml": '[vault.usb]\npool = "usb"\n',
            "conf.d/.#10-a.toml": "an editor's",
            "conf.d/readme.txt": "not ours",
        },
    )
    assert list(config.vault) == ["cold", "usb"]
    assert list(config.backup) == ["tank"]


def test_another_file(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(VAULT)
    assert list(load_config(paths, file).vault) == ["cold"]


def test_every_problem_at_once_in_the_order_of_the_files(problems: Problems) -> None:
    found = problems(
        VAULT.replace("pool", "pol") + BACKUP.replace("cold", "clod"),
        **{
            "conf.d/a.toml": "[daemon]\nmetrics = 1\n",
            "conf.d/b.toml": '[daemon]\n[vault.cold]\npool = "x"\n[backup.b]\n',
        },
    )
    assert [line.split(": ")[:2] for line in found] == [
        ["zvault.toml:1", "vault.cold.pool"],
        ["zvault.toml:2", "vault.cold.pol"],
        ["zvault.toml:5", "backup.tank.vault"],
        ["conf.d/a.toml:2", "daemon.metrics"],
        ["conf.d/b.toml:1", "daemon"],
        ["conf.d/b.toml:2", "vault.cold"],
        ["conf.d/b.toml:4", "backup.b.source"],
        ["conf.d/b.toml:4", "backup.b.vault"],
    ]
    assert "a.toml:1 already" in found[4]
    assert "zvault.toml:1 already" in found[5]


def test_what_cannot_be_read_hides_only_what_depends_on_it(problems: Problems) -> None:
    """The vault may be in the file that is broken, so its absence is no news; all else is."""
    found = problems(BACKUP + "into = 1\n", **{"conf.d/a.toml": "[vault.cold\n", "conf.d/b.toml": b"\n\xe4"})
    assert [line.split(": ")[0] for line in found] == ["zvault.toml:4", "conf.d/a.toml:1", "conf.d/b.toml:2"]


def test_conf_d_alone_is_a_configuration(paths: Paths, write: Callable[..., None]) -> None:
    """As 'zvaultctl adopt >/etc/zvault/conf.d/data.toml' leaves it on a fresh machine."""
    assert not has_config(paths)
    (paths.etc / "conf.d").mkdir()
    assert not has_config(paths)
    with pytest.raises(ConfigError, match=r"zvault\.toml: does not exist"):
        load_config(paths)
    (paths.etc / "conf.d" / "data.toml").write_text('[vault.cold]\npool = "cold"\n')
    assert has_config(paths)
    assert list(load_config(paths).vault) == ["cold"]
    (paths.etc / "conf.d" / "more.toml").write_text("[vault.more]\npool = 3\n")
    with pytest.raises(ConfigError, match=r"conf\.d/more\.toml:2: vault\.more\.pool: must be a string"):
        load_config(paths)
    # One that is asked for by its name, and a link that leads nowhere, have to be there.
    (paths.etc / "conf.d" / "more.toml").unlink()
    with pytest.raises(ConfigError, match=r"zvault\.toml: does not exist"):
        load_config(paths, paths.config_file)
    paths.config_file.symlink_to("nowhere")
    with pytest.raises(ConfigError, match=r"zvault\.toml: does not exist"):
        load_config(paths)


def test_no_file(paths: Paths) -> None:
    with pytest.raises(ConfigError) as caught:
        load_config(paths)
    assert caught.value.why == f"{paths.config_file}: does not exist"


def test_a_folder_and_a_dead_link_for_a_file(paths: Paths, problems: Problems) -> None:
    (paths.etc / "conf.d" / "a.toml").mkdir(parents=True)
    (paths.etc / "conf.d" / "b.toml").symlink_to("/nowhere")
    assert problems("") == ["conf.d/a.toml: cannot be read: is a directory", "conf.d/b.toml: does not exist"]


def test_conf_d_is_no_folder(problems: Problems) -> None:
    assert problems("", **{"conf.d": "x"}) == ["conf.d: cannot be read: not a directory"]


def test_permission_denied(paths: Paths, problems: Problems, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    def refuse(self: Path, *args: object, **kwargs: object) -> object:
        if self.parent == paths.etc:
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **kwargs)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ConfigError) as caught:
        load_config(paths)
    assert "permission denied; zvault's configuration is read as root" in caught.value.why


def test_other_hosts(good: Good) -> None:
    config = good(
        """
        [host."filer1.example.org"]
        sudo = true
        compression = "zstd"
        [vault.attic]
        pool = "attic"
        host = "ssh://backup@[fe80::1]:2222"
        [vault.cold]
        pool = "attic"
        [backup.tank]
        source = "ssh://filer1.example.org/tank/my data"
        vault = "attic"
        [backup.home]
        source = "tank/my data"
        vault = "attic"
        keep.source = { last = 1 }
        """
    )
    assert config.host["filer1.example.org"].sudo
    assert config.vault["attic"].host == Address("fe80::1", "backup", 2222)
    assert str(config.vault["attic"].host) == "ssh://backup@[fe80::1]:2222"
    source = config.backup["tank"].source
    assert source == Source("tank/my data", Address("filer1.example.org"))
    assert str(source) == "ssh://filer1.example.org/tank/my data"


def test_limits(good: Good) -> None:
    config = good(
        VAULT
        + BACKUP
        + 'limit = "80M"\n'
        + BACKUP.replace("tank", "home")
        + 'limit = [{ rate = "20M", start = "18:00", end = "6:30", days = "fri-sun" }, { rate = "off" }]\n'
    )
    assert config.backup["tank"].limit == RateLimit((RateWindow(80 << 20),))
    night = RateWindow(20 << 20, 18 * 60, 6 * 60 + 30, frozenset({4, 5, 6}))
    assert config.backup["home"].limit == RateLimit((night, RateWindow(None)))
