"""What a block store's server says of itself, as its device's document has it."""

from typing import Literal, TypedDict

RequestKind = Literal["get", "put", "list", "delete"]
REQUEST_KINDS: tuple[RequestKind, ...] = ("get", "put", "list", "delete")
"""How requests are counted: a get is any read; the block store asks for no object's head alone."""


class RequestCount(TypedDict):
    """Requests of one kind to the object store; ``buckets`` counts them by time, see ``bounds`` of StoreDocument."""

    requests: int
    errors: int
    bytes: int
    seconds: float
    buckets: tuple[int, ...]


class EngineFigures(TypedDict, total=False):
    """The figures of a server's engine. A server that only reads has others than one that writes.

    ``asked`` is what all its writers asked of it in all its life: requests by kind, ``put_bytes`` and ``get_bytes``.
    ``moments`` of the past are kept, and ``past_bytes`` of the ``stored_bytes`` for them alone. All that is needed is
    locked in the bucket until ``locked_until``, in seconds since the epoch; 0: it is not, or that is not known.
    """

    mode: Literal["strict", "writeback", "readonly"]
    uuid: str
    asked: dict[str, int]
    epoch: int
    size: int
    live_bytes: int
    stored_bytes: int
    segments: int
    moments: int
    past_bytes: int
    locked_until: float
    journal_used: int
    journal_capacity: int
    cache_hits: int
    cache_misses: int
    cache_used: int
    uploads_waiting: int
    written_bytes: int
    read_bytes: int
    uploaded_bytes: int
    fetched_bytes: int
    gc_moved_bytes: int
    checkpoints: int
    checkpoint: int
    log_segments: int
    as_of: float
    map_memory: int
    fenced: bool


class EngineStatus(EngineFigures):
    """The figures, and what is wrong in words."""

    trouble: str | None


class StoreDocument(EngineFigures):
    """A block store in its device's document: what its server said last, ``at``.

    ``bounds`` are the upper bounds of all but the last of a RequestCount's buckets, in seconds.
    """

    at: float | None
    ready: bool | None
    closed: bool | None
    requests: dict[str, RequestCount] | None
    bounds: list[float] | None
    trouble: str | None
