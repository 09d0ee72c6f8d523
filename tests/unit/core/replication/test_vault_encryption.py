"""How each kind of source lies at each place of a vault, with its key loaded and without: a table, and trees of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from zvault.core.model import Dataset, Snapshot, Tree
from zvault.core.names import DatasetName
from zvault.core.replication.lineage import Pairing
from zvault.core.replication.pair_datasets import pair_datasets
from zvault.core.replication.plan_model import TransferAction, TransferPlan, TransferStep
from zvault.core.replication.planner import plan_tree
from zvault.core.replication.vault_encryption import (
    KeysAbove,
    ReceivingPlace,
    VaultEncryption,
    VaultKeys,
    decide_encryption,
    decide_encryptions,
    find_exposed,
    refuse_decrypted_in_clear,
)


def loaded(_: str) -> bool:
    return True


def locked(_: str) -> bool:
    return False


PLAIN_PLACE = ReceivingPlace()
ENCRYPTED = ReceivingPlace(key_root="usb/enc", cover="usb/enc")
BELOW_COPY = ReceivingPlace(key_root="usb/copy", copies=True)
BELOW_COVERED_COPY = ReceivingPlace(key_root="usb/enc/copy", cover="usb/enc", copies=True)
BELOW_CLEAR = ReceivingPlace(cover="usb/enc")
HOLDERS_MISSING = ReceivingPlace(key_root="usb/enc", cover="usb/enc", parents_key="usb/enc")

REFUSED = "refused"
# Source (encrypted?), place, key loaded?, begins?: how it lies, and whether it is refused.
TABLE = [
    (False, PLAIN_PLACE, False, True, VaultEncryption.CLEAR, ""),
    (False, PLAIN_PLACE, False, False, VaultEncryption.CLEAR, ""),
    (False, ENCRYPTED, True, True, VaultEncryption.INHERITED, ""),
    (False, ENCRYPTED, True, False, VaultEncryption.INHERITED, ""),
    (False, ENCRYPTED, False, True, VaultEncryption.INHERITED, REFUSED),
    (False, ENCRYPTED, False, False, VaultEncryption.INHERITED, REFUSED),
    (False, BELOW_COPY, True, True, VaultEncryption.CLEAR_AS_SOURCE, ""),
    (False, BELOW_COPY, False, True, VaultEncryption.CLEAR_AS_SOURCE, ""),
    (False, BELOW_COVERED_COPY, True, True, VaultEncryption.EXPOSED, REFUSED),
    (False, BELOW_COVERED_COPY, False, True, VaultEncryption.EXPOSED, REFUSED),
    (False, BELOW_CLEAR, True, True, VaultEncryption.EXPOSED, REFUSED),
    (False, BELOW_CLEAR, True, False, VaultEncryption.EXPOSED, ""),
    (False, HOLDERS_MISSING, False, True, VaultEncryption.INHERITED, REFUSED),
    (False, HOLDERS_MISSING, True, True, VaultEncryption.INHERITED, ""),
    (True, PLAIN_PLACE, False, True, VaultEncryption.RAW, ""),
    (True, ENCRYPTED, False, True, VaultEncryption.RAW, ""),
    (True, ENCRYPTED, False, False, VaultEncryption.RAW, ""),
    (True, BELOW_COPY, False, True, VaultEncryption.RAW, ""),
    (True, BELOW_COVERED_COPY, False, True, VaultEncryption.RAW, ""),
    (True, BELOW_CLEAR, False, True, VaultEncryption.RAW, ""),
    (True, HOLDERS_MISSING, False, True, VaultEncryption.RAW, REFUSED),
    (True, HOLDERS_MISSING, True, True, VaultEncryption.RAW, ""),
]


@pytest.mark.parametrize(("encrypted", "place", "key", "begins", "lying", "refusal"), TABLE)
def test_each_source_at_each_place(
    encrypted: bool, place: ReceivingPlace, key: bool, begins: bool, lying: VaultEncryption, refusal: str
) -> None:
    made = decide_encryption(
        "usb/enc/a",
        replace(place, begins=begins),
        loaded if key else locked,
        source_encrypted=encrypted,
    )
    assert made.lying is lying
    assert bool(made.refusal) == bool(refusal)
    assert bool(made.advice) == bool(refusal)
    if refusal and not key and lying is not VaultEncryption.EXPOSED:
        assert "zfs load-key usb/enc" in made.advice


def test_nothing_new_ever_lies_in_the_clear_below_what_the_vault_encrypted() -> None:
    for key, cover, copies, parents, is_loaded in itertools.product(
        ("", "usb/enc"), ("", "usb/enc"), (False, True), ("", "usb/enc"), (loaded, locked)
    ):
        place = ReceivingPlace(key, cover, True, copies, parents)
        made = decide_encryption("usb/enc/a", place, is_loaded, source_encrypted=False)
        if cover and not made.refusal:
            assert made.lying is VaultEncryption.INHERITED
            assert is_loaded is loaded


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize(
    "place", [PLAIN_PLACE, ENCRYPTED, BELOW_COPY, BELOW_COVERED_COPY, BELOW_CLEAR, HOLDERS_MISSING]
)
@pytest.mark.parametrize("key", [True, False])
def test_what_is_sent_decrypted_goes_only_where_a_key_of_the_vaults_encrypts_it(
    place: ReceivingPlace, key: bool, begins: bool
) -> None:
    """As what is not encrypted at all, but nothing of it in the clear: neither anew nor after what lies there so."""
    place = replace(place, begins=begins)
    plain = decide_encryption("usb/enc/a", place, loaded if key else locked, source_encrypted=False)
    made = refuse_decrypted_in_clear("usb/enc/a", plain)
    encrypted = plain.lying is VaultEncryption.INHERITED and not plain.refusal
    assert bool(made.refusal) is not encrypted
    assert bool(made.advice) is not encrypted
    if not encrypted and not plain.refusal:
        assert "in the clear" in made.refusal


# Trees: what the planner plans, as it lies


def snapshot(dataset: str, number: int) -> Snapshot:
    return Snapshot(DatasetName(dataset), f"s{number}", number, number, 1_700_000_000 + number)


def one(name: str, *numbers: int, key: str = "", guid: int = 0) -> Dataset:
    snapshots = tuple(snapshot(name, number) for number in numbers)
    return Dataset(
        DatasetName(name),
        guid or abs(hash(name)) % 10**9,
        "filesystem",
        encrypted=bool(key),
        snapshots=snapshots,
        key_root=key,
    )


def tree(*datasets: Dataset) -> Tree:
    return Tree({each.name: each for each in datasets})


def paired(source: Tree, vault: Tree, into: str) -> Pairing:
    pairs = tuple((each, DatasetName(into + each.name.removeprefix("tank"))) for each in source)
    return pair_datasets(source, pairs, vault)


def decided(
    source: Tree, vault: Tree, into: str, above: dict[str, str], is_loaded: Callable[[str], bool] = loaded
) -> dict[str, tuple[VaultEncryption, bool]]:
    pairing = paired(source, vault, into)
    plans = plan_tree(pairing, vault, wanted=lambda _: True)
    made = decide_encryptions(VaultKeys(vault, KeysAbove(above)), pairing, plans, is_loaded)
    return {name: (each.lying, bool(each.refusal)) for name, each in made.items()}


HOME = tree(one("tank/home", 1), one("tank/home/a", 2))


def test_what_is_new_below_an_encrypted_dataset_inherits_and_so_does_all_below_it() -> None:
    above = {"usb": "", "usb/enc": "usb/enc"}
    assert decided(HOME, Tree(), "usb/enc", above) == {
        "tank/home": (VaultEncryption.INHERITED, False),
        "tank/home/a": (VaultEncryption.INHERITED, False),
    }
    assert decided(HOME, Tree(), "usb", {"usb": ""}) == dict.fromkeys(
        ("tank/home", "tank/home/a"), (VaultEncryption.CLEAR, False)
    )


def test_over_a_placeholder_in_the_clear_nothing_is_received_that_is_to_be_encrypted() -> None:
    """What is received over a dataset (-F) gets its encryption from that one, not from what is above it."""
    source, above = tree(one("tank/home", 1)), {"usb": "", "usb/enc": "usb/enc"}
    vault = tree(replace(one("usb/enc/home"), placeholder=True))
    assert decided(source, vault, "usb/enc", above) == {"tank/home": (VaultEncryption.EXPOSED, True)}
    assert decided(source, tree(replace(one("usb/home"), placeholder=True)), "usb", {"usb": ""}) == {
        "tank/home": (VaultEncryption.CLEAR, False)
    }


def test_a_root_dataset_that_is_encrypted_is_no_other_case() -> None:
    assert decided(HOME, Tree(), "usb", {"usb": "usb"})["tank/home"] == (VaultEncryption.INHERITED, False)


def test_what_was_received_in_the_clear_goes_on_and_nothing_new_comes_below_it() -> None:
    vault = tree(one("usb/enc/home", 1))
    source = tree(one("tank/home", 1, 3), one("tank/home/a", 2))
    above = {"usb": "", "usb/enc": "usb/enc"}
    assert decided(source, vault, "usb/enc", above) == {
        "tank/home": (VaultEncryption.EXPOSED, False),
        "tank/home/a": (VaultEncryption.EXPOSED, True),
    }
    keys = VaultKeys(vault, KeysAbove(above))
    assert find_exposed(keys, paired(source, vault, "usb/enc")) == {"usb/enc/home": "usb/enc"}
    assert find_exposed(VaultKeys(vault, KeysAbove({"usb": ""})), paired(source, vault, "usb/enc")) == {}


def test_what_another_tool_encrypted_goes_on_encrypted_and_so_does_what_is_new_below_it() -> None:
    vault = tree(one("usb/enc/home", 1, key="usb/enc"))
    source = tree(one("tank/home", 1, 3), one("tank/home/a", 2))
    assert set(decided(source, vault, "usb/enc", {"usb": "", "usb/enc": "usb/enc"}).values()) == {
        (VaultEncryption.INHERITED, False)
    }
    told = decided(source, vault, "usb/enc", {"usb": "", "usb/enc": "usb/enc"}, locked)
    assert set(told.values()) == {(VaultEncryption.INHERITED, True)}


def test_what_the_source_has_in_the_clear_below_what_goes_raw_lies_so_on_the_vault() -> None:
    """To inherit the raw copy's key would lock it as soon as that is changed on the source."""
    source = tree(one("tank/home", 1, 3, key="tank/home"), one("tank/home/off", 2))
    raw = tree(one("usb/home", 1, key="usb/home"))
    for vault in (Tree(), raw):
        assert decided(source, vault, "usb", {"usb": ""}) == {
            "tank/home": (VaultEncryption.RAW, False),
            "tank/home/off": (VaultEncryption.CLEAR_AS_SOURCE, False),
        }
    both = tree(one("usb/home", 1, key="usb/home"), one("usb/home/off", 2))
    secret = one("tank/home", 1, 3, key="tank/home")
    source = tree(secret, one("tank/home/off", 2, 4), one("tank/home/off/new", 9))
    assert decided(source, both, "usb", {"usb": ""}) == {
        "tank/home": (VaultEncryption.RAW, False),
        "tank/home/off": (VaultEncryption.CLEAR_AS_SOURCE, False),
        "tank/home/off/new": (VaultEncryption.CLEAR_AS_SOURCE, False),
    }
    keys = VaultKeys(both, KeysAbove({"usb": ""}))
    assert find_exposed(keys, paired(source, both, "usb")) == {}


