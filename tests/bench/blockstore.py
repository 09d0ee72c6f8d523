"""zvault's block store against nbdkit's S3 plugin, s3backer and plain puts: one run, one guest, one real RGW.

The servers are in a network namespace of their own, behind a wire that adds no time, or 30 ms to each round trip.
All devices are /dev/nbd0 of this kernel, and fio has 16 requests in flight. ``writes_4k`` are random writes a second,
with a flush each second and the last one waited for; ``stream`` is MB/s of 128 KiB in order, with a flush at the end;
``puts`` are MB/s of 8 MiB objects that boto3 puts by four threads. The peers have objects of 128 KiB, the record size
of ZFS; ``nbdkit_s3_4k`` has such of 4 KiB, its best case for small writes and its worst for large ones. Then a store
of 10 TiB is opened and 100 GiB of it discarded, and the tree of a pool is walked over 20 ms and 1 MB/s, with a cold
and with a warm cache. ``encrypting`` has a device that is encrypted and one that is not take turns: medians of MB/s
written and read in order, and of the server's CPU seconds for each GB. The journal of ``writeback`` lies in the guest's
memory: its disk is the host's, and not the same each time.

``cpu`` is what the block store itself costs of a processor, against boto3, with a store in memory: see store_cpu.py.

SECONDS (of each measurement), FILES (of the tree), TIB, and for ``cpu`` GIB and TURNS may be set in the environment;
names on the command line choose among these five parts; without any, three are measured.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

# boto3 wants the library requests, and would find the benchmark of that name.
sys.path.append(sys.path.pop(0))
sys.path.insert(0, str(Path(__file__).parent.parent / "lab"))
import large
import store_cpu
from blockstore_lab import BUCKET, FOLDER, Bucket, Disk, store
from buckets import nbdkit_s3, s3backer, zvault
from far import ENTER, HERE, away, place
from report import say
from world import sh

from zvault.object_store.s3 import S3Store
from zvault.object_store.s3_settings import S3Settings

SECONDS = float(os.environ.get("SECONDS", "8"))
FILES = int(os.environ.get("FILES", "100000"))
TIB = int(os.environ.get("TIB", "10"))
ROUNDS = 5
"""Of turns that two devices take."""
LATENCIES = (0, 30)
"""Milliseconds added to a round trip."""
PUT, GET = 0.005, 0.0004
"""Dollars for a thousand requests: S3 Standard's in us-east-1 and most others since 2014."""
WALK = (20, "8mbit")
"""Milliseconds and rate of the walk: those of the field report, 1 MB/s."""

PUTS = """
import sys, time, threading, boto3
endpoint, seconds = sys.argv[1], float(sys.argv[2])
s3 = boto3.Session(profile_name="default").client("s3", endpoint_url=endpoint, region_name="default")
data, end, done = bytes(range(256)) * 32768, time.monotonic() + seconds, []
def work(n):
    while time.monotonic() < end:
        s3.put_object(Bucket="zvault", Key=f"puts/{n}-{len(done)}", Body=data)
        done.append(len(data))
began = time.monotonic()
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sum(done) / 1e6 / (time.monotonic() - began))
"""


def written(device: str, *words: str, each: float | None) -> tuple[int, int, float]:
    """Have fio write for a while, with a flush each so many seconds and at the end: writes, bytes, seconds."""
    argv = ["fio", "--name=it", f"--filename={device}", "--direct=1", "--ioengine=libaio", "--iodepth=16"]
    argv += ["--time_based", f"--runtime={SECONDS}", "--output-format=json", *words]
    over, fd = threading.Event(), os.open(device, os.O_RDWR)

    def flush() -> None:
        while each is not None and not over.wait(each):
            os.fsync(fd)

    beside = threading.Thread(target=flush)
    began = time.monotonic()
    beside.start()
    try:
        job = json.loads(sh(*argv, timeout=SECONDS * 10 + 60))["jobs"][0]["write"]
    finally:
        over.set()
        beside.join()
        os.fsync(fd)
        took = time.monotonic() - began
        os.close(fd)
    return int(job["total_ios"]), int(job["io_bytes"]), took


