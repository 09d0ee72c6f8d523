"""config/zvault.schema.json, which editors check and complete zvault.toml by, from the models in zvault/config."""

from __future__ import annotations

import json
import warnings
from typing import Any

from pydantic.json_schema import PydanticJsonSchemaWarning

from zvault.config.schema import Config
from zvault.config.templates import COMMON_KEYS, OWN_KEYS

ADDRESS = "file:///usr/share/zvault/zvault.schema.json"
"""Where an installation has it; the sample's first line names it."""


def schema() -> str:
    """The file's text."""
    with warnings.catch_warnings():
        # Some defaults are objects of zvault's own; the reference has them as they are written.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        made = Config.model_json_schema()
    backup = made["$defs"]["Backup"]
    shared = {key: value for key, value in backup["properties"].items() if key not in OWN_KEYS}
    made["$defs"]["BackupTemplate"] = {**backup, "properties": shared, "required": []}
    of_vault = {key: value for key, value in backup["properties"].items() if key not in COMMON_KEYS}
    made["$defs"]["BackupOfVault"] = {**backup, "properties": of_vault, "required": []}
    _, _, tables, _ = backup["properties"]["vaults"]["anyOf"]
    tables["additionalProperties"] = {"$ref": "#/$defs/BackupOfVault"}
    template = {"$ref": "#/$defs/BackupTemplate"}
    made["properties"]["defaults"] = template
    made["properties"]["template"] = {"type": "object", "additionalProperties": template}
    made["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    made["$id"] = ADDRESS
    return json.dumps(_plain(made), indent=1, ensure_ascii=False) + "\n"


def _plain(part: Any) -> Any:
    """Without titles made of the names of keys, and without null: TOML has none, a key is left out instead."""
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {key: _plain(value) for key, value in part.items() if not (key == "default" and value is None)}
    kinds = [kind for kind in kept.get("anyOf", ()) if kind != {"type": "null"}]
    if "anyOf" in kept and len(kinds) < len(kept["anyOf"]):
        del kept["anyOf"]
        kept = {**kinds[0], **kept} if len(kinds) == 1 else {**kept, "anyOf": kinds}
    return kept
