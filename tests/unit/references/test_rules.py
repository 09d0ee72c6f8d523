"""Each rule finds what is not there, and lets pass what is: on a repository of a few files."""

import pytest

from tests.unit.references.checks import list_broken
from tests.unit.references.pages import list_anchors, list_broken_on_page
from tests.unit.references.repository import Repository

FILES = {
    "Makefile": "unit: ready\n\techo\n",
    "docs/reference/cli.md": "# zvaultctl\n\n`-j`\n\n## `zvaultctl vault up VAULT`\n\n`--wait`\n",
    "docs/reference/metrics.md": "| `zvault_lag_seconds` | gauge |\n",
    "docs/reference/api.md": "| `GET /v1/status` | read |\n",
    "docs/reference/health.md": "| `late` |\n",
    "docs/runbooks/ZvaultLate.md": "# Late\n",
    "zvault/core/errors.py": "class Refused(Exception):\n    pass\n\n\nclass Gone(Refused):\n    pass\n",
    "zvault/zfs/other.py": "class NotHere(Exception):\n    pass\n\n\ndef list_pools():\n    pass\n",
    "zvault/zfs/near.py": 'from zvault.core import errors\n\nARGV = ["zfs", "send", "/run/zvault/lease"]\n',
}


def made(tmp_path, **more):
    for name, text in (FILES | {path.replace("__", "/"): text for path, text in more.items()}).items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Repository(tmp_path)


def broken(tmp_path, text, before="from zvault.zfs import near\n"):
    body = f'    def read(self, name: str) -> None:\n        """{text}"""\n        self.size = "a long message"\n'
    code = f"{before}\n\nclass Pool:\n{body}"
    repository = made(tmp_path, **{"zvault/zfs/here.py": code})
    return [what for _, what in list_broken(repository, repository.sources["zvault/zfs/here.py"])]


@pytest.mark.parametrize(
    "text",
    [
        "Raises Refused, Gone; and OSError where it is full.",
        "Raises errors.Refused. Raises nothing where OpenZFS does not tell.",
        "Raises as ``read``, see Pool.read.",
        "See core/errors.py and docs/reference/api.md.",
        "``name`` is that of ``size``; ``near.ARGV`` and ``other.list_pools``.",
        "``zfs send``, ``send``, ``/run/zvault/NAME``, ``zvaultctl vault up --wait -j``, ``make unit``.",
        "``zvault_lag_seconds``, ``GET /v1/status``, ``python -m zvault.zfs.near``, ``size=10T``, ``a literal: 5``.",
    ],
)
def test_what_is_there_passes(tmp_path, text):
    assert broken(tmp_path, text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Raises Lost.", "Lost"),
        ("Raises Refused, Lost.", "Lost"),
        ("Raises Refused where it is full, and\n        Lost.", "Lost"),
        ("Raises NotHere.", "NotHere"),
        ("Raises sqlite3.Error.", "sqlite3.Error"),
        ("Raises as ``write``.", "write"),
        ("See Pool.write.", "Pool.write"),
        ("See core/error.py.", "core/error.py"),
        ("``nome`` is its name.", "nome"),
        ("``message`` is only in a message.", "message"),
        ("``other.list_pool``.", "other.list_pool"),
        ("``/run/zfault/NAME``.", "/run/zfault/NAME"),
        ("``zvaultctl vault down``.", "zvaultctl vault down"),
        ("``zvaultctl vault up --later``.", "zvaultctl vault up --later"),
        ("``make units``.", "make units"),
        ("``zvault_lag``.", "zvault_lag"),
        ("``GET /v1/state``.", "GET /v1/state"),
        ("``python -m zvault.zfs.far``.", "python -m zvault.zfs.far"),
        ("``room=10T``.", "room=10T"),
    ],
)
def test_what_is_not_there_is_found(tmp_path, text, what):
    found = broken(tmp_path, text)
    assert found
    assert all(what in one for one in found)


def test_an_exception_of_a_library_must_be_imported(tmp_path):
    assert broken(tmp_path, "Raises sqlite3.Error.", before="import sqlite3\n") == []
    assert broken(tmp_path, "Raises sqlite3.Failure.", before="import sqlite3\n")


def test_lines_are_told(tmp_path):
    text = 'X = 1\n\n\ndef work(name):\n    """Work.\n\n    ``nome`` is wrong.\n    """\n    # As ``wirk`` does.\n'
    repository = made(tmp_path, **{"zvault/zfs/here.py": text})
    assert [line for line, _ in list_broken(repository, repository.sources["zvault/zfs/here.py"])] == [7, 9]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            "[a](../reference/cli.md) [b](../reference/cli.md#zvaultctl-vault-up-vault) [c](#a-word)\n\n# A word!",
            0,
        ),
        ("[a](../reference/cli.html)", 1),
        ("[a](../../../cli.md)", 1),
        ("[a](../reference/cli.md#zvaultctl-vault-down-vault)", 1),
        ("[a](#other-words)\n\n# Some words", 1),
        (
            '`zvaultctl vault up a`, `zvault_lag_seconds`, `ZvaultLate`, `condition="late"`, `zvault/core/errors.py`',
            0,
        ),
        ("`zvaultctl vault down cold`", 1),
        ("`zvault_lag_minutes`", 1),
        ("`ZvaultEarly`", 1),
        ('`condition="early"`', 1),
        ("`zvault/core/error.py`", 1),
        ("`core/errors.py: Refused`, `core/errors.py: Lost` and `core/error.py: Refused`", 2),
        ("`list_pools` and `list_pool`", 1),
        ("`[send]` and `[sends]`", 1),
        ("```\n`zvaultctl vault down`\n```", 0),
    ],
)
def test_a_page(tmp_path, text, wrong):
    repository = made(tmp_path, **{"docs/how-to/page.md": text})
    assert len(list(list_broken_on_page(repository, "docs/how-to/page.md"))) == wrong


def test_anchors_are_as_github_writes_them():
    page = "# A `vault`: its [pool](x.md)\n\n## Twice\n\n## Twice\n\n```\n# no heading\n```\n"
    assert list_anchors(page) == {"a-vault-its-pool", "twice", "twice-1"}
