"""nbdkit's plugin of the block store: ``nbdkit python nbdkit_plugin.py bucket=… key=… journal=… [create=yes] …``.

See nbdkit-python-plugin(3), API version 2. With ``readonly=yes`` in the place of ``journal=…`` it is only looked at.
Everything is done in server.py and the engine; here is only what nbdkit calls. It is attached after nbdkit has forked,
for threads do not survive that.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

_HERE = str(Path(__file__).resolve().parents[2])
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)  # nbdkit runs this file, not the package that it is in

for _threads in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_threads] = (
        "1"  # numpy would start threads when it is imported, and confine() is too late for these
    )

import nbdkit  # noqa: E402 - nbdkit's own, there only below it

from zvault.blockstore.engine import BlockEngine  # noqa: E402
from zvault.blockstore.format import BLOCK_SIZE  # noqa: E402
from zvault.blockstore.latest_device import LatestDevice  # noqa: E402
from zvault.blockstore.map.extents import find_extents  # noqa: E402
from zvault.blockstore.own_rights import drop_server_rights  # noqa: E402
from zvault.blockstore.readonly_device import ReadOnlyDevice  # noqa: E402
from zvault.blockstore.serve_options import ServeOptions  # noqa: E402
from zvault.blockstore.server import ServedDevice, choose_errno, log_server_line  # noqa: E402
from zvault.blockstore.stop_signal import end_clients_on_stop  # noqa: E402
from zvault.core.errors import Refused, ZvaultError  # noqa: E402
from zvault.core.printable import make_printable  # noqa: E402

API_VERSION = 2
LARGEST_REQUEST = 32 << 20
"""Bytes in a request, as NBD's documentation says."""

T = TypeVar("T")

_words: list[str] = []
_serving: list[ServedDevice] = []


def thread_model() -> int:
    """The engine is safe for threads."""
    return int(nbdkit.THREAD_MODEL_PARALLEL)


def config(key: str, value: str) -> None:
    """One word of the command line."""
    _words.append(f"{key}={value}")


def config_complete() -> None:
    """Check the parameters, all of which have come; nbdkit ends where they are wrong."""
    try:
        _serving.append(ServedDevice(ServeOptions.of(_words), log_server_line))
    except ZvaultError as error:
        _end(error)


def after_fork() -> None:
    """Attach, without root's rights and the rest of the file system: threads are started from here on."""
    try:
        _serving[0].take_key()
        told = drop_server_rights(_serving[0])
        end_clients_on_stop(_quit)
        _serving[0].begin()
    except Exception as error:
        _end(error)
    for one in told:
        log_server_line(one)


def _quit() -> None:
    nbdkit.shutdown()
    _serving[0].give_up_attaching()


def format_for_journal(first: Any, /, *rest: Any, **more: Any) -> list[str]:
    """The lines that nbdkit writes of an exception, in the place of traceback.format_exception, which it calls.

    It does so of each request that fails (plugins/python/errors.c). Errors with words of their own need no traceback:
    the lines would hide the words. Others are faults of zvault, and keep theirs. All of the process calls it, in each
    form that the function has: with the error alone, or with its kind and traceback.
    """
    error = first if isinstance(first, BaseException) else rest[0] if rest else more.get("value")
    if isinstance(error, ZvaultError):
        return [make_printable(" ".join(str(error).split()), keep="")]
    return _format_exception(first, *rest, **more)


_format_exception: Callable[..., list[str]] = traceback.format_exception
setattr(traceback, "format_exception", format_for_journal)  # noqa: B010 - for mypy it has other overloads


def _end(error: Exception) -> NoReturn:
    # An exception here would be a traceback in the journal.
    log_server_line(f"nbdkit: error: {error if isinstance(error, ZvaultError) else repr(error)}")
    os._exit(1)


def open(readonly: bool) -> ServedDevice:
    """A connection; all share one device."""
    return _serving[0]


def get_size(handle: ServedDevice) -> int:
    """Return the size of the device in bytes."""
    return _device(handle).size


def block_size(handle: ServedDevice) -> tuple[int, int, int]:
    """Any alignment goes; from 4 KiB on nothing is read to be written again."""
    return 1, 4096, LARGEST_REQUEST


def can_write(handle: ServedDevice) -> bool:
    """It is a disk, unless it is only looked at."""
    return not handle.words.readonly


