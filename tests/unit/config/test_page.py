"""The status page's table: nobody opens it to other hosts by accident."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from zvault.config.schema import Config
from zvault.daemon.web.web_servers import WantedServer, list_wanted_servers

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
    assert list_wanted_servers(config({})) == {"metrics": WantedServer("127.0.0.1", 9712, True, True)}
    assert list_wanted_servers(config({}, "[::1]:1"))["metrics"].page
    assert not list_wanted_servers(config({}, "[::]:9712"))["metrics"].page
    assert not list_wanted_servers(config({}, "0.0.0.0:9712"))["metrics"].page
    assert list_wanted_servers(config(LOGIN, "[::]:9712"))["metrics"].page
    assert list_wanted_servers(config(PROXY, "[::]:9712"))["metrics"].page
    assert list_wanted_servers(config({}, "off")) == {}


def test_it_has_an_address_of_its_own_or_is_off():
    other = WantedServer("::", 9713, False, True)
    assert list_wanted_servers(config({"listen": "[::]:9713", **LOGIN}, "off")) == {"page": other}
    both = list_wanted_servers(config({"listen": "[::]:9713", **LOGIN}))
    assert both == {"metrics": WantedServer("127.0.0.1", 9712, True, False), "page": other}
    assert list_wanted_servers(config({"listen": "127.0.0.1:9712"})) == {
        "metrics": WantedServer("127.0.0.1", 9712, True, True)
    }
    assert not list_wanted_servers(config({"listen": "off"}))["metrics"].page
