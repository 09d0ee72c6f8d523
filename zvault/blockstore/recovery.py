"""Opening a store: whose it is, its newest checkpoint, and the log since then."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from zvault.blockstore.awaited_journal import JournalMark
from zvault.blockstore.format import (
    BLOCK_SIZE,
    FORMAT_VERSION,
    MAX_SIZE,
    PARSE_ERRORS,
    ObjectDamaged,
    Superblock,
    find_key_numbers,
    make_checkpoint_key,
    parse_key_numbers,
)
from zvault.blockstore.kept_moments import KeptMoment
from zvault.blockstore.map.map_part import PART_BLOCKS
from zvault.blockstore.map.root import CheckpointRoot, estimate_largest_root
from zvault.core.errors import Busy, NotFound, Refused
from zvault.object_store.interface import (
    NO_OBJECT_YET,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreDenied,
    describe_loss,
)

CHECKPOINT_LISTINGS = 3
"""How often checkpoints are listed that are gone when they are read."""


@dataclass(frozen=True, slots=True)
class WriterEpoch:
    """The epoch of the one who writes: the object ``PREFIX/epoch`` as it was put, with its ETag.

    ``root``: epoch and number of the newest checkpoint when it was put. ``journal``: the one that the store waits for;
    it stays there whoever takes the store, until all that it may hold is there, or was given up.
    """

    number: int
    owner: str
    since: float
    etag: str = ""
    root: tuple[int, int] = (0, 0)
    journal: JournalMark | None = None

    @staticmethod
    def key(prefix: str) -> str:
        """Return the key of the epoch's object."""
        return f"{prefix}/epoch"

    @classmethod
    def read(cls, store: ObjectStore, prefix: str) -> WriterEpoch:
        """The one of now; number 0 where nobody wrote yet. Raises ObjectDamaged, StoreError."""
        try:
            data, etag = store.read(cls.key(prefix))
        except ObjectMissing:
            return cls(0, "", 0.0)
        try:
            found = json.loads(data)
            epoch, number = found.get("root", (0, 0))
            root = (int(epoch), int(number))
            number = int(found["epoch"])
            if not 0 <= number < 1 << 32:
                raise ValueError(f"{number} is no epoch")
            journal = JournalMark.of_data(found.get("journal"))
            return cls(number, str(found["owner"]), float(found["since"]), etag, root, journal)
        except PARSE_ERRORS as error:
            raise ObjectDamaged(
                f"{cls.key(prefix)} does not say who writes",
                describe_loss(data) or f"it cannot be read: {error}",
                "'zvaultctl blockstore check PLACE --repair' makes it anew, while nobody uses the store",
            ) from error

    def taken_by(
        self, store: ObjectStore, prefix: str, owner: str, root: tuple[int, int] = (0, 0), after: int = 0
    ) -> WriterEpoch:
        """The next one, after that of ``root`` and ``after`` too, taken in the place of this one.

        ``root``: epoch and number of the newest checkpoint. Raises Busy when another was faster.
        """
        number = max(self.number, root[0], after) + 1
        mine = replace(self, number=number, owner=owner, since=time.time(), root=max(self.root, root))
        return mine._put(store, prefix, "another writer took it at the same moment")

    def with_journal(self, store: ObjectStore, prefix: str, mark: JournalMark | None) -> WriterEpoch:
        """The same one, put again to say which journal is waited for. Raises Busy where another has taken the store."""
        return replace(self, journal=mark)._put(store, prefix, "another writer has taken it")

    def _put(self, store: ObjectStore, prefix: str, why: str) -> WriterEpoch:
        """Put it in the place of the one with its ETag."""
        said = {
            "epoch": self.number,
            "owner": self.owner,
            "since": self.since,
            "root": self.root,
            "journal": self.journal.as_data() if self.journal is not None else None,
            "mark": uuid.uuid4().hex,
        }
        text = json.dumps(said).encode()
        try:
            etag = store.put(self.key(prefix), text, self.etag or NO_OBJECT_YET)
        except PreconditionFailed as error:
            there, etag = store.read(self.key(prefix))
            if there == text:  # it was put, and again after an answer that was lost
                return replace(self, etag=etag)
            what = f"the block store {prefix} could not be taken"
            raise Busy(what, why, "see who it is, and try again") from error
        return replace(self, etag=etag)


