"""NBD servers as the configuration names them: ``zvault:BUCKET/KEY …``, ``nbdkit:PLUGIN …``, ``tcp:host`` and more.

Parsing only; argv is built where the tools are called. What is refused here would start something else
than was meant (an option instead of a parameter, a relative path below ``/``), or show a secret in the
process list.
"""

from __future__ import annotations

import difflib
import posixpath
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from zvault.config.device_specs.blockstore import BlockstoreServer, parse_blockstore
from zvault.config.device_specs.s3backer import S3backerServer, parse_s3backer
from zvault.config.device_specs.secret_words import is_secret, refuse_secrets_within

NBD_PORT = 10809
"""The port IANA gave NBD."""

SUN_PATH = 107
"""Longest path of a unix socket, in bytes: sun_path in unix(7), less its terminating zero."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_PARAMETER = re.compile(r"([A-Za-z][A-Za-z0-9._-]*)=(.*)", re.DOTALL)
_HOST = re.compile(
    r"(?:\[(?P<v6>[0-9A-Fa-f:.%A-Za-z]+)\]|(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*))(?::(?P<port>[0-9]+))?"
)


@dataclass(frozen=True, slots=True)
class NbdkitServer:
    """A server zvault starts itself: ``nbdkit --filter=F1 --filter=F2 PLUGIN PARAM…``, in this order."""

    plugin: str
    filters: tuple[str, ...] = ()
    params: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [self.plugin, *self.params, *(f"filter={name}" for name in self.filters)]
        return "nbdkit:" + " ".join(shlex.quote(word) for word in words)

    @property
    def backing_file(self) -> str | None:
        """The file that ``nbdkit:file`` serves; None for other plugins and for its ``dir=`` and ``fd=``."""
        if self.plugin != "file":
            return None
        for param in self.params:
            match = _PARAMETER.fullmatch(param)
            if match is None or match[1] == "file":
                return match[2] if match else param
        return None

    @property
    def identity(self) -> tuple[str, ...]:
        """The identity of what is served, whatever the filters: two equal ones are the same bytes."""
        file = self.backing_file
        return ("file", posixpath.normpath(file)) if file else ("nbdkit", self.plugin, *sorted(self.params))


@dataclass(frozen=True, slots=True)
class UnixServer:
    """A server that listens on a unix socket. The empty ``export`` is the server's default one."""

    path: str
    export: str = ""

    def __str__(self) -> str:
        return f"unix:{self.path}" + (f"?export={quote(self.export, safe='/')}" if self.export else "")

    @property
    def identity(self) -> tuple[str, ...]:
        return ("unix", posixpath.normpath(self.path), self.export)


@dataclass(frozen=True, slots=True)
class TcpServer:
    """A server reached over TCP. The empty ``export`` is the server's default one."""

    host: str
    port: int = NBD_PORT
    export: str = ""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}" + (f"/{quote(self.export, safe='/')}" if self.export else "")

    @property
    def identity(self) -> tuple[str, ...]:
        return ("tcp", self.host.lower(), str(self.port), self.export)


OwnServer = NbdkitServer | S3backerServer | BlockstoreServer
"""A server that zvault runs itself."""

NbdSpec = OwnServer | UnixServer | TcpServer


def parse_nbd(text: str) -> NbdSpec:
    """An NBD server from its configuration string. Raises ValueError: what is wrong and what is right."""
    scheme, colon, rest = text.partition(":")
    parsers: dict[str, Callable[[str], NbdSpec]] = {
        "zvault": parse_blockstore,
        "nbdkit": _parse_nbdkit,
        "s3backer": parse_s3backer,
        "unix": _parse_unix,
        "tcp": _parse_tcp,
    }
    if colon and scheme in parsers:
        return parsers[scheme](rest)
    if (other := _recognize_place(text)) is not None:
        raise ValueError(other)
    near = difflib.get_close_matches(scheme.split()[0] if scheme.split() else "", parsers, n=1)
    hint = f'; did you mean "{near[0]}:…"?' if near else ""
    raise ValueError(
        "starts with none of zvault:BUCKET/KEY …, nbdkit:PLUGIN …, s3backer:BUCKET …, unix:/path,"
        f" tcp:host[:port][/export]{hint}"
    )


