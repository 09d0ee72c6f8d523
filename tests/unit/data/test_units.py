"""Units for another place and an older systemd."""

from pathlib import Path

import pytest

from zvault import data
from zvault.core.units import parse_duration
from zvault.daemon.app import PATIENCE_STEP, START_EXTENSION
from zvault.data.units import fit_unit

UNITS = sorted(
    path for path in data.find_data_path("systemd").iterdir() if path.suffix in {".service", ".slice"}
)


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_todays_systemd_gets_what_is_shipped(unit: Path):
    assert fit_unit(unit.read_text(), "/usr/bin", 257) == unit.read_text()


def test_programs_are_those_of_the_venv():
    daemon = fit_unit(data.find_data_path("systemd/zvaultd.service").read_text(), "/opt/zvault/bin", 257)
    assert "ExecStart=/opt/zvault/bin/zvaultd\n" in daemon
    assert "/usr/bin/zvault" not in daemon


def test_debian_12():
    daemon = fit_unit(data.find_data_path("systemd/zvaultd.service").read_text(), "/opt/zvault/bin", 252)
    assert "\nType=notify\nExecReload=/bin/kill -HUP $MAINPID\n" in daemon
    assert "\nCapabilityBoundingSet=CAP_SYSLOG\n" in daemon
    for new in ("notify-reload", "OpenFile=", "ImportCredential="):
        assert not [line for line in daemon.splitlines() if new in line and not line.startswith("#")]


def test_zvaultd_waits_for_the_clock_where_the_host_does():
    """With a clock that is behind every backup would seem to have run in the future, and be due at once."""
    lines = data.find_data_path("systemd/zvaultd.service").read_text().splitlines()
    clock = {"time-set.target", "time-sync.target"}
    named = {
        key: {unit for line in lines if line.startswith(f"{key}=") for unit in line.partition("=")[2].split()}
        for key in ("After", "Wants", "Requires")
    }
    assert clock <= named["After"]
    assert not clock & (named["Wants"] | named["Requires"]), (
        "a host without a time server starts it all the same"
    )


def test_each_setting_comes_with_the_version_that_has_it():
    device = data.find_data_path("systemd/zvault-device@.service").read_text()
    assert "\nSurviveFinalKillSignal=yes\n" not in fit_unit(device, "/usr/bin", 254)
    assert "\nSurviveFinalKillSignal=yes\n" in fit_unit(device, "/usr/bin", 255)
    daemon = data.find_data_path("systemd/zvaultd.service").read_text()
    assert "\nType=notify-reload\n" in fit_unit(daemon, "/usr/bin", 253)
    assert "\nImportCredential=" not in fit_unit(daemon, "/usr/bin", 253)


def test_zvaultd_asks_for_more_time_long_before_systemd_gives_its_start_up():
    """A start of more than systemd's own 90 s was killed and begun anew, for ever."""
    lines = data.find_data_path("systemd/zvaultd.service").read_text().splitlines()
    (allowed,) = [
        line.removeprefix("TimeoutStartSec=") for line in lines if line.startswith("TimeoutStartSec=")
    ]
    assert parse_duration(allowed) >= 3 * 90
    assert START_EXTENSION >= 3 * PATIENCE_STEP, (
        "the next question comes long before the last one's time is over"
    )
