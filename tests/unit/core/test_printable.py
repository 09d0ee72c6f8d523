"""Text of other ends, at each border where it leaves zvault: it controls no terminal, no log, no page."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zvault
from zvault.cli import output
from zvault.cli.options import TableForm
from zvault.cli.tables import TableColumn, format_table
from zvault.core.printable import LONGEST_WORD, escape_json, make_printable, quote_foreign
from zvault.daemon.journald import PrintableFormatter

ANY = st.text(
    st.characters(codec=None) | st.sampled_from("\x1b[31m\x9b\u202e\x7f\r\n\t\0\u2028"), max_size=60
)
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\x7f\r\0"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\x7f\r\x00"


def is_safe(text: str, keep: str = "\n\t") -> bool:
    return all(char.isprintable() or char in keep for char in text)


@given(ANY)
def test_what_is_made_printable_is(text: str) -> None:
    assert is_safe(make_printable(text))
    assert make_printable(text, keep="").isprintable()
    if text.isprintable():
        assert make_printable(text) == text
    told = quote_foreign(text * 30)
    assert told.isprintable()
    assert len(told) <= LONGEST_WORD + 1


@given(
    st.recursive(
        ANY | st.none() | st.integers(),
        lambda of: st.lists(of, max_size=3) | st.dictionaries(ANY, of, max_size=3),
    )
)
def test_a_document_says_the_same_with_printable_characters(value: object) -> None:
    text = escape_json(json.dumps(value, indent=2, ensure_ascii=False))
    assert is_safe(text, "\n")
    assert json.loads(text) == json.loads(json.dumps(value))


def test_the_command_line_shows_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_line(HOSTILE)
    output.print_lines([HOSTILE, f"\x1b[{output.RED}mfailed\x1b[0m"])
    output.print_trouble(HOSTILE)
    output.print_error({"reason": "x", "what": HOSTILE, "why": f"{HOSTILE}\n{HOSTILE}", "next": HOSTILE})
    output.print_document("status", {"why": HOSTILE})
    said, complained = capsys.readouterr()
    assert said.startswith(f"{SHOWN}\n{SHOWN}\n\x1b[31mfailed\x1b[0m\n"), "its own colours stay"
    rest = said.partition("\x1b[0m\n")[2]
    assert is_safe(rest)
    assert json.loads(rest)["why"] == HOSTILE, "what a program reads is what was said"
    assert complained.startswith(f"{SHOWN}\n")
    assert is_safe(complained)


def test_a_cell_is_one_cell() -> None:
    rows = [{"name": "a\tb\nc\x1b[2J"}]
    for tabs in (True, False):
        *_, line = format_table([TableColumn("name")], rows, TableForm(tabs, exact=False))
        assert line == "a b c [2J"


def test_the_log_shows_escapes() -> None:
    record = logging.LogRecord("zvault", logging.ERROR, "", 0, "tank: %s", (HOSTILE,), None)
    assert PrintableFormatter("%(message)s").format(record) == f"tank: {SHOWN}"


WRITERS = {
    "cli/output.py": "the border itself",
    "cli/app.py": "replaces the streams, and says nothing",
    "cli/verbs/measure.py": "one line, cleaned",
    "cli/wait_for_answer.py": "one line, made printable",
    "blockstore/server.py": "the border to a unit's journal",
    "devices/s3_lease/answers.py": "the border to a unit's journal, and one document",
    "blockstore/find_moment.py": "one document",
    "daemon/web/listener.py": "an OSError of this host's, which zvaultd logs",
    "devices/s3_lease/note.py": "one document",
    "system/file_trees/reporter.py": "one document",
    "system/list_folder.py": "one document",
    "system/mount_folder.py": "words for zvaultd, which reads them",
    "system/notify/sender_child.py": "one document",
    "system/process/sampler.py": "one document",
    "system/device_users.py": "words for zvaultd, which reads them",
    "system/snapshot_users.py": "words for zvaultd, which reads them",
    "zfs/list_names_child.py": "names for zvaultd, which checks them",
    "zfs/lzc_child.py": "one document",
    "zfs/pool/event_child.py": "one document",
    "zfs/pool/new_guid_child.py": "words for zvaultd, which reads them",
    "zfs/repair/block_writer.py": "one document, and words for zvaultd",
}
"""Modules that write to stdout or stderr by themselves, and why they may. All others use cli/output.py or a log."""


def test_nobody_else_writes_to_a_terminal_or_a_journal() -> None:
    root = Path(zvault.__file__).parent
    found = set()
    for path in root.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if not re.search(r"\b(print|stdout|stderr)\b", source):
            continue  # parsing a module takes longer than all else here
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call):
                continue
            call = ast.unparse(node.func)
            if call == "print" or call in {
                f"sys.{one}.write{end}" for one in ("stdout", "stderr") for end in ("", "lines")
            }:
                found.add(str(path.relative_to(root)))
            if call == "json.dump" and "sys.stdout" in ast.unparse(node):
                found.add(str(path.relative_to(root)))
    assert found <= set(WRITERS), found - set(WRITERS)
