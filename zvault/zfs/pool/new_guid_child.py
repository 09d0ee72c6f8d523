"""The program that gives a pool on one device another name and GUID, without the kernel's ZFS.

The kernel imports no two pools with one GUID (spa_guid_exists in spa_misc.c). OpenZFS's libzpool, which zdb and zhack
are made of, has the same code as the kernel in a process of its own, which knows of no pool but the one it is given: it
imports the pool, has OpenZFS change the GUID (spa_change_guid), and exports it.

Run as ``python new_guid_child.py DEVICE NAME``, in a unit that reaches that device alone (new_guid.py). It prints the
GUID, and imports nothing but the standard library.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from ctypes import byref, c_char_p, c_int, c_uint32, c_uint64, c_void_p
from typing import Any

_READ, _WRITE = 1, 2
"""spa_mode_t (sys/spa.h)."""
_SKIP_MMP = 0x20
"""ZFS_IMPORT_SKIP_MMP (sys/fs/zfs.h): nobody else has this copy."""
_UNIQUE_NAME = 1
_CONTINUE = 1
"""ZIO_FAILURE_MODE_CONTINUE: what cannot be read is an error, and no reason for the pool to wait."""

_FOUND_ELSEWHERE = (b"devid", b"phys_path", b"vdev_enc_sysfs_path")
"""What a label says of the disk that it was written on."""

_SCALARS = (b"version", b"state", b"txg", b"vdev_children")

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "zpool_read_label": (c_int, c_int, c_void_p, c_void_p),
    "nvlist_alloc": (c_int, c_void_p, c_uint32, c_int),
    "nvlist_add_string": (c_int, c_void_p, c_char_p, c_char_p),
    "nvlist_add_uint64": (c_int, c_void_p, c_char_p, c_uint64),
    "nvlist_add_nvlist": (c_int, c_void_p, c_char_p, c_void_p),
    "nvlist_add_nvlist_array": (c_int, c_void_p, c_char_p, c_void_p, c_uint32),
    "nvlist_lookup_nvlist": (c_int, c_void_p, c_char_p, c_void_p),
    "nvlist_lookup_uint64": (c_int, c_void_p, c_char_p, c_void_p),
    "nvlist_lookup_string": (c_int, c_void_p, c_char_p, c_void_p),
    "nvlist_remove_all": (c_int, c_void_p, c_char_p),
    "kernel_init": (None, c_int),
    "kernel_fini": (None,),
    "spa_import": (c_int, c_char_p, c_void_p, c_void_p, c_uint64),
    "spa_open": (c_int, c_char_p, c_void_p, c_void_p),
    "spa_change_guid": (c_int, c_void_p, c_void_p),
    "spa_close": (None, c_void_p, c_void_p),
    "spa_export": (c_int, c_char_p, c_void_p, c_int, c_int),
}
"""Each function's result and arguments. spa_change_guid has its second one since OpenZFS 2.3."""


class LibzpoolFailed(Exception):
    """A call that failed."""


class Libzpool:
    """The functions of libzpool that are used, and of libnvpair, which it loads."""

    def __init__(self) -> None:
        name = ctypes.util.find_library("zpool")
        if name is None:
            raise LibzpoolFailed("libzpool is not installed")
        self._library = ctypes.CDLL(name)
        # Else it would read, and write, which pools this host has.
        self._nowhere = ctypes.create_string_buffer(b"/dev/none/zpool.cache")
        c_void_p.in_dll(self._library, "spa_config_path").value = ctypes.addressof(self._nowhere)
        # A scrub that was under way then does not go on here.
        c_int.in_dll(self._library, "zfs_scan_suspend_progress").value = 1

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.restype, *function.argtypes = _FUNCTIONS[name]
        return function

    def call(self, what: str, name: str, *arguments: object) -> None:
        """A call that gives an errno, 0 for success. Raises LibzpoolFailed."""
        if code := getattr(self, name)(*arguments):
            raise LibzpoolFailed(f"{what}: {os.strerror(code) if code > 0 else f'error {code}'}")

    def new(self) -> c_void_p:
        """Make an empty nvlist."""
        made = c_void_p()
        self.call("out of memory", "nvlist_alloc", byref(made), _UNIQUE_NAME, 0)
        return made

    def number(self, of: c_void_p, name: bytes) -> int:
        """A number of an nvlist's. Raises LibzpoolFailed."""
        found = c_uint64()
        self.call(f"its label has no {name.decode()}", "nvlist_lookup_uint64", of, name, byref(found))
        return found.value

    def label(self, device: str) -> c_void_p:
        """Read what a device's labels say of its pool. Raises LibzpoolFailed, OSError."""
        found, count = c_void_p(), c_int()
        fd = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.call("its labels cannot be read", "zpool_read_label", fd, byref(found), byref(count))
        finally:
            os.close(fd)
        if not count.value or not found.value:
            raise LibzpoolFailed("there is no pool on it")
        return found


