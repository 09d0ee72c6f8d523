"""zvault's block store as the configuration names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from zvault.config.device_specs.blockstore import BlockstoreServer, parse_blockstore, parse_store_words
from zvault.config.device_specs.nbd import parse_nbd
from zvault.config.schema import Config
from zvault.config.tables.device import LEASE_BOUND, Device
from zvault.core.policy.object_lock import ObjectLock
from zvault.core.policy.retention import KeepRules

TEXT = "zvault:zv/vaults/cold size=10T mode=writeback journal=/srv/j cache=/srv/c cache-size=20G"


def spec(text: str) -> BlockstoreServer:
    found = parse_nbd(text)
    assert isinstance(found, BlockstoreServer)
    return found


def test_a_server_is_read_and_written_alike():
    found = spec(TEXT)
    assert (found.bucket, found.key) == ("zv", "vaults/cold")
    assert str(found) == TEXT
    assert spec(str(found)) == found
    assert (found.size, found.mode, found.journal, found.journal_size) == (
        10 << 40,
        "writeback",
        "/srv/j",
        8 << 30,
    )
    assert (found.cache, found.cache_size) == ("/srv/c", 20 << 30)


def test_what_is_left_out():
    found = spec("zvault:zv/cold")
    assert (found.size, found.mode, found.journal, found.journal_size) == (None, "strict", None, 256 << 20)
    assert (found.cache, found.cache_size, found.memory, found.uploads) == (None, 0, 256 << 20, 4)
    assert (found.endpoint, found.requests, found.bandwidth("upload"), found.folders) == (
        None,
        None,
        None,
        {},
    )


def test_budgets_are_taken_as_people_write_them():
    found = spec("zvault:zv/cold requests=100/s upload=20M download=1G/s uploads=16")
    assert (found.requests, found.bandwidth("upload"), found.bandwidth("download"), found.uploads) == (
        100.0,
        20 << 20,
        1 << 30,
        16,
    )
    assert spec("zvault:zv/cold requests=2.5").requests == 2.5


@pytest.mark.parametrize(
    ("rest", "why"),
    [
        ("", "names no bucket and key, as in zvault:attic/cold"),
        ("zv", "names no bucket and key"),
        ("zv/", "names no bucket and key"),
        ("zv//cold", "names no bucket and key"),
        ("zv/a//b", "names no bucket and key"),
        ("size=1T zv/cold", "names no bucket and key"),
        ("zv/cold 'size=1T", "cannot be split"),
        ("zv/cold size=lots", "size must be a size, as in size=10T"),
        ("zv/cold size=1048577", "multiple of 4K"),
        ("zv/cold size=4K", "size must be at least 1M"),
        ("zv/cold sizes=1T", '"sizes" is no setting of the block store; did you mean size='),
        ("zv/cold journal_size=1G", "did you mean journal-size="),
        ("zv/cold bogus=1", '"bogus" is no setting of the block store; there are cache, cache-size'),
        ("zv/cold size", "size has no value, as in size=10T"),
        ("zv/cold size=1T size=2T", "size= stands there twice"),
        ("zv/cold mode=writback", 'mode must be strict or writeback, not writback; did you mean "writeback"'),
        ("zv/cold mode=writeback", "mode=writeback needs journal=/path"),
        ("zv/cold mode=writeback journal=j", "journal must be an absolute path"),
        ("zv/cold journal=/", "journal must be an absolute path"),
        ("zv/cold journal-size=1M", "journal-size must be at least 64M"),
        ("zv/cold cache=/c", "add cache-size=20G"),
        ("zv/cold cache-size=20G", "add cache=/var"),
        ("zv/cold cache=/c/ cache-size=20G journal=/c", "folders apart"),
        ("zv/cold cache=/c/x cache-size=20G journal=/c", "folders apart"),
        ("zv/cold endpoint=s3.example.org", "endpoint must be https://host"),
        ("zv/cold endpoint=https://key:hunter2@s3.example.org", "endpoint must be https://host"),
        ("zv/cold endpoint=https://s3.example.org/zv", "nothing more"),
        ("zv/cold endpoint=http://h:99999", "endpoint must be https://host"),
        ("zv/cold style=virtuel", 'did you mean "virtual"'),
        ("zv/cold uploads=0", "uploads must be a whole number from 1 to 64"),
        ("zv/cold uploads=²", "uploads must be a whole number"),
        ("zv/cold requests=0", "requests must be requests a second"),
        ("zv/cold requests=many/s", "requests must be requests a second"),
        ("zv/cold upload=1", "upload must be bytes a second"),
        ("zv/cold sse=aes", "sse must be AES256 or aws:kms"),
        ("zv/cold sse=AES256 sse-kms-key-id=abc", "needs sse=aws:kms"),
        ("zv/cold credential=../x", "credential must be a word"),
        ("zv/cold credential=zvault.s3 keys=/etc/k", "both name the keys"),
        ("zv/cold secret-key=hunter2", "would show the secret in the process list.*keys=/etc/zvault/s3.keys"),
        ("zv/cold secret_access_key=hunter2", "would show the secret"),
        ("zv/cold access-key=hunter2", "would show the secret"),
    ],
)
def test_what_is_wrong_is_told(rest: str, why: str):
    with pytest.raises(ValueError, match=why) as caught:
        parse_nbd(f"zvault:{rest}")
    assert "hunter2" not in str(caught.value)


def test_the_server_is_told_the_same():
    found = spec(TEXT)
    assert parse_store_words([f"bucket={found.bucket}", f"key={found.key}", *found.settings]) == found


@given(st.text(max_size=60))
def test_any_text_is_a_server_or_a_reason(text: str):
    try:
        found = parse_blockstore(text)
    except ValueError as error:
        assert str(error)  # noqa: PT017 - either is right
    else:
        assert spec(str(found)) == found


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("zvault:zv/cold size=1T", "zvault:zv/cold/ mode=strict", True),
        ("zvault:zv/cold endpoint=https://H:9/", "zvault:zv/cold endpoint=https://h:9", True),
        ("zvault:zv/cold", "zvault:zv/hot", False),
        ("zvault:zv/cold", "zvault:zv/cold endpoint=https://h", False),
    ],
)
def test_what_is_the_same_store(one: str, other: str, same: bool):
    assert (spec(one).identity == spec(other).identity) == same


def test_it_has_a_lease_and_a_size_of_its_own():
    device = Device.model_validate({"nbd": "zvault:zv/cold size=1T"})
    assert device.lease_bound == LEASE_BOUND
    assert Device.model_validate({"nbd": "zvault:zv/cold", "lease": "1m"}).lease_bound == 60.0
    assert Device.model_validate({"nbd": "zvault:zv/cold", "exclusive": False}).lease_bound is None
    with pytest.raises(ValidationError, match="write size=… in nbd"):
        Device.model_validate({"nbd": "zvault:zv/cold", "size": "1T"})


def test_a_vault_that_is_made_needs_its_size(problems: Callable[..., list[str]]):
    (told,) = problems(
        '[vault.cold]\npool = "cold"\ncreate = true\n[[vault.cold.device]]\nnbd = "zvault:zv/cold"\n'
    )
    assert "needs the size of device[0]: add size=10T to zvault:zv/cold" in told


TWO = """
[vault.cold]
pool = "cold"
[[vault.cold.device]]
nbd = "zvault:zv/cold {one}"
[vault.hot]
pool = "hot"
[[vault.hot.device]]
nbd = "zvault:zv/hot {other}"
"""


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        ("journal=/j", "journal=/j/", "journal=/j is shared with journal= of vault.cold.device[0].nbd"),
        ("journal=/j", "journal=/j/hot", "journal=/j/hot is shared with journal= of"),
        ("journal=/j/cold", "cache=/j cache-size=1G", "cache=/j is shared with journal= of"),
        ("cache=/c cache-size=1G", "cache=/c cache-size=1G", "cache=/c is shared with cache= of"),
    ],
)
def test_two_stores_have_folders_apart(problems: Callable[..., list[str]], one: str, other: str, told: str):
    (found,) = problems(TWO.format(one=one, other=other))
    assert "vault.hot.device[0].nbd" in found
    assert told in found


def test_folders_beside_each_other_are_right(good: Callable[..., Config]):
    config = good(TWO.format(one="journal=/j/cold", other="journal=/j/cold2 cache=/c cache-size=1G"))
    assert len(config.vault) == 2


def test_one_store_is_one_device(problems: Callable[..., list[str]]):
    text = TWO.format(one="journal=/j", other="").replace("zv/hot", "zv/cold")
    assert any("the same as vault.cold.device[0].nbd" in line for line in problems(text))


SLOW = """
[vault.cold]
pool = "cold"
[[vault.cold.device]]
nbd = "zvault:zv/cold {words}"
timeout = "{timeout}"
"""


def test_a_flush_that_takes_longer_than_the_device_lives_is_refused(problems: Callable[..., list[str]]):
    (told,) = problems(SLOW.format(words="upload=1M", timeout="90s"))
    assert "a flush may have 256M to put into the bucket, which takes 4m 16s with upload=1M" in told
    assert "journal-size=90M, or mode=writeback" in told
    (told,) = problems(SLOW.format(words="upload=100K", timeout="90s"))
    assert "journal-size=" not in told, "there is none so small"


@pytest.mark.parametrize(
    ("words", "timeout"),
    [
        ("upload=3M", "90s"),
        ("upload=1M", "280s"),
        ("upload=1M journal-size=90M", "90s"),
        ("upload=1M mode=writeback journal=/j", "90s"),
        ("", "10s"),
    ],
)
def test_one_that_is_in_time_is_right(good: Callable[..., Config], words: str, timeout: str):
    assert good(SLOW.format(words=words, timeout=timeout)).vault


def test_the_moments_that_are_kept():
    found = spec("zvault:zv/cold history=hourly:24,daily:30,monthly:6").history
    assert found == KeepRules(hourly=24, daily=30, monthly=6)
    assert spec("zvault:zv/cold").history is None
    assert spec("zvault:zv/cold history=none").history == KeepRules()


@pytest.mark.parametrize(
    "rules",
    ["hourly", "hourly:", "hourly:0", "hourly:-1", "hourly:1.5", "daily:1,daily:2", "nights:3", "x,", ","],
)
def test_rules_that_cannot_be(rules: str):
    with pytest.raises(ValueError, match=r"history is not right: .* as in history=hourly:24"):
        spec(f"zvault:zv/cold history={rules}")


def test_a_lock_and_who_removes():
    found = spec("zvault:zv/cold lock=compliance:30d gc=elsewhere lease-bucket=zv-lease")
    assert found.lock == ObjectLock("compliance", 30 * 86400.0)
    assert (found.gc_elsewhere, found.lease_bucket) == (True, "zv-lease")
    plain = spec("zvault:zv/cold")
    assert (plain.lock, plain.gc_elsewhere, plain.lease_bucket) == (None, False, "zv")
    assert not spec("zvault:zv/cold gc=here").gc_elsewhere


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("lock=compliance:30d", "needs lease-bucket=NAME"),
        ("lock=compliance:30d lease-bucket=zv", "lease-bucket=zv is the bucket that locks"),
        ("lock=forever:30d lease-bucket=l", '"forever" is no mode of a lock'),
        ("lock=compliance lease-bucket=l", '"" is no time'),
        ("lock=governance:1h lease-bucket=l", "for a day at least"),
        ("lock=governance:600w lease-bucket=l", "ten years at most"),
        ("gc=never", "gc must be here or elsewhere"),
    ],
)
def test_locks_that_are_not_right(words: str, told: str):
    with pytest.raises(ValueError, match=told):
        spec(f"zvault:zv/cold {words}")
