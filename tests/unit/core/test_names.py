import string
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zvault.core.name_rules import (
    check_dataset_name,
    check_pattern,
    check_target_template,
    check_word,
    find_exclusion,
    list_missing,
    make_vault_dataset,
)
from zvault.core.names import DatasetName, make_snapname, parse_snapname, parse_snapname_time

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
parts = st.text(string.ascii_letters + string.digits + "-_.: ", min_size=1, max_size=8).filter(
    lambda part: part not in {".", ".."}
)
datasets = st.tuples(st.sampled_from(["tank", "Pool-2"]), st.lists(parts, max_size=4)).map(
    lambda drawn: "/".join((drawn[0], *drawn[1]))
)


# Snapnames


def test_a_snapname_is_the_prefix_and_the_utc_time() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    assert make_snapname("zvault", datetime(2026, 11, 21, 10, tzinfo=berlin)) == "zvault_2026-11-21T09:00:00Z"
    assert make_snapname("zv", datetime(2026, 11, 21, 9, 0, 1, 999999, UTC)) == "zv_2026-11-21T09:00:01Z"


def test_a_snapname_needs_to_know_the_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        make_snapname("zvault", datetime(2026, 11, 21, 9))


@given(
    words,
    st.datetimes(
        min_value=datetime(1, 1, 3),
        max_value=datetime(9999, 12, 29),
        timezones=st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
    ),
)
def test_a_snapname_reads_back_to_the_second(prefix: str, when: datetime) -> None:
    snapname = make_snapname(prefix, when)
    back = parse_snapname(prefix, snapname)
    assert back == when.replace(microsecond=0)
    assert back is not None
    assert back.utcoffset() == timedelta(0)
    assert make_snapname(prefix, back) == snapname


def test_both_hours_of_an_autumn_night_have_snapnames_of_their_own() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    snapnames = [
        make_snapname("z", datetime(2026, 10, 25, 2, 30, tzinfo=berlin, fold=fold)) for fold in (0, 1)
    ]
    assert snapnames == ["z_2026-10-25T00:30:00Z", "z_2026-10-25T01:30:00Z"]


@pytest.mark.parametrize(
    "snapname",
    [
        "",
        "zvault",
        "zvault_",
        "manual",
        "2026-11-21T09:00:00Z",
        "other_2026-11-21T09:00:00Z",
        "Zvault_2026-11-21T09:00:00Z",
        "zvault-2026-11-21T09:00:00Z",
        "zvault_2026-11-21T09:00:00",
        "zvault_2026-11-21T09:00:00z",
        "zvault_2026-11-21T09:00:00Z ",
        "zvault_2026-11-21T09:00:00Z\n",
        "zvault_2026-11-21 09:00:00Z",
        "zvault_2026-11-21T09:00:00.5Z",
        "zvault_2026-11-21T09:00:00+00:00",
        "zvault_2026-W47-6T09:00:00Z",
        "zvault_20261121T090000Z",
        "zvault_2026-02-30T09:00:00Z",
        "zvault_2026-11-21T24:00:00Z",
        "zvault_0000-11-21T09:00:00Z",
        "zvault_\u0662026-11-21T09:00:00Z",
        "zvault_zvault_2026-11-21T09:00:00Z",
    ],
)
def test_only_the_exact_form_is_ours(snapname: str) -> None:
    assert parse_snapname("zvault", snapname) is None


def test_a_prefix_that_begins_another_is_not_taken_for_it() -> None:
    assert parse_snapname("z", "z_daily_2026-11-21T09:00:00Z") is None
    assert parse_snapname("z_daily", "z_daily_2026-11-21T09:00:00Z") is not None


@given(words, st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC)))
def test_the_time_in_a_snapname_is_told_whatever_its_prefix(prefix: str, when: datetime) -> None:
    assert parse_snapname_time(make_snapname(prefix, when)) == int(when.replace(microsecond=0).timestamp())


@pytest.mark.parametrize(
    "snapname",
    [
        "manual",
        "2026-11-21T09:00:00Z",
        "_2026-11-21T09:00:00Z",
        "zvault_2026-02-30T09:00:00Z",
        "zvault_2026-11-21T09:00:00",
        "zvault_2026-11-21T09:00:00Z_weekly",
        "autosnap_2026-11-21_09:00:00_hourly",
        "zvault_1969-12-31T23:59:59Z",
        "zvault_9999-12-31T23:59:59Z",
        "zvault_0000-01-01T00:00:00Z",
    ],
)
def test_a_snapname_that_only_looks_like_a_time_tells_none(snapname: str) -> None:
    assert parse_snapname_time(snapname) is None


# Words and dataset names


