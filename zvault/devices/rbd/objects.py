"""Small objects beside an RBD image: the lease, the note and the epoch of a vault that several hosts share.

They are in the image's pool and namespace, named after the image. Each is put on condition that it is still the version
that was read (librados: assert_version), so of two hosts that put at the same moment exactly one succeeds. How old one
is the store says: the time of each put is beside it, by the clock of the OSD that has the object ``clock``, and so is
the time of a look. For that a lock is taken on that object for a while; its end is told by the OSD's clock (cls_lock).
Seen with Ceph 18.2.7.

Every call waits for the cluster, so it runs in processes of its own (keeper.py) and never in the daemon.
"""

from __future__ import annotations

import contextlib
import errno
import re
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from zvault.core.errors import ToolMissing
from zvault.core.units import is_number
from zvault.devices.rbd.cluster import MONITOR_TIMEOUT
from zvault.devices.rbd.place import ImagePlace
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    SMALL_OBJECT,
    ObjectDamaged,
    ObjectMissing,
    PreconditionFailed,
    StoreDenied,
    StoreUnreachable,
)

OP_SECONDS = 10
"""Seconds that one request to an OSD may take."""
CLOCK_LOCK_SECONDS = 3600
"""For which the clock's lock is taken; one that a crash leaves ends by itself."""
_AT = "zvault.at"
"""The attribute with the time of a put: seconds since the epoch, by the clock's OSD."""
_TIME = re.compile(r"[0-9]{1,10}\.[0-9]{9}")
_TRIES = 5
_CHANGED = (errno.EEXIST, errno.ERANGE, errno.EOVERFLOW)
"""What a put is answered whose condition does not hold: ERANGE and EOVERFLOW are another version."""


