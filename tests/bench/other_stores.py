"""What the block store makes of S3 servers that are not Ceph: streaming through it against plain puts.

Each server is a process of this guest with its data on an ext4 of its own. In turns boto3 puts objects of 8 MiB by four
threads, and fio writes as much in order to the block store's device of this kernel, 128 KiB a request, 16 in flight,
with a flush at the end. ``rate`` is in MB/s. CPU time is in seconds for each GB (10^9 bytes): ``server`` is that of
the S3 server meanwhile, ``client`` that of boto3's process or of the block store's, ``guest`` all of it, with the
kernel's and fio's. ``ratio`` is the block store's rate over that of the plain puts, by medians; ``ratio_of_work`` the
CPU time of the plain puts over that of the block store: the ratio, if nothing but the processor counted.

Names of servers on the command line choose among them. MIB (of each turn) may be set in the environment.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# boto3 wants the library requests, and would find the benchmark of that name.
sys.path.append(sys.path.pop(0))
sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import s3_servers
from blockstore_lab import BUCKET, FOLDER, Disk, keys_file
from ceph import S3
from report import chosen, say
from s3_servers import ACCESS, SECRET, Rclone, S3Program, SeaweedFS, VersityGW, running
from world import sh

SHARE = Path("/share")
"""Where the Makefile puts the servers' programs."""
SERVERS = {kind.name: kind for kind in (SeaweedFS, VersityGW, Rclone)}
MIB = int(os.environ.get("MIB", "256"))
OBJECT_MIB = 8
TICKS = os.sysconf("SC_CLK_TCK")

PUTS = """
import os, sys, threading, time, boto3
endpoint, count, turn = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
data = os.urandom(8 << 20)
def work(n):
    for number in range(n, count, 4):
        s3.put_object(Bucket="zvault", Key=f"puts/{turn}/{number}", Body=data)
s3.list_buckets()
before, began = time.process_time(), time.monotonic()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(time.monotonic() - began, time.process_time() - before)
"""


@dataclass
class ServerBucket:
    """What a ``Disk`` asks of its bucket."""

    s3: S3

    def keys_file(self) -> Path:
        return keys_file("keys", ACCESS, SECRET)


@dataclass(frozen=True)
class Turn:
    """Seconds of one turn, all in all and of processors."""

    seconds: float
    server: float
    client: float
    guest: float


def read_cpu(pid: int) -> float:
    """The CPU seconds of a process."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / TICKS


def read_guest_cpu() -> float:
    """The CPU seconds of this guest, but for those it had nothing to do in, or waited for its disk."""
    user, nice, system, _, _, irq, softirq, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / TICKS


def measure_turn(server: S3Program, work: Callable[[], tuple[float, float]]) -> Turn:
    """Have it done: seconds, and CPU seconds of the client."""
    assert server.process is not None
    sh("sync")
    before, guest = read_cpu(server.process.pid), read_guest_cpu()
    seconds, client = work()
    return Turn(seconds, read_cpu(server.process.pid) - before, client, read_guest_cpu() - guest)


def put_plainly(server: S3Program, turn: int) -> tuple[float, float]:
    keys = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET}
    argv = [sys.executable, "-c", PUTS, server.endpoint, str(MIB // OBJECT_MIB), str(turn)]
    done = subprocess.run(argv, env={**os.environ, **keys}, check=True, capture_output=True, text=True)
    seconds, cpu = map(float, done.stdout.split())
    return seconds, cpu


def stream_through(disk: Disk, turn: int) -> tuple[float, float]:
    assert disk.server is not None
    argv = [
        "fio",
        "--name=it",
        f"--filename={disk.device}",
        "--direct=1",
        "--ioengine=libaio",
        "--iodepth=16",
    ]
    argv += ["--rw=write", "--bs=128k", f"--offset={turn * MIB}M", f"--size={MIB}M", "--end_fsync=1"]
    argv += ["--randrepeat=0", "--refill_buffers", "--output-format=json"]
    before, began = read_cpu(disk.server.pid), time.monotonic()
    sh(*argv, timeout=900)
    return time.monotonic() - began, read_cpu(disk.server.pid) - before


def summarise(turns: list[Turn]) -> dict[str, float]:
    """Medians of rates and of CPU seconds for each GB."""
    size = MIB * (1 << 20) / 1e9

    def median(of: Callable[[Turn], float]) -> float:
        return round(statistics.median(of(one) for one in turns), 2)

    return {
        "rate": median(lambda one: 1000 * size / one.seconds),
        "server": median(lambda one: one.server / size),
        "client": median(lambda one: one.client / size),
        "guest": median(lambda one: one.guest / size),
    }


def compare(kind: type[S3Program], rounds: int) -> dict[str, Any]:
    """Plain puts and the block store in turns, on one server."""
    plain, through = [], []
    with running(kind, Path("/var/tmp")) as server:
        server.client.create_bucket(Bucket=BUCKET)
        bucket: Any = ServerBucket(server.s3)
        with Disk(bucket, "cold", f"size={(rounds + 1) * MIB}M", "region=us-east-1") as disk:
            stream_through(disk, rounds)
            for turn in range(rounds):
                plain.append(measure_turn(server, lambda turn=turn: put_plainly(server, turn)))
                through.append(measure_turn(server, lambda turn=turn: stream_through(disk, turn)))
                say(f"{kind.name} {turn + 1}/{rounds}: {plain[-1]} {through[-1]}")
    puts, stream = summarise(plain), summarise(through)
    return {
        "puts": puts,
        "stream": stream,
        "ratio": round(stream["rate"] / puts["rate"], 2),
        "ratio_of_work": round(puts["guest"] / stream["guest"], 2),
    }


def main() -> None:
    s3_servers.PROGRAMS = SHARE
    FOLDER.mkdir(exist_ok=True)
    sh("modprobe", "-q", "nbd", check=False)
    kinds, rounds = chosen({name: lambda _: 0.0 for name in SERVERS})
    print(json.dumps({name: compare(SERVERS[name], rounds) for name in kinds}))


if __name__ == "__main__":
    main()
