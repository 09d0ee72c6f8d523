"""The key that a vault's pool is encrypted with, as the configuration names it."""

from __future__ import annotations

from pydantic import Field, model_validator

from zvault.config.fields import ConfigTable, FilePath, WordField


class PoolEncryption(ConfigTable):
    """What encrypts a vault's pool. One of the three names the key: 32 bytes, or 64 hexadecimal digits."""

    key: FilePath | None = Field(
        default=None, description="A file with the key, for root alone.", examples=["/etc/zvault/cold.key"]
    )
    credential: WordField | None = Field(
        default=None,
        description="A systemd credential with the key: `/etc/credstore/NAME`, or one that `systemd-creds encrypt` "
        "made. `zvaultd.service` imports those whose name begins with `zvault.`.",
        examples=["zvault.cold-key"],
    )
    command: FilePath | None = Field(
        default=None,
        description="A program that prints the key's digits, within a minute.",
        examples=["/usr/local/sbin/cold-key"],
    )

    @model_validator(mode="after")
    def _one_key(self) -> PoolEncryption:
        if len([one for one in (self.key, self.credential, self.command) if one is not None]) != 1:
            raise ValueError("needs one of key, credential and command")
        return self
