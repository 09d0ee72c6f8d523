"""What the error says, and on which line, for every way to go wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.examples import cases
from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.core.errors import ConfigError

Problems = Callable[..., list[str]]

DEVICE = "[[vault.cold.device]]\nnbd='tcp:h'\n"
VAULT = '[vault.cold]\npool = "cold"\n'
BACKUP = '[backup.tank]\nsource = "tank"\nvault = "cold"\n'

CASES = [
    (
        '[vault.cold]\npool = "cold"\ntmeout = 1',
        "3: vault.cold.tmeout: unknown key; known here: pool, profile",
    ),
    (
        VAULT + '[[vault.cold.device]]\nnbd = "tcp:h"\ntmeout = "1s"',
        '5: vault.cold.device[0].tmeout: unknown key; did you mean "timeout"?',
    ),
    (
        VAULT + 'device = [\n { nbd = "tcp:h" },\n { nbd = "tcp:g", siez = "1G" } ]',
        "5: vault.cold.device[1].siez: un",
    ),
    ("[vaults.x]", '1: vaults: unknown key; did you mean "vault"?'),
    (
        VAULT + BACKUP + '[backup.tank.keep]\nvault = { last = 1 }\nschedule = "daily"',
        "8: backup.tank.keep.schedule: unknown key here; it belongs to [backup.tank]: "
        "move it above [backup.tank.keep]",
    ),
    ("\n[vault.cold]\n", '2: vault.cold.pool: is missing; for example pool = "cold"'),
    (
        VAULT + "[[vault.cold.device]]",
        '3: vault.cold.device[0].nbd: is missing; for example nbd = "nbdkit:file',
    ),
    (
        '[vault]\npool = "cold"',
        '2: vault.pool: must be a table, not the string "cold"; if pool is no name but a key',
    ),
    ("vault = 3", "1: vault: must be a table, not the integer 3: write [vault.NAME]"),
    (
        VAULT + "[vault.cold.device]\nnbd='tcp:h'",
        "3: vault.cold.device: must be an array of tables, not a table: write [[",
    ),
    ("[[vault.cold]]\npool='x'", "1: vault.cold: must be a table, not an array"),
    (VAULT + 'create = "yes"', '3: vault.cold.create: must be true or false, not the string "yes"'),
    (VAULT + "create = true", "3: vault.cold.create: needs a device"),
    (
        VAULT + "[[vault.cold.device]]\nnbd='nbdkit:file /mnt/a/x.img'\nrequires_mount = '/mnt/ab'",
        "5: vault.cold.device[0].requires_mount: nothing of this device is in /mnt/ab",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nrequires_mount = '/mnt/ab'",
        "requires_mount: nothing of this device is in /mnt/ab: name the mount point",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nrequires_unit = 'wg0'",
        'requires_unit: "wg0" is not the name of a systemd unit, as in wg-quick@wg0.service',
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nrequires_unit = ['a.service', 'zvaultd.service']",
        "requires_unit: zvaultd.service is zvault's own",
    ),
    (
        VAULT + "up = 'ondemand'",
        'must be one of "on-demand", "always", not the string "ondemand"; did you mean "on-d',
    ),
    ('[vault.cold]\npool = "cold/x"', '2: vault.cold.pool: is the name of a pool, without a path: "cold"'),
    ('[vault.cold]\npool = "raidz9"', '2: vault.cold.pool: "raidz9" is no name for a pool'),
    ('[vault.cold]\npool = "wärme"', "2: vault.cold.pool: the dataset name 'wärme' has 'ä' at character 2"),
    ('[vault."a b"]\npool = "cold"', "1: vault.\"a b\": the name 'a b' is not allowed"),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ntimeout = 90",
        "5: vault.cold.device[0].timeout: must be a string (dur",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ntimeout = '0s'",
        "5: vault.cold.device[0].timeout: must be whole sec",
    ),
    (VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ntimeout = '1.5s'", "must be whole seconds"),
    (VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ntimeout = '9x'", "there is no unit of time 'x'"),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nsize = '1G'",
        "5: vault.cold.device[0].size: only nbdkit:file makes",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='nbdkit:file dir=/x'\nsize = '1G'",
        "device[0].size: nbd names no file",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='nbdkit:file /x'\nsize = '0'",
        "device[0].size: must be more than nothing",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='nbdkit:file /x'\nsize = '5Q'",
        "device[0].size: '5Q' is not a size",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ncache = {}",
        "vault.cold.device[0].cache.bcache: is missing; for example",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\ncache = { bcache = 'nvme0n1p4' }",
        'vault.cold.device[0].cache.bcache: "nvme0n1p4" is not the path of a device',
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nvdev = 'special'",
        'vault.cold.device: are all "special": one must be for data',
    ),
    (
        VAULT + DEVICE + DEVICE.replace("h'", "i'") + "vdev = 'special'\nmirror = 'a'",
        "vault.cold.device: [0] has no mirror while others do",
    ),
    (
        VAULT + DEVICE + "mirror = 'a'\n" + DEVICE.replace("h'", "i'") + "mirror = 'b'",
        'vault.cold.device: have a mirror "a" of one data device',
    ),
    (
        VAULT + "special_small_blocks = '128K'\n" + DEVICE,
        'vault.cold.special_small_blocks: needs a device with vdev = "special"',
    ),
    (
        VAULT + "special_small_blocks = '100K'\n" + DEVICE,
        "vault.cold.special_small_blocks: must be a power of two",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nconnections = 0",
        "connections: must be at least 1, not the integer 0",
    ),
    (
        VAULT + f"[[vault.cold.device]]\nnbd='tcp:h'\nconnections = {10**30}",
        "must be at most 64, not a huge integer",
    ),
    (
        VAULT + "[[vault.cold.device]]\nnbd='tcp:h'\nconnections = 2026-01-01",
        "an integer, not the date or time 2026-01-01",
    ),
    (VAULT + "profile = 'nbd-lna'", '3: vault.cold.profile: no profile "nbd-lna" in'),
    (VAULT + "profile = '../x'", "3: vault.cold.profile: the name '../x' is not allowed"),
    (
        VAULT + BACKUP.replace('"tank"', '"ssh://root@filer1"'),
        '4: backup.tank.source: names no dataset, as in "ssh://root@filer1/tank"',
    ),
    (
        VAULT + BACKUP.replace('"tank"', '"ssh://-oProxyCommand=x/tank"'),
        "4: backup.tank.source: 'ssh://-oProxyCommand=x' is no address of a host",
    ),
    (
        VAULT + BACKUP.replace('"tank"', '"rsync://filer1/tank"'),
        "4: backup.tank.source: rsync:// is not supported",
    ),
    (VAULT + 'host = "filer1"', "3: vault.cold.host: 'filer1' is no address of a host"),
    (
        VAULT + 'host = "ssh://filer1"\n[[vault.cold.device]]\nnbd = "tcp:h"',
        "vault.cold.device: are this host's, and the vault's pool is on another",
    ),
    (VAULT + 'stall = "2s"', "3: vault.cold.stall: must be at least 10s"),
    (VAULT + BACKUP + "limit = 5", "6: backup.tank.limit: must be a rate"),
    (VAULT + BACKUP + 'limit = "100B"', "6: backup.tank.limit: '100B' a second is too little"),
    (VAULT + BACKUP + 'limit = [{ start = "08:00" }]', "6: backup.tank.limit[0].rate: is missing"),
    (
        VAULT + BACKUP + 'limit = [{ rate = "1M", start = "25:00" }]',
        "limit[0].start: '25:00' is no time of day",
    ),
    (VAULT + BACKUP + 'limit = [{ rate = "1M", days = "mo" }]', "limit[0].days: 'mo' names no days"),
    (
        VAULT + BACKUP.replace('"tank"', '"tank@x"'),
        "4: backup.tank.source: the dataset name 'tank@x' has '@'",
    ),
    (
        VAULT + BACKUP.replace('"cold"', '"clod"'),
        '5: backup.tank.vault: no vault is called "clod"; did you mean "cold"?',
    ),
    (BACKUP, '3: backup.tank.vault: no vault is called "cold"; none is configured'),
    (
        VAULT + BACKUP + 'exclude = ["scratch/**"]',
        '6: backup.tank.exclude: "scratch/**" names nothing below the source',
    ),
    (VAULT + BACKUP + 'exclude = [\n"tank/a",\n"/tank"]', "8: backup.tank.exclude[1]: the pattern '/tank'"),
    (
        VAULT + BACKUP + "exclude = 5",
        "6: backup.tank.exclude: must be an array, not the integer 5",
    ),
    (
        VAULT + BACKUP + 'into = "{hots}/{dataset}"',
        "6: backup.tank.into: into = '{hots}/{dataset}' has {hots}",
    ),
    (VAULT + BACKUP + 'schedule = "hurly"', "6: backup.tank.schedule: schedule = 'hurly' is not known"),
    (VAULT + BACKUP + 'every = "1h"\nschedule = "hourly"', "6: backup.tank.every: stands beside schedule"),
    (
        VAULT + BACKUP + "every = 15",
        '6: backup.tank.every: must be a string (interval, as in "15m"), not the integer 15',
    ),
    (VAULT + BACKUP + 'max_lag = "0s"', "6: backup.tank.max_lag: must be more than 0s"),
    (VAULT + BACKUP + 'max_restore = "0s"', "6: backup.tank.max_restore: must be more than 0s"),
    (
        VAULT + BACKUP + 'snapshot.prefix = "a@b"',
        "6: backup.tank.snapshot.prefix: the name 'a@b' is not allowed",
    ),
    (
        VAULT + BACKUP + "keep.source.last = -1",
        "6: backup.tank.keep.source.last: must be at least 0, not the integer -1",
    ),
    (VAULT + BACKUP + "keep.vault = 3", "6: backup.tank.keep.vault: must be a table, not the integer 3"),
    (
        VAULT + BACKUP + "keep = { vault = { dayly = 3 } }",
        '6: backup.tank.keep.vault.dayly: unknown key; did you mean "d',
    ),
    (VAULT + BACKUP + "hook = { before = 'x' }", '6: backup.tank.hook: unknown key; did you mean "hooks"'),
    ('[daemon]\nmetrics = "9712"', '2: daemon.metrics: "9712" is not HOST:PORT'),
    ('[daemon]\nmetrics = "h:99999"', "2: daemon.metrics: port 99999 is not between"),
    (
        '[daemon]\ntimezone = "Europe/Viena"',
        '2: daemon.timezone: "Europe/Viena" is not a time zone this host knows; did you',
    ),
    ('[daemon]\ntimezone = "America"', '2: daemon.timezone: "America" is not a time zone'),
    ('[daemon]\ntimezone = "/etc/passwd"', '2: daemon.timezone: "/etc/passwd" is not a time zone'),
    ('[daemon]\nhost = "a/b"', "2: daemon.host: must be one name"),
    ('[daemon]\nhost = "a b\\u0007"', "2: daemon.host: the dataset name"),
    (
        "[vault.cold]\npool = cold",
        '2: is not valid TOML: invalid value (column 8); a text is written in quotes: pool = "cold"',
    ),
    (
        "[backup.b]\nsource = tank/my files  # here",
        '2: is not valid TOML: invalid value (column 10); a text is written in quotes: source = "tank/my files"',
    ),
    ("[vault.cold]\npool = =", "2: is not valid TOML: invalid value (column 8)"),
    (
        VAULT + "pool = 'x'",
        "3: is not valid TOML: cannot overwrite a value (at end of document); it stands on line 2 already",
    ),
    (
        VAULT + VAULT,
        "3: is not valid TOML: cannot declare ('vault', 'cold') twice (column 12); it stands on line 1 already",
    ),
    ('a = """\nx\n\n', "2: is not valid TOML: unterminated string (at end of document)"),
    (b'[vault.cold]\npool = "\xff"', "2: is not UTF-8, as TOML must be: byte 0xff"),
    ("a = " + "[" * 100_000, "is not valid TOML"),
    ("a = " + "9" * 10_000, "is not valid TOML: exceeds the limit"),
    ("x = '" + "y" * (5 << 20) + "'", "is larger than 4 MiB"),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_one_problem(problems: Problems, text: str | bytes, expected: str) -> None:
    (line,) = problems(text)
    assert line.startswith("zvault.toml:")
    assert expected in line
    assert line.isprintable()


