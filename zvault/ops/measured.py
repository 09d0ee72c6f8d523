"""What was measured of vaults with ``profile = "auto"``, kept beside the daemon's state, and the profile it makes.

No run needs it: a vault of which nothing is known is not tuned, and can be measured again. It is kept with the devices'
specs and the pool's GUID, so that no other device is given it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zvault.config.load import load_profile
from zvault.config.profile import Profile
from zvault.core.errors import ZvaultError
from zvault.core.measure import Point, Way
from zvault.core.settings import Choice, Try
from zvault.ops.context import Context
from zvault.system.lease import LeaseStore
from zvault.zfs import scratch

AUTO = "auto"
"""The profile whose module parameters are measured. What its file sets besides comes first."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found for a vault: on which devices and pool, and how it was measured.

    ``tries`` are made by ``row``; without any, ``choices`` were worked out and not tried out.
    """

    devices: tuple[str, ...]
    guid: int
    way: Way
    points: tuple[Point, ...]
    choices: tuple[Choice, ...]
    advice: str
    tries: tuple[Mapping[str, Any], ...] = ()
    time: float = field(default=0.0, compare=False)

    @property
    def module(self) -> dict[str, str]:
        """Values by parameter."""
        return {one.name: one.value for one in self.choices}


def row(one: Try, won: bool) -> dict[str, Any]:
    """A try as it is kept and shown; ``rate`` in bytes a second, a bound where it was ``stopped``."""
    what, module = one.candidate.what, one.candidate.module
    return {"what": what, "module": module, "rate": round(one.rate), "stopped": one.stopped, "won": won}


def specs(context: Context, vault: str) -> tuple[str, ...]:
    """What a vault's devices are, by its configuration."""
    return tuple(device.spec for device in context.vault(vault).device)


def store(context: Context) -> LeaseStore:
    """Where outcomes are, and the notes of scratch datasets that are there."""
    return LeaseStore(context.paths.state / "measured")


def keep(context: Context, vault: str, outcome: Outcome) -> None:
    """Write an outcome down, in place of an older one. Raises OSError."""
    data = asdict(outcome)
    del data["time"]
    store(context).put(f"vault/{vault}", data)


def outcome(context: Context, vault: str, guid: int | None = None) -> Outcome | None:
    """What was found for a vault; None where that is nothing, or of other devices, or of another pool than ``guid``."""
    if context.vault(vault).profile != AUTO:
        return None
    try:
        kept = store(context).get(f"vault/{vault}")
        if (
            kept is None
            or tuple(kept["devices"]) != specs(context, vault)
            or guid not in (None, kept["guid"])
        ):
            return None
        return Outcome(
            tuple(kept["devices"]),
            int(kept["guid"]),
            kept["way"],
            _all(Point, kept["points"]),
            _all(Choice, kept["choices"]),
            str(kept["advice"]),
            tuple(kept["tries"]),
            float(kept["time"]),
        )
    except (ZvaultError, KeyError, TypeError, ValueError):
        return None


def _all(kind: type[Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**one) for one in rows)


def profile_of(context: Context, vault: str, guid: int | None = None) -> Profile:
    """A vault's profile, with what was measured where that is its profile; see ``outcome``. Raises ConfigError."""
    profile = load_profile(context.paths, context.vault(vault).profile)
    found = outcome(context, vault, guid)
    if found is None:
        return profile
    return profile.model_copy(update={"module": {**found.module, **profile.module}})


def reasons_of(context: Context, vault: str, module: Mapping[str, str]) -> dict[str, str]:
    """Why module parameters of a vault are what they are, as far as they were measured."""
    found = outcome(context, vault)
    choices = () if found is None else found.choices
    return {one.name: one.why for one in choices if module.get(one.name) == one.value}


# The scratch dataset, written down before it is made


def note_scratch(context: Context, vault: str) -> None:
    """A scratch dataset is about to be made in a vault's pool."""
    store(context).put(f"scratch/{vault}", {"pool": context.vault(vault).pool})


async def sweep(context: Context, vault: str) -> bool:
    """Destroy the scratch dataset that is on record for a vault, also one that a crash left; whether there was one.

    The vault must be up. Raises ToolFailed, DeadlineExceeded; then it stays on record.
    """
    kept = store(context).get(f"scratch/{vault}")
    if kept is None:
        return False
    swept = await scratch.sweep(str(kept["pool"]), context.runner)
    store(context).drop(f"scratch/{vault}")
    return swept
