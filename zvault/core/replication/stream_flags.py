"""What the flags of a stream amount to. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

_LETTERS = {"large_blocks": "L", "compressed": "c", "embedded": "e", "raw": "w"}


@dataclass(frozen=True, slots=True)
class SentFlags:
    """The flags of zfs-send(8) as they work on one dataset: -L, -c, -e, -w."""

    large_blocks: bool = False
    compressed: bool = False
    embedded: bool = False
    raw: bool = False

    @property
    def letters(self) -> str:
        """The flags without their dashes, as "Lce"."""
        return "".join(letter for name, letter in _LETTERS.items() if getattr(self, name))

    @classmethod
    def of_letters(cls, letters: str) -> SentFlags:
        """The reverse of ``letters``; what is not known is left out."""
        return cls(**{name: letter in letters for name, letter in _LETTERS.items()})

    def __str__(self) -> str:
        return " ".join(f"-{letter}" for letter in self.letters) or "no flags"

    def amounting_to(self, *, encrypted: bool) -> SentFlags:
        """Return the flags that really work. ``-w`` of a dataset that is not encrypted is ``-Lec`` (zfs-send(8)).

        An encrypted one goes raw whatever is asked for, its blocks as large and as compressed as they are.
        """
        if encrypted:
            return SentFlags(large_blocks=True, compressed=True, raw=True)
        return (
            replace(self, large_blocks=True, compressed=True, embedded=True, raw=False) if self.raw else self
        )
