"""zvaultctl tune: what is shown of module parameters, in which form, and when it is a trouble."""

import json

import pytest


def parameter(name="zfs_vdev_aggregation_limit_non_rotating", state="set", **changes):
    return {
        "name": name,
        "what": "largest request that is merged",
        "unit": "size",
        "default": "131072",
        "before": "131072",
        "now": "4194304",
        "value": "4194304",
        "wanted": {"cold": "4194304"},
        "state": state,
        "why": "wanted by cold",
        "next": "",
    } | changes


LIMIT = parameter()
DEPTH = parameter(
    "zfs_vdev_async_write_max_active",
    "changed",
    unit="count",
    default="10",
    before=None,
    now="7",
    wanted={"cold": "4", "warm": "16"},
    why="somebody else set it to 7",
    next="put back 16",
)


@pytest.fixture
def tuned(daemon):
    vault = {
        "name": "cold",
        "pool": "cold",
        "profile": "rbd-hdd",
        "host": None,
        "tuned": True,
        "measured": None,
    }
    daemon.documents["GET /v1/tuning"] = {
        "openzfs": "2.3.9",
        "memory": 8 << 30,
        "other_pools": ["rpool", "tank"],
        "vaults": [
            vault,
            vault | {"name": "warm", "tuned": False, "measured": None},
            vault | {"name": "far", "host": "ssh://root@attic"},
        ],
        "parameters": [LIMIT],
        "modprobe": [],
        "warnings": [],
    }
    return daemon


def test_each_parameter_with_what_it_is_and_why(tuned, ctl):
    said = ctl("tune", "show")
    assert said.code == 0
    assert said.lines == [
        "   openzfs: 2.3.9, 8G of memory",
        "    vaults: cold: profile rbd-hdd, tuned",
        "            warm: profile rbd-hdd, not tuned now",
        "            far: on ssh://root@attic, which is not tuned from here",
        "  also for: the pools rpool, tank: parameters hold for all pools of a host",
        "",
        "PARAMETER                                DEFAULT  BEFORE  NOW  WANTED  STATE",
        "zfs_vdev_aggregation_limit_non_rotating  128K     128K    4M   4M      set",
        "    largest request that is merged",
        "    wanted by cold",
    ]


def test_one_vaults_only_and_what_it_lacks_is_a_trouble(tuned, ctl):
    tuned.documents["GET /v1/tuning"]["parameters"] = [LIMIT, DEPTH]
    said = ctl("tune", "show", "warm")
    assert said.code == 1
    assert "zfs_vdev_aggregation_limit_non_rotating" not in said.out
    assert said.lines[-4:] == [
        "zfs_vdev_async_write_max_active  10       -       7    cold=4,warm=16  changed",
        "    largest request that is merged",
        "    somebody else set it to 7",
        "    next: put back 16",
    ]
    assert "there is no vault 'nope'" in ctl("tune", "show", "nope").err


def test_for_scripts(tuned, ctl):
    assert ctl("tune", "show", "-H").lines == [
        "zfs_vdev_aggregation_limit_non_rotating\t128K\t128K\t4M\t4M\tset"
    ]
    assert ctl("tune", "show", "-Hp", "-o", "now,wanted,vaults").lines == ["4194304\t4194304\tcold"]
    assert json.loads(ctl("tune", "show", "-j").out)["parameters"] == [LIMIT]
    assert json.loads(ctl("tune", "show", "-j", "-o", "parameter,state").out)["parameters"] == [
        {"name": LIMIT["name"], "state": "set"}
    ]


def test_a_file_for_modprobe(tuned, ctl):
    said = ctl("tune", "modprobe")
    assert (said.out, said.code) == ("", 0)
    assert "no vault wants a parameter that counts only when OpenZFS is loaded" in said.err
    one = {"name": "zfs_dirty_data_max_max", "value": "8589934592", "why": "wanted by cold"}
    tuned.documents["GET /v1/tuning"]["modprobe"] = [one]
    said = ctl("tune", "modprobe")
    assert said.lines[1:] == ["# wanted by cold", "options zfs zfs_dirty_data_max_max=8589934592"]
    assert all(line.startswith("#") for line in said.lines[:2])
    assert "update-initramfs" in said.err
