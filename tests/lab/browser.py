"""Chromium, driven by the WebDriver protocol (W3C) that Debian's chromium-driver speaks."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import urllib.request
from typing import Any

ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",  # root's has none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)
PATIENCE_S = 240
"""Seconds that a script may take in a page; 30 by themselves are too few on a busy machine."""


class Browser:
    """One browser with one window. ``scripts``: whether pages may run any."""

    def __init__(self, *, scripts: bool = True) -> None:
        self._driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self._driver.stdout is not None
        port = next(
            found[1]
            for line in self._driver.stdout
            if (found := re.search(r"successfully on port (\d+)", line))
        )
        self._base = f"http://127.0.0.1:{port}"
        prefs = {"profile.managed_default_content_settings.javascript": 1 if scripts else 2}
        options = {"args": list(ARGUMENTS), "prefs": prefs}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        wanted |= {"timeouts": {"script": 1000 * PATIENCE_S}}
        made = self._post("/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def _post(self, path: str, document: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json"}
        asked = urllib.request.Request(self._base + path, json.dumps(document).encode(), headers)
        with urllib.request.urlopen(asked, timeout=PATIENCE_S + 60) as answer:
            return json.loads(answer.read())["value"]

    def open(self, url: str) -> None:
        """Load a page whole."""
        self._post("/url", {"url": url})

    def script(self, text: str) -> Any:
        """What a script returns in the page; also where pages may run none."""
        return self._post("/execute/sync", {"script": text, "args": []})

    def script_later(self, text: str) -> Any:
        """What a script hands to ``done``, which may be some time later."""
        text = f"const done = arguments[0]; {text}"
        return self._post("/execute/async", {"script": text, "args": []})

    def look(self, width: int, *, dark: bool) -> None:
        """Have a screen of that width, in a light or dark room."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        for command, values in (
            ("Emulation.setEmulatedMedia", {"features": scheme}),
            ("Emulation.setDeviceMetricsOverride", size),
        ):
            self._post("/goog/cdp/execute", {"cmd": command, "params": values})

    def picture(self, height: int | None = None) -> bytes:
        """The page as PNG: all of it, or so much from its top."""
        wanted: dict[str, Any] = {"format": "png", "captureBeyondViewport": True}
        if height is not None:
            width = self.script("return innerWidth")
            wanted["clip"] = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        values = {"cmd": "Page.captureScreenshot", "params": wanted}
        return base64.b64decode(self._post("/goog/cdp/execute", values)["data"])

    def tab(self) -> None:
        """Press the Tab key."""
        keys = [{"type": kind, "value": "\ue004"} for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keys", "actions": keys}]})

    def console(self) -> list[str]:
        """What the browser complained of since it was asked last."""
        return [str(entry["message"]) for entry in self._post("/se/log", {"type": "browser"})]

    def close(self) -> None:
        """End it."""
        asked = urllib.request.Request(self._base, method="DELETE")
        try:
            urllib.request.urlopen(asked, timeout=60).close()
        finally:
            self._driver.terminate()
            self._driver.wait(60)
