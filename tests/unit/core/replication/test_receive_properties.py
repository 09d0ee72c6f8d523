"""What a backup chooses of its vault's properties comes into force there, and what it no longer chooses goes again."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.replication.receive_properties import (
    KEEP_OUT,
    RULED_PROPERTIES,
    SETTABLE_PROPERTIES,
    VOLUME_KEEP_OUT,
    ReceiveProperties,
    check_receive_property,
    format_property_words,
    list_excluded_properties,
    list_named_properties,
    normalize_receive_value,
    parse_property_words,
    plan_property_changes,
)

USER = "org.example:note"


@pytest.mark.parametrize("name", sorted(RULED_PROPERTIES))
@pytest.mark.parametrize("leave_out", [True, False])
def test_what_zvault_rules_nobody_else_does(name: str, leave_out: bool) -> None:
    with pytest.raises(ValueError, match=f"'{name}' is not a backup's to say: [a-z]"):
        check_receive_property(name, leave_out=leave_out)


def test_what_is_kept_out_may_be_set_or_is_ruled_and_is_left_out_anyway() -> None:
    for name in {*KEEP_OUT, *VOLUME_KEEP_OUT}:
        assert (name in SETTABLE_PROPERTIES) != (name in RULED_PROPERTIES), name
        with pytest.raises(ValueError, match=r"not a backup's|nothing to leave out"):
            check_receive_property(name, leave_out=True)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("compress", "short for 'compression'"),
        ("org.zvault:sent", "a property of zvault's own"),
        ("used", "no property that a backup may set"),
        ("Org.example:x", "no name of a user property"),
        ("compression=lz4 -o mountpoint", "no property"),
        ("-o", "no property"),
    ],
)
def test_other_names(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_receive_property(name)


@pytest.mark.parametrize(
    ("name", "value", "stored"),
    [
        ("recordsize", "1M", "1048576"),
        ("recordsize", "131072", "131072"),
        ("special_small_blocks", "0", "0"),
        ("special_small_blocks", "64K", "65536"),
        ("compression", "zstd-19", "zstd-19"),
        ("dedup", "sha256,verify", "sha256,verify"),
        (USER, "two words", "two words"),
    ],
)
def test_values_as_zfs_prints_them(name: str, value: str, stored: str) -> None:
    assert normalize_receive_value(name, value) == stored
    assert normalize_receive_value(name, stored) == stored


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recordsize", "100K"),
        ("recordsize", "32M"),
        ("recordsize", "256"),
        ("recordsize", "0"),
        ("compression", "zstd-20"),
        ("compression", "LZ4"),
        ("copies", "3"),
        ("sync", ""),
        ("xattr", "on"),
        (USER, ""),
        (USER, "two\nlines"),
        (USER, "a\ttab"),
        (USER, "x" * 8192),
    ],
)
def test_values_that_are_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        normalize_receive_value(name, value)


def test_a_volume_gets_what_it_can_have() -> None:
    own = ReceiveProperties({"atime": "off", "sync": "always", USER: "x"}, ("recordsize", "compression"))
    assert own.to_set("filesystem").keys() == {"atime", "sync", USER}
    assert own.to_set("volume").keys() == {"sync", USER}
    assert own.to_leave_out("volume") == ("compression",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mountpoint readonly",
        "org.zvault:sent",
        "-r",
        "--",
        "-checksum",
        "compression=off",
        "\x00",
        "canmount\tatime=",
    ],
)
def test_a_record_names_nothing_that_no_backup_may_set(text: str) -> None:
    assert parse_property_words(text) == frozenset()


NAMES = ["atime", "checksum", "compression", "sync", USER, "recordsize"]
VALUES = {
    "atime": ["on", "off"],
    "checksum": ["on", "sha256"],
    "compression": ["lz4", "zstd"],
    "sync": ["standard", "always"],
    USER: ["a", "b"],
    "recordsize": ["131072", "1048576"],
}


@dataclass
class Zfs:
    """A dataset's properties in ZFS: what a stream brought, what is set, and what is inherited all the same."""

    received: dict[str, str] = field(default_factory=dict)
    local: dict[str, str] = field(default_factory=dict)
    inherited: set[str] = field(default_factory=set)
    noted: str = ""

    def receive(self, sent: dict[str, str], own: ReceiveProperties, kind: str) -> None:
        self.received = dict(sent)
        for name in (*list_excluded_properties(kind), *own.to_leave_out(kind)):
            if name not in self.local:
                self.inherited.add(name)
        for name, value in own.to_set(kind).items():
            self.local[name] = value
        self.noted = format_property_words(own.words(kind) | parse_property_words(self.noted))

    def source(self, name: str) -> tuple[str, str]:
        if name in self.local:
            return self.local[name], "local"
        if name in self.received and name not in self.inherited:
            return self.received[name], "received"
        return "default", "default"

    def change(self, own: ReceiveProperties, kind: str) -> bool:
        there = {
            name: self.source(name)
            for name in list_named_properties(own.words(kind) | parse_property_words(self.noted))
        }
        change = plan_property_changes(own, kind, there, self.noted)
        self.local |= change.put
        self.inherited -= change.put.keys()
        for name in change.inherit:
            self.local.pop(name, None)
            self.inherited.add(name)
        for name in change.revert:
            self.local.pop(name, None)
            self.inherited.discard(name)
        self.noted = change.final
        return bool(change)


@st.composite
def tables(draw: st.DrawFn) -> ReceiveProperties:
    values = draw(st.fixed_dictionaries({}, optional={name: st.sampled_from(VALUES[name]) for name in NAMES}))
    free = [name for name in NAMES if name not in values and name not in KEEP_OUT]
    return ReceiveProperties(
        values, tuple(draw(st.lists(st.sampled_from(free), unique=True)) if free else ())
    )


SENT = st.fixed_dictionaries({}, optional={name: st.sampled_from(VALUES[name]) for name in NAMES})


@given(
    st.sampled_from(["filesystem", "volume"]),
    st.lists(st.tuples(st.booleans(), tables(), SENT), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from(NAMES), st.just("admin")),
)
def test_however_it_was_before_a_run_leaves_it_as_it_is_said_now(
    kind: str, steps: list[tuple[bool, ReceiveProperties, dict[str, str]]], admin: dict[str, str]
) -> None:
    there = Zfs(local=dict(admin))
    ever: set[str] = set()
    for streams, own, sent in steps:
        if streams:
            there.receive(sent, own, kind)
        there.change(own, kind)
        ever |= own.to_set(kind).keys()
        for name in NAMES:
            value, source = there.source(name)
            if name in own.to_set(kind):
                assert (value, source) == (own.values[name], "local")
            elif name in own.to_leave_out(kind):
                assert source != "received"
            elif name in list_excluded_properties(kind):
                assert source != "received", "a source decides what the vault rules"
            elif name in ever:
                assert source != "local", "what was said before is gone"
            elif name not in admin:
                assert source == ("received" if name in there.received else "default")
            if name in admin and name not in ever:
                assert value == "admin", "what the vault's administrator set stays"
        assert not there.change(own, kind), "twice is once"


@given(tables(), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["default", "received", "local"])))
def test_what_was_not_on_record_and_is_not_chosen_is_not_touched(
    own: ReceiveProperties, sources: dict[str, str]
) -> None:
    change = plan_property_changes(
        own, "filesystem", {name: ("x", source) for name, source in sources.items()}, ""
    )
    touched = set(itertools.chain(change.put, change.inherit, change.revert))
    assert touched <= list_named_properties(own.words("filesystem"))