def _recognize_place(text: str) -> str | None:
    """What to write for a place that other programs name so; None for what is none."""
    scheme, _, rest = text.partition("://")
    if text.startswith("/"):
        return (
            f"is for servers, and {text} is a file or disk of this host: a pool on disks of the host needs no"
            f" [[vault.NAME.device]]; a file is served by nbdkit:file {text}"
        )
    if not rest:
        return None
    if scheme in {"nbd", "nbds"}:
        return f'names a server as tcp:host[:port][/export]; write "tcp:{rest}"'
    if scheme in {"s3", "http", "https"}:
        bucket = rest.partition("/")[0] if scheme == "s3" else "BUCKET"
        return f'is an address; a block store in a bucket is written "zvault:{bucket}/KEY size=1T endpoint=https://…"'
    return None


def _parse_nbdkit(rest: str) -> NbdkitServer:
    try:
        words = shlex.split(rest)
    except ValueError as error:
        raise ValueError(f"cannot be split into words as a shell would: {str(error).lower()}") from None
    if not words:
        raise ValueError("names no plugin, as in nbdkit:file /var/lib/zvault/cold.img")
    plugin, filters, params = words[0], [], []
    if not _NAME.fullmatch(plugin):
        raise ValueError(
            f'"{_shown(plugin)}" is no nbdkit plugin; the plugin comes first, then its parameters'
        )
    for word in words[1:]:
        if word.startswith("filter="):
            filters.append(_filter_name(word.removeprefix("filter=")))
        else:
            _check_parameter(word)
            params.append(word)
    server = NbdkitServer(plugin, tuple(filters), tuple(params))
    file = server.backing_file
    if file is not None and not file.startswith("/"):
        raise ValueError(f'the file "{file}" must be an absolute path')
    return server


def _filter_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'"filter={name}" names no nbdkit filter, as in filter=delay')
    return name


def _shown(word: str) -> str:
    """A word for an error message, without what may be a secret in it."""
    key, equals, _ = word.partition("=")
    return f"{key}=…" if equals else key


def _check_parameter(word: str) -> None:
    if not word or word.startswith("-"):
        raise ValueError(
            f'"{_shown(word)}" is no parameter; nbdkit gets its options from zvault, filters are written filter=NAME'
        )
    if any(ord(char) < 32 or ord(char) == 127 for char in word):
        raise ValueError("a parameter holds a control character")
    match = _PARAMETER.fullmatch(word)
    refuse_secrets_within(word)
    if match and is_secret(match[1]) and not match[2].startswith("+/"):
        raise ValueError(
            f"{match[1]}=… would show the secret in the process list; "
            f"put it in a file that only root can read and write {match[1]}=+/path/of/that/file"
        )


def _parse_unix(rest: str) -> UnixServer:
    path, question, query = rest.partition("?")
    if not path.startswith("/"):
        raise ValueError("needs the absolute path of a socket, as in unix:/run/nbd.sock")
    if len(path.encode()) > SUN_PATH:
        raise ValueError(
            f"the path of a unix socket has at most {SUN_PATH} bytes, this one has {len(path.encode())}"
        )
    name, equals, value = query.partition("=")
    if question and not (name == "export" and equals):
        raise ValueError('only "?export=NAME" may follow the path')
    return UnixServer(path, _export(value))


def _parse_tcp(rest: str) -> TcpServer:
    address, _, export = rest.partition("/")
    match = _HOST.fullmatch(address)
    if match is None:
        hint = (
            "; an IPv6 address stands in brackets, as in tcp:[2001:db8::1]:10809"
            if address.count(":") > 1
            else ""
        )
        raise ValueError(f'"{address}" is not host[:port]{hint}')
    port = int(match["port"] or NBD_PORT)
    if not 0 < port < 65536:
        raise ValueError(f"port {port} is not between 1 and 65535")
    return TcpServer(match["v6"] or match["name"], port, _export(export))


def _export(text: str) -> str:
    name = unquote(text)
    if any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise ValueError("the export's name holds a control character")
    if name.startswith("-"):
        raise ValueError(
            f'the export\'s name "{name}" begins with "-", which nbd-client would take for an option'
        )
    return name
