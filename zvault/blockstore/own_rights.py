"""What a process gives up before it reads what a bucket says: root's rights, and the rest of the file system."""

from __future__ import annotations

from dataclasses import replace

from zvault.blockstore import own_user
from zvault.blockstore.confine import confine_server
from zvault.blockstore.server import ServedDevice


def drop_server_rights(serving: ServedDevice) -> list[str]:
    """Before any thread starts; what came of it, in words. Raises OSError, NotFound."""
    words = serving.words
    if words.user is None:
        return [confine_server(words)]
    if (
        why := own_user.explain_staying_root(words.user) or own_user.find_shared_folder(words.spec.folders)
    ) is not None:
        return [f"stays root: {why}", confine_server(replace(words, user=None))]
    own = own_user.prepare_own_user(words, words.user)
    told = confine_server(words)
    own.become()
    serving.become(own.words, own.opener, own.names)
    return [f"runs as user {own.uid}", told]
