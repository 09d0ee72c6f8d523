"""The steps of a change on the vault, and that nothing anybody needs is given up."""

from types import SimpleNamespace
from typing import Any

import pytest

from zvault.api.events import RunEvent
from zvault.core.errors import Conflict
from zvault.core.names import DatasetName
from zvault.core.replication.base_names import KEEP_HOLD
from zvault.core.replication.plan_model import TransferAction, TransferPlan
from zvault.core.replication.vault_changes import (
    AbortReceive,
    BranchDataset,
    RenameDataset,
    RollbackDataset,
    VaultChange,
)
from zvault.ops.replication.apply_changes import apply_changes

SOURCE, A, B = DatasetName("tank/a"), DatasetName("cold/a"), DatasetName("cold/b")


class Vault:
    """Writes down what it is asked to do."""

    def __init__(self, *there: str, holds: Any = None, clones: Any = None) -> None:
        self.there, self.known_holds, self.known_clones = set(there), holds or {}, clones or {}
        self.did: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.host = self.lzc = self

    async def run(self, argv: list[str], **_: Any) -> Any:
        if argv[-2] == "type":
            return SimpleNamespace(returncode=0, stdout="filesystem\n")
        self.did.append(" ".join(argv))
        return SimpleNamespace(returncode=0, stdout="")

    async def make_parents(self, name: str) -> None:
        self.did.append(f"parents of {name}")

    async def abort_receive(self, name: str) -> None:
        self.did.append(f"abort {name}")

    async def exists(self, name: str) -> bool:
        return name in self.there

    async def holds(self, names: list[str]) -> dict[str, set[str]]:
        return {name: tags for name, tags in self.known_holds.items() if name in names}

    async def clones(self, names: list[str]) -> dict[str, list[DatasetName]]:
        return {name: clones for name, clones in self.known_clones.items() if name in names}

    async def release(self, names: list[str], tag: str) -> None:
        self.did.append(f"release {tag} {' '.join(names)}")

    def forget(self, name: str) -> None:
        self.did.append(f"forget {name}")

    async def make(
        self,
        *changes: VaultChange,
        action: TransferAction = TransferAction.NOTHING,
        kind: str = "filesystem",
        may_destroy: bool = True,
    ) -> None:
        plan = TransferPlan(SOURCE, A, action, "for a reason", next="do this", changes=changes)
        await apply_changes(self, plan, kind, self.emit, may_destroy=may_destroy)  # type: ignore[arg-type]

    def emit(self, event: RunEvent) -> None:
        self.told.append((event.name, getattr(event, "text", "")))


async def test_each_change_is_told_and_made_in_its_order() -> None:
    vault = Vault()
    rename = RenameDataset(A, B.child("c"), "it follows tank/b/c")
    await vault.make(AbortReceive(A, "it is stale"), rename)
    assert vault.did == ["abort cold/a", "parents of cold/b/c", "zfs rename -u cold/a cold/b/c"]
    assert [event for event, _ in vault.told] == ["warning", "resume-aborted", "message"]
    assert vault.told[2][1] == "tank/a: rename cold/a to cold/b/c: it follows tank/b/c"


async def test_who_may_destroy_nothing_on_the_vault_gives_no_stream_up() -> None:
    """The planner asks before it plans so; ZFS may refuse a resume token when it is used, and nobody asked then."""
    vault = Vault()
    with pytest.raises(Conflict, match="ZFS did not take it") as refused:
        await vault.make(AbortReceive(A, "ZFS did not take it: no such snapshot"), may_destroy=False)
    assert "the backup may destroy on the vault" in refused.value.why
    assert refused.value.next == "run 'zfs receive -A cold/a' on the vault's host"
    assert (vault.did, vault.told) == ([], [])


@pytest.mark.parametrize(("kind", "setting"), [("filesystem", "canmount=noauto"), ("volume", "volmode=none")])
async def test_a_branch_is_a_clone_that_is_promoted_and_can_be_begun_again(kind: str, setting: str) -> None:
    branch = BranchDataset(A.snapshot("s"), B, "so it is on the source")
    vault = Vault()
    await vault.make(branch, kind=kind)
    assert f"zfs clone -o readonly=on -o {setting} cold/a@s cold/b" in vault.did
    assert vault.did[-3:] == ["zfs promote cold/b", "forget cold/b", "forget cold/a"]
    again = Vault("cold/b")
    await again.make(branch, kind=kind)
    assert again.did == ["zfs promote cold/b", "forget cold/b", "forget cold/a"]


LOST = RollbackDataset(A, "s1", ("s2", "s3"), 0)


async def test_a_rollback_asks_first_who_needs_what_goes() -> None:
    for needs in ({"holds": {"cold/a@s3": {"me"}}}, {"clones": {"cold/a@s2": [DatasetName("cold/work")]}}):
        vault = Vault(**needs)
        with pytest.raises(Conflict, match="cannot give up"):
            await vault.make(LOST)
        assert vault.did == []
    # What an interrupted receive keeps of it goes with it.
    vault = Vault(clones={"cold/a@s3": [A.child("%recv")]})
    await vault.make(LOST)
    assert vault.did[-2:] == ["zfs rollback -r cold/a@s1", "forget cold/a"]
    assert vault.told == [("warning", "tank/a: roll cold/a back to @s1, giving up @s2 and @s3")]


async def test_what_zvault_holds_of_what_is_rolled_away_is_released_right_before_and_nothing_else_is() -> (
    None
):
    vault = Vault(holds={"cold/a@s3": {KEEP_HOLD}, "cold/a@s1": {KEEP_HOLD}})
    await vault.make(LOST)
    assert vault.did[0] == "release zvault:keep cold/a@s3"
    assert vault.did[-2:] == ["zfs rollback -r cold/a@s1", "forget cold/a"]
    vault = Vault(holds={"cold/a@s3": {KEEP_HOLD}, "cold/a@s2": {KEEP_HOLD, "me"}})
    with pytest.raises(Conflict, match="held by me"):
        await vault.make(LOST)
    assert vault.did == []


async def test_a_conflict_is_raised_once_what_was_renamed_is_in_its_place() -> None:
    vault = Vault()
    with pytest.raises(Conflict, match="for a reason"):
        await vault.make(RenameDataset(B, A, "it follows tank/a"), action=TransferAction.CONFLICT)
    assert vault.did[-1] == "zfs rename -u cold/b cold/a"
