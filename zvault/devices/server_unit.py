"""Where a server of a device runs: its systemd unit, its script and its socket."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

UnitKind = Literal["device", "s3backer", "blockstore"]
"""The template that a server's unit is made of: what it must be let do."""


@dataclass(frozen=True, slots=True)
class DeviceServer:
    """The unit, script and socket of one server: in a folder for root alone, which is there already."""

    name: str
    directory: Path
    kind: UnitKind = "device"

    @property
    def unit(self) -> str:
        return f"zvault-{self.kind}@{self.name}.service"

    @property
    def script(self) -> Path:
        return self.directory / self.name

    @property
    def socket(self) -> Path:
        """The path of the socket that it listens on."""
        return self.directory / f"{self.name}.sock"


def exec_shell_script(argv: Sequence[str]) -> str:
    """A shell script that becomes the program."""
    return f"#!/bin/sh\nexec {shlex.join(argv)}\n"