def create_store(store: ObjectStore, prefix: str, size: int) -> Superblock:
    """Make a store of ``size`` bytes. Raises Refused for a size that cannot be, and where there is one already."""
    if size <= 0 or size % BLOCK_SIZE or size > MAX_SIZE:
        why = f"a block store has a multiple of {BLOCK_SIZE} bytes, at most 1 PiB"
        raise Refused(f"there can be no block store of {size} bytes", why, "give another size")
    made = Superblock(FORMAT_VERSION, uuid.uuid4().hex, size, time.time())
    key, left = f"{prefix}/store", next(iter(store.list(f"{prefix}/")), None)
    if left is None:
        _refuse_hidden(store, f"{prefix}/", f"there is no new block store made at {prefix}")
    try:
        if left is not None:
            raise PreconditionFailed(left.key)
        store.put(key, made.as_bytes(), NO_OBJECT_YET)
    except PreconditionFailed:
        if left is None and store.read(key)[0] == made.as_bytes():
            return made  # it was put, and again after an answer that was lost
        raise Refused(
            f"there is no new block store made at {prefix}",
            "something is there already: a store, or what is left of one"
            + (f" ({left.key})" if left else ""),
            "use it as it is, choose another key, or remove what is there",
        ) from None
    return made


def _refuse_hidden(store: ObjectStore, begins: str, what: str) -> None:
    """See that no delete marker hides an object whose key ``begins`` so, of which none is there. Raises Refused.

    A store made over it would have later versions of the same names, and of each name a recovery takes the oldest.
    """
    try:
        hidden = next((one for one in store.versions(begins) if not one.marker), None)
    except (StoreDenied, ObjectDamaged):
        return  # it keeps no versions, or this key may not list them: nothing is known of any
    if hidden is None:
        return
    when = datetime.fromtimestamp(hidden.modified).astimezone().isoformat(sep=" ", timespec="seconds")
    raise Refused(
        what,
        f"delete markers hide what is there: versions of a block store, such as {hidden.key}, put {when}",
        "'zvaultctl blockstore recover' brings it back as of a time when it was there. A new store needs another key",
    )


def read_superblock(store: ObjectStore, prefix: str) -> Superblock:
    """Read what a store is. Raises NotFound where there is none, Refused where delete markers hide one,
    ObjectDamaged.
    """
    try:
        data, _ = store.read(f"{prefix}/store")
    except ObjectMissing as error:
        what = f"there is no block store at {prefix}"
        _refuse_hidden(store, f"{prefix}/store", f"the block store at {prefix} cannot be opened")
        raise NotFound(
            what, f"{prefix}/store is missing", "make one with 'zvaultctl blockstore create'"
        ) from error
    return Superblock.of_bytes(data)


def read_newest_root(store: ObjectStore, prefix: str, what: Superblock) -> CheckpointRoot:
    """The newest checkpoint that can be read. Raises ObjectDamaged where that would not tell all.

    One that is damaged is passed over for the one before it of the same epoch, which says the same together with a
    longer log: what it needs is removed two checkpoints later only. That of another epoch knows nothing of this one's.
    """
    for _ in range(CHECKPOINT_LISTINGS):
        keys = list_checkpoint_keys(store, prefix)
        if not keys:
            _see_that_it_is_blank(store, prefix)
            return CheckpointRoot.blank(what.identity, what.blocks)
        root = _newest_of(store, keys, what)
        if root is not None:
            return root
    raise ObjectDamaged(
        f"no checkpoint of the block store {prefix} can be read",
        f"the store lists {keys[-1]}, and says that there is no such object",
        "a store that lists what it does not have is no store to trust: see what is wrong with it",
    )


def _newest_of(store: ObjectStore, keys: list[str], what: Superblock) -> CheckpointRoot | None:
    """The newest of these that can be read; None where all were removed since the listing. Raises ObjectDamaged."""
    failure: ObjectDamaged | None = None
    for key in reversed(keys):
        (epoch, number), newest = parse_key_numbers(key), parse_key_numbers(keys[-1])
        if failure is not None and (epoch, number + 1) < newest:
            break
        try:
            return read_root(store, key, what)
        except ObjectMissing:
            # Removed since the listing. Of those before it one may be there that is kept, and is not the newest.
            break
        except ObjectDamaged as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return None