@given(words)
def test_words(word: str) -> None:
    check_word(word)


@pytest.mark.parametrize("word", ["", "_a", "-a", ".a", "a b", "a/b", "a@b", "ä", "a\n", "x" * 65])
def test_what_is_no_word_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="vault name"):
        check_word(word, "vault name")


@given(datasets)
def test_dataset_names(name: str) -> None:
    check_dataset_name(name)


@pytest.mark.parametrize(
    "name", ["tank", "tank/my data", "tank/a:b_c.d-e", "tank/ ", "t" * 255, "tank/...", "T/x"]
)
def test_odd_dataset_names_that_zfs_allows(name: str) -> None:
    check_dataset_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("", "is empty"),
        ("/tank", "begins with '/'"),
        ("tank/", "ends with '/'"),
        ("tank//a", "an empty part at character 6"),
        ("tank/./a", r"part '\.' at character 6"),
        ("tank/a/..", r"part '\.\.' at character 8"),
        ("tank/müsli", "'ü' at character 7"),
        ("tank/a%b", "'%' at character 7"),
        ("tank/a\n", r"'\\n' at character 7"),
        ("tank/a@b", "'@' at character 7: that names a snapshot"),
        ("tank/a#b", "names a bookmark"),
        ("1tank/a", "begins with '1'"),
        (" tank", "begins with ' '"),
        ("t" * 256, "256 characters"),
    ],
)
def test_a_bad_dataset_name_is_refused_with_the_place(name: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        check_dataset_name(name)


# Where a dataset goes on a vault


@pytest.mark.parametrize(
    ("into", "name"),
    [
        ("{host}/{dataset}", "cold/filer1/tank/a b"),
        ("{dataset}", "cold/tank/a b"),
        ("backup/{host}/{pool}/{dataset}", "cold/backup/filer1/tank/tank/a b"),
        ("{host}-{dataset}", "cold/filer1-tank/a b"),
    ],
)
def test_into(into: str, name: str) -> None:
    check_target_template(into)
    assert make_vault_dataset(into, "cold", "filer1", DatasetName("tank/a b")) == name


@pytest.mark.parametrize(
    ("into", "hint"),
    [
        ("", "must end"),
        ("{host}", "must end"),
        ("backups", "must end"),
        ("{dataset}/copy", "must end"),
        ("{dataset}/{dataset}", "only"),
        ("/{host}/{dataset}", "begins with '/'"),
        ("{host}//{dataset}", "empty part"),
        ("{host}/{dataset}/", "must end"),
        ("{hots}/{dataset}", "has {hots}; known are {host}, {dataset}, {path}, {pool}"),
        ("{}/{dataset}", "has {}"),
        ("{host.x}/{dataset}", "has {host.x}"),
        ("{host!r}/{dataset}", "has {host!r}"),
        ("{host:>9}/{dataset}", "has {host:>9}"),
        ("{host/{dataset}", "into = "),
        ("{host}}/{dataset}", "into = "),
        ("{{x}}/{dataset}", "'{' at character 1"),
        ("ü/{dataset}", "'ü' at character 1"),
        ("a@b/{dataset}", "snapshot"),
        ("{path}", "must end"),
        ("a{path}", "must end"),
        ("/{path}", "begins with '/'"),
        ("{path}/{dataset}", "only"),
        ("a/{path}/{path}", "only"),
    ],
)
def test_a_bad_into_is_refused(into: str, hint: str) -> None:
    with pytest.raises(ValueError, match="into = ") as caught:
        check_target_template(into)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    ("dataset", "name"),
    [
        ("tank/data", "cold/a/tank"),
        ("tank/data/home", "cold/a/tank/home"),
        ("tank/data/x/y", "cold/a/tank/x/y"),
    ],
)
def test_into_by_the_way_from_the_source(dataset: str, name: str) -> None:
    check_target_template("a/{pool}/{path}")
    source = DatasetName("tank/data")
    assert make_vault_dataset("a/{pool}/{path}", "cold", "h", DatasetName(dataset), source) == name


@given(datasets, datasets, st.sampled_from(["{host}/{dataset}", "{dataset}", "a/{pool}/{host}-{dataset}"]))
def test_datasets_stay_apart_and_children_below_their_parents(one: str, other: str, into: str) -> None:
    check_target_template(into)
    there, other_there = (make_vault_dataset(into, "cold", "h", DatasetName(name)) for name in (one, other))
    assert (there == other_there) == (one == other)
    assert there.startswith(f"{other_there}/") == one.startswith(f"{other}/")


