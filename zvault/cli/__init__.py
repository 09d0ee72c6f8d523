"""zvaultctl: the command line, one file a verb group."""

from __future__ import annotations

import sys

# typer (0.15) imports rich with Markdown and Pygments to format help. That takes longer than most verbs, and zvaultctl
# does not use it. With this entry typer believes that rich is missing. Newer versions import it only when needed.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import typer  # noqa: F401
finally:
    del sys.modules["rich"]
    if _rich is not None:
        sys.modules["rich"] = _rich
