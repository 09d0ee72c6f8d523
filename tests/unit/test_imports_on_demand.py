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

AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBhDCCASmgAwIBAgIULiipeHDISK0REL9dsXuw+BEJ9vAwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLenZhdWx0IHRlc3QwIBcNMjYxMTI2MDAyNTQyWhgPMjEyNjEx
MDIwMDI1NDJaMBYxFDASBgNVBAMMC3p2YXVsdCB0ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAExyxRgWIhLX2+PuO/zYxBW/Hw9DcZwvEMrtBn+VZGL/kW5cZR
1yNi6xhd4QacezNV2GZ+G7A/V3M/PSe8KgyhZ6NTMFEwHQYDVR0OBBYEFOSnU9Cv
EV4l79Lg51nB1fiXx4CXMB8GA1UdIwQYMBaAFOSnU9CvEV4l79Lg51nB1fiXx4CX
MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSQAwRgIhAI1Tem1z2+GoauE6
PTTNyBxaWeL4aSM1TFNkebo4+m+YAiEA+XePrpRfc9oBKGGoBuH+wbZF0VDtt6sG
FI+Q4OLJmNo=
-----END CERTIFICATE-----
"""
"""A certificate, for a host that trusts this one alone."""

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
        ("zvault.cli.app", "zvault.cli.verbs.status", COMMAND_SELDOM),
    ],
)
def test_a_start_imports_only_what_every_start_needs(module: str, needed: str, seldom: set[str]) -> None:
    found = imported("-c", f"import {module}; {LIST}")
    assert needed in found
    assert found & seldom == set()


def test_a_start_of_zvaultd_reads_no_certificates_and_what_speaks_tls_afterwards_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "ca.pem").write_text(AUTHORITY)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    run = "import json, os, sys\nfrom zvault.daemon import main\nbefore = dict(os.environ)\n"
    run += "with main._importing():\n    from zvault.daemon import app\n"
    run += "import ssl, mimetypes, aiohttp.connector as connector\n"
    run += "assert dict(os.environ) == before\n"
    run += "assert mimetypes.knownfiles and not mimetypes.inited\n"
    run += "contexts = [connector._SSL_CONTEXT_VERIFIED, ssl.create_default_context()]\n"
    run += "print(json.dumps([one.cert_store_stats()['x509'] for one in contexts]), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == [0, 1]


def test_the_process_that_answers_web_requests_has_no_tls_and_nothing_of_zvaultd() -> None:
    program = Path(__file__).parents[2] / "zvault/daemon/web/listener.py"
    run = "import runpy, sys; sys.argv = ['x', 'localhost']\nsys.exit = lambda *_: None\n"
    run += f"try: runpy.run_path({str(program)!r}, run_name='__main__')\nexcept BaseException: pass\n"
    found = imported("-c", run + LIST)
    assert {"aiohttp.web", "jinja2"} <= found
    assert not found & {"_ssl", "pydantic", "apscheduler", "dbus_fast", "zvault.config", "zvault.ops"}