def can_flush(handle: ServedDevice) -> bool:
    """True unless it is only looked at: then there is nothing to flush."""
    return not handle.words.readonly


def can_fua(handle: ServedDevice) -> int:
    """A write is flushed with it."""
    return int(nbdkit.FUA_NONE if handle.words.readonly else nbdkit.FUA_NATIVE)


def can_multi_conn(handle: ServedDevice) -> bool:
    """All connections see one device, and a flush on one is for all."""
    return True


def can_trim(handle: ServedDevice) -> bool:
    """True unless it is only looked at: what is trimmed takes no space any more."""
    return not handle.words.readonly


def can_zero(handle: ServedDevice) -> bool:
    """True unless it is only looked at: zeroes take no space."""
    return not handle.words.readonly


def can_fast_zero(handle: ServedDevice) -> bool:
    """Zeroes take no time, where they are whole blocks: see zero."""
    return not handle.words.readonly


def can_extents(handle: ServedDevice) -> bool:
    """The map knows what holds something; a copy that is thrown away looks at several maps, and does not tell."""
    return isinstance(_device(handle), BlockEngine | ReadOnlyDevice)


def is_rotational(handle: ServedDevice) -> bool:
    return False


def pread(handle: ServedDevice, buf: Any, offset: int, flags: int) -> None:
    """Read as much as ``buf`` holds."""
    _tried(lambda: _device(handle).read_into(offset, memoryview(buf)))


def pwrite(handle: ServedDevice, buf: Any, offset: int, flags: int) -> None:
    _tried(lambda: _engine(handle).write(offset, buf))
    _flush_if_asked(handle, flags)


def zero(handle: ServedDevice, count: int, offset: int, flags: int) -> None:
    """Zeroes, whether it may trim or not: they take no space either way.

    Fast are whole blocks only: the rest of a block that is zeroed in part has to be read, perhaps from the store.
    """
    if flags & nbdkit.FLAG_FAST_ZERO and (offset % BLOCK_SIZE or count % BLOCK_SIZE):
        nbdkit.set_error(errno.EOPNOTSUPP)
        raise Refused("these zeroes are not fast", "they are not of whole blocks", "")
    _tried(lambda: _engine(handle).zero(offset, count))
    _flush_if_asked(handle, flags)


def trim(handle: ServedDevice, count: int, offset: int, flags: int) -> None:
    """Forget a range that is not needed any more. Linux cuts large ones in the middle of a block."""
    _tried(lambda: _engine(handle).discard(offset, count))
    _flush_if_asked(handle, flags)


def extents(handle: ServedDevice, count: int, offset: int, flags: int) -> list[tuple[int, int, int]]:
    """Where it holds something."""
    hole = int(nbdkit.EXTENT_HOLE | nbdkit.EXTENT_ZERO)
    found = _tried(lambda: _extents(_device(handle), offset, count))
    return [(begin, length, hole if is_hole else 0) for begin, length, is_hole in found]


def flush(handle: ServedDevice, flags: int) -> None:
    """All that was answered is durable once this returns."""
    _tried(_engine(handle).flush)


def cleanup() -> None:
    """nbdkit is to end, and nobody is connected any more: everything goes into the store."""
    try:
        for serving in _serving:
            serving.close()
    except Exception as error:
        _end(error)


def _flush_if_asked(handle: ServedDevice, flags: int) -> None:
    if flags & nbdkit.FLAG_FUA:
        _tried(_engine(handle).flush)


def _extents(
    device: BlockEngine | ReadOnlyDevice | LatestDevice, offset: int, count: int
) -> list[tuple[int, int, bool]]:
    if isinstance(device, LatestDevice):
        return [(offset, count, False)]
    blocks = device.blocks if isinstance(device, BlockEngine) else device.view.blocks
    return find_extents(blocks, device.size, offset, count)


def _device(handle: ServedDevice) -> BlockEngine | ReadOnlyDevice | LatestDevice:
    if handle.device is None:
        raise RuntimeError("nobody is connected before it is attached")
    return handle.device


def _engine(handle: ServedDevice) -> BlockEngine:
    device = _device(handle)
    if not isinstance(device, BlockEngine):
        raise Refused(f"{device} cannot be written to", "it is served with readonly=yes", "")
    return device


def _tried(call: Callable[[], T]) -> T:
    try:
        return call()
    except Exception as error:
        nbdkit.set_error(choose_errno(error))
        raise
