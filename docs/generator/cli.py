"""docs/reference/cli.md, from zvaultctl's commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any

import typer

from zvault.cli.app import assemble_app
from zvault.cli.tables import TableColumn
from zvault.cli.verbs import backups, holds, notify, vaults

INTRO = """\
<!-- Made by docs/generate.py from zvault/cli. Do not edit. -->

# zvaultctl

```
zvaultctl COMMAND [OPTION]... [ARGUMENT]...
```

"""

COMMON = """\
`zvaultctl` talks to `zvaultd` over `/run/zvault/zvaultd.sock`. Results go to standard output; errors, warnings and the
progress bar go to standard error. Colour and the bar appear only on a terminal.

| environment | |
|---|---|
| `ZVAULT_SOCKET` | the socket, if it is not the default one |
| `ZVAULT_DEBUG` | if set, an unexpected error shows where it happened |
| `NO_COLOR` | if set, no colour |

With `-j` every command prints one JSON document. It begins with `output_version`, whose `vers_major` grows when
something is renamed or removed. A command that fails prints its error in this form too, besides the text on standard
error: `error` has `reason` ([a word](metrics.md#reasons)), `what`, `why` and `next`. Wrong usage gives only the text.

"""

COLUMNS: dict[str, list[tuple[str, list[TableColumn]]]] = {
    "list": [("Columns", backups.LIST_COLUMNS), ("Columns with `-t snapshot`", backups.SNAPSHOT_COLUMNS)],
    "history": [("Columns", backups.HISTORY_COLUMNS)],
    "holds": [("Columns", holds.HOLD_COLUMNS)],
    "notify show": [("Columns", notify.TARGET_COLUMNS)],
    "vault status": [("Columns", vaults.VAULT_COLUMNS)],
}
"""What the commands print, which their help does not list."""


def cli() -> str:
    """The page."""
    root = typer.main.get_command(assemble_app())
    text = INTRO + paragraphs(root.help) + COMMON + table(options(root))
    return text + "".join(section(*named) for named in commands(root)).rstrip() + "\n"


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of the help."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def section(name: str, command: Any) -> str:
    """One command."""
    text = f"## `zvaultctl {' '.join([name, *map(usage, arguments(command))])}`\n\n"
    text += paragraphs(command.help) + table([*described(command), *options(command)])
    for title, columns in COLUMNS.get(name, []):
        text += f"{title}: {', '.join(f'`{column.name}`' for column in columns)}.\n\n"
    return text


def arguments(command: Any) -> list[Any]:
    """Its positional arguments."""
    return [param for param in command.params if param.param_type_name == "argument"]


def usage(argument: Any) -> str:
    """``NAME``, ``[NAME]`` or ``[NAME]...``, as in its usage line."""
    name = argument.metavar or argument.name.upper()
    return (name if argument.required else f"[{name}]") + ("..." if argument.nargs == -1 else "")


def described(command: Any) -> Iterator[tuple[str, str]]:
    """The arguments that have a help of their own."""
    for argument in arguments(command):
        if argument.help:
            yield argument.metavar or argument.name.upper(), argument.help


def options(command: Any) -> Iterator[tuple[str, str]]:
    """Its options, each with its help."""
    for option in command.params:
        if option.param_type_name != "option" or option.hidden:
            continue
        value = "" if option.is_flag else f" {option.metavar or choices(option) or option.name.upper()}"
        shown = option.show_default and not option.is_flag
        yield ", ".join(option.opts) + value, option.help + (f" Default: {option.default}." if shown else "")


def choices(option: Any) -> str:
    """``dataset|snapshot``; empty for what is no choice. Older releases of typer keep it in the option's type."""
    if isinstance(option.default, Enum):
        return "|".join(choice.value for choice in type(option.default))
    return "|".join(getattr(getattr(option, "type", None), "choices", ()))


def table(rows: Iterable[tuple[str, str]]) -> str:
    """What is written, and what it does."""
    lines = [f"| `{left.replace('|', chr(92) + '|')}` | {right} |\n" for left, right in rows]
    return "| | |\n|---|---|\n" + "".join(lines) + "\n" if lines else ""


def paragraphs(text: str | None) -> str:
    """A help text, a paragraph a line."""
    parts = inspect.cleandoc(text or "").split("\n\n")
    return "".join(f"{' '.join(part.split())}\n\n" for part in parts if part)
