"""Samples that meet everything in the end, what counts as different, and proofs that read back."""

from itertools import islice, pairwise

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.dates import CLOCK_TOLERANCE
from zvault.core.integrity.verification import (
    HASHED_PIECE,
    KEY_SPACE,
    LEAST_FILES,
    ContentDifference,
    ContentRange,
    KeyRange,
    KeySpread,
    LevelProof,
    TreeEntry,
    VerificationFindings,
    cut_content_ranges,
    describe_proof_age,
    escape_path,
    list_hash_differences,
    list_trait_differences,
    make_mismatch_error,
    measure_overdue,
    parse_proof,
    select_content_ranges,
    select_sample_keys,
)

NUMBERS = st.integers(0, 2**48)
GUIDS = st.integers(0, 2**64 - 1)


def file(number: int, size: int = 10, path: bytes = b"", **traits: str) -> TreeEntry:
    own = {"mode": "644", "owner": "0:0", "mtime": "1.0", "kind": "f"} | traits
    return TreeEntry(
        number, own["kind"], own["mode"], own["owner"], size, own["mtime"], path or b"%d" % number
    )


@given(
    GUIDS, st.integers(0, KEY_SPACE - 1), st.floats(0.001, 1.0), st.lists(NUMBERS, max_size=50, unique=True)
)
def test_samples_that_follow_each_other_meet_every_file_once_in_a_turn(seed, start, share, numbers):
    mix, met, turned = KeySpread.of(seed), [], 0
    files = [file(number) for number in numbers]
    while turned < KEY_SPACE:
        keys = select_sample_keys(start, share, files=10**9, bytes_=0, budget=None)
        keys = KeyRange(keys.start, min(keys.length, KEY_SPACE - turned))
        met += [piece.path for piece in select_content_ranges(files, mix, keys)]
        turned, start = turned + keys.length, keys.end
    assert sorted(met) == sorted(one.path for one in files)


