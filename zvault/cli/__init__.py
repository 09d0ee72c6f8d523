"""zvaultctl: the command line, one file a verb group."""

from __future__ import annotations

import sys

# typer (0.15) imports rich with its Markdown and Pygments to format help with, which takes longer than most verbs do,
# and nothing here is formatted by it. Told that there is no rich, it does without; newer ones import it when needed.
_rich = sys.modules.get("rich")
sys.modules["rich"] = None  # type: ignore[assignment]
try:
    import typer  # noqa: F401
finally:
    del sys.modules["rich"]
    if _rich is not None:
        sys.modules["rich"] = _rich
