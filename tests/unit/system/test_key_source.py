"""Where a key comes from, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.core.errors import ConfigError, NotFound, ToolFailed
from zvault.system.key_source import LONGEST_KEY, KeySource, parse_key, read_key
from zvault.system.process.runner import HostRunner

HEX = "0f" * 32


@pytest.mark.parametrize("data", [bytes.fromhex(HEX), HEX.encode(), HEX.upper().encode() + b"\n"])
def test_forms(data: bytes) -> None:
    assert parse_key(data, "it") == bytes.fromhex(HEX)


@pytest.mark.parametrize("data", [b"", HEX.encode()[:-1], HEX.encode() + b"0", b"zz" * 32, bytes(33)])
def test_what_is_none_is_not_shown(data: bytes) -> None:
    with pytest.raises(ConfigError, match="holds no key") as error:
        parse_key(data, "it")
    assert "zz" not in str(error.value)


async def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    with pytest.raises(NotFound, match="cannot be read"):
        await read_key(KeySource(file=str(file)), HostRunner())
    file.write_text(HEX)
    assert await read_key(KeySource(file=str(file)), HostRunner()) == HEX.encode()
    file.write_text("x" * 2 * LONGEST_KEY)
    assert len(await read_key(KeySource(file=str(file)), HostRunner())) == LONGEST_KEY


async def test_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    with pytest.raises(NotFound, match=r"no credential zvault\.it"):
        await read_key(KeySource(credential="zvault.it"), HostRunner())
    (tmp_path / "zvault.it").write_text(HEX)
    assert await read_key(KeySource(credential="zvault.it"), HostRunner()) == HEX.encode()


async def test_a_program(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho {HEX}\n")
    program.chmod(0o700)
    source = KeySource(command=str(program))
    assert parse_key(await read_key(source, HostRunner()), str(source)) == bytes.fromhex(HEX)
    program.write_text(f"#!/bin/sh\necho {HEX}\necho it is sealed >&2\nexit 1\n")
    with pytest.raises(ToolFailed, match="it is sealed") as error:
        await read_key(source, HostRunner())
    assert HEX not in str(error.value)
