"""Secrets that stand in a file which every user may read, and programs of root's that others may write, are told."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from zvault.config.load_config import find_readable_secrets, list_doubts, load_config
from zvault.config.paths import Paths

KEY = "3f0c9a51-7c1e-4bb2-9d64-7a1f0f3f2a10"

BACKUP = """
[vault.cold]
pool = "cold"
[backup.home]
source = "tank/home"
vault = "cold"
"""

SECRETS = {
    "notify.a.healthchecks": f'[notify.a]\nhealthchecks = "https://hc-ping.com/{KEY}/{{backup}}"\n',
    "notify.a.apprise": '[notify.a]\napprise = "tgram://123456789:AAFc0ffee0c0ffee0c0ffee/42"\n',
    "notify.a.webhook": '[notify.a]\nwebhook = "https://example.org/hook?key=c0ffee0c0ffee0c0ffee"\n',
    "backup.home.hooks.after[0].run": f'[backup.home.hooks]\nafter = [["curl", "https://hc-ping.com/{KEY}"]]\n',
    "backup.home.hooks.before[0].run": (
        '[backup.home.hooks]\nbefore = [["psql", "postgresql://me:pass@db/shop", "-c", "CHECKPOINT"]]\n'
    ),
    "backup.home.snapshot.hooks.before[0].environment": (
        '[[backup.home.snapshot.hooks.before]]\nrun = ["psql"]\nenvironment = { PGPASSWORD = "x" }\n'
    ),
}
"""Tables with a secret, by its key."""

NONE = (
    "",
    '[notify.a]\nwebhook = "https://example.org/zvault"\n',
    '[notify.a]\nhealthchecks = "credential:zvault.notify-hc"\n',
    '[notify.a]\nntfy = "https://ntfy.example.org/zvault"\ntoken = "file:/etc/zvault/token"\n',
    '[[backup.home.hooks.after]]\nrun = ["tell", "https://example.org/a/very-long-name-of-a-page"]\n'
    'environment = { PGPORT = "5433", OLDPWD = "/" }\n',
)


@pytest.fixture
def paths() -> Iterator[Paths]:
    """A configuration on a way that lets all in, as /etc is."""
    with tempfile.TemporaryDirectory() as made:
        etc = Path(made) / "etc"
        (etc / "conf.d").mkdir(parents=True)
        for folder in (Path(made), etc, etc / "conf.d"):
            folder.chmod(0o755)
        if not Path(tempfile.gettempdir()).stat().st_mode & 0o001:
            pytest.skip(f"{tempfile.gettempdir()} is closed")
        yield Paths(etc=etc)


def write(file: Path, text: str, mode: int) -> None:
    file.write_text(text)
    file.chmod(mode)


@pytest.mark.parametrize("key", SECRETS)
def test_a_secret_in_a_file_that_all_may_read_is_told_and_not_shown(paths: Paths, key: str) -> None:
    write(paths.config_file, BACKUP + SECRETS[key], 0o644)
    (told,) = find_readable_secrets(paths, load_config(paths))
    assert told.startswith(f"{key}: looks as if it holds a secret")
    assert f"'chmod go-r {paths.config_file}'" in told
    assert not any(word in told for word in (KEY, "ffee", "pass@"))
    assert told in list_doubts(paths, load_config(paths)), "check-config tells it"
    paths.config_file.chmod(0o600)
    assert find_readable_secrets(paths, load_config(paths)) == []
    paths.config_file.chmod(0o644)
    paths.etc.chmod(0o700)
    assert find_readable_secrets(paths, load_config(paths)) == []
    paths.etc.chmod(0o755)


@pytest.mark.parametrize("text", NONE)
def test_what_holds_no_secret_is_not_told(paths: Paths, text: str) -> None:
    write(paths.config_file, BACKUP + text, 0o644)
    assert find_readable_secrets(paths, load_config(paths)) == []


def test_the_file_that_holds_it_counts(paths: Paths) -> None:
    write(paths.config_file, BACKUP, 0o644)
    more = paths.etc / "conf.d" / "more.toml"
    write(more, SECRETS["notify.a.healthchecks"], 0o600)
    assert find_readable_secrets(paths, load_config(paths)) == []
    more.chmod(0o644)
    (told,) = find_readable_secrets(paths, load_config(paths))
    assert str(more) in told


@pytest.mark.parametrize("words", ['"PROGRAM"', '"sh", "PROGRAM"', '"/usr/bin/python3", "PROGRAM", "x"'])
def test_a_program_of_roots_that_others_may_write_is_told(paths: Paths, words: str) -> None:
    program = paths.etc / "tell"
    write(program, "#!/bin/sh\n", 0o755)
    run = words.replace("PROGRAM", str(program))
    write(paths.config_file, f"{BACKUP}[backup.home.hooks]\nafter = [[{run}]]\n", 0o644)
    assert find_readable_secrets(paths, load_config(paths)) == []
    program.chmod(0o775)
    (told,) = find_readable_secrets(paths, load_config(paths))
    assert told.startswith("backup.home.hooks.after[0].run: root runs ")
    assert f"'chmod go-w {program}'" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_so_is_a_program_that_gives_a_key(paths: Paths) -> None:
    program = paths.etc / "key"
    write(program, "#!/bin/sh\n", 0o755)
    os.chown(program, 65534, 0)
    device = f'encryption = {{ command = "{program}" }}\n[[vault.cold.device]]\nnbd = "nbdkit:file /x.img"\n'
    encrypted = BACKUP.replace('pool = "cold"\n', f'pool = "cold"\n{device}', 1)
    write(paths.config_file, encrypted, 0o644)
    (told,) = find_readable_secrets(paths, load_config(paths))
    assert told.startswith("vault.cold.encryption.command: root runs ")
    assert "belongs to nobody" in told


@pytest.mark.parametrize("nbd", ["nbdkit:python PROGRAM", "nbdkit:sh script=PROGRAM"])
def test_so_is_what_nbdkit_loads(paths: Paths, nbd: str) -> None:
    program = paths.etc / "serve"
    write(program, "", 0o775)
    device = f'[[vault.cold.device]]\nnbd = "{nbd.replace("PROGRAM", str(program))}"\n'
    write(paths.config_file, BACKUP + device, 0o644)
    (told,) = find_readable_secrets(paths, load_config(paths))
    assert told.startswith("vault.cold.device[0].nbd: root runs ")
    program.chmod(0o755)
    assert find_readable_secrets(paths, load_config(paths)) == []
