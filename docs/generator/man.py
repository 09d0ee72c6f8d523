"""docs/man, the manual pages, from the same as the reference."""

from __future__ import annotations

import re

import typer

from generator import cli, configuration
from generator.roff import page
from zvault.cli.app import assemble_app

DAEMON = """\
# SYNOPSIS

`zvaultd` [`--etc` *folder*] [`--run` *folder*] [`--state` *folder*]

# DESCRIPTION

`zvaultd` takes snapshots on schedule, streams them with `zfs send` and `zfs receive` into pools on slow storage,
which it brings up for that and takes down again, prunes both sides, and scrubs and verifies vaults. systemd starts
it:

```
systemctl enable --now zvaultd
systemctl reload zvaultd
```

A reload reads the configuration again; if it has an error, the old one stays in force. On a stop, runs have 20
seconds to end; then their streams are stopped, and can be resumed. Vaults that are up on demand go down, and the
others stay up for the next `zvaultd`. If the host shuts down, runs are stopped at once and all vaults go down.

# OPTIONS

| | |
|---|---|
| `--etc` | The folder of `zvault.toml`, `conf.d` and `profiles`; by default `/etc/zvault`. |
| `--run` | The folder of its socket and its leases; by default `/run/zvault`. |
| `--state` | The folder of its history, and of work that it owes; by default `/var/lib/zvault`. See FILES. |
| `--version` | Print the version and exit. |

# FILES

Some files in `/var/lib/zvault` must not be deleted: they record hooks that still have to run after a crash, for
example, and the positions of block stores. `/usr/share/doc/zvault/reference/files.md` lists all of them.

# EXIT STATUS

| | |
|---|---|
| 0 | It was stopped. |
| 2 | It cannot start: an error in the configuration, another `zvaultd`, or not root. systemd does not restart it. |

# SIGNALS

| | |
|---|---|
| SIGHUP | Read the configuration again. |
| SIGTERM | Stop, as above. |

# JOURNAL

`zvaultd` logs to the journal, with the fields `BACKUP`, `VAULT`, `DATASET` and `RUN`:

```
journalctl -u zvaultd BACKUP=tank
```
"""

_SEE = "\n# SEE ALSO\n\n"


def pages() -> dict[str, str]:
    """Every page: its file's name, and its source."""
    verbs = dict(cli.commands(typer.main.get_command(assemble_app())))
    made = {f"zvaultctl-{name.replace(' ', '-')}.1": _verb(name, command) for name, command in verbs.items()}
    made["zvaultctl.1"] = _ctl(verbs)
    made["zvaultd.8"] = page(
        "zvaultd", 8, "back up ZFS into pools on slow storage", f"{DAEMON}{_SEE}{_also('zvaultd')}"
    )
    made["zvault.toml.5"] = page(
        "zvault.toml",
        5,
        "what zvaultd backs up, where to and when",
        _settings() + _SEE + _also("zvault.toml"),
    )
    return made


def _ctl(verbs: dict[str, object]) -> str:
    """zvaultctl(1): what holds for every verb, and which there are."""
    whole = cli.cli().split("\n## ")[0].partition("# zvaultctl\n")[2]
    synopsis, _, rest = whole.partition("```\n\n")
    listed = "".join(
        f"| `{name}` | {_first(command)} See `zvaultctl-{name.replace(' ', '-')}(1)`. |\n"
        for name, command in verbs.items()
    )
    body = f"# SYNOPSIS\n{synopsis}```\n\n# DESCRIPTION\n\n{_local(rest)}\n# COMMANDS\n\n| | |\n|---|---|\n{listed}"
    return page("zvaultctl", 1, "query and control zvaultd", body + _SEE + _also("zvaultctl"))


def _verb(name: str, command: object) -> str:
    section = cli.section(name, command)
    heading, _, rest = section.partition("\n\n")
    synopsis = f"# SYNOPSIS\n\n`{heading.removeprefix('## `').removesuffix('`')}` [*option*]...\n\n"
    described = re.sub(r"^\| \| \|\n", "# OPTIONS\n\n| | |\n", rest, count=1, flags=re.M)
    title = f"zvaultctl-{name.replace(' ', '-')}"
    summary = _first(command).rstrip(".")
    return page(title, 1, summary, f"{synopsis}# DESCRIPTION\n\n{_local(described)}{_SEE}{_also(title)}")


def _settings() -> str:
    text = configuration.configuration().partition("# Configuration\n")[2]
    shown = _local(text).replace("\n## ", "\n# ")
    return f"# DESCRIPTION\n{shown}"


def _first(command: object) -> str:
    """The first sentence of a command's help."""
    words = " ".join((getattr(command, "help", "") or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:;]) ", words)[0].rstrip(":;.") + "."


def _local(markdown: str) -> str:
    """Without the links to other pages, which a manual page does not have."""
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", markdown)


def _also(title: str) -> str:
    known = {"zvaultctl": 1, "zvaultd": 8, "zvault.toml": 5}
    pages = [f"`{name}({section})`" for name, section in known.items() if name != title]
    return ", ".join([*pages, "`zfs-send(8)`", "`zpool(8)`"]) + "\n\nMore is in `/usr/share/doc/zvault`.\n"