def test_what_lies_below_a_raw_copy_of_what_is_excluded_by_now_lies_as_on_its_source() -> None:
    source = tree(
        one("tank/home", 1, 3, key="tank/home"), one("tank/home/off", 2, 4), one("tank/home/new", 5)
    )
    vault = tree(one("usb/home", 1, key="usb/home"), one("usb/home/off", 2))
    wanted = [
        (source.datasets[f"tank/home/{name}"], DatasetName(f"usb/home/{name}")) for name in ("off", "new")
    ]
    left_out = [(source.datasets["tank/home"], DatasetName("usb/home"))]
    pairing = pair_datasets(source, wanted, vault, left_out=left_out)
    plans = plan_tree(pairing, vault, wanted=lambda _: True)
    keys = VaultKeys(vault, KeysAbove({"usb": ""}))
    made = decide_encryptions(keys, pairing, plans, locked)
    assert {name: (each.lying, each.refusal) for name, each in made.items()} == dict.fromkeys(
        ("tank/home/off", "tank/home/new"), (VaultEncryption.CLEAR_AS_SOURCE, "")
    )
    assert find_exposed(keys, pairing) == {}


def test_what_is_gone_from_the_source_is_no_more_exposed_than_it_was_there() -> None:
    """Below a raw copy it lay in the clear on its source, too. Below what the vault encrypted it did not have to."""
    raw = replace(one("usb/home", 1, key="usb/home"), source_record="key_root=0")
    vault = tree(raw, one("usb/home/off", 2))
    for left in (tree(one("tank/home", 1, 3, key="tank/home")), Tree()):
        pairing = paired(left, vault, "usb")
        assert find_exposed(VaultKeys(vault, KeysAbove({"usb": ""})), pairing) == {}
    for key in ("usb/enc", "usb/enc/home"):  # the vault's, and one that no run has on record
        there = tree(one("usb/enc/home", 1, key=key), one("usb/enc/home/off", 2))
        above = KeysAbove({"usb": "", "usb/enc": "usb/enc"})
        assert find_exposed(VaultKeys(there, above), paired(Tree(), there, "usb/enc")) == {
            "usb/enc/home/off": key
        }


