"""The keys of encrypted block stores: 'zvaultctl blockstore rotate-key', and recovery keys shown once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zvault.cli.options import AsJson, DryRun, Quiet, Store
from zvault.cli.output import print_document, print_line, print_trouble
from zvault.cli.verbs import blockstore_place
from zvault.core.errors import Refused

if TYPE_CHECKING:
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore
    from zvault.object_store.interface import ObjectStore


def make_recovery_key(store: ObjectStore) -> str | None:
    """The recovery key of a store that was made through this; None of one that is not encrypted."""
    made = getattr(getattr(store, "keys", None), "made", None)
    return None if made is None else str(made.text)


def show_recovery_key(recovery_key: str | None, *, json: bool) -> None:
    """Show a recovery key to whoever made it; in JSON it is told already."""
    if recovery_key is not None and not json:
        print_line(f"recovery key: {recovery_key}")
        print_line(
            "write it down and keep it away from this host: it opens the store when its key is lost, and is not shown"
            " again"
        )


class CopyTarget:
    """The target of a copy, encrypted if its place names a key."""

    def __init__(self, place: blockstore_place.StorePlace) -> None:
        """Raises NotFound, ToolMissing, ConfigError."""
        from zvault.blockstore.reached_store import read_encryption_key

        self._key, self._prefix = read_encryption_key(place.spec), place.spec.key
        self._store: EncryptedStore | None = None

    def encrypted(self, store: ObjectStore) -> ObjectStore:
        """The store as the copy is kept there."""
        from zvault.blockstore.reached_store import encrypt_store

        if self._key is None:
            return store
        self._store = encrypt_store(store, self._prefix, self._key, print_trouble)
        return self._store

    @property
    def recovery_key(self) -> str | None:
        """The recovery key of the copy, once it is made."""
        return None if self._store is None else make_recovery_key(self._store)


def rotate(
    place: Store,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FILE",
            help="A file with the new key by which alone the store is opened from now on.",
            show_default=False,
        ),
    ] = None,
    new_recovery_key: Annotated[
        bool, typer.Option("--new-recovery-key", help="Make the recovery key anew, and show it once.")
    ] = False,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: AsJson = False,
) -> None:
    """Encrypt with a new data key what is put into an encrypted store from now on; no object is written anew.

    What is there stays readable. With --to the store is opened by another key from now on: put that in the place of the
    one that the configuration names. A server that runs goes on with the keys that it has until the vault is brought up
    again.
    """
    from zvault.blockstore.encryption.encrypted_store import EncryptedStore
    from zvault.blockstore.encryption.key_source import read_store_key
    from zvault.blockstore.encryption.store_key import StoreKey

    found = blockstore_place.find_store(place)
    store = blockstore_place.reach_objects(found)
    if not isinstance(store, EncryptedStore):
        what = f"the keys of the block store in {found} are not changed"
        raise Refused(what, "no key to it is given", "name it by encryption-key= in its place")
    if found.spec.lock is not None:
        raise Refused(
            f"the keys of the block store in {found} are not changed",
            "its objects are locked, and each is put once: a second version of its keys could be anybody's",
            "'zvaultctl blockstore copy' makes a store with new keys of it",
        )
    key = read_store_key({"encryption-key": str(to)}) if to is not None else None
    if key is not None and key.recovery:
        raise Refused(f"{to} is no key for a store's owner", "it is a recovery key", "make another key")
    if store.keys.key.recovery and key is None:
        why = "the one that is given is its recovery key"
        raise Refused(f"the block store in {found} needs a key of its owner's", why, "name a new one by --to")
    if dry_run:
        ring = store.ring()
        print_line(f"would add a data key to {len(ring.data)} of the block store in {found}")
        return
    recovery = StoreKey.new_recovery() if new_recovery_key else None
    ring = store.rotate(recovery, key, time.time())
    text = None if recovery is None else recovery.text
    if json:
        body = {
            "place": str(found),
            "key": store.keys.key.id,
            "data_keys": len(ring.data),
            "recovery_key": text,
        }
        print_document("blockstore rotate-key", body)
    elif not quiet:
        newest = ring.data[-1].id.hex()
        print_line(
            f"what is put into {found} from now on is encrypted with data key {newest}, of {len(ring.data)}"
        )
        if key is not None:
            print_line(f"it is opened by key {key.id} alone: put it where the configuration has the old one")
    show_recovery_key(text, json=json)
