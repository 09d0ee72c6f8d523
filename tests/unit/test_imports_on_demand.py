"""A start imports what every start needs, and the rest on demand.

A user waits for a start, and the lab pays for it a thousand times.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIST = """
import json, sys
print(json.dumps(sorted(name for name, module in sys.modules.items() if module is not None)), file=sys.stderr)
"""

DAEMON_SELDOM = {
    "boto3",
    "jinja2",
    "numpy",
    "prometheus_client",
    "rich",
    "typer",
    "zvault.cli",
    "zvault.daemon.daemon_knowledge",
    "zvault.daemon.page.site",
    "zvault.daemon.web.listener",
    "zvault.devices.s3_lease.guard",
    "zvault.devices.s3_lease.lease_object",
    "zvault.object_store",
    "zvault.ops.diagnosis.doctor",
    "zvault.ops.diagnosis.fit",
    "zvault.ops.explain.document",
    "zvault.ops.forecast",
    "zvault.ops.healing.heal",
    "zvault.ops.provision.create_vault",
    "zvault.ops.provision.measure",
    "zvault.ops.restore.restore_datasets",
    "zvault.ops.restore.restore_files",
    "zvault.ops.restore.find_files",
    "zvault.ops.restore.mount_snapshot",
    "zvault.ops.retention.holds",
    "zvault.ops.tuning.tuning_report",
    "zvault.ops.vaults.take_vault_over",
    "zvault.ops.verification.restore_drill",
    "zvault.ops.verification.verification",
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

PROGRAM_SELDOM = {"asyncio", "pydantic", "aiohttp", "zvault.config.load_config", "zvault.daemon.app"}
"""Nor does zvaultd to tell its version."""

OPENSSL = {"_ssl", "_hashlib"}


def imported(*argv: str) -> set[str]:
    """The modules that an interpreter has after it ran this."""
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    ("module", "needed", "seldom"),
    [
        ("zvault.daemon.app", "zvault.ops.run", DAEMON_SELDOM),
        ("zvault.daemon.main", "argparse", PROGRAM_SELDOM),
        ("zvault.zfs.pool.event_child", "ctypes", {"asyncio", "dataclasses", "inspect", "subprocess"}),
        ("zvault.cli.app", "typer", COMMAND_SELDOM),
    ],
)
def test_a_start_imports_only_what_every_start_needs(module: str, needed: str, seldom: set[str]) -> None:
    found = imported("-c", f"import {module}; {LIST}")
    assert needed in found
    assert found & seldom == set()


def test_a_command_imports_its_own_verb_and_all_of_them_need_nothing_of_zvaultd() -> None:
    load = (
        "from zvault.cli.app import assemble_app; import typer.main; typer.main.get_command(assemble_app({}))"
    )
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
    assert not found & {*OPENSSL, "pydantic", "apscheduler", "dbus_fast", "zvault.config", "zvault.ops"}


BEGIN = """
import sys
from zvault.daemon import main
with main._importing():
    main._import_without_tls()
    import zvault.daemon.app
"""
"""As zvaultd begins."""


def test_zvaultd_begins_without_openssl_and_whoever_needs_it_later_has_it() -> None:
    """Each certificate of the host, as aiohttp reads them, and the library would else be in memory for nothing."""
    assert not imported("-c", BEGIN + LIST) & {*OPENSSL, "http.client", "prometheus_client"}
    later = """
import ssl, hashlib, hmac, http.client, urllib.request, asyncio
assert http.client.HTTPSConnection and urllib.request.HTTPSHandler
assert hashlib.scrypt and hmac.new(b"key", b"text", "sha256").hexdigest()
import boto3
client = boto3.client("s3", region_name="x", aws_access_key_id="a", aws_secret_access_key="b", use_ssl=True)
assert client.meta.endpoint_url.startswith("https:")
import prometheus_client
"""
    assert imported("-c", BEGIN + later + LIST) >= OPENSSL


def test_zvaultd_begins_with_a_python_that_has_no_hashes_but_those_of_openssl() -> None:
    without = """
import importlib.util
of = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {"_sha2", "_sha256"} else of(name, *rest)
"""
    assert "_hashlib" in imported("-c", without + BEGIN + LIST)


def test_zvaultd_begins_without_looking_for_plugins_or_checking_what_pydantic_makes() -> None:
    watched = """
import importlib.metadata, os, sys
looked = []
told = {}

class Asked:
    def find_spec(self, name, *_):
        if name == "zvault.daemon.app":
            told.update(os.environ)

sys.meta_path.insert(0, Asked())
importlib.metadata.Distribution.entry_points = property(lambda self: looked.append(self) or ())
import pydantic._internal._core_utils as utils
if hasattr(utils, "_validate_core_schema"):  # before 2.13
    utils._validate_core_schema = lambda schema: looked.append(schema) or schema
"""
    after = """
assert not looked, looked
# Newer versions ask for fewer of them: then only their names tell that an older one would be told.
assert (told["PYDANTIC_DISABLE_PLUGINS"], told["PYDANTIC_SKIP_VALIDATING_CORE_SCHEMAS"]) == ("__all__", "1")
assert not [name for name in __import__("os").environ if name.startswith("PYDANTIC_")]
from importlib.metadata import entry_points
entry_points(group="console_scripts")
assert looked
"""
    imported("-c", watched + BEGIN + after + LIST)


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
