"""zvault's units for where its programs are and for the systemd that runs them. Pure."""

from __future__ import annotations

from collections.abc import Mapping

SHIPPED_PROGRAMS = "/usr/bin"
"""Where the units as they are shipped have zvault's programs."""

OLDEST = 252
"""The oldest systemd that zvault was tried with: Debian 12's."""

_SINCE: Mapping[str, int] = {"OpenFile": 253, "ImportCredential": 254, "SurviveFinalKillSignal": 255}
"""Settings, and the version of systemd that has them first (its NEWS)."""

_INSTEAD: Mapping[str, str] = {
    # Without the open file the kernel's log is opened by name, which needs this.
    "OpenFile": "CapabilityBoundingSet=CAP_SYSLOG",
}


def fit_unit(unit: str, programs: str, systemd: int) -> str:
    """A unit whose programs are in the folder ``programs``, for that version of systemd.

    A setting that is too new is left out: systemd would only warn of it. ``Type=notify-reload`` (253) it would take for
    ``Type=simple``, and then call the service started before it is.
    """
    lines = []
    for line in unit.splitlines():
        key, _, value = line.partition("=")
        if key.startswith("Exec") and value.startswith(f"{SHIPPED_PROGRAMS}/zvault"):
            line = f"{key}={programs}{value.removeprefix(SHIPPED_PROGRAMS)}"  # noqa: PLW2901
        if line == "Type=notify-reload" and systemd < 253:
            lines += ["Type=notify", "ExecReload=/bin/kill -HUP $MAINPID"]
        elif systemd >= _SINCE.get(key, 0):
            lines.append(line)
        elif key in _INSTEAD:
            lines.append(_INSTEAD[key])
    return "\n".join(lines) + "\n"