def measured(device: str) -> dict[str, float]:
    """Both kinds of writes."""
    _, size, of_stream = written(device, "--rw=write", "--bs=128k", "--offset=1G", "--size=2G", each=None)
    writes, _, took = written(device, "--rw=randwrite", "--bs=4k", "--size=512M", each=1.0)
    return {"writes_4k": round(writes / took, 1), "stream": round(size / 1e6 / of_stream, 2)}


def of_ours(disk: Disk) -> dict[str, Any]:
    """The same, with the requests and dollars for each GB."""
    _, size, of_stream = written(
        disk.device, "--rw=write", "--bs=128k", "--offset=1G", "--size=2G", each=None
    )
    streamed = counts(disk)
    writes, _, took = written(disk.device, "--rw=randwrite", "--bs=4k", "--size=512M", each=1.0)
    scattered = {kind: number - streamed[kind] for kind, number in counts(disk).items()}
    return {
        "writes_4k": round(writes / took, 1),
        "stream": round(size / 1e6 / of_stream, 2),
        "of_stream": paid(streamed, size),
        "of_4k": paid(scattered, writes * 4096),
    }


def paid(requests: dict[str, int], size: int) -> dict[str, Any]:
    """What so many bytes came to."""
    dollars = ((requests["put"] + requests["list"]) * PUT + requests["get"] * GET) / 1000
    gb = size / 1e9
    return {
        "requests_per_gb": round(sum(requests.values()) / gb, 1),
        "dollars_per_gb": round(dollars / gb, 6),
        "requests": requests,
    }


def counts(disk: Disk) -> dict[str, int]:
    """Requests so far; the file is a second old at most."""
    time.sleep(1.5)
    return disk.requests()


def puts(bucket: Bucket) -> float:
    """MB/s of boto3."""
    env = ["env", f"AWS_SHARED_CREDENTIALS_FILE={bucket.keys_file()}"]
    argv = [*ENTER, *env, sys.executable, "-c", PUTS, bucket.s3.endpoint, str(SECONDS)]
    return round(float(sh(*argv, timeout=SECONDS * 10 + 60)), 2)


def emptied(bucket: Bucket, *prefixes: str) -> None:
    """Nothing of these is left; the cluster's disk is memory."""
    for prefix in prefixes:
        keys = [{"Key": key} for key in bucket.listed(prefix)]
        for at in range(0, len(keys), 1000):
            bucket.client.delete_objects(Bucket=BUCKET, Delete={"Objects": keys[at : at + 1000]})


def writing(bucket: Bucket) -> dict[str, Any]:
    """How fast all of them are written to, near and far."""
    peers: dict[str, Callable[[Bucket, str], AbstractContextManager[str]]] = {
        "nbdkit_s3": nbdkit_s3,
        "nbdkit_s3_4k": partial(nbdkit_s3, size="4k"),
        "s3backer": s3backer,
    }
    told: dict[str, Any] = {}
    sh("udevadm", "control", "--stop-exec-queue")  # it reads from every device that was written to
    for ms in LATENCIES:
        row: dict[str, Any] = {}
        with away(ms):
            row["puts"] = puts(bucket)
            emptied(bucket, "puts")
            for mode in ("strict", "writeback"):
                words = ["size=4G", f"mode={mode}", f"journal=/var/tmp/bench-{mode}", "journal-size=256M"]
                with zvault(bucket, f"ours-{mode}-{ms}", *words) as disk:
                    row[mode] = of_ours(disk)
                emptied(bucket, disk.key)
                shutil.rmtree(disk.journal)
                say(f"{ms} ms: {mode}: {row[mode]}")
            for name, peer in peers.items():
                with peer(bucket, f"{name}-{ms}") as device:
                    row[name] = measured(device)
                emptied(bucket, f"{name}-{ms}")
                say(f"{ms} ms: {name}: {row[name]}")
        ours = row["strict"]
        row["ratio_4k_vs_nbdkit_s3"] = round(ours["writes_4k"] / row["nbdkit_s3"]["writes_4k"], 1)
        row["ratio_4k_vs_nbdkit_s3_4k"] = round(ours["writes_4k"] / row["nbdkit_s3_4k"]["writes_4k"], 1)
        row["ratio_4k_vs_s3backer"] = round(ours["writes_4k"] / row["s3backer"]["writes_4k"], 1)
        row["ratio_stream_of_put"] = round(ours["stream"] / row["puts"], 3)
        told[f"{ms}ms"] = row
        say(f"{ms} ms: {row}")
    sh("udevadm", "control", "--start-exec-queue")
    return told


