"""What a process gives up before it reads what a bucket says: root's rights, and the rest of the file system."""

from __future__ import annotations

from dataclasses import replace

from zvault.blockstore import own_user
from zvault.blockstore.confine import confine
from zvault.blockstore.server import ServedDevice


def give_up_rights(serving: ServedDevice) -> list[str]:
    """Before any thread starts; what came of it, in words. Raises OSError, NotFound."""
    words = serving.words
    if words.user is None:
        return [confine(words)]
    if (why := own_user.stays_root(words.user) or own_user.shared_folder(words.spec.folders)) is not None:
        return [f"stays root: {why}", confine(replace(words, user=None))]
    own = own_user.prepare(words, words.user)
    told = confine(words)
    own.become()
    serving.become(own.words, own.opener, own.names)
    return [f"runs as user {own.uid}", told]
