"""How the fields of a request are read: what is none of its kind is refused, and never taken for nothing given."""

from __future__ import annotations

from typing import Any

import pytest

from zvault.core.errors import Refused
from zvault.daemon.api.browse import parse_look_request, read_path
from zvault.daemon.api.restore_verify import parse_files_request, parse_mount_request

RESTORE = {"backup": "b", "dataset": "tank", "to": "/srv/back"}


@pytest.mark.parametrize("path", [None, 0, 0.0, False, True, [], {}, ["a"], 7])
def test_only_a_text_is_a_path(path: Any) -> None:
    with pytest.raises(Refused):
        parse_look_request({"backup": "b", "path": path})
    if path is not None:
        with pytest.raises(Refused):
            read_path({"path": path})


def test_an_empty_path_is_the_root_of_a_dataset() -> None:
    assert parse_look_request({"backup": "b", "path": ""}).path == ""
    assert parse_look_request({"backup": "b", "path": "docs"}).path == "docs"
    with pytest.raises(Refused):
        parse_look_request({"backup": "b"})


def test_a_difference_without_a_path_is_that_of_the_dataset() -> None:
    assert [read_path(body) for body in ({}, {"path": None}, {"path": ""}, {"path": "a"})] == [
        "",
        "",
        "",
        "a",
    ]


@pytest.mark.parametrize("files", [0, False, "", {}, "docs", {"docs": 1}, [1]])
def test_only_an_array_of_paths_is_files(files: Any) -> None:
    with pytest.raises(Refused):
        parse_files_request({**RESTORE, "files": files})


def test_no_files_are_all_files() -> None:
    for body in (RESTORE, {**RESTORE, "files": None}, {**RESTORE, "files": []}):
        assert parse_files_request(body).paths == ()


@pytest.mark.parametrize("seconds", [0, -1, True, "9", [], float("nan"), float("inf"), 10**400])
def test_only_a_number_that_is_some_time_is_how_long_a_snapshot_stays_mounted(seconds: Any) -> None:
    body = {"backup": "b", "folder": "/mnt"}
    with pytest.raises(Refused):
        parse_mount_request({**body, "seconds": seconds})
    assert parse_mount_request({**body, "seconds": 9}).seconds == 9.0
