"""TOML files to a checked model: ``load`` and ``load_profile`` are the way in."""

from zvault.config.keep import Keep
from zvault.config.load import load, load_profile
from zvault.config.nbd import NbdkitServer, NbdSpec, TcpServer, UnixServer
from zvault.config.paths import Paths
from zvault.config.profile import Profile, QueueSettings, Stream
from zvault.config.schema import Backup, Config, Daemon, Device, Send, SnapshotConfig, Vault

__all__ = [
    "Backup",
    "Config",
    "Daemon",
    "Device",
    "Keep",
    "NbdSpec",
    "NbdkitServer",
    "Paths",
    "Profile",
    "QueueSettings",
    "Send",
    "SnapshotConfig",
    "Stream",
    "TcpServer",
    "UnixServer",
    "Vault",
    "load",
    "load_profile",
]
