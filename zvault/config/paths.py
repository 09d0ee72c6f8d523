"""Where zvault keeps its files. Passed in, so that tests and a second instance can have their own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from zvault import data

SYSTEM_STATE, SYSTEM_CACHE = Path("/var/lib/zvault"), Path("/var/cache/zvault")


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories zvault uses. None of them is made here."""

    etc: Path = Path("/etc/zvault")
    run: Path = Path("/run/zvault")
    state: Path = SYSTEM_STATE
    profiles: Path = field(default_factory=lambda: data.find_data_path("profiles"))

    @property
    def config_file(self) -> Path:
        """The main configuration file; ``conf.d/*.toml`` next to it is read too."""
        return self.etc / "zvault.toml"

    @property
    def socket(self) -> Path:
        return self.run / "zvaultd.sock"

    @property
    def starting(self) -> Path:
        """The file that a daemon which starts keeps locked until it answers on its socket, with its process ID."""
        return self.run / "zvaultd.starting"

    @property
    def history(self) -> Path:
        """The history of runs. For people only: it may be deleted at any time (invariant 1)."""
        return self.state / "history.sqlite"

    @property
    def listings(self) -> Path:
        """What was listed of each pool of this host, a file each by the pool's GUID (zfs/listing_cache_files.py); may
        be deleted at any time. A second instance has it beside its state.
        """
        cache = SYSTEM_CACHE if self.state == SYSTEM_STATE else self.state.with_name("cache")
        return cache / "listings"

    @property
    def events_kept(self) -> Path:
        """The file that notes how many events OpenZFS kept before zvaultd had it keep more, to put that back."""
        return self.state / "events-kept"

    @property
    def blockstore_positions(self) -> Path:
        """The folder that notes how far this host knows block stores to have come, a file each; without it a
        rollback goes unseen.
        """
        return self.state / "blockstore"

    @property
    def blockstore_probes(self) -> Path:
        """What 'zvaultctl blockstore probe' found of places; may be deleted at any time."""
        return self.state / "probes"

    @property
    def profile_dirs(self) -> tuple[Path, Path]:
        """The folders of profiles, first hit wins: the administrator's own, then zvault's."""
        return self.etc / "profiles", self.profiles
