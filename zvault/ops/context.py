"""What use cases have in common, in five parts. Nothing below reads a global."""

from __future__ import annotations

from dataclasses import dataclass, field

from zvault.ops.state.activity import Activity
from zvault.ops.state.cached_backups import CachedBackups
from zvault.ops.state.clients import ZfsClients
from zvault.ops.state.environment import Environment
from zvault.ops.state.records import Records
from zvault.zfs.change_feed import ChangeFeed


@dataclass(frozen=True)
class Context:
    """The world of one daemon, or of one command without a daemon. What needs one part is given that part alone.

    ``env`` is given: configuration, paths, host, clock. ``records`` are on disk. ``clients`` ask ZFS, here and on other
    hosts. ``activity`` is what goes on at this moment. ``known`` is what was worked out before, and need not be again.
    """

    env: Environment
    records: Records
    clients: ZfsClients
    activity: Activity
    known: CachedBackups = field(default_factory=CachedBackups)

    @classmethod
    def of(cls, env: Environment, feed: ChangeFeed | None = None) -> Context:
        """A world in which nothing goes on yet. A ``feed`` pays for who lists the same pools again and again."""
        return cls(env, Records.at(env.paths), ZfsClients(env, feed), Activity())
