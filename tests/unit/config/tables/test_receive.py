"""Properties that a backup sets or leaves out on its vault: what is refused, and why."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from zvault.config.schema import Config

Good = Callable[..., Config]
Problems = Callable[..., list[str]]

HEAD = '[daemon]\nhost = "h"\n[vault.cold]\npool = "cold"\n[backup.a]\nsource = "tank"\nvault = "cold"\n'


def test_values_are_what_zfs_prints(good: Good) -> None:
    table = '{ set = { atime = false, copies = 2, recordsize = "1M", "a:b" = "x y" }, leave_out = ["xattr", "c:d"] }'
    own = good(f"{HEAD}receive = {table}\n").backup["a"].receive.properties
    assert own.values == {"atime": "off", "copies": "2", "recordsize": "1048576", "a:b": "x y"}
    assert own.left_out == ("xattr", "c:d")
    assert good(HEAD).backup["a"].receive.properties.words("filesystem") == frozenset()


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (
            "set = { mountpoint = '/x' }",
            "set: 'mountpoint' is not a backup's to say: it is never taken from a source",
        ),
        ("set = { readonly = 'off' }", "neither mounted nor written to"),
        ("set = { canmount = 'on' }", "neither mounted nor written to"),
        ("set = { quota = '1T' }", "a limit of the dataset itself stops its streams"),
        ("set = { encryption = 'on' }", "the stream brings it"),
        ("set = { 'org.zvault:sent' = 'x' }", "a property of zvault's own"),
        ("set = { compression = 'zstd-99' }", "'compression' must be one of on, off, lz4"),
        ("set = { recordsize = '3M' }", "'recordsize' must be a power of two"),
        ("set = { atime = 1.5 }", "must be the value of a ZFS property, not the float 1.5"),
        ("leave_out = ['readonly']", "neither mounted nor written to"),
        ("leave_out = ['checksum']", "never taken from a source: there is nothing to leave out"),
        ("leave_out = ['org.zvault:sent']", "a property of zvault's own"),
        ("set = { atime = 'off' }, leave_out = ['atime']", '"atime" is in set, too'),
        ("let_in = ['mountpoint']", "no property that steers another tool (autobackup:*, "),
        ("leave_out = ['autobackup:x'], let_in = ['autobackup:x']", "is in leave_out, too"),
    ],
)
def test_refused(problems: Problems, table: str, said: str) -> None:
    (line,) = problems(f"{HEAD}receive = {{ {table} }}\n")
    assert line.startswith("zvault.toml:8: backup.a.receive.")
    assert said in line
