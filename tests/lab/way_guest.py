"""What a guest does whose vault is reached by a unit that systemd stops as the host goes down, in mid-run.

``requires_unit`` has it stop after zvaultd: the pool is exported. Without it, as of a way that broke before, the pool
is suspended, and the host goes down all the same. Nobody announces these shutdowns: logind would give zvaultd some
seconds.

A reboot begins it anew within the same guest, a poweroff ends that; ``/share`` keeps what the tests know.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

import world
from world import World, ctl, eventually, ok, sh, status

BOOTED = "seconds since it booted: "
KNOWN = Path("/share/moment")
WAY = Path("/run/systemd/system/way.service")
WAY_TEXT = """
[Unit]
Description=the way to the store
[Service]
Type=exec
ExecStart=nbdkit -f --ipaddr 127.0.0.1 --port 10899 --filter=rate file /dev/ubdb rate=16M
"""
MIB = 60


@dataclass
class Way(World):
    """A source on the first disk, and a vault on the second, by TCP."""

    device_extra: str = ""

    def config_text(self) -> str:
        return f"""
[daemon]
metrics = "{world.METRICS}"
host = "lab"

[vault.cold]
pool = "cold"
create = true
[[vault.cold.device]]
nbd = "tcp:127.0.0.1:10899"
timeout = "10s"
{self.device_extra}

[backup.tank]
source = "tank"
vault = "cold"
"""


def exported(disk: str) -> bool:
    """Whether the pool on a disk was exported, by its label."""
    found = re.search(r"^ +state: (\d)$", sh("zdb", "-l", disk), re.MULTILINE)
    assert found is not None
    return found[1] == "1"  # POOL_STATE_EXPORTED


def under_way() -> bool:
    """Whether some MiB of the run are in the vault, and some are left."""
    return status()["backups"][0]["bytes_done"] > 4 << 20


def into_run(way: Way) -> None:
    """Start a run, and wait until it is in its midst."""
    way.start()
    ok("run", "--no-wait", "tank")
    eventually(lambda: f"bytes on their way: {ctl('history').out}", under_way, every=0.1)


def go_down(target: str, moment: str) -> None:
    """Have systemd stop everything, unannounced."""
    KNOWN.write_text(moment)
    sh("sync", "-f", "/share")
    print(f"{target} during {moment}", flush=True)
    sh("systemctl", "--no-block", "--job-mode=replace-irreversibly", "start", f"{target}.target")
    time.sleep(900)


def main() -> None:
    last = KNOWN.read_text() if KNOWN.exists() else None
    WAY.write_text(WAY_TEXT)
    sh("systemctl", "daemon-reload")
    if last is None:
        sh("zpool", "create", "-O", "mountpoint=/tank", "-O", "compression=off", "tank", "/dev/ubda")
        world.noise(Path("/tank/noise"), MIB)
        way = Way(device_extra='requires_unit = "way.service"')
        way.start()
        refused = ctl("vault", "up", "cold")
        assert "way.service is inactive" in refused.out + refused.err
        sh("systemctl", "start", "way")
        into_run(way)
        assert "way.service" in sh("systemctl", "show", "zvaultd", "-P", "After")
        go_down("reboot", "a run with its way")
    print(f"{BOOTED}{Path('/proc/uptime').read_text().split()[0]}", flush=True)
    print(f"up after {last}", flush=True)
    assert exported("/dev/ubdb") is (last == "a run with its way")
    sh("zpool", "import", "-f", "-d", "/dev/ubda", "tank")
    sh("systemctl", "start", "way")
    if last == "a run with its way":
        world.noise(Path("/tank/more"), MIB)
        into_run(Way())
        go_down("poweroff", "a run without it")
    Way().start()
    ok("run", "tank")
    ok("vault", "up", "cold")
    sh("zpool", "scrub", "-w", "cold")
    assert "errors: No known data errors" in sh("zpool", "status", "cold")


if __name__ == "__main__":
    main()
