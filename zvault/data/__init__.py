"""What zvault brings along that is no code: profiles, units, alerts, a dashboard, a sample configuration.

In the sources these are links to config/ and systemd/; a wheel and ``make install`` have the files themselves, so each
is found in the same way wherever zvault is installed.
"""

from __future__ import annotations

from pathlib import Path

DATA_FOLDER = Path(__file__).parent


def find_data_path(name: str) -> Path:
    """A file or folder of these. zvault is never run from an archive, so it is always one of the file system's."""
    return DATA_FOLDER / name
