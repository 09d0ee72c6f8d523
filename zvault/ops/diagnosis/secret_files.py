"""Whether the secrets that a configuration names are there: files and systemd's credentials. None is ever told."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.nbd import NbdkitServer
from zvault.config.device_specs.s3backer import S3BACKER_SECRETS, S3backerServer
from zvault.config.schema import Config
from zvault.config.tables.device import Device
from zvault.core.errors import ZvaultError
from zvault.core.notify.secrets import NotifySecret
from zvault.ops.deliver_message import describe_secret_place, read_secret
from zvault.system.credentials import find_credential_file, is_kept_for_units


def list_secret_warnings(config: Config) -> list[str]:
    """Return a warning for each secret that cannot be used, as ``KEY: what``.

    A user other than root is told where it cannot be known.
    """
    checked = [(key, _line(secret, table)) for key, secret, table in _lines(config)]
    checked += [
        (f"vault.{vault.name}.device[{index}].nbd", _file(secret))
        for vault in config.vault.values()
        for index, device in enumerate(vault.device)
        for secret in _of_device(device)
    ]
    return [f"{key}: {problem}" for key, problem in checked if problem]


def _lines(config: Config) -> Iterator[tuple[str, NotifySecret, str]]:
    """Secrets that zvaultd reads itself, each a line of text, with their keys and tables."""
    if config.page.password is not None:
        yield "page.password", config.page.password, "[page]"
    for table in config.notify.values():
        key = f"notify.{table.name}"
        named = [(f"{key}.{table.way}", url) for url in table.urls()]
        named += [(f"{key}.{name}", one) for name in ("token", "password") if (one := getattr(table, name))]
        yield from ((name, secret, "[notify]") for name, secret in named if secret.kept != "here")


def _of_device(device: Device) -> Iterator[NotifySecret]:
    """Files with keys that a device's server reads."""
    server = device.nbd
    if isinstance(server, BlockstoreServer):
        if credential := server.setting("credential"):
            yield NotifySecret("credential", credential)
        if keys := server.setting("keys"):
            yield NotifySecret("file", keys)
    elif isinstance(server, NbdkitServer):
        values = (parameter.partition("=")[2] for parameter in server.params)
        yield from (NotifySecret("file", value[1:]) for value in values if value.startswith("+/"))
    elif isinstance(server, S3backerServer):
        yield from (
            NotifySecret("file", path) for name in S3BACKER_SECRETS.values() if (path := server.setting(name))
        )


def _line(secret: NotifySecret, table: str) -> str:
    """What is wrong with a secret that is a line of text; empty: nothing."""
    if problem := _unasked(secret):
        return problem
    try:
        read_secret(secret, table)
    except ZvaultError as error:
        return "" if _only_for_units(secret) else str(error)
    return ""


def _file(secret: NotifySecret) -> str:
    """The same of a file whose form is its reader's."""
    if problem := _unasked(secret):
        return problem
    try:
        path = find_credential_file(secret.text) if secret.kept == "credential" else Path(secret.text)
        found = path.stat()
    except ZvaultError as error:
        return "" if _only_for_units(secret) else str(error)
    except OSError as error:
        return f"{secret.text} cannot be read: {error.strerror}"
    if not stat.S_ISREG(found.st_mode) or not found.st_size:
        return f"{path} has no keys in it"
    if secret.kept == "file" and found.st_mode & stat.S_IROTH:
        return f"every user of this host may read {path}: chmod 600 {path}"
    return ""


def _unasked(secret: NotifySecret) -> str:
    """Why somebody who is not root cannot know; empty where it can be looked at."""
    if os.geteuid() == 0 or (secret.kept == "file" and os.access(secret.text, os.R_OK)):
        return ""
    return f"whether {describe_secret_place(secret)} is there and right only root can see"


def _only_for_units(secret: NotifySecret) -> bool:
    """True if it is a credential that is not missing, though nobody but systemd can read it."""
    return secret.kept == "credential" and is_kept_for_units(secret.text)
