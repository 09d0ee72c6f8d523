"""The page that says which files may be deleted names each that zvault has, and a purge removes no other kind."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[4]

KINDS = {"may be deleted", "owed work", "acknowledged data"}


def listed() -> dict[str, str]:
    """The kind of each file and folder of the state directory, as the page has it."""
    page = (ROOT / "docs/reference/files.md").read_text()
    table = page.partition("## In `/var/lib/zvault`")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.-]+)`[^|]*\| ([^|]+) \|", table, re.MULTILINE))


def used() -> set[str]:
    """What the code puts there: below ``paths.state``, by a name of its own or a constant beside it."""
    found = set()
    for file in (ROOT / "zvault").rglob("*.py"):
        source = file.read_text()
        found |= set(re.findall(r'(?:paths|self)\.state / "([\w.-]+)"', source))
        if re.search(r"paths\.state / [A-Z]+_FOLDER", source):
            folders = [source, *(one.read_text() for one in file.parent.glob("*.py"))]
            found |= set(re.findall(r'^[A-Z]+_FOLDER = "([\w.-]+)"', "\n".join(folders), re.MULTILINE))
    return found


def test_each_is_listed_and_nothing_else() -> None:
    assert used() == set(listed())
    assert set(listed().values()) == KINDS


def test_a_purge_removes_what_is_zvaults_own_and_no_acknowledged_data() -> None:
    script = (ROOT / "debian/zvault.postrm").read_text().replace("\\\n", " ")
    names = re.search(r"for name in ([^;]+);", script)
    assert names is not None
    removed = {name for name in names[1].split() if not name.startswith("history.sqlite-")}
    assert removed == {name for name, kind in listed().items() if kind != "acknowledged data"}


def test_no_text_says_that_all_of_it_may_be_deleted() -> None:
    told = re.compile(r"(delete|remove|lose|rm -rf)\W+(all of )?`?/var/lib/zvault`?[\s,.;]", re.IGNORECASE)
    for page in (*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs/man").iterdir()):
        text = re.sub(r"<!-- rerun.*?-->", "", page.read_text(), flags=re.DOTALL)
        assert not told.search(text), page
