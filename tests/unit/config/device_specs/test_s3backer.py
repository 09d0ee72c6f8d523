"""s3backer as the configuration names it, and what is run for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from zvault.config.device_specs.nbd import parse_nbd
from zvault.config.device_specs.s3backer import S3backerServer
from zvault.devices.nbd import s3backer
from zvault.devices.server_unit import DeviceServer

TEXT = "s3backer:zv/cold size=1T blockSize=128k accessFile=/etc/zvault/s3backer ssl"


def test_a_server_is_read_and_written_alike():
    spec = parse_nbd(TEXT)
    assert spec == S3backerServer(
        "zv", "cold", ("size=1T", "blockSize=128k", "accessFile=/etc/zvault/s3backer", "ssl")
    )
    assert isinstance(spec, S3backerServer)
    assert (spec.setting("blockSize"), spec.setting("ssl"), spec.setting("region")) == ("128k", "", "")
    assert str(spec) == TEXT
    assert parse_nbd(str(spec)) == spec


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("", "names no bucket"),
        ("/cold size=1T", "names no bucket"),
        ("zv/cold blockSize=128k", "needs size="),
        ("zv/cold size=1T", "needs blockSize="),
        ("zv size=1T blockSize=lots", "blockSize must be a size"),
        ("zv size=1T blockSize=128k accessKey=hunter2", "accessFile="),
        ("zv size=1T blockSize=128k blockCacheWriteDelay=250", '"blockCacheWriteDelay" is none'),
        ("zv size=1T blockSize=128k force", '"force" is none'),
        ("zv size=1T blockSize=128k -d", '"-d" is none'),
    ],
)
def test_what_is_wrong_is_told(rest: str, why: str):
    with pytest.raises(ValueError, match=why) as caught:
        parse_nbd(f"s3backer:{rest}")
    assert "hunter2" not in str(caught.value)


def test_no_write_is_answered_before_the_store_has_it():
    spec = parse_nbd(TEXT)
    assert isinstance(spec, S3backerServer)
    argv = s3backer.s3backer_argv(spec)
    assert argv[-1] == "zv"
    assert argv.index("--blockCacheSync") > argv.index("--size=1T"), "the last word counts"
    assert "--prefix=cold/" in argv


def test_its_unit_is_one_that_may_mount():
    server = DeviceServer("cold-0", Path("/run/zvault/device"), "s3backer")
    assert server.unit == "zvault-s3backer@cold-0.service"
    assert s3backer.find_s3backer_mount(server) == Path("/run/zvault/device/cold-0.s3backer")