def opening(bucket: Bucket) -> dict[str, Any]:
    """What a large store takes to open, and 100 GiB of it to discard."""
    settings = S3Settings(BUCKET, bucket.s3.endpoint, region="default", keys=str(bucket.keys_file()))
    began = time.monotonic()
    stored = large.make(S3Store(settings), "large", TIB, FOLDER / "large-made")
    say(
        f"a store of {TIB} TiB is made in {time.monotonic() - began:.0f} s: {stored / 1e6:.0f} MB of checkpoint and map"
    )
    told: dict[str, Any] = {"tib": TIB, "stored_mb": round(stored / 1e6, 1)}
    for ms, parts in ((0, 1024), (30, 0)):
        with away(ms):
            argv = (sys.executable, "-P", large.__file__, bucket.s3.endpoint, BUCKET, "large")
            said = sh(*ENTER, *argv, str(FOLDER / "large-journal"), str(parts), timeout=300)
        told[f"{ms}ms"] = json.loads(said.splitlines()[-1])
        say(f"{ms} ms: {told[f'{ms}ms']}")
    with away(30), zvault(bucket, "large") as disk:
        began = time.monotonic()
        sh(
            "blkdiscard",
            "--force",
            "--offset",
            str(1 << 30),
            "--length",
            str(100 << 30),
            disk.device,
        )
        told["discard_100gib_s"] = round(time.monotonic() - began, 3)
        fd = os.open(disk.device, os.O_RDWR)
        os.fsync(fd)
        os.close(fd)
        told["discard_100gib_and_flush_s"] = round(time.monotonic() - began, 3)
    emptied(bucket, "large")
    return told


def walked() -> float:
    """Seconds to import the pool and look at every file of it."""
    Path("/proc/sys/vm/drop_caches").write_text("3")
    began = time.monotonic()
    sh("zpool", "import", "-o", "cachefile=none", "-d", "/dev/nbd0", "tree", timeout=600)
    found = int(sh("sh", "-c", "find /tree -type f -printf '%s %m\\n' | wc -l", timeout=1800))
    took = time.monotonic() - began
    assert found == FILES, found
    return round(took, 2)


def walking(bucket: Bucket) -> dict[str, Any]:
    """A tree of small files, written at once and read from far away."""
    cache = ["cache=/var/tmp/bench-cache", "cache-size=1G"]
    with zvault(bucket, "tree", "size=8G") as disk:
        sh(
            "zpool",
            "create",
            "-f",
            "-o",
            "ashift=12",
            "-O",
            "mountpoint=/tree",
            "-O",
            "atime=off",
            "tree",
            disk.device,
        )
        for number in range(FILES):
            folder = Path(f"/tree/{number % 100:02d}/{number // 100 % 10}")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}").write_bytes(b"%d\n" % number * 50)
        sh("zpool", "export", "tree", timeout=300)
    told: dict[str, Any] = {"files": FILES}
    for name, words in (("without_cache", []), ("cold_cache", cache), ("warm_cache", cache)):
        with away(*WALK), zvault(bucket, "tree", *words) as disk:
            told[f"{name}_s"] = walked()
            told[f"{name}_requests"] = counts(disk)["get"]
            told[f"{name}_fetched_mb"] = round(disk.status()["engine"]["fetched_bytes"] / 1e6, 1)
            say(f"walk {name}: {told}")
            sh("zpool", "export", "tree", timeout=300)
    return told