def test_below_a_raw_copy_that_lies_below_an_encrypted_dataset_it_is_refused() -> None:
    source = tree(one("tank/home", 1, key="tank/home"), one("tank/home/off", 2))
    told = decided(source, Tree(), "usb/enc", {"usb": "", "usb/enc": "usb/enc"})
    assert told == {
        "tank/home": (VaultEncryption.RAW, False),
        "tank/home/off": (VaultEncryption.EXPOSED, True),
    }


def test_where_the_holders_cannot_be_made_not_even_a_raw_stream_is_sent() -> None:
    source = tree(one("tank/home", 1, key="tank/home"))
    above = {"usb": "", "usb/enc": "usb/enc"}
    assert decided(source, Tree(), "usb/enc/of/here", above, locked) == {
        "tank/home": (VaultEncryption.RAW, True)
    }
    assert decided(source, Tree(), "usb/enc", above, locked) == {"tank/home": (VaultEncryption.RAW, False)}


def test_a_clone_lies_as_what_it_is_a_clone_of() -> None:
    base = snapshot("tank/home", 1)
    clone = replace(one("tank/copy", 5), origin=base.name)
    source = tree(one("tank/home", 1), clone)
    above = {"usb": "", "usb/enc": "usb/enc"}
    clear = tree(one("usb/enc/home", 1))
    assert decided(source, clear, "usb/enc", above)["tank/copy"] == (VaultEncryption.EXPOSED, True)
    kept = tree(one("usb/enc/home", 1, key="usb/enc"))
    assert decided(source, kept, "usb/enc", above)["tank/copy"] == (VaultEncryption.INHERITED, False)


