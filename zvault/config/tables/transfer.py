"""How a backup's datasets are sent, and with which properties they are received."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from zvault.config.fields import ConfigTable, Several, describe_value, quote_text
from zvault.core.replication.receive_properties import (
    ReceiveProperties,
    check_receive_property,
    normalize_receive_value,
)
from zvault.core.replication.steering_properties import check_let_in


class Send(ConfigTable):
    """How datasets are sent, see zfs-send(8)."""

    large_blocks: bool = Field(
        default=True,
        description="Keep records larger than 128 KiB (`-L`). What was sent one way cannot follow the other: "
        "a run refuses that.",
        examples=[True],
    )
    compressed: bool = Field(
        default=True, description="Send blocks as they are compressed on the source (`-c`).", examples=[True]
    )
    embedded: bool = Field(
        default=True,
        description="Send blocks that are stored in their block pointers as such (`-e`).",
        examples=[True],
    )
    raw: bool = Field(
        default=False,
        description="Send datasets as they are on disk (`-w`). Encrypted ones always go so, and the vault never "
        "sees the key; of others it is the same as the three above.",
        examples=[True],
    )
    properties: bool = Field(
        default=True, description="Send the datasets' properties too (`-p`).", examples=[True]
    )

    encrypted: Literal["any", "required", "decrypted"] = Field(
        default="any",
        description='"required" sends only datasets that are encrypted on the source, and so go raw. Any other of the '
        "backup is a conflict until it is excluded: a dataset that somebody creates outside of the encrypted ones does "
        'not reach the vault in the clear. "decrypted" sends what is encrypted on the source without its encryption, '
        "and only to where a key of the vault's encrypts it anew: anything else is a conflict. The keys have to be "
        "loaded on both sides, and properties do not go along (docs/how-to/encrypt-a-vault.md).",
        examples=["required"],
    )

    @model_validator(mode="before")
    @classmethod
    def _decrypted_has_no_properties(cls, table: object) -> object:
        """ZFS sends the properties of an encrypted dataset with ``-w`` only."""
        if not isinstance(table, dict) or table.get("encrypted") != "decrypted":
            return table
        for key in ("raw", "properties"):
            if table.get(key) is True:
                raise ValueError(
                    f'encrypted = "decrypted" does not go with {key} = true: what ZFS sends decrypted is not raw and'
                    f" has no properties; remove {key}"
                )
        return {**table, "properties": False}

    def to_encrypted(self) -> Send:
        """The same where the vault encrypts what is sent without: ZFS receives no embedded blocks there.

        ``raw`` of what is not encrypted is all three others; what is encrypted always goes raw.
        """
        all_of_raw = {"large_blocks": True, "compressed": True} if self.raw else {}
        return self.model_copy(update={**all_of_raw, "embedded": False, "raw": False})


def _property_value(value: object) -> object:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise ValueError(f"must be the value of a ZFS property, not {describe_value(value)}")
    return value


class Receive(ConfigTable):
    """Properties of its datasets on the vault. A change takes effect at the next run's end, also on what is there."""

    set: dict[str, Annotated[str, BeforeValidator(_property_value)]] = Field(
        default_factory=dict,
        description="Properties to set on each dataset (`-o`), as far as it can have them: user properties, or those "
        "that decide how the vault keeps data. A restore gives back what the source had. Compression: blocks that are "
        "sent compressed, as `send.compressed` has it, or raw stay as they are. See "
        "[properties](../explanation/streams.md#properties-that-you-choose).",
        examples=[{"com.sun:auto-snapshot": "false", "redundant_metadata": "most"}],
    )
    leave_out: Several[str] = Field(
        default_factory=list,
        description="Properties of the source that are not in force on the vault (`-x`): there each has what the "
        "dataset above it has. A restore gives them back all the same.",
        examples=[["recordsize", "org.example:owner"]],
    )

    let_in: Several[str] = Field(
        default_factory=list,
        description="Properties that steer other tools, or patterns of them, to be in force on the vault as on the "
        "source. Without this they stay out: otherwise zfs-autobackup, zfs-auto-snapshot, znapzend and others take the "
        "vault for a source of theirs. See [properties](../explanation/streams.md#what-steers-other-tools).",
        examples=[["com.sun:auto-snapshot*"]],
    )

    @field_validator("set")
    @classmethod
    def _may_be_set(cls, values: dict[str, str]) -> dict[str, str]:
        for name in values:
            check_receive_property(name)
        return {name: normalize_receive_value(name, value) for name, value in values.items()}

    @field_validator("leave_out")
    @classmethod
    def _may_be_left_out(cls, names: list[str], info: ValidationInfo) -> list[str]:
        for name in names:
            check_receive_property(name, leave_out=True)
            if name in info.data.get("set", {}):
                raise ValueError(
                    f"{quote_text(name)} is in set, too: that is what counts, so leave it out here"
                )
        return list(dict.fromkeys(names))

    @field_validator("let_in")
    @classmethod
    def _may_be_let_in(cls, names: list[str], info: ValidationInfo) -> list[str]:
        for name in names:
            check_let_in(name)
            if name in info.data.get("leave_out", []):
                raise ValueError(f"{quote_text(name)} is in leave_out, too: take it out of one of them")
        return list(dict.fromkeys(names))

    @property
    def properties(self) -> ReceiveProperties:
        """The same as it is decided with."""
        return ReceiveProperties(self.set, tuple(self.leave_out))
