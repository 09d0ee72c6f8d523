"""A start imports what every start needs, and the rest on demand.

A user waits for a start, and the lab pays for it a thousand times.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIST = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"

DAEMON_SELDOM = {
    "boto3",
    "jinja2",
    "numpy",
    "prometheus_client",
    "rich",
    "typer",
    "zvault.cli",
    "zvault.daemon.knowledge",
    "zvault.daemon.page.site",
    "zvault.daemon.web.listener",
    "zvault.devices.s3_lease.guard",
    "zvault.devices.s3_lease.lease",
    "zvault.object_store",
    "zvault.ops.diagnosis.doctor",
    "zvault.ops.diagnosis.fit",
    "zvault.ops.explain.document",
    "zvault.ops.forecast",
    "zvault.ops.healing.heal",
    "zvault.ops.provision.create",
    "zvault.ops.provision.measure",
    "zvault.ops.restore.datasets",
    "zvault.ops.restore.files",
    "zvault.ops.restore.find",
    "zvault.ops.restore.mount",
    "zvault.ops.retention.holds",
    "zvault.ops.tuning.report",
    "zvault.ops.vaults.takeover",
    "zvault.ops.verification.restore_drill",
    "zvault.ops.verification.verify",
    "zvault.zfs.repair.block_writer",
}
"""No zvaultd needs them to be ready, nor for a run."""

COMMAND_SELDOM = {
    "aiohttp",
    "asyncio",
    "boto3",
    "numpy",
    "pydantic",
    "rich",
    "ssl",
    "zvault.blockstore",
    "zvault.config.schema",
    "zvault.daemon",
    "zvault.devices",
    "zvault.object_store",
    "zvault.ops",
    "zvault.zfs",
}
"""No command that only asks zvaultd needs them."""

PROGRAM_SELDOM = {"asyncio", "pydantic", "aiohttp", "zvault.config.load", "zvault.daemon.app"}
"""Nor does zvaultd to tell its version."""


def imported(*argv: str) -> set[str]:
    """The modules that an interpreter has after it ran this."""
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("module", "needed", "seldom"),
    [
        ("zvault.daemon.app", "zvault.ops.run", DAEMON_SELDOM),
        ("zvault.daemon.main", "argparse", PROGRAM_SELDOM),
        ("zvault.zfs.pool.change_child", "ctypes", {"asyncio", "dataclasses", "inspect", "subprocess"}),
        ("zvault.cli.app", "typer", COMMAND_SELDOM),
    ],
)
def test_a_start_imports_only_what_every_start_needs(module: str, needed: str, seldom: set[str]) -> None:
    found = imported("-c", f"import {module}; {LIST}")
    assert needed in found
    assert found & seldom == set()


def test_a_command_imports_its_own_verb_and_all_of_them_need_nothing_of_zvaultd() -> None:
    load = "from zvault.cli.app import assembled; import typer.main; typer.main.get_command(assembled({}))"
    one, every = (imported("-c", f"{load.format(only)}; {LIST}") for only in ("'status'", ""))
    verbs = "zvault.cli.verbs."
    assert {name for name in one if name.startswith(verbs)} == {f"{verbs}status"}
    assert len({name for name in every if name.startswith(verbs)}) > 20
    assert every & COMMAND_SELDOM == set()


def test_the_process_that_answers_web_requests_has_no_tls_and_nothing_of_zvaultd() -> None:
    program = Path(__file__).parents[2] / "zvault/daemon/web/listener.py"
    run = "import runpy, sys; sys.argv = ['x', 'localhost']\nsys.exit = lambda *_: None\n"
    run += f"try: runpy.run_path({str(program)!r}, run_name='__main__')\nexcept BaseException: pass\n"
    found = imported("-c", run + LIST)
    assert {"aiohttp.web", "jinja2"} <= found
    assert not found & {"_ssl", "pydantic", "apscheduler", "dbus_fast", "zvault.config", "zvault.ops"}


def test_zvaultd_begins_without_tls_and_whoever_needs_it_later_has_it() -> None:
    """Each certificate of the host, as aiohttp reads them, would else be in memory for nothing."""
    begin = (
        "import sys; from zvault.daemon import main; main._import_without_tls(); import zvault.daemon.app\n"
    )
    assert not imported("-c", begin + LIST) & {"_ssl", "http.client", "prometheus_client"}
    later = """
import ssl, http.client, urllib.request, asyncio
assert http.client.HTTPSConnection and urllib.request.HTTPSHandler
import boto3
client = boto3.client("s3", region_name="x", aws_access_key_id="a", aws_secret_access_key="b", use_ssl=True)
assert client.meta.endpoint_url.startswith("https:")
import prometheus_client
"""
    assert "_ssl" in imported("-c", begin + later + LIST)


def test_zvaultd_begins_with_an_aiohttp_that_does_not_do_without_tls() -> None:
    begin = """
import sys

class Needs:
    def find_spec(self, name, *_):
        if name == "aiohttp.connector" and sys.modules.get("ssl", 0) is None:
            raise AttributeError("module 'ssl' is none")

sys.meta_path.insert(0, Needs())
from zvault.daemon import main
main._import_without_tls()
import zvault.daemon.app, http.client, asyncio.sslproto
assert http.client.HTTPSConnection and asyncio.sslproto.ssl
"""
    assert {"_ssl", "aiohttp.connector"} <= imported("-c", begin + LIST)