def test_a_name_that_does_not_fit_on_the_vault_is_refused() -> None:
    with pytest.raises(ValueError, match="261 characters"):
        make_vault_dataset("{dataset}", "vault", "h", DatasetName("t" * 255))
    with pytest.raises(ValueError, match="host name 'a/b'"):
        make_vault_dataset("{host}/{dataset}", "cold", "a/b", DatasetName("tank"))
    with pytest.raises(ValueError, match="'ß'"):
        make_vault_dataset("{host}/{dataset}", "cold", "straße", DatasetName("tank"))


# Exclusion


@pytest.mark.parametrize(
    ("pattern", "matches", "misses"),
    [
        ("tank/scratch", ["tank/scratch"], ["tank", "tank/scratch/a", "tank/scratch2", "a/tank/scratch"]),
        ("tank/scratch/**", ["tank/scratch/a", "tank/scratch/a/b"], ["tank/scratch", "tank/scratch2/a"]),
        ("tank/*", ["tank/a", "tank/b c"], ["tank", "tank/a/b"]),
        ("tank/tmp*", ["tank/tmp", "tank/tmp.1"], ["tank/tm", "tank/tmp/a", "tank/atmp"]),
        ("tank/v?", ["tank/v1"], ["tank/v", "tank/v12", "tank/v/"]),
        ("*/tmp", ["tank/tmp"], ["tmp", "tank/a/tmp"]),
        ("**/tmp", ["tmp", "tank/tmp", "tank/a/b/tmp"], ["tank/atmp", "tank/tmp/a"]),
        ("tank/**/tmp", ["tank/tmp", "tank/a/tmp", "tank/a/b/tmp"], ["tmp", "tank/tmp/a"]),
        ("**", ["tank", "tank/a/b"], []),
        ("**/**", ["tank", "tank/a"], []),
        ("tank/a.c", ["tank/a.c"], ["tank/abc"]),
        ("tank/*/x/**", ["tank/a/x/b"], ["tank/a/x", "tank/a/b/x/c"]),
    ],
)
def test_patterns(pattern: str, matches: list[str], misses: list[str]) -> None:
    check_pattern(pattern)
    assert [find_exclusion(name, [pattern]) for name in matches] == [pattern] * len(matches)
    assert [find_exclusion(name, [pattern]) for name in misses] == [None] * len(misses)


def test_the_first_pattern_that_matches_is_named() -> None:
    assert find_exclusion("tank/a", ["other/**", "tank/*", "tank/a"]) == "tank/*"
    assert find_exclusion("tank/a", []) is None


@pytest.mark.parametrize(
    "pattern", ["", "/tank", "tank/", "tank//a", "tank/a**", "***", "tank/ü", "tank@a", "[ab]"]
)
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="the pattern"):
        check_pattern(pattern)


def brute_match(name: list[str], pattern: list[str]) -> bool:
    if not pattern:
        return not name
    if pattern[0] == "**":
        least = 1 if len(pattern) == 1 else 0
        return any(brute_match(name[taken:], pattern[1:]) for taken in range(least, len(name) + 1))
    return bool(name) and brute_part(name[0], pattern[0]) and brute_match(name[1:], pattern[1:])


def brute_part(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return any(brute_part(text[taken:], pattern[1:]) for taken in range(len(text) + 1))
    return bool(text) and pattern[0] in {text[0], "?"} and brute_part(text[1:], pattern[1:])


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=4),
    st.lists(
        st.one_of(
            st.just("**"), st.text("ab*?", min_size=1, max_size=3).filter(lambda part: "**" not in part)
        ),
        min_size=1,
        max_size=4,
    ),
)
def test_patterns_agree_with_a_brute_force(name: list[str], pattern: list[str]) -> None:
    check_pattern("/".join(pattern))
    assert (find_exclusion("/".join(name), ["/".join(pattern)]) is not None) == brute_match(name, pattern)


def test_what_patterns_name_and_is_not_there():
    there = {"tank", "tank/home", "tank/home/me"}
    assert (
        list_missing(["tank/home", "tank/home/**", "tank/home/m*", "tank/*/x", "**/mail", "*"], there) == []
    )
    missing = list_missing(["tank/hom", "tank/hom/**", "tank/vm/*/disk", "tank/home/me/a?"], there)
    assert missing == ["tank/hom", "tank/vm"]


@given(st.lists(st.sampled_from(["tank", "a", "b*", "**", "?"]), min_size=1, max_size=4).map("/".join))
def test_what_a_pattern_matches_is_never_missing(pattern):
    names = {"/".join(parts) for n in (1, 2, 3, 4) for parts in product(("tank", "a", "bc"), repeat=n)}
    if any(find_exclusion(name, [pattern]) for name in names):
        assert list_missing([pattern], names) == []
