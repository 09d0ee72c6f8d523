"""What the block store itself costs of a processor, streaming in and out, against boto3 with the same objects.

``python3 tests/bench/store_cpu.py`` needs nbdkit with its Python plugin, fio with its engine ``nbd``, and boto3; no
root, no kernel's NBD, no Ceph. The store is in memory, in a process of its own (memory_s3.py) that is not counted.
Counted is the CPU time of nbdkit, that is of the plugin, its journal and nbdkit itself, while fio writes GIB in order
and flushes, and while another nbdkit that knows nothing yet has them read again. Beside them a process of boto3 puts
and gets as many objects of 8 MiB, by as many threads as the block store has. An encrypted store takes its turn: its
speed over that of the other is "encrypted_of_plain_in" and "encrypted_of_plain_out".
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from report import say

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PLUGIN = ROOT / "zvault" / "blockstore" / "nbdkit_plugin.py"

GIB = float(os.environ.get("GIB", "1"))
ROUNDS = int(os.environ.get("TURNS", "3"))
SIZES = ("1m", "128k")
"""Of a request; the first is what counts."""
BUCKET = "zvault"
KEYS = "[default]\naws_access_key_id = KEY\naws_secret_access_key = SECRET\n"
OBJECT = 8 << 20
UPLOADS, FETCHES = 4, 8
"""Requests at once: those of the block store by default."""
AIM_OF_BOTO, AIM_MB = 1.3, 500
"""CPU time over boto3's at most, and MB/s of a processor of its own at least."""

BOTO = """
import sys, threading, time, boto3, botocore.config
kind, endpoint, count, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
keys = dict(aws_access_key_id="KEY", aws_secret_access_key="SECRET", region_name="default")
config = botocore.config.Config(s3={"addressing_style": "path"})
s3 = boto3.client("s3", endpoint_url=endpoint, config=config, **keys)
data = bytes(range(256)) * 32768
def work(first):
    for number in range(first, count, threads):
        if kind == "put":
            s3.put_object(Bucket="zvault", Key=f"boto/{number}", Body=data)
        else:
            assert len(s3.get_object(Bucket="zvault", Key=f"boto/{number}")["Body"].read()) == len(data)
before = time.process_time()
all = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
[t.start() for t in all]; [t.join() for t in all]
print(time.process_time() - before)
"""


def cpu(pid: int) -> float:
    """CPU seconds of a process so far, all its threads: the clock of clock_getcpuclockid(3), in Linux's numbering."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def bucket() -> Iterator[str]:
    """A bucket in memory; its endpoint."""
    server = subprocess.Popen([sys.executable, str(HERE / "memory_s3.py")], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.terminate()
        server.wait(30)


@contextmanager
def served(folder: Path, endpoint: str, key: str, *words: str) -> Iterator[int]:
    """A device of the block store at ``folder``/socket; nbdkit's process."""
    keys, status, socket = folder / "keys", folder / "status", folder / "socket"
    keys.write_text(KEYS)
    for old in (status, socket):
        old.unlink(missing_ok=True)
    argv = ["nbdkit", "-f", "--threads=32", "-U", str(socket), "python", str(PLUGIN)]
    argv += [f"bucket={BUCKET}", f"key={key}", f"endpoint={endpoint}", "region=default", "style=path"]
    argv += [f"keys={keys}", f"status={status}", f"journal={folder / 'journal'}", *words]
    with (folder / "said").open("wb") as out:
        server = subprocess.Popen(argv, stdout=out, stderr=out)
    try:
        for _ in range(600):
            assert server.poll() is None, (folder / "said").read_text()
            if status.exists() and json.loads(status.read_text()).get("ready"):
                break
            time.sleep(0.1)
        yield server.pid
    finally:
        server.terminate()
        server.wait(300)


def fio(folder: Path, rw: str, size: str, gib: float) -> float:
    """Have fio go over so many GiB in order, with a flush at the end of writing; seconds."""
    argv = ["fio", "--name=it", "--ioengine=nbd", f"--uri=nbd+unix:///?socket={folder / 'socket'}"]
    argv += [f"--rw={rw}", f"--bs={size}", f"--size={int(gib * 1024)}M", "--iodepth=16", "--end_fsync=1"]
    argv += ["--output-format=json"]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.monotonic() - began


