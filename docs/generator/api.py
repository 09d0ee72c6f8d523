"""The list of routes in docs/reference/api.md, from the table in zvault/api/routes.py; the rest of the page stays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_type_hints

from generator.marked_part import with_part
from zvault.api.routes import ROUTES, ApiRoute

PAGE = Path(__file__).resolve().parents[1] / "reference" / "api.md"
BEGIN = "<!-- The routes: made by docs/generate.py from zvault/api/routes.py. -->\n"
END = "<!-- End of the routes. -->\n"

HEAD = "| request | may | what it does | answer |\n|---|---|---|---|\n"


def api() -> str:
    """The page, with the list of routes made anew."""
    return with_part(PAGE, BEGIN, HEAD + "".join(map(row, ROUTES)), END)


def row(route: ApiRoute[Any]) -> str:
    """One route."""
    return f"| {request(route)} | {route.may} | {route.does} | {answer(route)} |\n"


def request(route: ApiRoute[Any]) -> str:
    """``POST /v1/prune/BACKUP`` with the names in its body."""
    path = re.sub(r"\{(\w+)\}", lambda name: name[1].upper(), route.path)
    query = "&".join(f"{name}={example}" for name, example in route.query.items())
    text = f"`{route.method} {path}{f'?{query}' if query else ''}`"
    return text if route.body is None else f"{text} with {keys(route.body)}"


def answer(route: ApiRoute[Any]) -> str:
    """The names in the document that is answered."""
    found = keys(route.answer)
    if route.form == "events":
        return f"lines: {found} and more"
    if route.form == "lines":
        return f"lines, the last with {found}"
    return found if route.other is None else f"{found}, or {keys(route.other)}"


def keys(document: type) -> str:
    """The names in a document, as code."""
    return ", ".join(f"`{name}`" for name in get_type_hints(document))
