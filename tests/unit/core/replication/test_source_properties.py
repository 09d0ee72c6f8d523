"""The record of what a vault's copy cannot have: written, read, and what a restore makes of it."""

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.names import DatasetName
from zvault.core.replication.source_properties import (
    SPACE_LIMITS,
    DatasetKey,
    SourceProperties,
    find_dataset_key,
    find_root_to_inherit,
    format_set_command,
    has_same_key,
    is_limit_set,
    list_inherit_commands,
    list_limits_to_set,
    make_source_record,
    parse_record,
    select_restored_properties,
)


@given(
    st.dictionaries(st.sampled_from(SPACE_LIMITS), st.integers(1, 1 << 60)), st.none() | st.integers(0, 40)
)
def test_a_record_is_read_as_it_was_written(limits: dict[str, int], level: int | None) -> None:
    record = SourceProperties(limits, level)
    assert parse_record(str(record)) == record


@given(st.text())
def test_no_text_is_more_than_a_record_or_none(text: str) -> None:
    record = parse_record(text)
    assert record is None or parse_record(str(record)) == record


def test_what_is_observed_on_a_source() -> None:
    values = {
        "quota": "0",
        "refquota": "90",
        "reservation": "-",
        "refreservation": "7",
        "encryptionroot": "-",
    }
    assert str(make_source_record(DatasetName("tank/a"), values)) == "refquota=90 refreservation=7"
    assert str(make_source_record(DatasetName("tank/a"), {"encryptionroot": "tank/a"})) == "key_root=0"
    assert str(make_source_record(DatasetName("tank/a/b/c"), {"encryptionroot": "tank/a"})) == "key_root=2"
    assert str(make_source_record(DatasetName("tank/ab"), {"encryptionroot": "tank/a"})) == "none", (
        "no dataset above it"
    )
    assert parse_record("none") == SourceProperties()
    assert parse_record("") is None


def test_limits_of_a_thick_volume_are_worked_out_by_zfs() -> None:
    thick, thin = SourceProperties({"refreservation": 70_000}), SourceProperties({"refreservation": 10})
    assert list_limits_to_set(thick, 65_536) == {"reservation": "0", "refreservation": "auto"}
    assert list_limits_to_set(thin, 65_536) == {"reservation": "0", "refreservation": "10"}
    assert list_limits_to_set(SourceProperties({"quota": 5}), None) == {
        "quota": "5",
        "refquota": "0",
        "reservation": "0",
        "refreservation": "0",
    }
    assert is_limit_set("auto", "70000", 65_536)
    assert not is_limit_set("auto", "0", 65_536)
    assert not is_limit_set("5", "6", None)


def test_what_a_restore_sets_and_what_it_leaves() -> None:
    received = {
        "recordsize": "65536",
        "mountpoint": "/a",
        "quota": "5",
        "org.zvault:x": "1",
        "exec": "-",
        "a:b": "c d",
    }
    assert select_restored_properties(received) == {"recordsize": "65536", "a:b": "c d"}
    assert format_set_command("tank/a b", {"a:b": "c d"}) == "zfs set 'a:b=c d' 'tank/a b'"


def key(root: str, salt: str = "77", form: str = "passphrase", location: str = "prompt") -> DatasetKey:
    found = find_dataset_key(
        {
            "encryptionroot": root,
            "keyformat": form,
            "pbkdf2salt": salt,
            "pbkdf2iters": "350000",
            "keylocation": location,
        }
    )
    assert found is not None
    return found


def test_a_passphrase_is_known_by_its_salt() -> None:
    keys = {
        "n/e": key("n/e"),
        "n/e/c": key("n/e/c"),
        "n/e/own": key("n/e/own", "5"),
        "n/e/own/x": key("n/e/own/x", "5"),
    }
    assert find_root_to_inherit(DatasetName("n/e/c"), keys, None) == "n/e"
    assert has_same_key("n/e/c", "n/e", keys)
    assert find_root_to_inherit(DatasetName("n/e"), keys, None) is None, "nothing above it is encrypted"
    assert find_root_to_inherit(DatasetName("n/e/own"), keys, None) is None, "it is another passphrase"
    assert find_root_to_inherit(DatasetName("n/e/own/x"), keys, None) == "n/e/own"
    assert find_root_to_inherit(DatasetName("n/plain"), keys, None) is None
    inherited = keys | {"n/e/c": key("n/e")}
    assert find_root_to_inherit(DatasetName("n/e/c"), inherited, None) is None, "it does already"


CHILD = DatasetName("n/r/c")


def test_of_another_key_only_the_record_tells() -> None:
    keys = {
        "n/r": key("n/r", "0", "raw", "file:///k"),
        "n/r/c": key("n/r/c", "0", "raw"),
        "n/r/c/d": key("n/r/c/d", "0", "raw"),
    }
    assert find_root_to_inherit(CHILD, keys, None) is None
    assert find_root_to_inherit(CHILD, keys, SourceProperties()) is None, (
        "a record from before it was encrypted"
    )
    assert find_root_to_inherit(CHILD, keys, SourceProperties({}, 0)) is None
    assert find_root_to_inherit(CHILD, keys, SourceProperties({}, 1)) == "n/r"
    assert find_root_to_inherit(DatasetName("n/r/c/d"), keys, SourceProperties({}, 2)) == "n/r"
    assert find_root_to_inherit(DatasetName("n/r/c/d"), keys, SourceProperties({}, 9)) is None, (
        "it was not restored with it"
    )
    assert not has_same_key("n/r/c", "n/r", keys)
    assert list_inherit_commands("n/r/c", keys["n/r"]) == [
        "zfs load-key -L file:///k n/r/c",
        "zfs change-key -i n/r/c",
    ]
    assert list_inherit_commands("n/r/c", key("n/r"))[0] == "zfs load-key n/r/c"