QUIET = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@settings(max_examples=cases(300), suppress_health_check=QUIET, deadline=None)
@given(st.data())
def test_whatever_the_file_holds_the_error_is_ours(paths: Paths, data: st.DataObject) -> None:
    """Valid TOML of any shape at any of our keys: a configuration or a ConfigError of one-line problems."""
    scalar = st.sampled_from(
        ["1", "-5", "1.5", "nan", "true", '""', '"x"', "2026-01-01", "[]", "{}", "[{}]", "[[1]]"]
    )
    value = scalar | st.sampled_from(
        ['"tank"', '"cold"', '"1h"', '"nbdkit:file /x"', "{ last = 1 }", "{ x = [ {} ] }"]
    )
    key = st.sampled_from(
        ["daemon", "vault", "backup", "vault.a", "vault.a.pool", "vault.a.device", "backup.b", "backup.b.source",
         "backup.b.vault", "backup.b.exclude", "backup.b.keep", "backup.b.keep.source", "backup.b.keep.source.last",
         "backup.b.every", "backup.b.schedule", "backup.b.snapshot", "backup.b.into", 'vault."ä".pool', "daemon.host",
         "vault.a.profile", '"".x', "backup.b.max_lag", "backup.b.send.raw", "vault.a.create"]
    )  # fmt: skip
    pairs = data.draw(st.lists(st.tuples(key, value), max_size=8))
    paths.config_file.write_text("".join(f"{k} = {v}\n" for k, v in pairs))
    try:
        load_config(paths)
    except ConfigError as error:
        lines = error.why.splitlines()
        assert lines
        assert all(line.startswith(f"{paths.config_file}:") and line.isprintable() for line in lines)
