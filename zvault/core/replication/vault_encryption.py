"""How a dataset lies on its vault: raw with its source's key, encrypted by a key of the vault's, or in the clear. Pure.

What counts is what lies on the vault, never the configuration: the commonest encrypted vault is an ordinary pool with
an encrypted dataset in it. What ZFS does is written here as it was seen with OpenZFS 2.3.9; the lab's
test_vault_encryption.py tries it again:

- A stream with properties says ``encryption=off``, and lands in the clear below whatever is encrypted; with
  ``-x encryption`` it inherits. A raw stream keeps its own key, and refuses that option.
- What inherits needs its key loaded, for each stream. A raw one needs none.
- ``-e`` is refused by a dataset that is encrypted otherwise than raw.
- What is encrypted on the source and is sent without ``-w`` needs its key loaded there, and lies as if it were not
  encrypted there. ``send.encrypted = "decrypted"`` asks for that, and only where the vault encrypts it.
- A clone has the key of what it is a clone of, wherever it lies.
- What inherits the key of a raw copy is locked for good as soon as the source's key is changed: the next raw stream
  brings the copy its new key, and nothing wraps the other's anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from zvault.core.model import Dataset, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import DatasetPair, Pairing
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.source_properties import parse_record
from zvault.core.replication.vault_changes import BranchDataset

KeyLoaded = Callable[[str], bool]
"""Tells of an encryption root on the vault whether its key is loaded there."""


IN_THE_CLEAR = "in the clear"
"""How a dataset lies where neither it nor what is above it on the vault is encrypted, in words."""


class VaultEncryption(StrEnum):
    """The way in which a dataset lies on its vault."""

    RAW = "raw"
    INHERITED = "inherited"
    CLEAR = "clear"
    CLEAR_AS_SOURCE = "clear-as-source"
    EXPOSED = "exposed"


@dataclass(frozen=True, slots=True)
class ReceivingPlace:
    """The place on the vault that a stream meets. ``""`` stands for no key.

    ``key_root``: by whose key that is encrypted which the stream continues, or from which the new dataset gets its
    encryption: the nearest dataset above it, or the origin of a clone. ``copies``: whether that is the key of a raw
    copy of a source's dataset; without a key, whether such a copy is above it.
    ``cover``: the key of the nearest dataset above it that somebody encrypted on the vault;
    what is a raw copy of a dataset above the source's own does not count, there the source lies in the clear as well.
    ``parents_key``: the key that is needed to make the filesystems that are missing above it.
    """

    key_root: str = ""
    cover: str = ""
    begins: bool = True
    copies: bool = False
    parents_key: str = ""


@dataclass(frozen=True, slots=True)
class EncryptionOnVault:
    """The way in which a dataset lies on its vault, or will; by whose key; and why nothing may be sent, if so, with
    what to do.
    """

    lying: VaultEncryption
    key: str = ""
    refusal: str = ""
    advice: str = ""

    @property
    def inherits(self) -> bool:
        """True if what is received is encrypted by a key of the vault's."""
        return self.lying is VaultEncryption.INHERITED

    def __str__(self) -> str:
        if self.lying is VaultEncryption.RAW and self.key:
            return (
                f"raw, encrypted by its source's own key: it inherits that of {self.key} now, and no longer once "
                "it has arrived; a run that brings it back to where it came from has it inherit again"
            )
        return {
            VaultEncryption.RAW: "raw, encrypted by its source's own key",
            VaultEncryption.INHERITED: f"encrypted by the key of {self.key}",
            VaultEncryption.CLEAR: IN_THE_CLEAR,
            VaultEncryption.CLEAR_AS_SOURCE: "in the clear, as on its source, below what is sent raw",
            VaultEncryption.EXPOSED: f"in the clear, below {self.key}, which is encrypted",
        }[self.lying]


