"""A program in a terminal of so many columns, and what it draws there."""

from __future__ import annotations

import os
import re
import select
import struct
import subprocess
from fcntl import ioctl
from termios import TIOCSWINSZ

from world import eventually


class Screen:
    """zvaultctl with these words, in a terminal."""

    def __init__(self, columns: int, *words: str) -> None:
        self.fd, far = os.openpty()
        ioctl(far, TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        plain = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
        environment = {**plain, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            ["zvaultctl", *words], stdin=far, stdout=far, stderr=far, env=environment, start_new_session=True
        )
        os.close(far)
        self.text = ""

    @property
    def drawn(self) -> str:
        """All that was drawn so far, without what moves the cursor and sets colours."""
        while select.select([self.fd], [], [], 0)[0]:
            try:
                self.text += os.read(self.fd, 65536).decode(errors="replace")
            except OSError:
                break
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text)

    def shows(self, pattern: str) -> bool:
        """Whether what was drawn so far has the pattern."""
        return re.search(pattern, self.drawn) is not None

    def await_(self, pattern: str) -> None:
        """Wait until it was drawn since the last key."""
        eventually(lambda: self.text, lambda: self.shows(pattern))

    def press(self, keys: str) -> None:
        """Press keys; what was drawn before is forgotten."""
        self.text = ""
        os.write(self.fd, keys.encode())

    def quit(self) -> int:
        """Press q, and see that the screen is given back."""
        os.write(self.fd, b"q")
        eventually("the screen is given back", lambda: self.shows("$") and "\x1b[?1049l" in self.text)
        return self.process.wait(60)
