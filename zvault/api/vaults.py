"""Vaults: their pool, devices and scrubs; how a pool is made and a vault taken over."""

from typing import Literal, TypedDict, final

from zvault.api.blockstore import StoreDocument
from zvault.api.cost import CostDocument
from zvault.api.health import HealthDocument
from zvault.core.errors import ErrorDocument

VaultState = Literal["up", "down", "partial", "gone"]


class DeviceDocument(TypedDict):
    """One device of a vault's stack; ``store`` is None but for a block store."""

    name: str
    spec: str
    path: str | None
    state: str
    detail: str
    size: int | None
    store: StoreDocument | None


class DamageDocument(TypedDict):
    """One damaged file, or object without a name; ``dataset`` is None where it is not known."""

    dataset: str | None
    snapshot: str | None
    file: str


@final
class ScrubDocument(TypedDict):
    """A vault's newest scrub and what is damaged, as last seen. ``last`` is when the last whole scrub ended.

    ``errors`` are those that are damage; ``unexplained`` ones are there while datasets are ``half_received``: no names
    are asked for then.
    """

    seen: float
    state: Literal["none", "scanning", "paused", "finished", "canceled", "resilver"]
    started: float | None
    ended: float | None
    last: float | None
    share: float | None
    bytes_done: int
    bytes_total: int
    rate: float | None
    left_seconds: float | None
    found: int
    held: bool
    pausing: str
    errors: int
    unexplained: int
    half_received: list[str]
    files: int
    damages: list[DamageDocument]


class VaultPastDocument(TypedDict):
    """A vault as it was, open beside it: of which moment (``taken``), and what its pool is called.

    ``opened`` is False while it is being opened, and of one that could not be closed. ``pinned``: until it is closed;
    else for as long as its ``user`` needs it.
    """

    pool: str
    taken: float
    epoch: int
    checkpoint: int
    opened: bool
    pinned: bool
    user: str


class UseDocument(TypedDict):
    """The use that zvault itself makes of a vault, known without looking at it.

    ``hosts`` are those that share it, and ``held_by`` the one that has it, as far as this one knows: None also where
    none has. ``away``: its disk is plugged in now and then, and is not there. ``foreign`` are devices that its pool
    needs and that are not its own, as last seen.
    """

    hosts: list[str]
    held_by: str | None
    away: bool
    users: list[str]
    pinned: bool
    inhibitor: bool
    inhibitor_since: float | None
    scrub: ScrubDocument | None
    foreign: list[str]
    past: list[VaultPastDocument]


class VaultDocument(UseDocument):
    """One vault. ``readonly``: its pool was imported read-only, so no backup can be made to it.

    ``multihost`` and ``failmode`` are properties of its pool, as zpoolprops(7) has them; None while it is not imported.
    """

    name: str
    pool: str
    state: VaultState
    health: str | None
    readonly: bool
    multihost: bool | None
    failmode: str | None
    size: int | None
    allocated: int | None
    free: int | None
    devices: list[DeviceDocument]
    error: ErrorDocument | None


class JudgedVault(VaultDocument):
    """One vault, how it is, and what it costs: None where it has no block store, or nothing is known of it yet.

    ``uncounted`` are its devices that cost by the request, but of which nobody counts them.
    """

    verdict: HealthDocument
    cost: CostDocument | None
    uncounted: list[str]


class VaultsAnswer(TypedDict):
    """All vaults."""

    vaults: list[JudgedVault]


class OpenPastBody(TypedDict, total=False):
    """``at``: the last moment up to then that is kept, in seconds since the epoch."""

    at: float


class ClosePastBody(TypedDict, total=False):
    """``at``: the last one up to then that is open; all, where it is left out."""

    at: float | None


class PastAnswer(TypedDict):
    """A vault as it was, which is open."""

    past: VaultPastDocument


class ClosedAnswer(TypedDict):
    """The moments of a vault that were closed."""

    closed: list[VaultPastDocument]


class VaultAnswer(TypedDict):
    """One vault, after something was done with it."""

    vault: JudgedVault


@final
class ScrubAnswer(TypedDict):
    """A vault's scrub, after it was paused or stopped."""

    scrub: ScrubDocument


class ScrubBody(TypedDict, total=False):
    """``start`` begins a scrub or goes on with one; the others put scrubs off."""

    act: Literal["start", "pause", "stop"]


class HealBody(TypedDict, total=False):
    """``trusts_hosts``: blocks that only another host sends are taken even where their checksum could be forged."""

    trusts_hosts: bool


class CreationStep(TypedDict):
    """One command of making a vault; ``device`` is None for the pool's."""

    device: str | None
    what: str
    command: str


class CreationDocument(TypedDict):
    """The commands that making a vault's pool runs, in order."""

    vault: str
    pool: str
    steps: list[CreationStep]


class CreationAnswer(TypedDict):
    """The commands that making a vault's pool would run."""

    creation: CreationDocument


class EarlierPoolDocument(TypedDict):
    """A pool that a vault had; ``guid`` is in hexadecimal, and None where it is not known."""

    guid: str | None
    told_by: str


class PoolHistoryDocument(TypedDict):
    """The pools for which a vault gets no new one. ``create``: the next run makes it once they are forgotten.
    ``unknown`` says what could not be looked at: that may tell of others.
    """

    vault: str
    pool: str
    create: bool
    pools: list[EarlierPoolDocument]
    unknown: list[str]


class PoolHistoryAnswer(TypedDict):
    """The pools that a vault had."""

    history: PoolHistoryDocument


class BeginAnewBody(TypedDict, total=False):
    """``pools`` as the history has them: if others are known by now, it is refused."""

    pools: list[EarlierPoolDocument]


class AcceptOlderBody(TypedDict, total=False):
    """``older`` as the finding ``put-back`` of the vault's verdict has it (``why``): if that is otherwise by now, it is
    refused.
    """

    older: str


class AcceptOlderAnswer(TypedDict):
    """How much older the vault was, in words."""

    older: str


class FenceStep(TypedDict):
    """One command that shuts a device's holder out."""

    what: str
    command: str


class TakeoverDevice(TypedDict):
    """One device of a vault that is to be taken over; ``device`` is None for a pool without any.

    ``by_hand`` says why zvault cannot shut others out, None where it can.
    """

    device: str | None
    spec: str
    holder: str | None
    state: str
    by_hand: str | None
    steps: list[FenceStep]


class TakeoverDocument(TypedDict):
    """The holders of a vault, and what taking it over does; ``command`` imports its pool."""

    vault: str
    pool: str
    holders: list[str | None]
    devices: list[TakeoverDevice]
    command: str


class TakeoverAnswer(TypedDict):
    """The holders of a vault, and the commands that taking it over would run."""

    takeover: TakeoverDocument


class TakeBody(TypedDict, total=False):
    """``holders`` as the takeover's document has them: if others have it now, it is refused.

    ``fenced_by_hand``: whoever asks has shut out those whom zvault cannot.
    """

    holders: list[str | None]
    fenced_by_hand: bool