def decide_encryption(
    target: str, place: ReceivingPlace, is_loaded: KeyLoaded, *, source_encrypted: bool
) -> EncryptionOnVault:
    """Decide how a dataset of a source lies at a place, and whether it may be sent there now.

    What is there in the clear already is gone on with: to stop its backup would help nobody. It is told as critical.
    """
    if place.begins and place.parents_key and not is_loaded(place.parents_key):
        lying = VaultEncryption.RAW if source_encrypted else VaultEncryption.INHERITED
        return _locked(lying, place.parents_key, f"the filesystems above {target} cannot be made")
    if source_encrypted:
        return EncryptionOnVault(VaultEncryption.RAW)
    if not place.key_root:
        return _decide_clear(target, place)
    if place.begins and place.copies:
        return _decide_below_copy(target, place)
    if not is_loaded(place.key_root):
        return _locked(
            VaultEncryption.INHERITED, place.key_root, f"{target} would have to be encrypted by it"
        )
    return EncryptionOnVault(VaultEncryption.INHERITED, place.key_root)


def refuse_decrypted_in_clear(target: str, made: EncryptionOnVault) -> EncryptionOnVault:
    """Refuse what is encrypted on the source and is sent decrypted, unless the vault encrypts it.

    Also what lies there in the clear already: whoever had it so before, here it would bring what belongs encrypted.
    """
    if made.refusal or made.inherits:
        return made
    return replace(
        made,
        refusal=f'it is encrypted on the source, and send.encrypted = "decrypted" would store it in the clear: nothing '
        f"encrypts {target} on the vault",
        advice="give the vault a key, or choose an 'into' below an encrypted dataset of the vault's own"
        " (docs/how-to/encrypt-a-vault.md); without send.encrypted it is sent raw, and stays encrypted",
    )


def refuse_locked_source(name: str, root: str) -> EncryptionOnVault:
    """Refuse what is sent decrypted, and whose key is not loaded on the source."""
    return EncryptionOnVault(
        VaultEncryption.INHERITED,
        root,
        f"the key of {root} is not loaded on the source, and {name} would have to be decrypted",
        f"load it on the source with 'zfs load-key {root}', then run it again; without send.encrypted it is sent raw,"
        " and needs no key",
    )


def _decide_clear(target: str, place: ReceivingPlace) -> EncryptionOnVault:
    if not place.cover:
        return EncryptionOnVault(VaultEncryption.CLEAR_AS_SOURCE if place.copies else VaultEncryption.CLEAR)
    if not place.begins:
        return EncryptionOnVault(VaultEncryption.EXPOSED, place.cover)
    return EncryptionOnVault(
        VaultEncryption.EXPOSED,
        place.cover,
        f"{target} would lie in the clear below {place.cover}, which is encrypted: what it gets its encryption from "
        "lies in the clear itself",
        "make that anew first, or choose another 'into': docs/how-to/encrypt-a-vault.md",
    )


def _decide_below_copy(target: str, place: ReceivingPlace) -> EncryptionOnVault:
    if not place.cover:
        return EncryptionOnVault(VaultEncryption.CLEAR_AS_SOURCE)
    return EncryptionOnVault(
        VaultEncryption.EXPOSED,
        place.cover,
        f"{target} would lie below the raw copy of an encrypted dataset: in the clear, or locked for good once the key "
        "of that copy is changed on its source",
        "choose another 'into' for it, in a backup of its own",
    )


def _locked(lying: VaultEncryption, key: str, why: str) -> EncryptionOnVault:
    return EncryptionOnVault(
        lying,
        key,
        f"the key of {key} is not loaded on the vault, and {why}",
        f"load it on the vault's host with 'zfs load-key {key}', then run it again",
    )


@dataclass(frozen=True, slots=True)
class KeysAbove:
    """By name, whose key each dataset above a backup's root on its vault is encrypted by, "" for none.

    ``copies``: which of these encryption roots are raw copies, by what zvault has on record of them. ``sources``: of
    which dataset above the backup's own source each is one, where another backup of that puts it there.
    """

    roots: Mapping[str, str] = field(default_factory=dict)
    copies: frozenset[str] = frozenset()
    sources: Mapping[str, DatasetName] = field(default_factory=dict)


