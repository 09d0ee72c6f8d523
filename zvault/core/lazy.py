"""A property that is worked out once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar, overload

Holder = TypeVar("Holder")
T = TypeVar("T")


class LazyProperty(Generic[Holder, T]):
    """As functools.cached_property, but without its lock: until Python 3.12 there is one for all objects of a class.

    What one thread works out for long (system/side_threads.py) would keep the event loop from the same of another
    object.
    """

    def __init__(self, work: Callable[[Holder], T]) -> None:
        self._work = work
        self.__doc__ = work.__doc__

    def __set_name__(self, owner: type[Holder], name: str) -> None:
        """The name under which an object keeps it."""
        self._name = name

    @overload
    def __get__(self, holder: None, owner: type[Holder]) -> Self: ...
    @overload
    def __get__(self, holder: Holder, owner: type[Holder]) -> T: ...
    def __get__(self, holder: Holder | None, owner: type[Holder]) -> T | Self:
        """Asked only as long as the object has nothing of that name itself."""
        if holder is None:
            return self
        found = vars(holder)[self._name] = self._work(holder)
        return found
