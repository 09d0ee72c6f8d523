"""What was measured of vaults with ``profile = "auto"``, kept beside the daemon's state, and the profile it makes.

No run needs it: a vault of which nothing is known is not tuned, and can be measured again. It is kept with the devices'
specs and the pool's GUID, so that no other device is given it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zvault.api.tuning import TryDocument
from zvault.config.load import load_profile
from zvault.config.profile import Profile
from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.candidates import CandidateTrial, ParameterChoice
from zvault.core.tuning.measurement import MeasuredPoint, Way
from zvault.ops.context import Context
from zvault.ops.state.records import Records
from zvault.zfs import trial_dataset

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
    points: tuple[MeasuredPoint, ...]
    choices: tuple[ParameterChoice, ...]
    advice: str
    tries: tuple[TryDocument, ...] = ()
    time: float = field(default=0.0, compare=False)

    @property
    def module(self) -> dict[str, str]:
        """Values by parameter."""
        return {one.name: one.value for one in self.choices}


def row(one: CandidateTrial, won: bool) -> TryDocument:
    """A try as it is kept and shown; ``rate`` in bytes a second, a bound where it was ``stopped``."""
    what, module = one.candidate.what, one.candidate.module
    return {"what": what, "module": module, "rate": round(one.rate), "stopped": one.stopped, "won": won}


def specs(vault: Vault) -> tuple[str, ...]:
    """What a vault's devices are, by its configuration."""
    return tuple(device.spec for device in vault.device)


def keep(records: Records, vault: Vault, outcome: Outcome) -> None:
    """Write an outcome down, in place of an older one. Raises OSError."""
    data = asdict(outcome)
    del data["time"]
    records.measured.put(_about(vault), data)


def outcome(records: Records, vault: Vault, guid: int | None = None) -> Outcome | None:
    """What was found for a vault; None where that is nothing, or of other devices, or of another pool than ``guid``."""
    if vault.profile != AUTO:
        return None
    try:
        kept = records.measured.get(_about(vault))
        if kept is None or tuple(kept["devices"]) != specs(vault) or guid not in (None, kept["guid"]):
            return None
        return Outcome(
            tuple(kept["devices"]),
            int(kept["guid"]),
            kept["way"],
            _all(MeasuredPoint, kept["points"]),
            _all(ParameterChoice, kept["choices"]),
            str(kept["advice"]),
            tuple(kept["tries"]),
            float(kept["time"]),
        )
    except (ZvaultError, KeyError, TypeError, ValueError):
        return None


def _about(vault: Vault) -> str:
    return f"vault/{vault.name}"


def _all(kind: type[Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**one) for one in rows)


def profile_of(context: Context, vault: Vault, guid: int | None = None) -> Profile:
    """A vault's profile, with what was measured where that is its profile; see ``outcome``. Raises ConfigError."""
    profile = load_profile(context.env.paths, vault.profile)
    found = outcome(context.records, vault, guid)
    if found is None:
        return profile
    return profile.model_copy(update={"module": {**found.module, **profile.module}})


def reasons_of(records: Records, vault: Vault, module: Mapping[str, str]) -> dict[str, str]:
    """Why module parameters of a vault are what they are, as far as they were measured."""
    found = outcome(records, vault)
    choices = () if found is None else found.choices
    return {one.name: one.why for one in choices if module.get(one.name) == one.value}


# The scratch dataset, written down before it is made


def note_scratch(records: Records, vault: Vault) -> None:
    """A scratch dataset is about to be made in a vault's pool."""
    records.measured.put(_scratch(vault), {"pool": vault.pool})


async def sweep(context: Context, vault: Vault) -> bool:
    """Destroy the scratch dataset that is on record for a vault, also one that a crash left; whether there was one.

    The vault must be up. Raises ToolFailed, DeadlineExceeded; then it stays on record.
    """
    kept = context.records.measured.get(_scratch(vault))
    if kept is None:
        return False
    swept = await trial_dataset.sweep(str(kept["pool"]), context.env.runner)
    context.records.measured.drop(_scratch(vault))
    return swept


def _scratch(vault: Vault) -> str:
    return f"scratch/{vault.name}"
