"""The program ``zvaultd``: its arguments, one at a time, and how it ends."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import zvault
from zvault.config.paths import Paths
from zvault.core.errors import Busy, ZvaultError
from zvault.system import builtin_hashes

if TYPE_CHECKING:
    from zvault.config.schema import Config

PYDANTIC_ENVIRONMENT = {"PYDANTIC_DISABLE_PLUGINS": "__all__", "PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS": "1"}
"""It looks for no plugins, for which it reads something of each package that is installed, and does not check what it
makes of our models, which takes as long as making it. Since 2.11 it does not by itself (its pull request 11271).
"""


@contextlib.contextmanager
def _importing() -> Iterator[None]:
    """Keep imports short.

    Nobody looks for garbage meanwhile, which is an eighth of them, nor later among what was imported. Neither pydantic
    nor APScheduler looks for plugins. What is imported hashes without OpenSSL.
    """
    gc.disable()
    builtin_hashes.use_builtin_hashes()
    from importlib import metadata

    os.environ.update(PYDANTIC_ENVIRONMENT)
    entry_points = metadata.entry_points
    vars(metadata)["entry_points"] = lambda **_: ()
    try:
        yield
    finally:
        vars(metadata)["entry_points"] = entry_points
        for name in PYDANTIC_ENVIRONMENT:
            os.environ.pop(name)
        builtin_hashes.use_openssl_hashes()
        gc.freeze()
        gc.enable()


def _import_without_tls() -> None:
    """Import what would have read all certificates of the host, for TLS that zvaultd never speaks by it.

    asyncio and aiohttp do without ssl. Who needs TLS later (boto3) imports it then, and what goes with it anew. Where
    an aiohttp should not do without, all is as if this had not been tried.
    """
    before = set(sys.modules)
    sys.modules["ssl"] = None  # type: ignore[assignment]
    again = ["ssl", "http.client", "urllib.request"]
    try:
        import aiohttp.web  # noqa: F401
    except Exception:  # whatever another version of it does there
        again += sys.modules.keys() - before
    for name in again:
        sys.modules.pop(name, None)
        parent, _, attribute = name.rpartition(".")
        if parent in sys.modules:
            vars(sys.modules[parent]).pop(attribute, None)


@contextlib.contextmanager
def lock_instance(paths: Paths) -> Iterator[None]:
    """Keep a second daemon out. The kernel frees the lock when its holder dies. Raises Busy."""
    paths.run.mkdir(parents=True, exist_ok=True)
    file = (paths.run / "zvaultd.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        raise Busy(
            "another zvaultd is running",
            f"process {file.read().strip() or 'unknown'} holds {file.name}",
            "'systemctl status zvaultd' shows it; two would get in each other's way",
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    try:
        yield
    finally:
        file.close()


def _serve(config: Config, paths: Paths) -> None:
    """Live, in an event loop that measures how long it keeps others waiting."""
    import asyncio

    from zvault.daemon.assemble import assemble_daemon
    from zvault.system.loop_lag import LagSelector

    selector = LagSelector()

    async def serve() -> None:
        await assemble_daemon(config, paths, loop_lag=selector.longest).serve()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(serve())


def main() -> None:
    """Entry point of ``zvaultd``. Exit status 0 after a drain, 2 where it cannot start."""
    parser = argparse.ArgumentParser(prog="zvaultd", description="The zvault daemon; systemd starts it.")
    parser.add_argument("--version", action="version", version=f"zvaultd {zvault.__version__}")
    parser.add_argument(
        "--etc", type=Path, default=Paths().etc, help="where zvault.toml is (default: %(default)s)"
    )
    parser.add_argument(
        "--run", type=Path, default=Paths().run, help="socket and leases (default: %(default)s)"
    )
    parser.add_argument("--state", type=Path, default=Paths().state, help="history (default: %(default)s)")
    arguments = parser.parse_args()
    paths = Paths(etc=arguments.etc, run=arguments.run, state=arguments.state)
    with _importing():
        _import_without_tls()
        from zvault.config.load_config import find_readable_secrets, load_config
        from zvault.daemon import assemble, journald  # noqa: F401 - the daemon itself, for _serve
    journald.set_up_logging()
    try:
        if os.geteuid() != 0:
            raise ZvaultError(
                "zvaultd must run as root", "it imports pools and receives into them", "use systemd"
            )
        config = load_config(paths)
        for told in find_readable_secrets(paths, config):
            journald.log.warning("%s", told)
        with lock_instance(paths):
            _serve(config, paths)
    except ZvaultError as error:
        journald.log.error("zvaultd cannot start: %s", error)
        sys.exit(2)
