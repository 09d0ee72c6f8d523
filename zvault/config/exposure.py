"""What of a configuration other users of this host can read or change, though it is in force: told, and not refused."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.secret_words import is_secret_variable
from zvault.config.foreign_writers import find_writers
from zvault.config.problems import ConfigFinding
from zvault.config.schema import Config
from zvault.config.tables.hooks import Hook, Hooks
from zvault.config.toml_lines import KeyPath
from zvault.core.notify.secrets import holds_secret

INTERPRETER_NAMES = re.compile(r"(ba|da|z|k)?sh|python3?(\.\d+)?|perl")
"""Programs whose first argument, if it is a file, is the program that counts."""

SCRIPTED_PLUGINS = frozenset({"lua", "perl", "python", "ruby", "sh", "tcl"})
"""nbdkit's plugins whose first parameter is a program in that language."""


def find_exposed_secrets(config: Config, homes: Mapping[KeyPath, Path]) -> Iterator[ConfigFinding]:
    """Secrets in a file that every user of this host may read. ``homes`` says which file a key is in. None is shown."""
    for path in _inline_secrets(config):
        file = next((homes[path[:n]] for n in range(len(path), 0, -1) if path[:n] in homes), None)
        if file is not None and _all_may_read(file):
            yield ConfigFinding(
                path,
                f"looks as if it holds a secret, and every user of this host may read {file}: 'chmod go-r {file}'",
            )


def find_writable_programs(config: Config) -> Iterator[ConfigFinding]:
    """Programs that zvaultd runs as root and that others than root may write."""
    for path, program in _programs(config):
        for found in find_writers([program])[:1]:
            yield ConfigFinding(path, f"root runs {program}, and {found}: '{found.cure}'")


def _inline_secrets(config: Config) -> Iterator[KeyPath]:
    for name, table in config.notify.items():
        if any(one.kept == "here" and holds_secret(one.text) for one in table.urls()):
            yield ("notify", name, table.way)
    for path, hook in _hooks(config):
        if any(is_secret_variable(variable) and value for variable, value in hook.environment.items()):
            yield (*path, "environment")
        if any(holds_secret(word) for word in hook.run):
            yield (*path, "run")


def _hooks(config: Config) -> Iterator[tuple[KeyPath, Hook]]:
    for name, backup in config.backup.items():
        path: KeyPath = ("backup", name)
        yield from _each((*path, "hooks"), backup.hooks)
        yield from _each((*path, "snapshot", "hooks"), backup.snapshot.hooks)


def _each(path: KeyPath, hooks: Hooks) -> Iterable[tuple[KeyPath, Hook]]:
    lists = (("before", hooks.before), ("after", hooks.after))
    return [((*path, when, index), hook) for when, listed in lists for index, hook in enumerate(listed)]


def _programs(config: Config) -> Iterator[tuple[KeyPath, Path]]:
    for path, hook in _hooks(config):
        yield from (((*path, "run"), Path(word)) for word in _run_words(hook.run))
    for name, vault in config.vault.items():
        if vault.encryption is not None and vault.encryption.command is not None:
            yield ("vault", name, "encryption", "command"), Path(vault.encryption.command)
        for index, device in enumerate(vault.device):
            yield from (
                (("vault", name, "device", index, "nbd"), Path(one)) for one in _served_by(device.nbd)
            )


def _served_by(server: object) -> Iterator[str]:
    """What a device's server loads or runs: a program that gives a key, a plugin's script."""
    if isinstance(server, BlockstoreServer):
        if command := server.setting("encryption-command"):
            yield command
    elif isinstance(server, NbdkitServer) and server.plugin in SCRIPTED_PLUGINS:
        scripts = (one.removeprefix("script=") for one in server.params[:1])
        yield from (script for script in scripts if script.startswith("/"))


def _run_words(run: list[str]) -> Iterator[str]:
    """The words of a hook that name what is run; a program that is looked for on PATH is the system's."""
    head, *rest = run
    if head.startswith("/"):
        yield head
    if INTERPRETER_NAMES.fullmatch(os.path.basename(head)) and rest and rest[0].startswith("/"):  # noqa: PTH119
        yield rest[0]


def _all_may_read(file: Path) -> bool:
    """True if every user may read a file: it and each folder on the way to it let all in."""
    try:
        real = file.resolve()
        if not real.stat().st_mode & stat.S_IROTH:
            return False
        return all(folder.stat().st_mode & stat.S_IXOTH for folder in real.parents)
    except OSError:
        return False
