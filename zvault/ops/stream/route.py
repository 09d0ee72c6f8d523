"""The way streams take from one host to another, or within this one: which programs they go through, and what lacks."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from zvault.config.profile import StreamTable
from zvault.system.process.pipeline import STAGE_PIPE_SIZE
from zvault.zfs.gate.check import StreamOrder
from zvault.zfs.gate.process import gate_argv
from zvault.zfs.host import ZfsHost
from zvault.zfs.stream_argv import SendFlags
from zvault.zfs.stream_stages import (
    Compression,
    MbufferSettings,
    StreamEnd,
    choose_codec,
    make_stages,
    warn_of_missing_buffer,
)


@dataclass(frozen=True)
class StreamRoute:
    """From one host to another. ``stall``: seconds without a byte after which a stream counts as dead.

    ``there`` are bytes of mbuffer's memory on the other host, where they are not what ``stream`` says.
    """

    source: ZfsHost
    vault: ZfsHost
    stream: StreamTable
    stall: float
    compression: Compression = "auto"
    there: int | None = None

    async def stages(
        self,
        send: list[str],
        receive: list[str],
        flags: SendFlags,
        size: int | None,
        throttle: Sequence[str] = (),
        order: StreamOrder | None = None,
    ) -> list[list[str]]:
        """A stream's stages on this host; ``size`` in bytes, as far as it is known. Raises HostUnreachable.

        What another host sends goes through the gate, which holds it against the ``order``; and whatever is received
        over something (``-F``). From host to host the gate is here, and the stream is unpacked for it.

        Within a host, what is no larger than a pipe needs no other buffer: a process less for each of many small
        streams; nor does anything on its way to a pool that answers at once.
        """
        source, vault = await self.source.end(size), await self.vault.end(size)
        codec, _ = choose_codec(self.compression, flags, source, vault)
        small = size is not None and size <= STAGE_PIPE_SIZE
        direct = _here(source, vault) and (self.stream.direct or small)
        buffer = None if direct else self._buffer()
        gate = gate_argv(order) if order is not None and (source.remote or "-F" in receive) else []
        if gate and source.remote and vault.remote and codec is not None and shutil.which(codec) is None:
            codec = None
        return make_stages(
            send, receive, source, vault, buffer=buffer, codec=codec, throttle=throttle, gate=gate
        )

    def _buffer(self) -> MbufferSettings:
        own = self.stream
        return MbufferSettings(own.buffer, own.block, self.stall, own.start, self.there)

    async def lacking(self, flags: SendFlags) -> list[str]:
        """List what is not as it should be on the way, each for a person to read. Raises HostUnreachable."""
        source, vault = await self.source.end(), await self.vault.end()
        _, uncompressed = choose_codec(self.compression, flags, source, vault)
        direct = _here(source, vault) and self.stream.direct
        return [
            text for text in ("" if direct else warn_of_missing_buffer(source, vault), uncompressed) if text
        ]


def turn_stream_back(stream: StreamTable) -> StreamTable:
    """A vault's mbuffer for the way back: as large, since a vault is read about as fast as it is written, but passing
    on at once what it has. Its ``start`` is for the vault's transaction groups, and the target's pool is another one.
    """
    return stream.model_copy(update={"start": 0})


def _here(source: StreamEnd, vault: StreamEnd) -> bool:
    return source.remote is None and vault.remote is None
