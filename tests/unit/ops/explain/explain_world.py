"""Two sides that are only read, and what is explained of a dataset or snapshot of them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from tests.unit.api.conforms import wrong
from tests.unit.ops.no_keys import NoKeys
from tests.unit.ops.ops_world import (
    HOUR,
    START,
    context,
    with_source,
    with_vault,
)
from zvault.api.explain import AccountDocument, ExplainDocument
from zvault.core.model import Tree
from zvault.core.names import DatasetName
from zvault.core.replication.plan_model import InterruptedReceive
from zvault.ops.context import Context
from zvault.ops.explain.document import make_explain_document
from zvault.ops.explain.knowledge import NoDaemon

POOL = 0xC01D


class ReadOnly(NoKeys):
    """A side that can only be looked at; ``held`` are the tags of its snapshots."""

    def __init__(self, there: Tree, held: dict[str, set[str]]) -> None:
        self.host = self
        self.there, self.held = there, held

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        assert argv[1] in {"list", "get"}
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    async def tree(self, _: str, *, sizes: bool = True) -> Tree:
        return self.there

    tree_or_none = tree

    async def names(self, _: str) -> list[DatasetName]:
        """Its pool has nothing else."""
        return []

    async def exists(self, name: str) -> bool:
        return name in self.there.datasets

    async def get(self, _: str, prop: str) -> dict[str, str]:
        return {prop: "1"}

    async def interrupted(self, token: str) -> InterruptedReceive:
        return InterruptedReceive(token, 101)

    async def holds(self, names: Sequence[str]) -> dict[str, set[str]]:
        return {name: set(self.held[name]) for name in names if name in self.held}

    async def clones(self, _: Sequence[str]) -> dict[str, list[Any]]:
        return {}


def world(
    source: Tree, vault: Tree | None, held: dict[str, set[str]] | None = None, **backup: Any
) -> Context:
    """At hour 30."""
    where = context(START + 30 * HOUR, **backup)
    with_source(where, ReadOnly(source, held or {}))

    async def state(_: str) -> Any:
        return SimpleNamespace(guid=POOL) if vault is not None else None

    where.clients.zpool = SimpleNamespace(state=state)  # type: ignore[assignment]
    return where if vault is None else with_vault(where, ReadOnly(vault, held or {}))


async def explained(where: Context, name: str, knowledge: Any = None) -> ExplainDocument:
    found = await make_explain_document(where, knowledge or NoDaemon(), name)
    assert list(wrong(found, ExplainDocument)) == []
    return found


def reason(account: AccountDocument, topic: str, side: str | None = None) -> tuple[str, str]:
    (one,) = [one for one in account["reasons"] if (one["topic"], one["side"]) == (topic, side)]
    return one["state"], one["why"]
