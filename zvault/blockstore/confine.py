"""The block store's server kept to its own folders, where the kernel has Landlock: it parses what a bucket says."""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Iterable
from pathlib import Path

from zvault.blockstore.reached_store import make_s3_settings
from zvault.blockstore.serve_options import ServeOptions
from zvault.core.errors import ZvaultError
from zvault.system import landlock

PROGRAM_PATHS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/nix", "/gnu")
"""What is run, and its libraries: also what boto3's configuration may name to get keys with."""

HOST_KNOWLEDGE_PATHS = (
    "/etc",
    "/proc",
    "/sys",
    "/run/systemd/resolve",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/nscd",
)
"""How names are resolved, certificates, keys; and what the host and the process are like."""

DEVICE_PATHS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

AWS_FOLDER = Path("~/.aws")
AWS_WRITES = ("~/.aws/sso/cache", "~/.aws/login/cache", "~/.aws/cli/cache")
"""Where boto3 keeps tokens that it renews."""

CREDENTIAL_VARIABLES = (
    "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "AWS_DATA_PATH", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "CREDENTIALS_DIRECTORY",
)  # fmt: skip
"""Of the environment: files and folders that boto3 and TLS read."""


def confine_server(words: ServeOptions) -> str:
    """Keep the server to what it needs, and say in words what came of it. Called before it starts any thread.

    Makes the folders of its journal and its cache, because what is not there cannot be allowed.
    """
    own = list_own_folders(words)
    try:
        for folder in own:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        return f"not kept to its own folders: {error}"  # it will not get far
    rights = landlock.grant_read(list_read_paths(words))
    rights |= landlock.grant_write(
        [*own, *map(Path, DEVICE_PATHS), *(Path(one).expanduser() for one in AWS_WRITES)]
    )
    try:
        done = landlock.restrict_paths(rights)
    except OSError as error:
        return f"not kept to its own folders: {error}"
    if not done:
        return "not kept to its own folders: this kernel has no Landlock"
    before = len(os.listdir("/proc/self/task")) - 1  # noqa: PTH208 - only how many
    return f"kept to its own folders, but for {before} threads" if before else "kept to its own folders"


def list_own_folders(words: ServeOptions) -> list[Path]:
    """The folders that it writes to."""
    spec = words.spec
    journal = None if words.readonly or spec.journal is None else Path(spec.journal)
    status = words.status.parent if words.status is not None else None
    cache = Path(spec.cache) if spec.cache is not None else None
    # A user of its own has the file of its position opened for it, and may write to no other store's.
    seen = words.seen if words.user is None else None
    return [one for one in (journal, cache, status, seen) if one is not None]


def list_read_paths(words: ServeOptions) -> list[Path]:
    """List what the server reads besides its own folders."""
    try:
        settings = make_s3_settings(words.spec)
    except ZvaultError:
        named: list[str] = []  # it will say so itself
    else:
        secrets = (settings.access_key, settings.secret_key, settings.session_token)
        named = [
            settings.keys or "",
            *(one[1:] for one in secrets if one is not None and one.startswith("+")),
        ]
    named += [os.environ.get(name, "") for name in CREDENTIAL_VARIABLES]
    libraries = [*sys.path, *site.getsitepackages(), sys.prefix, sys.base_prefix]
    found = [Path(one) for one in (*PROGRAM_PATHS, *HOST_KNOWLEDGE_PATHS, *libraries) if one]
    return [*found, AWS_FOLDER.expanduser(), *_with_folders(Path(one).expanduser() for one in named if one)]


def _with_folders(paths: Iterable[Path]) -> Iterable[Path]:
    """Files that may be replaced by others of the same name: so their folders, unless that is the root folder."""
    for path in paths:
        for one in {path, path.resolve()}:
            yield one
            if one.parent != Path("/"):
                yield one.parent
