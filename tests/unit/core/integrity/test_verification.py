"""Samples that meet everything in the end, what counts as different, and proofs that read back."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from zvault.core.believed import TOLERANCE
from zvault.core.integrity.verification import (
    KEY_SPACE,
    LEAST_FILES,
    PIECE,
    ContentRange,
    Difference,
    Entry,
    Findings,
    KeyRange,
    KeySpread,
    Proof,
    aged,
    cut,
    differing,
    due,
    mismatch,
    parse_proof,
    pieces,
    sampled,
    shown,
    unlike,
)

NUMBERS = st.integers(0, 2**48)
GUIDS = st.integers(0, 2**64 - 1)


def file(number: int, size: int = 10, path: bytes = b"", **traits: str) -> Entry:
    own = {"mode": "644", "owner": "0:0", "mtime": "1.0", "kind": "f"} | traits
    return Entry(number, own["kind"], own["mode"], own["owner"], size, own["mtime"], path or b"%d" % number)


@given(
    GUIDS, st.integers(0, KEY_SPACE - 1), st.floats(0.001, 1.0), st.lists(NUMBERS, max_size=50, unique=True)
)
def test_samples_that_follow_each_other_meet_every_file_once_in_a_turn(seed, start, share, numbers):
    mix, met, turned = KeySpread.of(seed), [], 0
    files = [file(number) for number in numbers]
    while turned < KEY_SPACE:
        keys = sampled(start, share, files=10**9, bytes_=0, budget=None)
        keys = KeyRange(keys.start, min(keys.length, KEY_SPACE - turned))
        met += [piece.path for piece in pieces(files, mix, keys)]
        turned, start = turned + keys.length, keys.end
    assert sorted(met) == sorted(one.path for one in files)


@given(GUIDS)
def test_neighbours_are_spread_evenly(seed):
    mix, keys = KeySpread.of(seed), KeyRange(0, KEY_SPACE // 10)
    assert len({mix.key(number) for number in range(KEY_SPACE)}) == KEY_SPACE
    assert sum(keys.has(mix.key(number)) for number in range(KEY_SPACE)) == keys.length


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
    assert sampled(5, 0.01, files=10**6, bytes_=10**12, budget=None) == KeyRange(5, round(KEY_SPACE / 100))
    assert sampled(0, 0.01, files=2 * LEAST_FILES, bytes_=1, budget=None).length == KEY_SPACE // 2
    assert sampled(0, 0.5, files=10**6, bytes_=10**12, budget=10**9).length == round(KEY_SPACE / 1000)
    assert sampled(0, 1.0, files=1, bytes_=1, budget=None) == KeyRange()
    assert sampled(0, 0.01, files=10**6, bytes_=10**15, budget=1).length == 1


@given(st.integers(1, 20 * PIECE))
def test_a_large_file_is_cut_into_pieces_without_a_gap(size):
    whole = cut(b"x", size, KeySpread.of(9), KeyRange(), 17)
    assert sum(one.size for one in whole) == size
    assert [one.offset for one in whole] == [PIECE * index for index in range(len(whole))]
    some = pieces([file(17, size, b"x")], KeySpread.of(9), KeyRange())
    assert some == (whole if size > PIECE else [ContentRange(b"x", size)])


def test_what_cannot_be_read_on_either_side_is_no_success():
    one, other, third = (ContentRange(name, 1) for name in (b"a", b"b", b"c"))
    found = differing("tank", [one, other, third], {one: "1", other: "2"}, {one: "1", other: "3", third: "4"})
    assert found == [Difference("tank", "b", "2", "3"), Difference("tank", "c", None, "4")]
    assert str(found[1]) == "tank: c: source cannot be read, vault 4"
    assert differing("tank", [third], {}, {}) == [Difference("tank", "c", None, None)]


def test_traits_count_and_folders_have_no_size():
    mine = [file(1, path=b"a"), file(2, 5, b"d", kind="d"), file(3, path=b"gone")]
    its = [file(1, path=b"a", mode="600"), file(2, 9, b"d", kind="d")]
    assert [(one.path, one.source, one.vault) for one in unlike("tank", mine, its)] == [
        ("a", "a file, mode 644, 0:0, 10 bytes", "a file, mode 600, 0:0, 10 bytes"),
        ("gone", "a file, mode 644, 0:0, 10 bytes", "nothing"),
    ]


@given(st.binary())
def test_any_name_is_shown_on_one_line(name):
    assert shown(name).isprintable() or not name


def test_names_that_differ_are_shown_so():
    names = [b"a\nb", b"a\\nb", b"a\\\nb", b"\xff", b"\\xff", "ü".encode(), b"\xfc"]
    assert [shown(name) for name in names] == [
        r"a\nb", r"a\\nb", r"a\\\nb", r"\xff", r"\\xff", "ü", r"\xfc",
    ]  # fmt: skip


@given(
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.sampled_from(["", "ok", "differs", "nothing"]),
    st.integers(0, KEY_SPACE - 1),
)
def test_a_proof_reads_back(proven, tried, result, at):
    proof = Proof(proven, tried, result, at, tried)
    assert parse_proof(str(proof)) == proof


def test_a_proof_that_fails_stays_as_old_as_it_was():
    proof = Proof().after(100.0, "ok", 7).after(200.0, "differs")
    assert (proof.proven, proof.tried, proof.result, proof.at, proof.since) == (100, 200, "differs", 7, 100)
    assert parse_proof("- nonsense at=x") == Proof()
    assert parse_proof(f"proven={'9' * 5000} tried={'9' * 21} result=ok") == Proof(result="ok")
    assert aged(proof.proven, 100 + 3 * 86400.0 + 7200) == "last proven 3d 2h ago"
    assert aged(None, 0) == "never proven"


def test_a_try_takes_the_place_of_dates_that_are_later_than_now():
    ahead = Proof(proven=10**9, tried=10**9, result="ok", at=7, since=10**9)
    assert ahead.after(500.0, "ok") == Proof(500, 500, "ok", 7, 500)
    assert ahead.after(500.0, "nothing") == Proof(None, 500, "nothing", 7, 500)
    little = Proof(proven=700, tried=700, result="ok", since=700)
    assert little.after(500.0, "nothing") == Proof(700, 500, "nothing", 0, 700), "clocks differ by little"


times = st.none() | st.integers(0, 2 * 10**9)


@given(times, times, times, st.integers(0, 2 * 10**9), st.sampled_from(["ok", "differs", "nothing"]))
def test_no_date_is_later_than_the_try_that_was_last(proven, tried, since, now, result):
    after = Proof(proven, tried, "ok", 0, since).after(float(now), result)
    assert after.tried == now
    assert all(date <= now + TOLERANCE for date in (after.proven, after.since) if date is not None)
    assert after.since is not None
    if proven is not None and proven <= now:
        assert after.proven == (now if result == "ok" else proven)


def test_a_level_is_due_when_its_last_try_is_that_old():
    assert due(Proof(), None, 0, 1e9) is None
    assert due(Proof(), 100, 50, 149) == -1
    assert due(Proof(tried=100), 100, 0, 250) == 50
    assert due(Proof(tried=700), 100, 0, 500) == -100, "clocks differ by little"
    assert due(Proof(tried=10**9), 100, 0, 500) == 0, "a try in the future says nothing, and puts nothing off"
    assert due(Proof(), 100, 10**9, 500) == 0
    assert aged(10**9, 500) == "last proven at a time later than now"


def test_differences_are_counted_beyond_those_kept_and_the_first_are_told():
    found = Findings(datasets=1)
    some = [Difference("tank", str(n), "1", "2") for n in range(5)]
    assert found.add(some, most=3) == some[:3]
    assert (found.result, found.more) == ("differs", 2)
    error = mismatch("tank", "cold", "full", found)
    assert "found 5 differences" in error.what
    assert "tank: 0: source 1, vault 2" in error.why
    assert error.why.endswith("and 2 more")
    assert Findings().result == "nothing"