NO_KEYS_ABOVE = KeysAbove()


@dataclass(frozen=True, slots=True)
class VaultKeys:
    """Which keys there are on a vault: in a backup's ``tree``, and ``above`` its root."""

    tree: Tree
    above: KeysAbove = NO_KEYS_ABOVE

    @property
    def any(self) -> bool:
        """True if anything there is encrypted: nearly always nothing is, or all."""
        return any(self.above.roots.values()) or any(one.key_root for one in self.tree)

    def key_of(self, name: str) -> str | None:
        """By whose key a dataset is encrypted, "" for none; None where there is no such dataset."""
        there = self.tree.get(name)
        return there.key_root if there is not None else self.above.roots.get(name)


class PlannedKeys:
    """The keys of a vault while its plans are gone through, parents first: what one makes, the next may lie below."""

    def __init__(self, keys: VaultKeys, pairing: Pairing) -> None:
        self._keys = keys
        self._will_be: dict[str, str] = {}
        # By where it is on the vault, which source dataset a raw copy is of: of one that is excluded by now as well.
        self._copies: dict[str, DatasetName] = dict(keys.above.sources)
        for pair in pairing.pairs:
            if pair.vault is not None:
                self._will_be[pair.target] = pair.vault.key_root
                self._note_copy(pair, pair.target)
        for pair in pairing.unselected:
            self._note_copy(pair)

    def place_of(self, plan: TransferPlan, there: Dataset | None) -> ReceivingPlace:
        """Return the place that the streams of a plan meet. ``there`` is the vault's dataset that they follow, if
        any.
        """
        cover = self.cover_of(plan.target, plan.dataset)
        branch = next((one for one in plan.changes if isinstance(one, BranchDataset)), None)
        origin = branch.origin if branch is not None else plan.steps[0].origin if plan.steps else None
        if origin is not None:
            return ReceivingPlace(
                self._key_of(origin.dataset) or "", cover, parents_key=self._parents_key(plan.target)
            )
        if there is not None and not plan.begins:
            copied = self._lies_below_copy(plan.target, plan.dataset)
            return ReceivingPlace(there.key_root, cover, begins=False, copies=copied)
        if there is not None and plan.steps and plan.steps[0].over:
            nearest: str | None = there.name  # what it is received into while it is received
        else:
            nearest = next((name for name in self._existing_above(plan.target)), None)
        key = self._key_of(nearest) if nearest is not None else None
        if nearest is not None and key:
            copies = self._is_copy(nearest, key)
        else:
            copies = self._lies_below_copy(plan.target, plan.dataset)
        return ReceivingPlace(key or "", cover, copies=copies, parents_key=self._parents_key(plan.target))

    def cover_of(self, target: DatasetName, source: DatasetName | None) -> str:
        """The key of the nearest dataset above a place that is encrypted, other than as a raw copy of one above
        ``source``; "" for none. Of what is gone from the source, ``source`` None, any raw copy counts as such a one.
        """
        for name in self._existing_above(target):
            key = self._key_of(name)
            copied = self._copies.get(name)
            if source is None:
                as_on_source = copied is not None or self._came_raw(name)
            else:
                as_on_source = copied is not None and source.is_below(copied)
            if key and not as_on_source:
                return key
        return ""

    def note(self, plan: TransferPlan, made: EncryptionOnVault) -> None:
        """A plan makes its dataset so."""
        if made.refusal or plan.action is TransferAction.CONFLICT or not plan.steps:
            return
        if made.lying is VaultEncryption.RAW and plan.begins:
            self._will_be[plan.target] = plan.target
            self._copies[plan.target] = plan.dataset
        elif made.lying is not VaultEncryption.RAW:
            self._will_be[plan.target] = made.key if made.inherits else ""

    def _note_copy(self, pair: DatasetPair, *places: DatasetName) -> None:
        there = pair.vault
        if there is not None and there.key_root and pair.source.encrypted:
            self._copies |= dict.fromkeys((there.name, *places), pair.source.name)

    def _came_raw(self, name: str) -> bool:
        """True if the vault has on record of a dataset that it is the raw copy of one, which may be gone."""
        there = self._keys.tree.get(name)
        record = parse_record(there.source_record) if there is not None and there.source_record else None
        return record is not None and record.key_root is not None

    def _key_of(self, name: str) -> str | None:
        return self._will_be[name] if name in self._will_be else self._keys.key_of(name)

    def _existing_above(self, target: DatasetName) -> Iterator[DatasetName]:
        return (name for name in reversed(tuple(target.ancestors)) if self._key_of(name) is not None)

    def _parents_key(self, target: DatasetName) -> str:
        nearest = next(self._existing_above(target), None)
        missing = nearest is None or nearest != target.parent
        return (self._key_of(nearest) or "") if missing and nearest is not None else ""

    def _lies_below_copy(self, target: DatasetName, source: DatasetName) -> bool:
        """True if something above a place is a raw copy of a dataset above ``source``."""
        return any(source.is_below(self._copies[name]) for name in target.ancestors if name in self._copies)

    def _is_copy(self, name: str, key: str) -> bool:
        """True if a dataset's key is that of a raw copy: of its own, or of one above it."""
        return name in self._copies or key in self._copies or key in self._keys.above.copies


