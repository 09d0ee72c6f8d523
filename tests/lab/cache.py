#!/usr/bin/python3
"""Where the lab keeps what it built: every folder is named after what it was built from."""

import hashlib
import os
import platform
import sys
import tomllib
from pathlib import Path
from typing import Any

LAB = Path(__file__).resolve().parent
PROJECT = LAB.parent.parent
QUICK_SOURCES = tuple(
    LAB / name for name in ("lazy_libraries.py", "quick_programs.py", "quick_memory.c", "quick_modprobe.c")
)
GUEST_SOURCES = (LAB / "packages.txt", LAB / "build-guest", *QUICK_SOURCES)
KERNEL_SOURCES = (LAB / "kernel.config", LAB / "build-kernel")
SUITES = {"2.3": "trixie", "2.4": "trixie-backports"}
"""OpenZFS's versions that the lab has, each with the Debian suite that its kernel module and userland come from."""
DEFAULT_ZFS = "2.3"
SYSTEM_SOURCES = (LAB / "build-system", *QUICK_SOURCES)
SYSTEMS = {"debian12": "bookworm"}
"""Older systems that the second guest can be, each with its Debian suite; their OpenZFS is older than the kernel's."""
VENV_SOURCES = (LAB / "build-venv",)
INSTALLED = ("Makefile", "README.md", "CHANGELOG.md", "zvault", "systemd", "config", "docs")
VM = PROJECT / "tests" / "vm"
VM_SOURCES = (VM / "build-image", PROJECT / "debian" / "control")
PEERS_SOURCES = (PROJECT / "tests" / "bench" / "peers.txt", PROJECT / "tests" / "bench" / "get-peers")

S3_SERVERS_SOURCES = (LAB / "s3-servers.txt", LAB / "get-s3-servers")


def root() -> Path:
    """The cache's own folder."""
    chosen = os.environ.get("ZVAULT_CACHE")
    if chosen:
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "zvault"


def zfs() -> str:
    """The version of OpenZFS that is asked for, by ZVAULT_LAB_ZFS. Raises ValueError if the lab has it not."""
    version = os.environ.get("ZVAULT_LAB_ZFS") or DEFAULT_ZFS
    if version not in SUITES:
        raise ValueError(f"the lab has no OpenZFS {version}, only {' and '.join(SUITES)}")
    return version


def suite() -> str:
    """The Debian suite that has it."""
    return SUITES[zfs()]


def archive() -> Path | None:
    """The prebuilt kernel with that OpenZFS, if there is one and nobody asked for a build."""
    chosen = os.environ.get("ZVAULT_LAB_KERNEL")
    if chosen == "build":
        return None
    if chosen:
        return Path(chosen).absolute()
    return max((PROJECT.parent / "shared" / "lab").rglob(f"kernel-*-zfs-{zfs()}.*.tar.zst"), default=None)


def _named(kind: str, sources: tuple[Path, ...], *more: str) -> Path:
    digest = hashlib.sha256("\0".join(more).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return root() / f"{kind}-{digest.hexdigest()[:12]}"


def guest() -> Path:
    """The guest's pristine root: a Debian tree."""
    return _named("guest", GUEST_SOURCES, suite())


def kernel() -> Path:
    """`linux`, the kernel, and `root`, an overlay's layer holding its modules."""
    prebuilt = archive()
    return _named("kernel", (prebuilt,)) if prebuilt else _named("kernel", KERNEL_SOURCES, suite())


def kernel_at_hand() -> Path | None:
    """The same, if it is built or prebuilt: whatever else it takes is made in two minutes."""
    return kernel() if archive() is not None or kernel().exists() else None


def _installed(*more: str) -> tuple[tuple[Path, ...], list[str]]:
    """The files that `make install` knows, with those of more folders; and their names in the checkout."""
    names = (*INSTALLED, *more)
    found = [path for name in names for path in sorted((PROJECT / name).rglob("*")) or [PROJECT / name]]
    files = tuple(path for path in found if path.is_file() and "__pycache__" not in path.parts)
    return files, [path.relative_to(PROJECT).as_posix() for path in files]


def layer() -> Path:
    """This checkout as `make install` installs it in the guest."""
    files, names = _installed()
    return _named("layer", files, guest().name, *names)


def vm_image() -> Path:
    """The virtual machine's disk, kernel and initrd, with that OpenZFS."""
    return _named("vm-image", VM_SOURCES, suite())


def vm_packages() -> Path:
    """This checkout's Debian packages, and those of the same with a lower version."""
    files, names = _installed("debian")
    return _named("vm-packages", (VM / "build-packages", *files), *names)


def system(name: str = "") -> Path:
    """The tree of an older system; its name is in ZVAULT_LAB_SYSTEM where none is given. Raises ValueError."""
    name = name or os.environ.get("ZVAULT_LAB_SYSTEM", "")
    if name not in SYSTEMS:
        raise ValueError(f"the lab has no system {name!r}, only {' and '.join(SYSTEMS)}")
    project = _project()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["s3"]]
    return _named("system", SYSTEM_SOURCES, SYSTEMS[name], *wanted)


def system_suite() -> str:
    """The Debian suite of the system in ZVAULT_LAB_SYSTEM; none if that is not set."""
    name = os.environ.get("ZVAULT_LAB_SYSTEM")
    return SYSTEMS[name] if name and system(name) else ""


def _project() -> dict[str, Any]:
    return dict(tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"])


def venv() -> Path:
    """The host's Python with the linters, the type checker and pytest."""
    project = _project()
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return _named("venv", VENV_SOURCES, platform.python_version(), sys.base_prefix, *wanted)


def peers() -> Path:
    """The peers that the benchmarks race against and that are no Debian packages."""
    return _named("peers", PEERS_SOURCES)


def s3_servers() -> Path:
    """The S3 servers that the lab runs block stores against, a program each; with ZVAULT_LAB_S3=minio MinIO, too."""
    return _named("s3-servers", S3_SERVERS_SOURCES, os.environ.get("ZVAULT_LAB_S3", ""))


if __name__ == "__main__":
    for name in sys.argv[1:]:
        places = {
            "root": root,
            "suite": suite,
            "system": system,
            "system_suite": system_suite,
            "archive": archive,
            "guest": guest,
            "layer": layer,
            "kernel": kernel,
            "kernel_at_hand": kernel_at_hand,
            "venv": venv,
            "peers": peers,
            "s3-servers": s3_servers,
            "vm-image": vm_image,
            "vm-packages": vm_packages,
        }
        try:
            print(places[name]() or "")
        except ValueError as error:
            sys.exit(str(error))
