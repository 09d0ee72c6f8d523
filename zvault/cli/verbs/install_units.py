"""zvaultctl install-units: systemd's units for a zvault that no package of the distribution brought."""

from __future__ import annotations

import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import zvault
from zvault import data
from zvault.cli.options import AsJson, DryRun
from zvault.cli.output import print_document, print_line, print_lines
from zvault.core.errors import Refused, ToolFailed
from zvault.data.units import OLDEST, SHIPPED_PROGRAMS, fit_unit

if TYPE_CHECKING:
    from zvault.config.foreign_writers import ForeignWriter

NEXT_COMMANDS = "systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"
"""What makes systemd know of what was written."""


def install_units(
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FOLDER", help="Where sysusers.d, tmpfiles.d and systemd/system are."),
    ] = Path("/etc"),
    remove: Annotated[bool, typer.Option("--remove", help="Remove what this verb writes.")] = False,
    dry_run: DryRun = False,
    json: AsJson = False,
) -> None:
    """Write zvault's systemd units, for the Python that runs this and the systemd of this host.

    For a zvault from a venv or pipx; Debian's package brings its units along. What the systemd here is too old for is
    left out of them. Files that are there are replaced; changes of your own belong into drop-ins ('systemctl edit').
    A zvault that others than root may write is refused: its units would have root run it.
    """
    programs = Path(sys.executable).parent
    if programs == Path(SHIPPED_PROGRAMS):
        raise Refused(
            "this zvault needs no units from here",
            f"its programs are in {SHIPPED_PROGRAMS}, and whatever put them there brings the units",
            "'systemctl cat zvaultd' shows them; see docs/how-to/install.md",
        )
    if not remove and (folder := find_closed_folder(Path(sys.prefix), Path(sys.base_prefix))) is not None:
        raise Refused(
            f"this zvault lies where only root can read: {folder}",
            "what zvaultd starts without root's rights, as its page and the servers of block stores, could not load it",
            "put it where all can read, as by 'python3 -m venv --system-site-packages /opt/zvault', or by pipx with"
            " PIPX_HOME=/opt/pipx",
        )
    if not remove and (found := find_foreign_code()) is not None:
        raise Refused(
            "others than root may write the code that zvaultd would run as root",
            str(found),
            f"'{found.cure}', and see to the rest of it; or install zvault anew as root, as by"
            " 'python3 -m venv --system-site-packages /opt/zvault' and its pip",
        )
    # No other verb needs what they import.
    import asyncio

    version = asyncio.run(_systemd())
    files = {to / name: fit_unit(text, str(programs), version) for name, text in _shipped().items()}
    if not dry_run:
        for path, text in files.items():
            if remove:
                path.unlink(missing_ok=True)
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    if json:
        print_document(
            "install-units", {"systemd": version, "files": sorted(map(str, files)), "next": NEXT_COMMANDS}
        )
        return
    print_lines(sorted(map(str, files)))
    if not dry_run:
        print_line("next: systemctl daemon-reload" if remove else f"next: {NEXT_COMMANDS}")


def find_closed_folder(*places: Path) -> Path | None:
    """The first folder on the way to one of these places that others than its owner may not enter."""
    ways = (folder for place in places for folder in reversed((place, *place.parents)))
    return next((folder for folder in ways if not folder.stat().st_mode & stat.S_IXOTH), None)


def find_foreign_code() -> ForeignWriter | None:
    """The first place of this zvault that others than root may write: its venv, its code, or a folder on the way there.

    What lies below /usr is the system's, and root runs it anyway: of the Python there only the way to it counts. Code
    may lie elsewhere than the venv: an editable installation leaves it in a checkout.
    """
    from zvault.config.foreign_writers import find_writers, find_writers_within

    trees = dict.fromkeys(
        [Path(sys.prefix), Path(zvault.__file__).parent, *map(Path, filter(None, sys.path))]
    )
    on_the_way = find_writers([*trees, Path(sys.executable)])
    own = (tree for tree in trees if Path("/usr") not in (tree, *tree.parents))
    within = (found for tree in own for found in find_writers_within(tree))
    return next(iter(on_the_way), None) or next(within, None)


def _shipped() -> dict[str, str]:
    """What is written, by its path below --to."""
    folder = data.find_data_path("systemd")
    units = {f"systemd/system/{unit.name}": unit for unit in folder.iterdir() if unit.suffix != ".conf"}
    others = {f"{kind}.d/zvault.conf": folder / f"{kind}.conf" for kind in ("sysusers", "tmpfiles")}
    return {name: path.read_text() for name, path in (units | others).items()}


async def _systemd() -> int:
    """This host's systemd. Raises ToolMissing, ToolFailed."""
    from zvault.system.process.runner import HostRunner

    told = (await HostRunner().run(["systemctl", "--version"])).stdout
    if (found := re.match(r"systemd (\d+)", told)) is None or int(found[1]) < OLDEST:
        words = told.splitlines()[0] if told else "nothing"
        raise ToolFailed(
            "this host's systemd is too old, or not known",
            f"'systemctl --version' says {words!r}, and zvault needs {OLDEST}",
            "run zvault on Debian 12, Ubuntu 24.04 or newer",
        )
    return int(found[1])