def test_a_raw_copy_above_the_backups_root_gives_its_key_to_nothing() -> None:
    pairing = paired(HOME, Tree(), "usb/raw")
    plans = plan_tree(pairing, Tree(), wanted=lambda _: True)
    above = KeysAbove({"usb": "", "usb/raw": "usb/raw"}, frozenset({"usb/raw"}))
    made = decide_encryptions(VaultKeys(Tree(), above), pairing, plans, loaded)
    assert made["tank/home"].refusal


def test_without_any_key_nothing_is_looked_for() -> None:
    source = tree(one("tank/home", 1, key="tank/home"), one("tank/home/off", 2))
    pairing = paired(source, Tree(), "usb")
    plan = TransferPlan(
        DatasetName("tank/home/off"),
        DatasetName("usb/home/off"),
        TransferAction.FULL,
        "",
        (TransferStep(TransferAction.FULL, snapshot("tank/home/off", 2)),),
    )
    assert (
        decide_encryptions(VaultKeys(Tree()), pairing, [plan], locked)["tank/home/off"].lying
        is VaultEncryption.CLEAR
    )


def test_a_tree_that_is_sent_decrypted_inherits_all_the_way_down_or_is_refused() -> None:
    secret = tree(*(replace(one(name, 1, key="tank/home"), encrypted=False) for name in HOME.datasets))
    above = {"usb": "", "usb/enc": "usb/enc"}
    assert set(decided(secret, Tree(), "usb/enc", above).values()) == {(VaultEncryption.INHERITED, False)}
    assert set(decided(secret, Tree(), "usb/enc", above, locked).values()) == {
        (VaultEncryption.INHERITED, True)
    }
    # Also where nothing on the vault is encrypted, and where it lies there in the clear already.
    for vault in (Tree(), tree(one("usb/home", 1))):
        assert set(decided(secret, vault, "usb", {"usb": ""}).values()) == {(VaultEncryption.CLEAR, True)}
    mixed = tree(one("tank/home", 1), replace(one("tank/home/a", 2, key="tank/home/a"), encrypted=False))
    assert decided(mixed, Tree(), "usb", {"usb": ""}) == {
        "tank/home": (VaultEncryption.CLEAR, False),
        "tank/home/a": (VaultEncryption.CLEAR, True),
    }
