"""The status page's table: nobody opens it to other hosts by accident."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from zvault.config.schema import Config
from zvault.daemon.web.serving import Wanted, wanted

LOGIN = {"user": "admin", "password": "credential:zvault.page"}
PROXY = {"header": "X-Remote-User", "proxies": ["10.0.0.2"]}


def config(page: dict[str, Any], metrics: str | None = None) -> Config:
    return Config.model_validate({"daemon": {"metrics": metrics} if metrics else {}, "page": page})


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ({"listen": "[::]:9713"}, "other hosts can reach"),
        ({"listen": "10.0.0.1:9713", "hosts": ["x"]}, "other hosts can reach"),
        ({"listen": "filer1:9713"}, "other hosts can reach"),
        ({"user": "admin"}, "need each other"),
        ({"password": "credential:x"}, "need each other"),
        ({"user": "a:b", "password": "credential:x"}, ":"),
        ({"user": "", "password": "credential:x"}, "at least 1"),
        ({"user": "admin", "password": "S3CRET"}, "does not stand in the configuration"),
        ({"header": "X-Remote-User"}, "need each other"),
        ({"proxies": ["10.0.0.2"]}, "need each other"),
        ({"header": "Host", "proxies": ["10.0.0.2"]}, "no header that a proxy sets"),
        ({"header": "X Y", "proxies": ["10.0.0.2"]}, "no header"),
        ({"header": "X-Y", "proxies": ["proxy.lan"]}, "no IP address"),
        ({"hosts": ["http://x"]}, "no host name"),
        ({"listen": "everywhere"}, "HOST:PORT"),
    ],
)
def test_what_is_refused(page: dict[str, Any], words: str):
    with pytest.raises(ValidationError) as failure:
        config(page)
    # (The input is shown by pydantic itself; what a user sees is made of the messages.)
    messages = [one["msg"] for one in failure.value.errors()]
    assert any(words in one for one in messages), messages
    assert not any("S3CRET" in one for one in messages)


def test_it_is_beside_the_metrics_as_long_as_only_this_host_can_connect():
    assert wanted(config({})) == {"metrics": Wanted("127.0.0.1", 9712, True, True)}
    assert wanted(config({}, "[::1]:1"))["metrics"].page
    assert not wanted(config({}, "[::]:9712"))["metrics"].page
    assert not wanted(config({}, "0.0.0.0:9712"))["metrics"].page
    assert wanted(config(LOGIN, "[::]:9712"))["metrics"].page
    assert wanted(config(PROXY, "[::]:9712"))["metrics"].page
    assert wanted(config({}, "off")) == {}


def test_it_has_an_address_of_its_own_or_is_off():
    other = Wanted("::", 9713, False, True)
    assert wanted(config({"listen": "[::]:9713", **LOGIN}, "off")) == {"page": other}
    both = wanted(config({"listen": "[::]:9713", **LOGIN}))
    assert both == {"metrics": Wanted("127.0.0.1", 9712, True, False), "page": other}
    assert wanted(config({"listen": "127.0.0.1:9712"})) == {"metrics": Wanted("127.0.0.1", 9712, True, True)}
    assert not wanted(config({"listen": "off"}))["metrics"].page