def of_ours(endpoint: str, key: str, size: str, *words: str, create: bool = True) -> dict[str, float]:
    """CPU seconds, and seconds, of streaming in and out."""
    told: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="store-cpu-") as name:
        folder = Path(name)
        making = ["create=yes", "size=16G"] if create else []
        for way, rw, more in (("in", "write", making), ("out", "read", [])):
            with served(folder, endpoint, key, *more, *words) as pid:
                before = cpu(pid)
                took = fio(folder, rw, size, GIB)
                told[f"cpu_{way}"] = cpu(pid) - before
                told[f"took_{way}"] = took
    return told


def of_encrypted(endpoint: str, size: str) -> dict[str, float]:
    """The same of a store that is encrypted."""
    with tempfile.TemporaryDirectory(prefix="store-cpu-") as name:
        keys, secret = Path(name) / "keys", Path(name) / "secret"
        keys.write_text(KEYS)
        secret.write_text("7e" * 32)
        place = (
            f"zvault:{BUCKET}/encrypted size=16G endpoint={endpoint} region=default style=path keys={keys}"
        )
        argv = [sys.executable, "-c", "from zvault.cli.app import main; main()", "blockstore", "create"]
        subprocess.run([*argv, f"{place} encryption-key={secret}"], cwd=ROOT, check=True, capture_output=True)
        return of_ours(endpoint, "encrypted", size, f"encryption-key={secret}", create=False)


def of_boto(endpoint: str) -> dict[str, float]:
    """CPU seconds of as much by boto3."""
    told = {}
    for kind, threads in (("put", UPLOADS), ("get", FETCHES)):
        objects = math.ceil(GIB * (1 << 30) / OBJECT)
        argv = [sys.executable, "-P", "-c", BOTO, kind, endpoint, str(objects), str(threads)]
        told[kind] = float(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    return told


def measured(say: Callable[[str], None]) -> dict[str, Any]:
    """All of it, by turns; medians. Figures without a size in their names are of requests of SIZES[0]."""
    gb = GIB * 1.073741824
    rows: dict[str, list[dict[str, float]]] = {"boto3": [], "encrypted": [], **{size: [] for size in SIZES}}
    for turn in range(ROUNDS):
        for name, row in rows.items():
            with bucket() as endpoint:
                if name == "boto3":
                    row.append(of_boto(endpoint))
                elif name == "encrypted":
                    row.append(of_encrypted(endpoint, SIZES[0]))
                else:
                    row.append(of_ours(endpoint, "it", name))
            say(f"turn {turn}: {name}: {row[-1]}")
    medians = {
        name: {figure: statistics.median(one[figure] for one in several) for figure in several[0]}
        for name, several in rows.items()
    }
    told: dict[str, Any] = {}
    for size in reversed(SIZES):
        end, ours, boto = "" if size == SIZES[0] else f"_{size}", medians[size], medians["boto3"]
        for way, kind in (("in", "put"), ("out", "get")):
            told[f"cpu_s_per_gb_{way}{end}"] = round(ours[f"cpu_{way}"] / gb, 3)
            told[f"cpu_of_{kind}{end}"] = round(ours[f"cpu_{way}"] / boto[kind], 2)
            told[f"mb_per_core_{way}{end}"] = round(1000 * gb / ours[f"cpu_{way}"])
            told[f"mb_s_{way}{end}"] = round(1000 * gb / ours[f"took_{way}"])
    for way in ("in", "out"):
        hidden, plain = medians["encrypted"], medians[SIZES[0]]
        told[f"cpu_s_per_gb_{way}_encrypted"] = round(hidden[f"cpu_{way}"] / gb, 3)
        told[f"encrypted_of_plain_{way}"] = round(plain[f"took_{way}"] / hidden[f"took_{way}"], 2)
    told |= {f"cpu_s_per_gb_{kind}": round(medians["boto3"][kind] / gb, 3) for kind in ("put", "get")}
    reached = [told["cpu_of_put"] <= AIM_OF_BOTO, told["cpu_of_get"] <= AIM_OF_BOTO]
    reached += [told[f"mb_per_core_{way}"] >= AIM_MB for way in ("in", "out")]
    return {**told, "cpu_aims_reached": all(reached), "gib": GIB, "turns": ROUNDS}


def main() -> None:
    """Measure, report."""
    print(json.dumps({"benchmark": "store_cpu", **measured(say)}))


if __name__ == "__main__":
    main()