def read_pool_config(library: Libzpool, device: str, name: str) -> c_void_p:
    """The pool on a device as spa_import wants it: with the device where it is now, and under another name."""
    label, vdev = library.label(device), c_void_p()
    library.call("its label has no vdev", "nvlist_lookup_nvlist", label, b"vdev_tree", byref(vdev))
    if (children := library.number(label, b"vdev_children")) != 1:
        raise LibzpoolFailed(
            f"its pool has {children} top-level vdevs, and the others are not of the same moment"
        )
    kind = c_char_p()
    library.call("its vdev has no type", "nvlist_lookup_string", vdev, b"type", byref(kind))
    if kind.value not in (b"disk", b"file"):
        raise LibzpoolFailed(f"its pool is a {(kind.value or b'').decode()}, and not on this device alone")
    guid = library.number(label, b"pool_guid")
    library.nvlist_add_string(vdev, b"path", os.fsencode(device))
    for other in _FOUND_ELSEWHERE:
        library.nvlist_remove_all(vdev, other)
    root, config = library.new(), library.new()
    library.nvlist_add_string(root, b"type", b"root")
    library.nvlist_add_uint64(root, b"id", 0)
    library.nvlist_add_uint64(root, b"guid", guid)
    library.nvlist_add_nvlist_array(root, b"children", (c_void_p * 1)(vdev), 1)
    library.nvlist_add_string(config, b"name", name.encode())
    library.nvlist_add_uint64(config, b"pool_guid", guid)
    for scalar in _SCALARS:
        library.nvlist_add_uint64(config, scalar, library.number(label, scalar))
    library.nvlist_add_nvlist(config, b"vdev_tree", root)
    return config


def change_pool_identity(device: str, name: str) -> int:
    """Give the pool on a device another name, and another GUID, which is returned. Raises LibzpoolFailed, OSError."""
    library, pool = Libzpool(), name.encode()
    config = read_pool_config(library, device, name)
    before = library.number(config, b"pool_guid")
    properties, spa, tag = library.new(), c_void_p(), ctypes.create_string_buffer(b"zvault")
    library.nvlist_add_string(properties, b"cachefile", b"none")
    library.nvlist_add_uint64(properties, b"failmode", _CONTINUE)
    library.kernel_init(_READ | _WRITE)
    library.call("its pool cannot be imported", "spa_import", pool, config, properties, _SKIP_MMP)
    library.call("its pool cannot be opened", "spa_open", pool, byref(spa), tag)
    library.call("its GUID cannot be changed", "spa_change_guid", spa, None)
    library.spa_close(spa, tag)
    library.call("its pool cannot be exported", "spa_export", pool, None, 0, 0)
    library.kernel_fini()
    fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    os.fsync(fd)  # it was written through the page cache, past which the kernel's ZFS reads
    os.close(fd)
    after = library.number(library.label(device), b"pool_guid")
    if after == before:
        raise LibzpoolFailed("its GUID is the same as before")
    return after


def main(words: list[str]) -> int:
    """Give the pool on a device a new GUID and print it, or the error. Returns the exit status."""
    try:
        told, code = str(change_pool_identity(*words)), 0
    except (LibzpoolFailed, OSError) as error:
        told, code = str(error), 1
    except (AttributeError, ValueError) as error:
        told, code = f"this host's libzpool is another than those that are known: {error}", 1
    print(told, file=sys.stderr if code else sys.stdout, flush=True)
    return code


if __name__ == "__main__":
    # libzpool's threads are still there, and nothing is left to do.
    os._exit(main(sys.argv[1:]))
