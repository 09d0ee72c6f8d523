"""The helper of small streams with two calls in place of libzfs_core's: files for snapshots, and for what is received.

``send`` writes the file SNAPSHOT.stream of the folder (``/`` is ``_``), and returns the number in SNAPSHOT.fails, if
there is one; it waits after each half as long as there is a file ``hold``. ``receive`` writes what comes to
SNAPSHOT.got, with its properties beside it, and takes a stream without its END as cut off. It hangs where there is a
file ``hang``, and is never made where there is a file SNAPSHOT.raises.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from zvault.zfs.lzc_stream_child import ControlChannel, serve_streams

TRUNCATED = 1040


class Files:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name.replace("/", "_")

    def send(self, snapshot: str, base: str, descriptor: int, flags: int) -> int:
        self.path(f"{snapshot}.asked").write_text(f"{base} {flags}")
        data = memoryview(self.path(f"{snapshot}.stream").read_bytes())
        half = len(data) // 2
        try:
            for part in (data[:half], data[half:]):
                left = part
                while left:
                    left = left[os.write(descriptor, left) :]
                while (self.folder / "hold").exists():
                    time.sleep(0.01)
        except BrokenPipeError as error:
            return error.errno or 1
        fails = self.path(f"{snapshot}.fails")
        return int(fails.read_text()) if fails.exists() else 0

    def receive(
        self, snapshot: str, properties: Mapping[str, int | str], raw: bool, descriptor: int, begin: bytes
    ) -> int:
        while (self.folder / "hang").exists():
            time.sleep(0.01)
        if self.path(f"{snapshot}.raises").exists():
            raise MemoryError("no room for its properties")
        refuse = self.path(f"{snapshot}.refuses")
        if refuse.exists():
            return int(refuse.read_text())
        with self.path(f"{snapshot}.got").open("wb") as file:
            file.write(begin)
            while some := os.read(descriptor, 1 << 16):
                file.write(some)
        self.path(f"{snapshot}.properties").write_text(json.dumps([properties, raw]))
        whole = self.path(f"{snapshot}.got").read_bytes()[-312:-304] == bytes([5, 0, 0, 0, 0, 0, 0, 0])
        return 0 if whole else TRUNCATED


def say(line: object) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


say({"ready": True})
serve_streams(Files(Path(sys.argv[1])), ControlChannel(0), say)
os._exit(0)
