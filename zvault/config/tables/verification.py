"""How a backup is proven, as the configuration writes it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from zvault.config.fields import ConfigTable, FilePath, ShareField, SizeField, TextForm, parse_default
from zvault.core.integrity.verification import ProofLevel
from zvault.core.name_rules import check_dataset_name
from zvault.core.units import parse_duration

__all__ = ["Verify"]


def _parse_every(text: str) -> float | None:
    if text == "off":
        return None
    seconds = parse_duration(text)
    if seconds < 60:
        raise ValueError(f'{text!r} is too often: at least 1m, or "off"')
    return seconds


VerifyIntervalField = Annotated[
    float | None, TextForm("interval", 'a duration, or "off"', "1w", _parse_every, ready=(float, type(None)))
]


def _parse_dataset(text: str) -> str:
    check_dataset_name(text)
    return text


DatasetNameField = Annotated[
    str, TextForm("dataset", "the full name of a ZFS dataset on this host", "tank", _parse_dataset)
]


class Verify(ConfigTable):
    """How the vault is compared with the source. GUIDs are compared in each run, whatever this says."""

    sample: ShareField = Field(
        default=parse_default("1%"),
        description="How much of every dataset is read on both sides and compared by hash, each time. Each sample "
        "goes on where the last one ended, so that in the end everything was read.",
        examples=["1%", "10%"],
    )
    every: VerifyIntervalField = Field(
        default=parse_default("1w"), description="How often a sample is compared.", examples=["1d", "off"]
    )
    full: VerifyIntervalField = Field(
        default=parse_default("off"),
        description="How often everything is compared: all files with their owners and modes, all bytes of volumes.",
        examples=["26w"],
    )
    drill: VerifyIntervalField = Field(
        default=parse_default("off"),
        description="How often a dataset is restored below `drill_into`, compared in full, and destroyed again; each "
        "time the one whose last drill is the longest ago.",
        examples=["4w"],
    )
    drill_into: DatasetNameField | None = Field(
        default=None,
        description="The dataset on this host below which drills restore. Without it they go below the source's root, "
        "or below the vault's pool if the source is on another host.",
        examples=["tank"],
    )
    key: FilePath | None = Field(
        default=None,
        description="The file that holds the key (or passphrase) of encrypted datasets: a drill loads it, so that what "
        "was restored can be compared. Without it, of those only GUIDs can be compared.",
        examples=["/etc/zvault/keys/tank"],
    )
    budget: SizeField = Field(
        default=parse_default("10G"),
        description="How many bytes a sample may read on each side, and how large a dataset a drill may restore.",
        examples=["100G"],
    )

    def interval(self, level: ProofLevel) -> float | None:
        """Seconds from one to the next, None where it is done by hand only. GUIDs are proven daily."""
        known: dict[ProofLevel, float | None] = {"sample": self.every, "full": self.full, "drill": self.drill}
        return known.get(level, GUIDS_EVERY)


GUIDS_EVERY = 86400.0
"""Seconds after which a run compares properties again, and puts the proof of its GUIDs on the vault."""
