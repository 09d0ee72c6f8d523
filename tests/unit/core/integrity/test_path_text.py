"""Names of any bytes become text that controls no terminal, and can be had back from it."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from zvault.core.integrity.path_text import (
    decode_octal_path,
    escape_file_line,
    format_restore_command,
    parse_shown_path,
    quote_path,
)
from zvault.core.integrity.verification import escape_path

NAMES = st.binary(min_size=1).map(lambda name: name.replace(b"\0", b"x"))


@given(NAMES)
@example(b"\xc2\x85")
@example(b"\\xff")
@example(b"\xff\\n\n")
@example("\u2028\U000e0001é\u00ad".encode())
def test_a_shown_name_can_be_had_back(name: bytes) -> None:
    assert parse_shown_path(escape_path(name)) == name
    assert escape_path(name).isprintable()


@pytest.mark.parametrize("text", ["\\", "\\q", "a\nb", "\\x4", "\\x41"])
def test_what_is_no_shown_name(text: str) -> None:
    with pytest.raises(ValueError, match="no "):
        parse_shown_path(text)


@given(NAMES)
def test_what_zfs_diff_escapes_can_be_had_back(name: bytes) -> None:
    text = "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x5C else f"\\{byte:04o}" for byte in name)
    assert decode_octal_path(text) == name


@pytest.mark.parametrize("text", ["\\", "a\\40", "\\0400", "\\x41"])
def test_what_zfs_diff_does_not_print(text: str) -> None:
    with pytest.raises(ValueError, match="zfs diff"):
        decode_octal_path(text)


@pytest.mark.parametrize(
    "name", [b"plain", b"it's", b"two\nlines", b"\xff", b"\x1b[31m'\\", "ü ß".encode(), b"$(id)", b"\t1"]
)
def test_a_quoted_name_is_one_word_of_bash(name: bytes) -> None:
    assert quote_path(name).isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {quote_path(name)}"], capture_output=True, check=True)
    assert done.stdout == name


def test_the_command_that_restores() -> None:
    assert format_restore_command("tank", "tank/my home@s", b"a b", "/rescue") == (
        "zvaultctl restore tank 'tank/my home@s' /rescue --file 'a b'"
    )
    assert format_restore_command("tank", "t@s", b"", "/r") == "zvaultctl restore tank t@s /r"


def test_a_line_of_a_file_controls_no_terminal() -> None:
    assert escape_file_line("a\tb\x1b]0;x\x07\r") == "a       b\\x1b]0;x\\x07\\r"
