"""The status page, as the configuration writes it: where it is served, and who may see it."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from zvault.config.fields import ConfigTable, Several, TextForm, quote_text, split_address
from zvault.config.tables.notify import SecretText
from zvault.core.loopback import is_loopback

__all__ = ["METRICS_WORD", "PageTable"]

METRICS_WORD = "metrics"
"""The page is served where metrics are."""

_HEADER = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,99}")
_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")

_MEANT = ("host", "authorization", "cookie", "connection", "accept", "user-agent", "content-length")
"""Headers that browsers send by themselves."""


def _parse_place(text: str) -> str:
    if text not in (METRICS_WORD, "off"):
        split_address(text)
    return text


def _parse_header(text: str) -> str:
    if not _HEADER.fullmatch(text) or text.lower() in _MEANT or text.lower().startswith("sec-"):
        raise ValueError(f'{quote_text(text)} is no header that a proxy sets, as in "X-Remote-User"')
    return text


def _parse_proxy(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError(f'{quote_text(text)} is no IP address, as in "127.0.0.1"') from None


def _parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f'{quote_text(text)} is no host name, as in "zvault.example.org"; it has no port')
    return text


PagePlaceField = Annotated[
    str,
    TextForm(
        "place", f'"{METRICS_WORD}", "off", or `HOST:PORT`, IPv6 in brackets', "[::]:9713", _parse_place
    ),
]
HeaderField = Annotated[str, TextForm("header", "the name of a header", "X-Remote-User", _parse_header)]
ProxyField = Annotated[str, TextForm("IP address", "an address, without a port", "127.0.0.1", _parse_proxy)]
WebName = Annotated[
    str, TextForm("web name", "a host's name, without a port", "zvault.example.org", _parse_name)
]


class PageTable(ConfigTable):
    """The status page. The table may be left out."""

    listen: PagePlaceField = Field(
        default=METRICS_WORD,
        description='Where the page is served. "metrics" is beside `/metrics`, as long as only this host can connect '
        'there or the page is for certain users only; "off" serves none.',
        examples=["[::]:9713", "off"],
    )
    hosts: Several[WebName] = Field(
        default_factory=list,
        description="Names under which it is asked for, as a proxy in front of it passes them on. Where only this host "
        "can connect, other names than its own are refused; elsewhere any name will do if this is left out.",
        examples=[["zvault.example.org"]],
    )
    user: str | None = Field(
        default=None, min_length=1, max_length=100, description="The name to log in with.", examples=["admin"]
    )
    password: SecretText | None = Field(
        default=None,
        description="Its password. It goes over the network as it is: put a proxy with TLS in front of an address that "
        "others can reach.",
        examples=["credential:zvault.page"],
    )
    header: HeaderField | None = Field(
        default=None,
        description="A header in which a proxy names the user that it let in. Whoever has it may see the page.",
        examples=["X-Remote-User"],
    )
    proxies: Several[ProxyField] = Field(
        default_factory=list,
        description="Addresses from which `header` is believed. Every user of the host at such an address can set it.",
        examples=[["10.0.0.2"]],
    )

    files: bool = Field(
        default=False,
        description="Whether the page lists the files of a snapshot while `zvaultctl mount` has it mounted. It tells "
        "names that only root may read, so it takes `user` and `password`, or `header` and `proxies`.",
        examples=[True],
    )

    @model_validator(mode="after")
    def _guarded(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password need each other")
        if self.user is not None and ":" in self.user:
            raise ValueError('user cannot have a ":" in it')
        if (self.header is None) != (not self.proxies):
            raise ValueError("header and proxies need each other")
        if self.files and not self.guarded:
            raise ValueError(
                "files lists the names of all files to whoever may see the page: set user and password, or header and"
                " proxies"
            )
        if self.address is not None and not self.guarded and not is_loopback(self.address[0]):
            raise ValueError(
                "listen is an address that other hosts can reach: set user and password, or header and proxies"
            )
        return self

    @property
    def guarded(self) -> bool:
        """True if it is for certain users only."""
        return self.user is not None or self.header is not None

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of its own, if it has one."""
        return None if self.listen in (METRICS_WORD, "off") else split_address(self.listen)
