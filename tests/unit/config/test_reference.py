"""What people read about the configuration is true: the sample, the examples, the reference page."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from zvault.config.device_specs.blockstore import BlockstoreServer
from zvault.config.device_specs.blockstore_settings import STORE_SETTINGS
from zvault.config.introspection import find_field_shape
from zvault.config.load_config import load_config
from zvault.config.paths import Paths
from zvault.config.profile import VaultProfile
from zvault.config.schema import Config
from zvault.config.templates import resolve_templates
from zvault.config.toml_lines import format_literal

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = ROOT / "config" / "zvault.toml"


def fields(model: type[BaseModel]) -> Iterator[tuple[type[BaseModel], str, FieldInfo]]:
    for key, info in model.model_fields.items():
        yield model, key, info
        if table := find_field_shape(info).table:
            yield from fields(table)


FIELDS = list(
    {(model, key): info for root in (Config, VaultProfile) for model, key, info in fields(root)}.items()
)


@pytest.mark.parametrize(
    ("where", "info"), FIELDS, ids=[f"{model.__name__}.{key}" for (model, key), _ in FIELDS]
)
def test_every_field_is_described_and_its_examples_are_valid(where: tuple[Any, str], info: FieldInfo) -> None:
    assert info.description
    assert info.description[-1] == "."
    assert info.examples or find_field_shape(info).table, f"{where[1]} has no example"
    for example in info.examples or []:
        toml = tomllib.loads(f"value = {format_literal(example)}")["value"]
        TypeAdapter(info.rebuild_annotation()).validate_python(toml, strict=True)


def test_every_table_is_described() -> None:
    assert all(model.__doc__ and model.__doc__[-1] == "." for (model, _), _ in FIELDS)


def test_the_reference_page_is_up_to_date() -> None:
    result = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate.py"), "--check"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def uncommented() -> str:
    """The sample with all its examples in use."""
    return re.sub(r"(?m)^#(?![ :]|$)", "", SAMPLE.read_text())


def test_the_sample_as_it_is_sets_nothing_up(paths: Paths) -> None:
    assert load_config(paths, SAMPLE) == Config()


def test_the_sample_with_all_its_examples(paths: Paths, tmp_path: Path) -> None:
    file = tmp_path / "sample.toml"
    file.write_text(uncommented())
    config = load_config(paths, file)
    assert set(config.vault) == {"cold", "attic", "cloud", "bucket", "filers", "usb", "usb-a", "offsite"}
    assert set(config.backup) == {"tank", "web1", "home@attic", "home@usb", "scratch"}


def test_editors_find_nothing_wrong_with_what_zvault_takes() -> None:
    schema = json.loads((ROOT / "config" / "zvault.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    editor = Draft202012Validator(schema)
    editor.validate(tomllib.loads(uncommented()))
    for model, key, info in fields(Config):
        asked = schema if model is Config else schema["$defs"][model.__name__]
        of_key = Draft202012Validator({**asked["properties"][key], "$defs": schema["$defs"]})
        for example in info.examples or []:
            of_key.validate(tomllib.loads(f"value = {format_literal(example)}")["value"])


@pytest.mark.parametrize(
    "wrong", ["[vault.cold]\npol = 1", "[vault.cold]\npool = 1", "[backup]\ntank = 1", "[x]"]
)
def test_editors_see_what_is_wrong(wrong: str) -> None:
    schema = json.loads((ROOT / "config" / "zvault.schema.json").read_text())
    with pytest.raises(ValidationError):
        Draft202012Validator(schema).validate(tomllib.loads(wrong))


def test_the_sample_shows_every_key() -> None:
    text = uncommented()
    for _, key, info in fields(Config):
        if key in {"nr", "hourly", "daily"} or find_field_shape(info).table:
            continue
        assert re.search(rf"\b{key} = ", text), f"{key} is not in the sample"


def test_the_sample_shows_every_setting_of_a_block_store() -> None:
    config = Config.model_validate(resolve_templates(tomllib.loads(uncommented())).data)
    device = config.vault["bucket"].device[0].nbd
    assert isinstance(device, BlockstoreServer)
    shown = {word.partition("=")[0] for word in device.settings}
    assert set(STORE_SETTINGS) - shown == {
        "keys", "sse-kms-key-id", "encryption-key", "encryption-command",
    }, "they stand in place of credential= and encryption-credential="  # fmt: skip
    page = (ROOT / "docs" / "how-to" / "use-a-block-store.md").read_text(encoding="utf-8")
    assert [name for name in STORE_SETTINGS if f"`{name}=" not in page] == []


def test_the_samples_defaults_are_the_defaults() -> None:
    """What it says is a default must be: the send flags and the metrics' address."""
    config = Config.model_validate(resolve_templates(tomllib.loads(uncommented())).data)
    assert config.backup["tank"].send == config.backup["home@attic"].send
    assert config.daemon.metrics == Config().daemon.metrics
