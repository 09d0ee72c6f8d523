"""What the source's datasets have on record is read again only of what may have changed."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.unit.events import split_event
from tests.unit.ops.ops_world import context, dataset, sides, snap, vaulted
from zvault.api.events import RunEvent
from zvault.core.model import Dataset
from zvault.core.replication.lineage import Pairing
from zvault.ops.replication.source_record import read_source, update_vault
from zvault.ops.state.cached_backups import CachedRecords


class Source:
    """Tells each dataset's properties but of one that ``refuses``, and was asked for some."""

    def __init__(self, refuses: str = "") -> None:
        self.refuses = refuses
        self.lapses: int | None = 1
        self.quota = "0"
        self.values: dict[str, str] = {}
        self.asked: list[str] = []
        self.host = self

    async def run(self, argv: Sequence[str], **_: Any) -> Any:
        names = [name for name in argv if name.startswith("tank")]
        self.asked += names
        if self.refuses in names:
            why = f"cannot open '{self.refuses}': I/O error"
            return SimpleNamespace(returncode=1, stdout="", stderr=why, complaint=lambda: why)
        values = {"quota": self.quota, "encryptionroot": "-", "redact_snaps": "-", "redacted": "-"}
        values |= self.values
        told = (f"{name}\t{key}\t{values.get(key, '0')}" for name in names for key in argv[5].split(","))
        return SimpleNamespace(returncode=0, stdout="\n".join(told), stderr="")


async def asked(source: Source, known: CachedRecords, *datasets: Dataset) -> list[str]:
    """Those of which it was asked. What is told is what there is."""
    side: Any = source
    source.asked = []
    backup = context().env.backup("b")
    found = await read_source(side, backup, datasets, lambda _: None, known)
    assert found == await read_source(side, backup, datasets, lambda _: None)
    return source.asked[: -len(datasets)]


async def test_what_is_put_on_record_may_be_of_keys_above_another_backup() -> None:
    """An adopted replica gets its record with its first run; what lies below it was looked at before."""
    did: list[str] = []

    async def run(argv: Sequence[str], **_: Any) -> SimpleNamespace:
        did.append(" ".join(argv))
        return SimpleNamespace(returncode=0, stdout="", stderr="")

    def forget() -> None:
        did.append("forget")

    vault: Any = SimpleNamespace(lzc=None, host=SimpleNamespace(run=run), forget_keys_above=forget)
    both = sides(dataset("tank"), vaulted("cold/host/tank", 1))
    pair = replace(both.pairing.pairs[0], vault=vaulted("cold/host/tank", 1))
    found: Any = SimpleNamespace(pairing=Pairing((pair,)))
    await update_vault(vault, found, {"tank": "key_root=0"}, lambda _: None)
    assert did == ["zfs set org.zvault:source-properties=key_root=0 cold/host/tank", "forget"]
    await update_vault(vault, found, {}, lambda _: None)
    assert len(did) == 2


async def test_what_did_not_change_is_not_asked_again() -> None:
    source, known = Source(), CachedRecords()
    one, bare = dataset("tank", snap(1)), dataset("tank/bare")
    secret = dataset("tank/secret", snap(1, "tank/secret"), encrypted=True)
    assert await asked(source, known, one, bare, secret) == ["tank", "tank/bare", "tank/secret"]
    assert await asked(source, known, one, bare, secret) == ["tank/bare", "tank/secret"]
    source.quota = "1024"
    anew = dataset("tank", snap(1))
    assert await asked(source, known, anew, bare, secret) == ["tank", "tank/bare", "tank/secret"]
    source.lapses = 2
    source.quota = "2048"
    assert await asked(source, known, anew) == ["tank"]
    source.lapses = None
    assert await asked(source, known, anew) == ["tank"]
    assert await asked(source, known, anew) == ["tank"]


async def test_one_that_does_not_tell_keeps_no_other_from_being_read() -> None:
    source: Any = Source("tank/a")
    said: list[tuple[str, str]] = []

    def hear(event: RunEvent) -> None:
        kind, more = split_event(event)
        said.append((kind, more["text"]))

    datasets = [dataset("tank", snap(1)), dataset("tank/a", snap(2, "tank/a")), dataset("tank/b")]
    backup = context().env.backup("b")
    assert (await read_source(source, backup, datasets, hear)).keys() == {"tank", "tank/b"}
    why = "cannot read the properties of datasets: cannot open 'tank/a': I/O error"
    assert said == [("message", f"the limits of the source's datasets are not known: {why}")]


async def test_what_is_sent_decrypted_is_on_record_as_without_its_key() -> None:
    """Else it would count as a raw copy: nothing would be received below it, and a restore would send it raw."""
    side: Any = Source()
    side.values = {"encryptionroot": "tank"}
    for send, recorded in (("any", True), ("decrypted", False)):
        found = await read_source(
            side, context(send={"encrypted": send}).env.backup("b"), [dataset("tank")], lambda _: None
        )
        assert ("key_root" in found["tank"]) is recorded
