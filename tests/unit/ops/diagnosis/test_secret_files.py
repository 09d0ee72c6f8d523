"""Secrets that a configuration names: what is missing or of no use is told by its key, and what is in them never."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from zvault.config.schema import Config
from zvault.ops.diagnosis import secret_files
from zvault.ops.diagnosis.secret_files import list_secret_warnings
from zvault.system import credentials

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="credentials are root's")


def config(nbd: str = "", **tables: Any) -> Config:
    device = [{"nbd": nbd}] if nbd else []
    return Config.model_validate({"vault": {"cold": {"pool": "cold", "device": device}}, **tables})


def secret(path: Path, text: str = "s3cr3t\n", mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


SPECS = [
    "zvault:zv/cold size=1T keys={}",
    "nbdkit:S3 bucket=zv key=cold size=200G object-size=128K secret-key=+{}",
    "s3backer:zv/cold size=1T blockSize=128k accessFile={}",
]


@pytest.mark.parametrize("spec", SPECS)
def test_keys_of_a_device(tmp_path: Path, spec: str):
    file = tmp_path / "keys"
    (told,) = list_secret_warnings(config(spec.format(file)))
    assert told == f"vault.cold.device[0].nbd: {file} cannot be read: No such file or directory"
    secret(file, "")
    (told,) = list_secret_warnings(config(spec.format(file)))
    assert told == f"vault.cold.device[0].nbd: {file} has no keys in it"
    secret(file, mode=0o644)
    (told,) = list_secret_warnings(config(spec.format(file)))
    assert f"chmod 600 {file}" in told
    secret(file)
    assert list_secret_warnings(config(spec.format(file))) == []


def test_what_zvaultd_reads_itself(tmp_path: Path):
    file = tmp_path / "word"
    tables = {
        "page": {"user": "admin", "password": f"file:{file}"},
        "notify": {
            "phone": {"ntfy": "https://ntfy.sh/topic", "token": f"file:{file}"},
            "hook": {"webhook": f"file:{file}"},
            "switch": {"ping": {"success": f"file:{file}"}, "backups": ["b"]},
            "here": {"webhook": "https://example.org/x"},
        },
        "backup": {"b": {"source": "tank", "vault": "cold"}},
    }
    told = list_secret_warnings(config(**tables))
    keys = ["page.password", "notify.phone.token", "notify.hook.webhook", "notify.switch.ping"]
    assert [text.partition(": ")[0] for text in told] == keys
    assert all("cannot be read: No such file" in text for text in told)
    secret(file, "two\nlines\n")
    assert all("it is not one line of text" in text for text in list_secret_warnings(config(**tables)))
    assert not any("lines" in text for text in list_secret_warnings(config(**tables)))
    secret(file)
    assert list_secret_warnings(config(**tables)) == []


@AS_ROOT
def test_a_credential_that_only_a_unit_gets_is_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (told,) = list_secret_warnings(config("zvault:zv/cold size=1T credential=zvault.none"))
    assert told.startswith("vault.cold.device[0].nbd: there is no credential zvault.none: it is in none of ")
    monkeypatch.setattr(
        secret_files,
        "is_kept_for_units",
        lambda name: credentials.is_kept_for_units(name, (tmp_path / "encrypted",), (tmp_path,)),
    )
    (tmp_path / "encrypted").mkdir()
    secret(tmp_path / "encrypted" / "zvault.none")
    assert list_secret_warnings(config("zvault:zv/cold size=1T credential=zvault.none")) == []
    (tmp_path / "encrypted" / "zvault.none").unlink()
    (tmp_path / "zvaultd.service.d").mkdir()
    drop_in = tmp_path / "zvaultd.service.d" / "keys.conf"
    drop_in.write_text("[Service]\nLoadCredential=zvault.nones:/x\n#LoadCredential=zvault.none:/x\n")
    assert len(list_secret_warnings(config("zvault:zv/cold size=1T credential=zvault.none"))) == 1
    drop_in.write_text("[Service]\nLoadCredential=zvault.none:/x\n")
    assert list_secret_warnings(config("zvault:zv/cold size=1T credential=zvault.none")) == []


def test_somebody_else_is_told_what_cannot_be_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "access", lambda *_: False)
    file = secret(tmp_path / "keys")
    (told,) = list_secret_warnings(config(f"zvault:zv/cold size=1T keys={file}"))
    assert told.endswith(f"whether file:{file} is there and right only root can see")