@given(GUIDS)
def test_neighbours_are_spread_evenly(seed):
    mix, keys = KeySpread.of(seed), KeyRange(0, KEY_SPACE // 10)
    found = [mix.key(number) for number in range(KEY_SPACE)]
    assert len(set(found)) == KEY_SPACE
    assert sum(map(keys.has, found)) == keys.length


@given(st.integers(0, KEY_SPACE - 1), st.integers(1, KEY_SPACE), st.integers(1, 40))
def test_the_parts_of_a_range_are_the_range(start, length, count):
    keys = KeyRange(start, length)
    parts = list(keys.parts(count))
    assert sum(part.length for part in parts) == length
    assert parts[0].start == start
    assert parts[-1].end == keys.end
    assert all(one.end == other.start for one, other in pairwise(parts))
    assert len(parts) <= count


def test_a_sample_has_its_share_but_no_less_than_some_files_and_no_more_than_the_budget():
    assert select_sample_keys(5, 0.01, files=10**6, bytes_=10**12, budget=None) == KeyRange(
        5, round(KEY_SPACE / 100)
    )
    assert select_sample_keys(0, 0.01, files=2 * LEAST_FILES, bytes_=1, budget=None).length == KEY_SPACE // 2
    assert select_sample_keys(0, 0.5, files=10**6, bytes_=10**12, budget=10**9).length == round(
        KEY_SPACE / 1000
    )
    assert select_sample_keys(0, 1.0, files=1, bytes_=1, budget=None) == KeyRange()
    assert select_sample_keys(0, 0.01, files=10**6, bytes_=10**15, budget=1).length == 1


@given(st.integers(1, 20 * HASHED_PIECE))
def test_a_large_file_is_cut_into_pieces_without_a_gap(size):
    whole = [*cut_content_ranges(b"x", size, KeySpread.of(9), KeyRange(), 17)]
    assert sum(one.size for one in whole) == size
    assert [one.offset for one in whole] == [HASHED_PIECE * index for index in range(len(whole))]
    some = [*select_content_ranges([file(17, size, b"x")], KeySpread.of(9), KeyRange())]
    assert some == (whole if size > HASHED_PIECE else [ContentRange(b"x", size)])


def test_small_files_come_first_and_a_file_of_any_size_makes_no_list():
    """8 EiB of nothing took the event loop for hours."""
    files = [file(1, 1 << 63, b"hole"), file(2, 10, b"small")]
    some = select_content_ranges(files, KeySpread.of(9), KeyRange())
    assert [one.path for one in islice(some, 3)] == [b"small", b"hole", b"hole"]


def test_what_cannot_be_read_on_either_side_is_no_success():
    one, other, third = (ContentRange(name, 1) for name in (b"a", b"b", b"c"))
    found = list_hash_differences(
        "tank", [one, other, third], {one: "1", other: "2"}, {one: "1", other: "3", third: "4"}
    )
    assert found == [ContentDifference("tank", "b", "2", "3"), ContentDifference("tank", "c", None, "4")]
    assert str(found[1]) == "tank: c: source cannot be read, vault 4"
    assert list_hash_differences("tank", [third], {}, {}) == [ContentDifference("tank", "c", None, None)]


def test_traits_count_and_folders_have_no_size():
    mine = [file(1, path=b"a"), file(2, 5, b"d", kind="d"), file(3, path=b"gone")]
    its = [file(1, path=b"a", mode="600"), file(2, 9, b"d", kind="d")]
    assert [(one.path, one.source, one.vault) for one in list_trait_differences("tank", mine, its)] == [
        ("a", "a file, mode 644, 0:0, 10 bytes", "a file, mode 600, 0:0, 10 bytes"),
        ("gone", "a file, mode 644, 0:0, 10 bytes", "nothing"),
    ]


@given(st.binary())
def test_any_name_is_shown_on_one_line(name):
    assert escape_path(name).isprintable() or not name


def test_names_that_differ_are_shown_so():
    names = [b"a\nb", b"a\\nb", b"a\\\nb", b"\xff", b"\\xff", "ü".encode(), b"\xfc"]
    assert [escape_path(name) for name in names] == [
        r"a\nb", r"a\\nb", r"a\\\nb", r"\xff", r"\\xff", "ü", r"\xfc",
    ]  # fmt: skip


@given(
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.sampled_from(["", "ok", "differs", "nothing"]),
    st.integers(0, KEY_SPACE - 1),
)
def test_a_proof_reads_back(proven, tried, result, at):
    proof = LevelProof(proven, tried, result, at, tried)
    assert parse_proof(str(proof)) == proof


def test_a_proof_that_fails_stays_as_old_as_it_was():
    proof = LevelProof().after(100.0, "ok", 7).after(200.0, "differs")
    assert (proof.proven, proof.tried, proof.result, proof.at, proof.since) == (100, 200, "differs", 7, 100)
    assert parse_proof("- nonsense at=x") == LevelProof()
    assert parse_proof(f"proven={'9' * 5000} tried={'9' * 21} result=ok") == LevelProof(result="ok")
    assert describe_proof_age(proof.proven, 100 + 3 * 86400.0 + 7200) == "last proven 3d 2h ago"
    assert describe_proof_age(None, 0) == "never proven"


def test_a_try_takes_the_place_of_dates_that_are_later_than_now():
    ahead = LevelProof(proven=10**9, tried=10**9, result="ok", at=7, since=10**9)
    assert ahead.after(500.0, "ok") == LevelProof(500, 500, "ok", 7, 500)
    assert ahead.after(500.0, "nothing") == LevelProof(None, 500, "nothing", 7, 500)
    little = LevelProof(proven=700, tried=700, result="ok", since=700)
    assert little.after(500.0, "nothing") == LevelProof(700, 500, "nothing", 0, 700), (
        "clocks differ by little"
    )


times = st.none() | st.integers(0, 2 * 10**9)


@given(times, times, times, st.integers(0, 2 * 10**9), st.sampled_from(["ok", "differs", "nothing"]))
def test_no_date_is_later_than_the_try_that_was_last(proven, tried, since, now, result):
    after = LevelProof(proven, tried, "ok", 0, since).after(float(now), result)
    assert after.tried == now
    assert all(date <= now + CLOCK_TOLERANCE for date in (after.proven, after.since) if date is not None)
    assert after.since is not None
    if proven is not None and proven <= now:
        assert after.proven == (now if result == "ok" else proven)


def test_a_level_is_due_when_its_last_try_is_that_old():
    assert measure_overdue(LevelProof(), None, 0, 1e9) is None
    assert measure_overdue(LevelProof(), 100, 50, 149) == -1
    assert measure_overdue(LevelProof(tried=100), 100, 0, 250) == 50
    assert measure_overdue(LevelProof(tried=700), 100, 0, 500) == -100, "clocks differ by little"
    assert measure_overdue(LevelProof(tried=10**9), 100, 0, 500) == 0, (
        "a try in the future says nothing, and puts nothing off"
    )
    assert measure_overdue(LevelProof(), 100, 10**9, 500) == 0
    assert describe_proof_age(10**9, 500) == "last proven at a time later than now"


def test_differences_are_counted_beyond_those_kept_and_the_first_are_told():
    found = VerificationFindings(datasets=1)
    some = [ContentDifference("tank", str(n), "1", "2") for n in range(5)]
    assert found.add(some, most=3) == some[:3]
    assert (found.result, found.more) == ("differs", 2)
    error = make_mismatch_error("tank", "cold", "full", found)
    assert "found 5 differences" in error.what
    assert "tank: 0: source 1, vault 2" in error.why
    assert error.why.endswith("and 2 more")
    assert VerificationFindings().result == "nothing"
