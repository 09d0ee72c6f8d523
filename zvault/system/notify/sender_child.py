"""The process that sends one message. It reads an order as JSON on stdin, and says on stdout how that went.

An order has a ``way``, a ``timeout`` in seconds for each step, and what that way needs. The answer has ``ok``, and
``told``: why not, or what there is to tell all the same. It runs without rights: it reads what other hosts say.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import smtplib
import ssl
import sys
from collections.abc import Mapping
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)).removesuffix("zvault/system/notify"))  # noqa: PTH100, PTH120

from zvault.system.notify.http_request import RequestFailed, send_request
from zvault.system.process.unprivileged import become_nobody

SENDER_FILES = 64
"""Descriptors: one connection, certificates, and what apprise opens."""

Order = Mapping[str, Any]


def send_http(order: Order) -> str:
    """Ask a web service. Raises RequestFailed, OSError."""
    send_request(order["url"], order["method"], order["headers"], order["body"], order["timeout"])
    return ""


def send_smtp(order: Order) -> str:
    """Give mail to a server; what is told are recipients that it refused, of several. Raises RequestFailed, OSError."""
    host, port, timeout = order["host"], order["port"], order["timeout"]
    tls = order["encryption"] != "off"
    context = ssl.create_default_context() if tls else None
    try:
        server = (
            smtplib.SMTP_SSL(host, port, timeout=timeout, context=context)
            if order["encryption"] == "tls"
            else smtplib.SMTP(host, port, timeout=timeout)
        )
        with contextlib.closing(server):
            if order["encryption"] == "starttls":
                server.starttls(context=context)
            if order["user"] is not None:
                server.login(order["user"], order["password"])
            refused = server.sendmail(order["sender"], order["recipients"], order["mail"].encode())
    except smtplib.SMTPRecipientsRefused as error:
        raise RequestFailed(f"it refused {_refusals(error.recipients)}") from error
    except smtplib.SMTPResponseException as error:
        raise RequestFailed(f"it answered {error.smtp_code}: {_text(error.smtp_error)}") from error
    except smtplib.SMTPException as error:
        raise RequestFailed(str(error)) from error
    return f"refused: {_refusals(refused)}" if refused else ""


def _refusals(found: Mapping[str, tuple[int, bytes]]) -> str:
    return ", ".join(f"{who} ({code} {_text(text)})" for who, (code, text) in found.items())


def _text(said: bytes | str) -> str:
    return said.decode(errors="replace") if isinstance(said, bytes) else said


def send_apprise(order: Order) -> str:
    """Give a message to apprise. Raises RequestFailed."""
    apprise = order["apprise"]
    told = apprise.Apprise(asset=apprise.AppriseAsset(async_mode=False))
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as log:
        if not told.add(order["url"]):
            raise RequestFailed(f"apprise does not know such a URL: {_last(log)}")
        if not told.notify(title=order["title"], body=order["body"], notify_type=order["type"]):
            raise RequestFailed(f"apprise could not send it: {_last(log)}")
    return ""


def _last(log: Any) -> str:
    lines = [line.strip() for line in log.getvalue().splitlines() if line.strip()]
    return lines[-1] if lines else "it does not say why"


def _with_apprise(order: Order) -> Order:
    try:
        import apprise
    except ImportError:
        raise RequestFailed(
            "apprise is not installed; install python3-apprise, or use another way than apprise"
        ) from None
    # It loads its plugins when it first sees a URL: now, for later it may not be able to read them.
    apprise.Apprise().add("json://localhost")
    return {**order, "apprise": apprise}


WAYS = {"http": send_http, "smtp": send_smtp, "apprise": send_apprise}


def send_order(order: Order) -> dict[str, object]:
    """Send it, and say how that went."""
    try:
        if order["way"] == "apprise":
            order = _with_apprise(order)
        become_nobody(SENDER_FILES)
        return {"ok": True, "told": WAYS[order["way"]](order)}
    except RequestFailed as error:
        return {"ok": False, "told": str(error)}
    except ssl.SSLError as error:
        return {"ok": False, "told": f"the connection is not safe: {error.reason or error}"}
    except TimeoutError:
        return {"ok": False, "told": f"it did not answer within {order['timeout']:g} s"}
    except OSError as error:
        return {"ok": False, "told": error.strerror or str(error)}
    except Exception as error:
        # Of apprise's plugins nobody knows all that they raise; a traceback may show a secret.
        return {"ok": False, "told": f"it failed in an unforeseen way: {type(error).__name__}"}


def main() -> int:
    """Send the one message on standard input, and print how that went."""
    said = send_order(json.loads(sys.stdin.buffer.read()))
    sys.stdout.write(json.dumps(said) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
