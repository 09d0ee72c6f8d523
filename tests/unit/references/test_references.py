"""What docstrings, comments and pages refer to exists: `checks` and `pages` have the rules."""

import pytest

from tests.unit.references.checks import list_broken
from tests.unit.references.pages import list_broken_on_page
from tests.unit.references.repository import Repository


@pytest.fixture(scope="module")
def repository():
    return Repository()


def test_docstrings_and_comments(repository):
    broken = [
        f"{path}:{line}: {what}"
        for path, source in repository.sources.items()
        for line, what in list_broken(repository, source)
    ]
    assert not broken, "\n".join(broken)


def test_pages(repository):
    broken = [
        f"{path}:{line}: {what}"
        for path in repository.pages
        for line, what in list_broken_on_page(repository, path)
    ]
    assert not broken, "\n".join(broken)
