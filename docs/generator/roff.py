"""Markdown as the source of a manual page, for man(7) of groff and mandoc."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable("table")


def page(title: str, section: int, summary: str, body: str) -> str:
    """A whole page. ``body`` is Markdown; its headings of the first two levels become the page's sections."""
    head = f'.TH "{title.upper()}" "{section}" "" "zvault" "zvault"\n'
    return f"{head}.SH NAME\n{text(title)} \\- {text(summary)}\n" + _blocks(_PARSER.parse(body))


def text(words: str) -> str:
    """Words with nothing in them that roff would obey."""
    plain = words.replace("\\", "\\e").replace("-", "\\-").replace("^", "\\(ha").replace("~", "\\(ti")
    plain = plain.replace("`", "\\(ga").replace("'", "\\(aq").replace("…", "\\&...")
    return f"\\&{plain}" if plain.startswith(".") else plain


def _blocks(tokens: Sequence[Token]) -> str:
    out = ""
    at = 0
    while at < len(tokens):
        token = tokens[at]
        end = _closing(tokens, at) if token.nesting == 1 else at
        out += _block(token, tokens[at + 1 : end])
        at = end + 1
    return out


def _block(token: Token, inside: Sequence[Token]) -> str:
    match token.type:
        case "heading_open" if token.tag in {"h1", "h2"}:
            words = _inline(inside)
            made = f".SH {_quoted(words if '[' in words else words.upper())}\n"
        case "heading_open":
            made = f".SS {_quoted(_inline(inside))}\n"
        case "paragraph_open":
            made = f".PP\n{_line(_inline(inside))}\n"
        case "fence" | "code_block":
            made = f".PP\n.RS 4\n.nf\n{_verbatim(token.content)}.fi\n.RE\n"
        case "bullet_list_open" | "ordered_list_open" | "blockquote_open":
            made = _items(inside)
        case "table_open":
            made = "".join(_row(*row) for row in _rows(inside))
        case "html_block" | "hr":
            made = ""
        case _:
            raise ValueError(f"no manual page has a {token.type}")
    return made


def _items(inside: Sequence[Token]) -> str:
    """A list, a point an item; a paragraph in it begins no new one."""
    out, at = "", 0
    while at < len(inside):
        end = _closing(inside, at) if inside[at].nesting == 1 else at
        out += ".IP \\(bu 2\n" + _blocks(inside[at + 1 : end]).removeprefix(".PP\n")
        at = end + 1
    return out


def _rows(inside: Sequence[Token]) -> Iterator[tuple[bool, list[str]]]:
    """The rows of a table that are not empty: whether it is the head, and its cells."""
    head, cells = False, list[str]()
    for at, token in enumerate(inside):
        if token.type in {"th_open", "td_open"}:
            head = token.type == "th_open"
            cells.append(_inline([inside[at + 1]]))
        elif token.type == "tr_close":
            if any(cells):
                yield head, cells
            cells = []


def _row(head: bool, cells: list[str]) -> str:
    """A row as what a word means: the first cell, and the others below it, indented."""
    if head:
        return f".PP\n{_line(', '.join(cell for cell in cells if cell))}:\n"
    return (
        f".TP\n{_line(cells[0]) or '.BR'}\n{_line('; '.join(cell for cell in cells[1:] if cell)) or '.br'}\n"
    )


def _inline(tokens: Sequence[Token]) -> str:
    out = ""
    for child in (child for token in tokens for child in token.children or ()):
        match child.type:
            case "text":
                out += text(child.content)
            case "code_inline":
                out += f"\\fB{text(child.content)}\\fR"
            case "em_open":
                out += "\\fI"
            case "strong_open":
                out += "\\fB"
            case "em_close" | "strong_close":
                out += "\\fR"
            case "softbreak" | "hardbreak":
                out += " "
    return out


def _line(words: str) -> str:
    """A line of text that does not look like a request."""
    return f"\\&{words}" if words.startswith((".", "'")) else words


def _quoted(words: str) -> str:
    return '"' + words.replace('"', "\\(dq") + '"'


def _verbatim(code: str) -> str:
    return "".join(f"{_line(text(line))}\n" for line in code.splitlines())


def _closing(tokens: Sequence[Token], at: int) -> int:
    """Where what is opened there is closed."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    raise ValueError(f"{tokens[at].type} is never closed")