def decide_encryptions(
    keys: VaultKeys, pairing: Pairing, plans: Iterable[TransferPlan], is_loaded: KeyLoaded
) -> dict[str, EncryptionOnVault]:
    """Decide how each planned dataset lies on the vault, or will, by the source dataset's name; plans in their
    order.
    """
    pairs = {pair.source.name: pair for pair in pairing.pairs}
    if not keys.any and not any(
        pair.source.encrypted or pair.source.is_sent_decrypted for pair in pairing.pairs
    ):
        return {one.dataset: _CLEAR for one in plans if one.dataset in pairs}
    planned = PlannedKeys(keys, pairing)
    found: dict[str, EncryptionOnVault] = {}
    for plan in plans:
        if (pair := pairs.get(plan.dataset)) is None:
            continue
        place = planned.place_of(plan, pair.vault)
        made = decide_encryption(plan.target, place, is_loaded, source_encrypted=pair.source.encrypted)
        if pair.source.is_sent_decrypted:
            made = refuse_decrypted_in_clear(plan.target, made)
        planned.note(plan, made)
        there = pair.vault
        if (
            made.lying is VaultEncryption.RAW
            and plan.steps
            and there is not None
            and there.key_root != there.name
        ):
            made = replace(made, key=there.key_root)
        found[plan.dataset] = made
    return found


_CLEAR = EncryptionOnVault(VaultEncryption.CLEAR)


def find_exposed(keys: VaultKeys, pairing: Pairing, apart: Iterable[DatasetName] = ()) -> dict[str, str]:
    """The datasets of a backup that lie on the vault in the clear, each with the key of what is encrypted above it.

    Also what is gone from the source, or was set aside: it can be read there as well. Not what has nothing above it
    that is encrypted but raw copies: as much of it lay in the clear on its source.
    """
    if not keys.any:
        return {}
    planned, others = PlannedKeys(keys, pairing), tuple(apart)
    everyone = (*pairing.pairs, *pairing.unselected)
    sources = {pair.vault.name: pair.source for pair in everyone if pair.vault is not None}
    found: dict[str, str] = {}
    for one in keys.tree:
        if one.key_root or one.placeholder or not (one.snapshots or one.resume_token):
            continue
        if any(one.name.is_within(other) for other in others):
            continue
        source = sources.get(one.name)
        if cover := planned.cover_of(one.name, source.name if source is not None else None):
            found[one.name] = cover
    return found
