"""zvaultctl tune: what is shown of module parameters, in which form, and when it is a trouble."""

import json

import pytest

from zvault.core.tuning.leased_values import LeasedValue
from zvault.core.tuning.tuning import KernelParameter, ParameterDecision, TunedHost
from zvault.ops.tuning.set_parameters import TuningNote
from zvault.ops.tuning.tuning_report import make_parameter_document

MERGED, WRITES = "zfs_vdev_aggregation_limit_non_rotating", "zfs_vdev_async_write_max_active"
HOST = TunedHost(
    (2, 3, 9), 8 << 30, {MERGED: KernelParameter("4194304", True), WRITES: KernelParameter("7", True)}
)
NOTE = TuningNote({MERGED: LeasedValue("131072", ("4194304",)), WRITES: LeasedValue("10", ("16",))})


LIMIT = make_parameter_document(
    ParameterDecision(MERGED, {"cold": "4194304"}, "4194304", "wanted by cold"), HOST, NOTE
)
DEPTH = make_parameter_document(
    ParameterDecision(WRITES, {"cold": "4", "warm": "16"}, "16", "warm wants more"), HOST, NOTE
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
        "probed": None,
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
        "  also for: the pools rpool, tank: parameters apply to all pools of a host",
        "",
        "PARAMETER                                DEFAULT  BEFORE  NOW  WANTED  STATE",
        "zfs_vdev_aggregation_limit_non_rotating  128K     128K    4M   4M      set",
        "    largest request that is merged, on devices that say they do not rotate",
        "    wanted by cold",
    ]


def test_what_the_probe_of_a_store_has_a_vault_begin_with_is_told(tuned, ctl):
    probed = {"time": 1795780000, "puts": 64, "gets": 16, "uploads": 16, "reads": 16}
    tuned.documents["GET /v1/tuning"]["vaults"][0] |= {"profile": "auto", "probed": probed}
    words = "profile auto, its store probed on 2026-11-27 (16 uploads where uploads= is not set, 16 reads at once)"
    assert words in " ".join(ctl("tune", "show").out.split())


def test_one_vaults_only_and_what_it_lacks_is_a_trouble(tuned, ctl):
    tuned.documents["GET /v1/tuning"]["parameters"] = [LIMIT, DEPTH]
    said = ctl("tune", "show", "warm")
    assert said.code == 1
    assert "zfs_vdev_aggregation_limit_non_rotating" not in said.out
    assert said.lines[-4:] == [
        "zfs_vdev_async_write_max_active  10       10      7    cold=4,warm=16  changed",
        "    writes at a device at once while much is dirty",
        "    somebody else set it to 7 after zvault had set 16; warm wants more",
        "    next: set it to 16 to have zvault tune it again",
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
    assert "no vault wants a parameter that OpenZFS reads only when it is loaded" in said.err
    one = {"name": "zfs_dirty_data_max_max", "value": "8589934592", "why": "wanted by cold"}
    tuned.documents["GET /v1/tuning"]["modprobe"] = [one]
    said = ctl("tune", "modprobe")
    assert said.lines[1:] == ["# wanted by cold", "options zfs zfs_dirty_data_max_max=8589934592"]
    assert all(line.startswith("#") for line in said.lines[:2])
    assert "update-initramfs" in said.err
