"""Stored measurements of vaults with ``profile = "auto"``, and the profiles made of them.

No run needs them: a vault without a measurement is not tuned, and can be measured again. A measurement is stored with
the devices' specs and the pool's GUID, so that it never applies to another device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from zvault.api.tuning import TryDocument
from zvault.config.load_config import load_profile
from zvault.config.paths import Paths
from zvault.config.profile import VaultProfile
from zvault.config.schema import Vault
from zvault.core.errors import ZvaultError
from zvault.core.tuning.candidates import CandidateTrial, ParameterChoice
from zvault.core.tuning.measurement import IoDirection, MeasuredPoint
from zvault.core.tuning.reading import derive_reading, guess_reading
from zvault.core.tuning.store_guess import StoreGuess
from zvault.ops.context import Context
from zvault.ops.state.records import Records
from zvault.ops.tuning.store_guesses import find_store_guess
from zvault.zfs import trial_dataset

AUTO = "auto"
"""The profile whose module parameters come from a measurement. Parameters in its file take precedence."""


@dataclass(frozen=True, slots=True)
class ReadingOutcome:
    """How a vault's device is read: its measured points, the chosen parameters, and the ``sends`` and ``scrubs`` with
    which they were tried out, if they were.
    """

    points: tuple[MeasuredPoint, ...]
    choices: tuple[ParameterChoice, ...]
    sends: tuple[TryDocument, ...] = ()
    scrubs: tuple[TryDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasurementOutcome:
    """The result of a measurement: devices, pool, how it was measured, and the chosen parameters.

    ``tries`` are made by ``make_trial_row``; without any, ``choices`` were calculated and not tried out. ``reading`` is
    missing where reads were not measured.
    """

    devices: tuple[str, ...]
    guid: int
    way: IoDirection
    points: tuple[MeasuredPoint, ...]
    choices: tuple[ParameterChoice, ...]
    advice: str
    tries: tuple[TryDocument, ...] = ()
    time: float = field(default=0.0, compare=False)
    reading: ReadingOutcome | None = None

    @property
    def module(self) -> dict[str, str]:
        """Values by parameter."""
        return {one.name: one.value for one in self.choices}

    def list_reading_choices(
        self, module: Mapping[str, str], guess: StoreGuess | None
    ) -> tuple[ParameterChoice, ...]:
        """The parameters for reading: those that were measured, else as the store's probe has it where there is a
        ``guess``, else those that follow from ``module``.
        """
        if self.reading is not None:
            return self.reading.choices
        return derive_reading(module) if guess is None else guess_reading(guess, module)


def make_trial_row(one: CandidateTrial, won: bool) -> TryDocument:
    """A trial as it is stored and shown; ``rate`` in bytes a second, an upper bound if it was ``stopped``."""
    what, module = one.candidate.what, one.candidate.module
    return {"what": what, "module": module, "rate": round(one.rate), "stopped": one.stopped, "won": won}


def list_device_specs(vault: Vault) -> tuple[str, ...]:
    """The specs of a vault's devices in its configuration."""
    return tuple(device.spec for device in vault.device)


def store_outcome(records: Records, vault: Vault, outcome: MeasurementOutcome) -> None:
    """Store an outcome; it replaces an older one. Raises OSError."""
    data = asdict(outcome)
    del data["time"]
    records.measured.put(_about(vault), data)


def read_outcome(records: Records, vault: Vault, guid: int | None = None) -> MeasurementOutcome | None:
    """The outcome for a vault; None if there is none, or it is for other devices or for another pool than ``guid``."""
    if vault.profile != AUTO:
        return None
    try:
        kept = records.measured.get(_about(vault))
        if (
            kept is None
            or tuple(kept["devices"]) != list_device_specs(vault)
            or guid not in (None, kept["guid"])
        ):
            return None
        return MeasurementOutcome(
            tuple(kept["devices"]),
            int(kept["guid"]),
            kept["way"],
            _all(MeasuredPoint, kept["points"]),
            _all(ParameterChoice, kept["choices"]),
            str(kept["advice"]),
            tuple(kept["tries"]),
            float(kept["time"]),
            _reading(kept.get("reading")),  # missing in those of older versions
        )
    except (ZvaultError, KeyError, TypeError, ValueError):
        return None


def _reading(kept: Mapping[str, Any] | None) -> ReadingOutcome | None:
    if kept is None:
        return None
    return ReadingOutcome(
        _all(MeasuredPoint, kept["points"]),
        _all(ParameterChoice, kept["choices"]),
        tuple(kept["sends"]),
        tuple(kept["scrubs"]),
    )


def _about(vault: Vault) -> str:
    return f"vault/{vault.name}"


def _all(kind: type[Any], rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(kind(**one) for one in rows)


def load_vault_profile(context: Context, vault: Vault, guid: int | None = None) -> VaultProfile:
    """A vault's profile, with measured parameters if it is ``auto``; see ``outcome``. Raises ConfigError."""
    profile = load_profile(context.env.paths, vault.profile)
    if vault.profile != AUTO:
        return profile
    found = read_outcome(context.records, vault, guid)
    module = {**(found.module if found is not None else {}), **profile.module}
    reading = {one.name: one.value for one in _list_reading(context.env.paths, vault, found, module)}
    return profile.model_copy(update={"module": module, "reading": {**reading, **profile.reading}})


def _list_reading(
    paths: Paths, vault: Vault, found: MeasurementOutcome | None, module: Mapping[str, str]
) -> tuple[ParameterChoice, ...]:
    """The parameters for reading a vault that is ``auto``, with what is known without a measurement where there is
    none.
    """
    guess = find_store_guess(paths, vault)
    if found is not None:
        return found.list_reading_choices(module, guess)
    return () if guess is None else guess_reading(guess, module)


def list_parameter_reasons(context: Context, vault: Vault, module: Mapping[str, str]) -> dict[str, str]:
    """The reasons for a vault's module parameters, for those that were measured or follow from its store's probe."""
    if vault.profile != AUTO:
        return {}
    found = read_outcome(context.records, vault)
    writes = found.choices if found is not None else ()
    writing = found.module if found is not None else {}
    choices = (*writes, *_list_reading(context.env.paths, vault, found, writing))
    return {one.name: one.why for one in choices if module.get(one.name) == one.value}


# The scratch dataset, recorded before it is created


def note_scratch(records: Records, vault: Vault) -> None:
    """Record that a scratch dataset is about to be created in a vault's pool."""
    records.measured.put(_scratch(vault), {"pool": vault.pool})


async def destroy_scratch_dataset(context: Context, vault: Vault) -> bool:
    """Destroy a vault's recorded scratch dataset, also after a crash. Returns whether there was one.

    The vault must be up. Raises ToolFailed, DeadlineExceeded; then the record stays.
    """
    kept = context.records.measured.get(_scratch(vault))
    if kept is None:
        return False
    swept = await trial_dataset.sweep_scratch(str(kept["pool"]), context.env.runner)
    context.records.measured.drop(_scratch(vault))
    return swept


def _scratch(vault: Vault) -> str:
    return f"scratch/{vault.name}"