class RadosObjects:
    """The objects beside one image; see s3_lease.lease.Objects. Raises as S3Store."""

    def __init__(self, place: ImagePlace) -> None:
        """Connect. Raises ToolMissing without librados for Python; StoreUnreachable, StoreDenied."""
        self.place = place
        try:
            import rados
        except ImportError:
            raise ToolMissing(
                "the lease of an RBD image needs librados for Python",
                "there is no module 'rados'",
                "install python3-rados, for the Python that runs zvault",
            ) from None
        self._rados: Any = rados
        cluster = place.cluster
        settings = {
            "rados_osd_op_timeout": str(OP_SECONDS),
            "rados_mon_op_timeout": str(MONITOR_TIMEOUT),
            "client_mount_timeout": str(MONITOR_TIMEOUT),
        }
        if cluster.keyring is not None:
            settings["keyring"] = cluster.keyring
        with self._told():
            # An empty name stands for Ceph's own places.
            client = rados.Rados(conffile=cluster.conf or "", rados_id=cluster.user or "admin", conf=settings)
            client.connect(timeout=MONITOR_TIMEOUT)
            self._pool = client.open_ioctx(place.image.pool)
            self._pool.set_namespace(place.image.namespace)
        self._client = client

    def read_aged(self, key: str) -> tuple[bytes, str, float]:
        """An object, its version, and how long ago it was put, in seconds. Raises ObjectMissing, ObjectDamaged."""
        with self._told():
            for _ in range(_TRIES):
                data, version = self._pool.read(key, SMALL_OBJECT), self._pool.get_last_version()
                at = self._pool.get_xattr(key, _AT).decode("ascii", "replace")
                if self._pool.get_last_version() == version:
                    break
            else:
                raise StoreUnreachable(f"{key} cannot be read", "others put it all the time")
        if not _TIME.fullmatch(at):
            raise ObjectDamaged(f"{key} does not say when it was put", f"its attribute {_AT} is no time")
        return data, str(version), max(0.0, self.now() - float(at))

    def put(self, key: str, data: bytes, condition: str | None = None) -> str:
        """Put an object on condition that it is still of that version, or that there is none (NEW); its new version."""
        if condition is None:
            raise ValueError("an object beside an image is put on a condition only")
        if condition != NO_OBJECT_YET and not (is_number(condition) and int(condition)):
            raise PreconditionFailed(
                f"{key} is another by now", f"it never had the version {condition[:20]!r}"
            )
        at = f"{self.now():.9f}"
        try:
            with self._told(), self._rados.WriteOpCtx() as op:
                if condition == NO_OBJECT_YET:
                    op.new(self._rados.LIBRADOS_CREATE_EXCLUSIVE)
                else:
                    op.assert_version(int(condition))
                op.write_full(bytes(data))
                op.set_xattr(_AT, at.encode())
                self._pool.operate_write_op(op, key)
                return str(self._pool.get_last_version())
        except ObjectMissing as error:
            raise PreconditionFailed(error.what, error.why) from error

    def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; those that are not there are fine."""
        for key in keys:
            with contextlib.suppress(ObjectMissing), self._told():
                self._pool.remove_object(key)

    def now(self) -> float:
        """Seconds since the epoch, by the clock of the OSD that has the clock's object. Raises StoreUnreachable,
        StoreDenied.
        """
        key, cookie = self.place.clock, uuid.uuid4().hex
        with self._told():
            self._pool.lock_shared(key, "clock", cookie, "", "zvault", CLOCK_LOCK_SECONDS, 0)
            try:
                _, answer = self._pool.execute(
                    key, "lock", "get_info", _wrapped(_text("clock")), SMALL_OBJECT
                )
            finally:
                self._pool.unlock(key, "clock", cookie)
        end = parse_lock_ends(answer).get(cookie)
        if end is None:
            raise StoreUnreachable(
                f"the clock of {self.place} cannot be read", "its lock is not there any more"
            )
        return end - CLOCK_LOCK_SECONDS

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise librados's errors as those of an object store."""
        rados, what = self._rados, f"{self.place} cannot be had"
        try:
            yield
        except rados.Error as error:
            number = abs(getattr(error, "errno", None) or 0)
            if number == errno.ENOENT:
                raise ObjectMissing(what, str(error)) from error
            if number in _CHANGED:
                raise PreconditionFailed(what, str(error)) from error
            if number in (errno.EPERM, errno.EACCES):
                see = "give the user 'profile rbd' for monitors and OSDs"
                raise StoreDenied(what, f"Ceph does not let this user do it: {error}", see) from error
            raise StoreUnreachable(what, str(error), "see 'ceph -s'") from error


# How librados encodes what a class of the OSD is asked and answers: see encoding.h and cls/lock/cls_lock_types.h


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<I", len(data)) + data


def _wrapped(body: bytes) -> bytes:
    return struct.pack("<BBI", 1, 1, len(body)) + body


def parse_lock_ends(answer: bytes) -> dict[str, float]:
    """Return when each holder's lock ends, by its cookie: from the answer to ``get_info``. Raises ObjectDamaged."""
    try:
        return _lock_ends(answer)
    except (struct.error, UnicodeDecodeError, ValueError) as error:
        raise ObjectDamaged("Ceph's answer about a lock cannot be read", str(error)) from error


def _lock_ends(answer: bytes) -> dict[str, float]:
    ends: dict[str, float] = {}
    _, _, _, count = struct.unpack_from("<BBII", answer)
    at = 10
    for _ in range(count):
        cookie, at = _part(answer, at)
        # entity_name_t (a byte and a number), and the cookie's length
        (length,) = struct.unpack_from("<I", cookie, 9)
        info, at = _part(answer, at)
        seconds, nanoseconds = struct.unpack_from("<II", info)
        ends[cookie[13 : 13 + length].decode()] = seconds + nanoseconds / 1e9
    return ends


def _part(answer: bytes, at: int) -> tuple[bytes, int]:
    """A versioned part of an answer, and where the next one begins."""
    _, _, length = struct.unpack_from("<BBI", answer, at)
    end = at + 6 + length
    if end > len(answer):
        raise ValueError("it is cut short")
    return answer[at + 6 : end], end
