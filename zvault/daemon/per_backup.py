"""What was learned of each backup, which is true only as long as the backup is configured as it was then."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any, Generic, TypeVar

from zvault.core.errors import NotFound
from zvault.ops.state.environment import Environment

T = TypeVar("T")


def move_names(before: str, name: str, found: Sequence[MutableMapping[str, Any]]) -> None:
    """Have what is known of a backup be of its new name, and nothing more of one that had this name earlier."""
    for known in found:
        if before in known:
            known[name] = known.pop(before)
        else:
            known.pop(name, None)


class ValuesByBackup(MutableMapping[str, T], Generic[T]):
    """Values by backup. One goes as soon as its backup takes another source, or goes into another vault or place."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._found: dict[str, tuple[str, T]] = {}
        env.heed_renames(lambda before, name: move_names(before, name, [self._found]))

    def way(self, name: str) -> str | None:
        """Say what a backup takes and where it puts it now; None where there is no backup of that name."""
        try:
            return self._env.way(self._env.backup(name))
        except NotFound:
            return None

    def put(self, name: str, value: T, way: str | None) -> None:
        """Keep what was learned of a backup while it was configured in that ``way``."""
        if way is not None and way == self.way(name):
            self._found[name] = way, value

    def __getitem__(self, name: str) -> T:
        """Return what is true now. Raises KeyError."""
        way, value = self._found[name]
        if way != self.way(name):
            raise KeyError(name)
        return value

    def __setitem__(self, name: str, value: T) -> None:
        """Keep what was learned just now."""
        self.put(name, value, self.way(name))

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        """The backups of which something is known to be true now."""
        return (name for name, (way, _) in self._found.items() if way == self.way(name))

    def __len__(self) -> int:
        return sum(1 for _ in self)
