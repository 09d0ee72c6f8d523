"""What systemctl prints, as it printed it."""

from zvault.system.units import UnitState, parse_show

# systemd 257: a unit whose process was killed, and one that does not exist.
SHOWN = """\
MainPID=0
Result=signal
Id=zvault-device@cold-0.service
LoadState=loaded
ActiveState=failed

MainPID=0
Result=success
Id=zvault-device@zz.service
LoadState=not-found
ActiveState=inactive

MainPID=259
Result=success
Id=zvault-device@cold-1.service
LoadState=loaded
ActiveState=active
"""


def test_parse_show():
    assert parse_show(SHOWN) == [
        UnitState("zvault-device@cold-0.service", True, "failed", "signal", 0),
        UnitState("zvault-device@zz.service", False, "inactive", "success", 0),
        UnitState("zvault-device@cold-1.service", True, "active", "success", 259),
    ]
    assert [state.running for state in parse_show(SHOWN)] == [False, False, True]
    assert parse_show("") == []