def cpu(disk: Disk) -> float:
    """CPU seconds of its server so far."""
    fields = Path(f"/proc/{disk.status()['pid']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def streamed(bucket: Bucket, key: str, *words: str) -> dict[str, float]:
    """MB/s written and read in order, by a device that is made for it, and CPU seconds for each GB."""
    with zvault(bucket, key, "journal-size=256M", *words) as disk:
        before = cpu(disk)
        _, size, took = written(disk.device, "--rw=write", "--bs=128k", "--size=1G", each=None)
        told = {"write": size / 1e6 / took, "write_cpu_s_per_gb": (cpu(disk) - before) / (size / 1e9)}
        filled = min(size, 1 << 30)
    with zvault(bucket, key, "journal-size=256M", *words) as disk:
        Path("/proc/sys/vm/drop_caches").write_text("3")
        before, began = cpu(disk), time.monotonic()
        sh(
            "dd",
            f"if={disk.device}",
            "of=/dev/null",
            "bs=1M",
            f"count={filled >> 20}",
            "iflag=direct",
            timeout=600,
        )
        told["read"] = filled / 1e6 / (time.monotonic() - began)
        told["read_cpu_s_per_gb"] = (cpu(disk) - before) / (filled / 1e9)
    emptied(bucket, key)
    shutil.rmtree(disk.journal, ignore_errors=True)
    return told


def encrypting(bucket: Bucket) -> dict[str, Any]:
    """What encryption costs: two devices take turns."""
    secret = FOLDER / "encryption.key"
    secret.write_text("7e" * 32)
    words = f"size=4G endpoint={bucket.s3.endpoint} region=default style=path keys={bucket.keys_file()}"
    every: dict[str, list[dict[str, float]]] = {"plain": [], "encrypted": []}
    sh("udevadm", "control", "--stop-exec-queue")
    with away(0):
        for turn in range(ROUNDS):
            for name in every if turn % 2 == 0 else reversed(every):
                key, more = f"{name}-{turn}", [] if name == "plain" else [f"encryption-key={secret}"]
                place = " ".join([f"zvault:{BUCKET}/{key}", words, *more])
                sh(*ENTER, "zvaultctl", "blockstore", "create", place)
                every[name].append(streamed(bucket, key, "size=4G", *more))
                say(f"turn {turn}: {name}: {every[name][-1]}")
    sh("udevadm", "control", "--start-exec-queue")
    told: dict[str, Any] = {
        name: {figure: round(statistics.median(one[figure] for one in rows), 3) for figure in rows[0]}
        for name, rows in every.items()
    }
    for way in ("write", "read"):
        told[f"ratio_{way}"] = round(told["encrypted"][way] / told["plain"][way], 3)
    return told


PARTS = {"writing": writing, "opening": opening, "walking": walking, "encrypting": encrypting}
DEFAULT = ["cpu", "writing", "opening"]
"""What is measured unless something is asked for: the others fill the cluster, and take as long again."""


def touched() -> None:
    """Write to memory once before anything is timed: the host gives a guest each page when it is first written to."""
    sh("mount", "-t", "tmpfs", "-o", "size=80%", "none", "/mnt")
    room = os.statvfs("/mnt")
    mib = room.f_bavail * room.f_bsize * 9 // 10 >> 20
    sh("dd", "if=/dev/zero", "of=/mnt/memory", "bs=1M", f"count={mib}", timeout=600)
    sh("umount", "/mnt")


def main() -> None:
    """Measure, report."""
    wanted = sys.argv[1:] or DEFAULT
    sh("modprobe", "zfs")
    touched()
    told: dict[str, Any] = {}
    if "cpu" in wanted:
        told |= store_cpu.measured(say)
        wanted.remove("cpu")
    if wanted:
        with place(), store(address=HERE, size=12 << 30) as bucket:
            told |= {name: PARTS[name](bucket) for name in wanted}
    of_all = {
        key: row[key] for row in [told.get("writing", {}).get("0ms", {})] for key in row if "ratio" in key
    }
    print(json.dumps({"benchmark": "blockstore", "seconds": SECONDS, **of_all, **told}))


if __name__ == "__main__":
    main()
