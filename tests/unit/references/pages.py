"""What the pages refer to, and whether it is there.

- A relative link leads to a file, and its anchor to a heading of that page, as GitHub writes anchors.
- Of what stands in backticks, `checks.find_outside` knows the commands, metrics, routes and targets.
- A path with ``.py``, or into zvault, tests, docs or config, is one of the repository; the pages about tests leave
  the first folder and ``.py`` out. After it and a colon stands what that file defines.
- An alert has a runbook, and ``condition="…"`` is one that zvault knows.
- ``[table]`` and table.key, where the first word is a table, and words_with_underscores are words of the code or of
  settings, or in the code up to the last underscore and a brace: made of parts.
"""

import re
from collections.abc import Iterator
from functools import cache

from tests.unit.references.checks import find_outside
from tests.unit.references.repository import Repository

ABOUT_OTHERS = {
    "docs/how-to/come-from-elsewhere.md": "settings of other backup programs",
    "docs/how-to/mariadb.md": "MariaDB's settings",
    "docs/how-to/postgresql.md": "PostgreSQL's settings, functions and files",
    "docs/reference/zfs-versions.md": "module parameters and features of OpenZFS that zvault does not use",
}
"""Pages on which words_with_underscores are names of other programs."""
ELSEWHERE = {
    "authorized_keys",
    "corrective_read_done",
    "defer_build",
    "dsl_destroy_inconsistent",
    "hung_task_warnings",
    "ms_bind_before_connect",
    "no_new_privs",
    "spa_asize_inflation",
    "spa_remove_error",
    "sshd_config",
    "zap_contains",
    "zfs_ioc_snapshot_list_next",
    "zfs_receive_one",
    "zfs_receive_package",
    "zfs_vnops_read_chunk_size",
}
"""Names of the kernel, OpenZFS, Ceph, ssh and pydantic that pages cite and zvault does not use."""
MADE_BY_READERS = {"tests/lab/test_tags.py"}
"""Files that a page has its reader write."""

_FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_NAMED = re.compile(r'<a (?:id|name)="([^"]+)"')
_TABLE_KEY = re.compile(r"(?:backup|vault|daemon|snapshot|send|keep|receive|prune|verify|scrub)\.[a-z_.]+")
_TABLE = re.compile(r"\[\[?([a-z]+)((?:\.\w+)*)\]\]?")


def list_broken_on_page(repository: Repository, path: str) -> Iterator[tuple[int, str]]:
    """Give (line, what does not exist) for each reference of a page that leads nowhere."""
    text = _drop_fences(repository.pages[path])
    for link in _LINK.finditer(text):
        if (
            "://" not in link.group(1)
            and not link.group(1).startswith("mailto:")
            and not _leads(repository, path, link.group(1))
        ):
            yield text.count("\n", 0, link.start()) + 1, f"the link {link.group(1)} leads nowhere"
    for span in _SPAN.finditer(text):
        if not _is_known(repository, path, span.group(1).strip()):
            yield text.count("\n", 0, span.start()) + 1, f"nothing is called {span.group(1)}"


@cache
def _drop_fences(text: str) -> str:
    return _FENCE.sub(lambda block: "\n" * block.group().count("\n"), text)


def _leads(repository: Repository, path: str, link: str) -> bool:
    target, _, anchor = link.partition("#")
    parts = path.split("/")[:-1]
    for part in target.split("/") if target else ():
        if part == "..":
            if not parts:
                return False
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    page = "/".join(parts) if target else path
    if page not in repository.paths:
        return False
    return not anchor or page not in repository.pages or anchor in list_anchors(repository.pages[page])


@cache
def list_anchors(text: str) -> frozenset[str]:
    """Return a page's anchors: a second heading of the same words has ``-1``."""
    counted: dict[str, int] = {}
    anchors = set(_NAMED.findall(text))
    for heading in _HEADING.findall(_drop_fences(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        seen = counted.get(anchor, 0)
        counted[anchor] = seen + 1
        anchors.add(f"{anchor}-{seen}" if seen else anchor)
    return frozenset(anchors)


def _is_known(repository: Repository, path: str, shown: str) -> bool:
    if not shown or shown in ELSEWHERE | MADE_BY_READERS:
        return True
    if (told := find_outside(repository, shown)) is not None:
        return told
    if (told := _find_file(repository, shown)) is not None:
        return told
    if condition := re.fullmatch(r'condition="([a-z-]+)"', shown):
        return f"`{condition.group(1)}`" in repository.pages["docs/reference/health.md"]
    return path in ABOUT_OTHERS or _is_word(repository, shown)


def _find_file(repository: Repository, shown: str) -> bool | None:
    if part := re.fullmatch(r"([\w./-]+\.py): (\w+)", shown):
        path, name = part.groups()
        defined = (
            one.definitions for end, one in repository.sources.items() if f"/{end}".endswith(f"/{path}")
        )
        return any(name in names for names in defined)
    if re.fullmatch(r"(?:zvault|tests|docs|config)/[\w./-]*|[\w./-]+\.py", shown):
        return shown.rstrip("/") in repository.path_ends
    if re.fullmatch(r"(?:unit|lab)/[\w/]+|test_\w+", shown):
        return shown in repository.path_ends or f"{shown}.py" in repository.path_ends
    if re.fullmatch(r"Zvault[A-Z][A-Za-z]+", shown):
        return f"docs/runbooks/{shown}.md" in repository.paths or shown in repository.classes
    return None


def _is_word(repository: Repository, shown: str) -> bool:
    words = repository.words
    if table := _TABLE.fullmatch(shown):
        return {table.group(1), *(part for part in table.group(2).split(".") if part.islower())} <= words
    if _TABLE_KEY.fullmatch(shown):
        return set(shown.split(".")) <= words
    if not re.fullmatch(r"[a-z]+(?:_[a-z]+)+", shown):
        return True
    return shown in words or f"{shown.rpartition('_')[0]}_{{" in repository.code
