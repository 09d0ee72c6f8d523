"""What was measured of a vault is given to that vault only, and a file's own figures come first."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from zvault.blockstore.kept_probe import keep_probe
from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.paths import Paths
from zvault.config.schema import Config, Vault
from zvault.core.errors import Refused
from zvault.core.tuning.candidates import CandidateTrial, ParameterChoice, TuningCandidate
from zvault.core.tuning.measurement import MeasuredPoint
from zvault.core.tuning.reading import ASYNC_READS
from zvault.ops.context import Context
from zvault.ops.provision.measure import refuse_unless_auto
from zvault.ops.provision.receive_trial import LARGEST_TRIAL_STREAM, LEAST_TRIAL_STREAM, choose_stream_size
from zvault.ops.state.environment import Environment
from zvault.ops.tuning.measurements import (
    MeasurementOutcome,
    ReadingOutcome,
    list_device_specs,
    list_parameter_reasons,
    load_vault_profile,
    make_trial_row,
    read_outcome,
    store_outcome,
)
from zvault.ops.tuning.store_guesses import list_unprobed_devices
from zvault.ops.vaults.assembly import VaultAssembly
from zvault.system.process.runner import HostRunner

DEPTH = "zfs_vdev_async_write_max_active"
GUID = 7


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "profiles").mkdir()
    for name in ("auto", "plain"):
        (tmp_path / "profiles" / f"{name}.toml").write_text("[module]\nzfs_txg_timeout = 9\n")
    return Paths(tmp_path, tmp_path / "run", tmp_path / "state", tmp_path / "none")


def world(paths: Paths, profile: str = "auto", image: str = "rbd/cold") -> Context:
    vault = {"pool": "cold", "profile": profile, "device": [{"rbd": image}]}
    return Context.of(
        Environment(Config.model_validate({"vault": {"cold": vault}}), paths, HostRunner(), "here")
    )


def cold(context: Context) -> Vault:
    return context.env.vault("cold")


@pytest.fixture
def context(paths: Paths) -> Context:
    found = world(paths)
    choices = (
        ParameterChoice(DEPTH, "4", "Little's law"),
        ParameterChoice("zfs_txg_timeout", "8", "its end"),
    )
    tries = (make_trial_row(CandidateTrial(TuningCandidate("worked out", choices), 100.4), won=True),)
    points = (MeasuredPoint(1 << 20, 4, 7e7, 0.05),)
    vault = cold(found)
    store_outcome(
        found.records,
        vault,
        MeasurementOutcome(list_device_specs(vault), GUID, "write", points, choices, "recordsize", tries),
    )
    return found


def test_it_is_kept_as_it_was(context: Context):
    found = read_outcome(context.records, cold(context), GUID)
    assert found is not None
    assert (found.points, found.way, found.advice) == (
        (MeasuredPoint(1 << 20, 4, 7e7, 0.05),),
        "write",
        "recordsize",
    )
    assert found.time > 0
    (tried,) = found.tries
    assert (tried["what"], tried["module"][DEPTH], tried["rate"], tried["won"]) == (
        "worked out",
        "4",
        100,
        True,
    )


def test_what_a_file_sets_is_not_measured(context: Context):
    module = load_vault_profile(context, cold(context)).module
    assert module == {DEPTH: "4", "zfs_txg_timeout": "9"}
    assert list_parameter_reasons(context, cold(context), module) == {DEPTH: "Little's law"}


def test_another_pool_another_device_another_profile(context: Context, paths: Paths):
    assert read_outcome(context.records, cold(context), GUID + 1) is None
    for other in (world(paths, image="rbd/other"), world(paths, profile="plain")):
        assert read_outcome(other.records, cold(other)) is None
        assert load_vault_profile(other, cold(other)).module == {"zfs_txg_timeout": "9"}


def test_reads_are_as_deep_as_writes_until_they_are_measured(context: Context) -> None:
    vault = cold(context)
    found = read_outcome(context.records, vault, GUID)
    assert found is not None
    deep = replace(found, choices=(ParameterChoice(DEPTH, "32", "Little's law"),))
    store_outcome(context.records, vault, deep)
    assert load_vault_profile(context, vault).reading[ASYNC_READS] == "32"
    points = (MeasuredPoint(1 << 20, 16, 9e7, 0.05),)
    choices = (ParameterChoice(ASYNC_READS, "16", "measured"),)
    sends = (make_trial_row(CandidateTrial(TuningCandidate("worked out", choices), 80.4), won=True),)
    store_outcome(context.records, vault, replace(deep, reading=ReadingOutcome(points, choices, sends)))
    kept = read_outcome(context.records, vault, GUID)
    assert kept is not None
    assert kept.reading == ReadingOutcome(points, choices, sends, ())
    assert load_vault_profile(context, vault).reading == {ASYNC_READS: "16"}
    assert list_parameter_reasons(context, vault, {ASYNC_READS: "16"}) == {ASYNC_READS: "measured"}
    store_outcome(context.records, vault, replace(deep, reading=ReadingOutcome(points, ())))
    assert load_vault_profile(context, vault).reading == {}, "OpenZFS's defaults were the fastest"


def on_store(paths: Paths, profile: str, *words: str) -> Context:
    device = {"nbd": " ".join(["zvault:attic/cloud endpoint=https://s3.example.org", *words])}
    vault = {"pool": "cold", "profile": profile, "device": [device]}
    return Context.of(
        Environment(Config.model_validate({"vault": {"cold": vault}}), paths, HostRunner(), "here")
    )


def probed(paths: Paths, context: Context, *gets: tuple[int, float]) -> None:
    (device,) = cold(context).device
    assert isinstance(device.nbd, BlockstoreServer)
    speeds = [{"kind": "put", "depth": 8, "rate": 5e7}]
    speeds += [{"kind": "get", "depth": depth, "rate": rate} for depth, rate in gets]
    paths.blockstore_probes.parent.mkdir(exist_ok=True)
    report = {"at": 1795780000, "speeds": speeds, "verdicts": []}
    keep_probe(paths.blockstore_probes, device.nbd.identity, report)


def test_the_probe_of_a_store_is_the_first_guess_until_reads_are_measured(paths: Paths) -> None:
    context = on_store(paths, "auto")
    vault = cold(context)
    assert load_vault_profile(context, vault).reading == {}
    assert list_unprobed_devices(paths, vault) == list(list_device_specs(vault))
    probed(paths, context, (4, 5e7), (16, 1e8), (64, 1.05e8))
    reading = load_vault_profile(context, vault).reading
    assert reading[ASYNC_READS] == "16"
    assert "by 16 at once" in list_parameter_reasons(context, vault, reading)[ASYNC_READS]
    assert list_unprobed_devices(paths, vault) == []
    outcome = MeasurementOutcome(
        list_device_specs(vault), GUID, "write", (), (ParameterChoice(DEPTH, "32", "Little's law"),), ""
    )
    store_outcome(context.records, vault, outcome)
    assert load_vault_profile(context, vault).reading[ASYNC_READS] == "16", "writes are the journal's"
    choices = (ParameterChoice(ASYNC_READS, "24", "measured"),)
    store_outcome(context.records, vault, replace(outcome, reading=ReadingOutcome((), choices)))
    assert load_vault_profile(context, vault).reading == {ASYNC_READS: "24"}


@pytest.mark.parametrize(("profile", "uploads"), [("auto", 8), ("plain", None)])
def test_a_server_begins_with_the_puts_at_once_that_its_store_is_worth(
    paths: Paths, profile: str, uploads: int | None
) -> None:
    context = on_store(paths, profile)
    probed(paths, context, (4, 5e7))
    (device,) = cold(context).device
    stack = VaultAssembly(context, "cold", cold(context)).stack()
    assert stack.find_uploads(device) == uploads


def test_what_an_older_version_kept_is_still_used(context: Context, paths: Paths) -> None:
    file = paths.state / "measured" / "vault" / "cold"
    text = json.loads(file.read_text())
    del text["data"]["reading"]
    file.write_text(json.dumps(text))
    found = read_outcome(context.records, cold(context), GUID)
    assert found is not None
    assert found.reading is None
    assert found.module[DEPTH] == "4"


def test_what_cannot_be_read_is_nothing(context: Context, paths: Paths):
    for text in (
        "{",
        '{"boot_id": "", "time": 0, "data": {}}',
        '{"boot_id": "", "time": 0, "data": {"devices": 3}}',
    ):
        (paths.state / "measured" / "vault" / "cold").write_text(text)
        assert read_outcome(context.records, cold(context)) is None
        assert load_vault_profile(context, cold(context)).module == {"zfs_txg_timeout": "9"}
    assert context.records.measured.names() == ["vault/cold"]


def test_only_what_is_used_is_measured(context: Context, paths: Paths):
    refuse_unless_auto(cold(context))
    with pytest.raises(Refused, match="is not measured"):
        refuse_unless_auto(cold(world(paths, profile="plain")))


@pytest.mark.parametrize(
    ("bandwidth", "free", "size"),
    [
        (1e6, 100 << 30, LEAST_TRIAL_STREAM),
        (100 << 20, 100 << 30, 400 << 20),
        (10e9, 100 << 30, LARGEST_TRIAL_STREAM),
        (100 << 20, 4 << 30, 128 << 20),
        (100 << 20, 1 << 30, None),
    ],
)
def test_how_large_a_stream(bandwidth: float, free: int, size: int | None):
    assert choose_stream_size(bandwidth, free) == size
