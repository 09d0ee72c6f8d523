"""'zvaultctl blockstore serve': nbdkit in this process's place, and what to do with what it serves."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from zvault.cli.output import print_line
from zvault.cli.tables import format_cell
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import Refused

if TYPE_CHECKING:
    from zvault.blockstore.kept_moments import KeptMoment
    from zvault.config.device_specs.blockstore import BlockstoreServer


def serve_store(
    place: blockstore_place.StorePlace, socket: Path, at: float | None, *, dry_run: bool, quiet: bool
) -> None:
    """Become a server of it, read-only, as it is or as it was ``at``; returns for ``dry_run`` only.

    Raises ZvaultError.
    """
    from zvault.blockstore.kept_moments import find_moment_up_to
    from zvault.blockstore.recovery import read_newest_root, read_root_at, read_superblock

    require_serve_tools()
    store, key = blockstore_place.reach_objects(place), place.spec.key
    what = read_superblock(store, key)
    newest, moment = read_newest_root(store, key, what), None
    if at is not None:
        moment = find_moment_up_to(newest.past, at, str(place))
        read_root_at(store, key, what, moment)
    become_server(place, socket, moment, None, dry_run=dry_run, quiet=quiet)


def require_serve_tools() -> None:
    """See that nbdkit and its plugin are there. Raises ToolMissing."""
    import asyncio

    from zvault.devices.nbd.blockstore_server import check_store_tools
    from zvault.system.process.runner import HostRunner

    asyncio.run(check_store_tools(HostRunner()))


def become_server(
    place: blockstore_place.StorePlace,
    socket: Path,
    moment: KeptMoment | None,
    before: float | None,
    *,
    dry_run: bool,
    quiet: bool,
) -> None:
    """Become a server of it as it is or was; ``before``: see view_command. Raises Refused."""
    import shlex

    from zvault.devices.nbd.blockstore_server import view_store_argv

    socket = socket.absolute()
    at = "" if moment is None else f"{moment.epoch}-{moment.number}"
    argv = view_store_argv(socket, make_read_only_server(place), at, before)
    _see_free(socket)
    if dry_run:
        print_line(f"would run {shlex.join(argv)}")
        return
    if not quiet:
        for line in _advice(
            place, socket, "now" if moment is None else format_cell(moment.taken, "time", False)
        ):
            print_line(line)
        sys.stdout.flush()
    socket.unlink(missing_ok=True)
    os.umask(0o077)
    os.execvp(argv[0], argv)  # noqa: S606 - no shell is wanted


def make_read_only_server(place: blockstore_place.StorePlace) -> BlockstoreServer:
    """Return what is served: of a vault's device without what its own server has for itself."""
    from zvault.devices.nbd.past_store import strip_for_reading

    return strip_for_reading(place.spec) if place.vault else place.spec


def _see_free(socket: Path) -> None:
    from zvault.devices.nbd import sockets

    if not os.path.lexists(socket):
        return
    if sockets.is_unix_listening(str(socket)):
        raise Refused(f"{socket} is in use", "a server listens there", "choose another path for --socket")
    if not socket.is_socket():
        raise Refused(f"{socket} is no socket", "something else is there", "choose another path for --socket")


def _advice(place: blockstore_place.StorePlace, socket: Path, when: str) -> Iterator[str]:
    import shlex

    from zvault.devices.nbd import connection

    device = connection.nbd_device_path(connection.list_free_devices()[0])
    pool = place.pool or "POOL"
    state = "as it is now" if when == "now" else f"as it was {when}"
    yield f"serving {place} read-only, {state}; end it with Ctrl-C. Attach it, and import its pool, by"
    yield f"  nbd-client -unix {shlex.quote(str(socket))} {device} -readonly"
    yield f"  zpool import -f -o readonly=on -N -d {device} -t {pool} {pool}-view"
    if place.vault:
        yield "ZFS refuses that while the vault is up on this host: both are the same pool."