def read_root(store: ObjectStore, key: str, what: Superblock) -> CheckpointRoot:
    """One checkpoint. Raises ObjectMissing, ObjectDamaged, StoreError."""
    data, _ = store.read(key, estimate_largest_root(what.blocks))
    root = CheckpointRoot.of_bytes(data, what.identity, key)
    if len(root.parts) != -(-what.blocks // PART_BLOCKS):
        why = f"it has {len(root.parts)} parts, of a device of {what.size} bytes"
        raise ObjectDamaged(
            f"the checkpoint {key} is of another store", why, "run 'zvaultctl blockstore check'"
        )
    if (root.epoch, root.number) != parse_key_numbers(key):
        raise ObjectDamaged(f"the checkpoint {key} is another", "", "run 'zvaultctl blockstore check'")
    return root


def read_kept_moment(
    store: ObjectStore, prefix: str, what: Superblock, epoch: int, number: int
) -> KeptMoment:
    """A moment by its checkpoint. Raises NotFound where it is not kept, ObjectDamaged, StoreError."""
    past = read_newest_root(store, prefix, what).past
    found = next((one for one in past if (one.epoch, one.number) == (epoch, number)), None)
    if found is None:
        raise NotFound(
            f"checkpoint {number} of epoch {epoch} of the block store {prefix} is not kept",
            f"{len(past)} moments are",
            "see 'zvaultctl blockstore history'",
        )
    return found


def read_root_at(store: ObjectStore, prefix: str, what: Superblock, moment: KeptMoment) -> CheckpointRoot:
    """The checkpoint of a moment that is kept. Raises NotFound where it is kept no more, ObjectDamaged, StoreError."""
    key = make_checkpoint_key(prefix, moment.number, moment.epoch)
    try:
        root = read_root(store, key, what)
    except ObjectMissing as error:
        raise NotFound(
            f"checkpoint {moment.number} of the block store {prefix} is not there",
            f"{key} is missing: its writer has since removed it, or it is lost",
            "see 'zvaultctl blockstore history'",
        ) from error
    if root.moment != moment:
        why = "what it says of itself is not what the newest checkpoint says of it"
        raise ObjectDamaged(f"the checkpoint {key} is another", why, "run 'zvaultctl blockstore check'")
    return root


def list_checkpoint_keys(store: ObjectStore, prefix: str) -> list[str]:
    """The checkpoints that there are, the newest last; objects of other names are left out."""
    listed = (found.key for found in store.list(f"{prefix}/checkpoints/"))
    return [key for key in listed if key == make_checkpoint_key(prefix, *reversed(find_key_numbers(key)))]


def _see_that_it_is_blank(store: ObjectStore, prefix: str) -> None:
    """See that nobody ever wrote to a store that has no checkpoint. Raises ObjectDamaged."""
    seen = False
    for found in store.list(f"{prefix}/"):
        kind = found.key.removeprefix(f"{prefix}/").partition("/")[0]
        seen |= found.key == f"{prefix}/store"
        if kind in ("segments", "maps") and find_key_numbers(found.key) != (-1, -1):
            raise ObjectDamaged(
                f"the block store {prefix} has no checkpoint",
                f"all of them are missing, and {found.key} is there",
                "bring back the newest, if the bucket keeps versions",
            )
    if not seen:
        raise ObjectDamaged(
            f"the listing of {prefix}/ cannot be right",
            f"it leaves out {prefix}/store, which is there",
            "a store that does not list what it has is no store to trust: see what is wrong with it",
        )


def refuse_older_root(epoch: WriterEpoch, root: CheckpointRoot, prefix: str) -> None:
    """See that the newest checkpoint is no older than the one that a writer had seen. Raises ObjectDamaged.

    By one it may be: where the newest is damaged, the one before it says the same.
    """
    if (root.epoch, root.number + (root.epoch == epoch.root[0])) < epoch.root:
        raise ObjectDamaged(
            f"the newest checkpoint of the block store {prefix} is missing",
            f"{epoch.owner} had seen number {epoch.root[1]} of epoch {epoch.root[0]}, and the newest that can be read"
            f" is number {root.number} of epoch {root.epoch}",
            "bring it back, if the bucket keeps versions; to go on with the older one, run"
            " 'zvaultctl blockstore check PLACE --accept-rollback --yes': what it does not have is lost",
        )
