"""Shutdown: zvaultd stops alone, and vaults stay up; or with the host, and every vault goes down before it.

The order of a stop after SIGTERM is that of the daemon (app.py); this module says what becomes of running jobs, and
has the limits.

logind announces most shutdowns some seconds before systemd stops anything: then runs are stopped and vaults taken down
while all of the host is still there. What is not done by then goes on as zvaultd is stopped.

A pool that is still imported when the kernel ends loses nothing that was synced. But its storage may hang by a network
that is gone by then, and what unmounts it would wait for that; another host could not import it without force.
"""

from __future__ import annotations

import asyncio
import contextlib

from zvault.core.errors import ZvaultError
from zvault.daemon import journald
from zvault.daemon.job_runner import JobRunner
from zvault.daemon.journald import log
from zvault.ops.context import Context
from zvault.ops.vaults.vault import ManagedVault, Vaults
from zvault.system.systemd_units import SystemdUnits
from zvault.system.unit_order import order_daemon

GOES_DOWN = "the host is going down"
"""Why a run was stopped."""

DRAIN_SECONDS = 20.0
"""How long a daemon that stops alone lets runs end by themselves before it stops their streams, resumably."""

STREAMS_END_TIME = 60.0
"""Seconds for runs to end that were stopped for a shutdown, before vaults that nobody uses are taken down without
waiting for them. One hangs in the kernel then, or takes its own vault down, which goes on."""


async def order_stop(context: Context) -> None:
    """Have systemd stop zvaultd before the units by which vaults are reached."""
    devices = [device for vault in context.env.config.vault.values() for device in vault.device]
    units = [unit for device in devices for unit in device.requires_unit]
    try:
        if await order_daemon(units, context.env.runner):
            log.info("systemd stops zvaultd before %s", ", ".join(sorted(set(units))) or "no unit any more")
    except (OSError, ZvaultError) as error:
        log.warning("systemd may stop %s before zvaultd: %s", ", ".join(sorted(set(units))), error)


async def end_runs(context: Context, runner: JobRunner) -> None:
    """Have all runs end: where the host goes down too at once, else after some patience."""
    try:
        context.activity.awake.set()  # where a sleep was announced, this is what comes of it
        # What was announced stays true, whatever systemd tells of itself by then.
        if not context.activity.going_down:
            context.activity.going_down = await SystemdUnits(context.env.runner).host_goes_down()
    except ZvaultError as error:
        log.warning("whether the host goes down as well is not known: %s", error)
    if context.activity.going_down:
        await runner.drain(GOES_DOWN, 0.0)
    else:
        await runner.drain("the daemon is stopping", DRAIN_SECONDS)


async def prepare_shutdown(context: Context, runner: JobRunner, vaults: Vaults) -> set[str]:
    """Once a shutdown is announced: stop what runs, resumably, and take down each vault that nobody uses any more.

    Nothing starts until ``call_off_shutdown``. Returns the backups whose runs it stopped.
    """
    context.activity.going_down = True
    stopped = await runner.put_down(GOES_DOWN, STREAMS_END_TIME)
    idle = [vault for vault in vaults.all() if not vault.users]
    await asyncio.gather(*(_let_go(context, vault) for vault in idle))
    return stopped


def call_off_shutdown(context: Context, runner: JobRunner) -> None:
    """Let runs start again: the host stays up after all."""
    context.activity.going_down = False
    runner.reopen()


READINGS_END = 30.0
"""Seconds for snapshots that are open for reading, or mounted for somebody, to be closed: it is tried for 20."""


async def close_readings(context: Context) -> None:
    """Wait until what was open for reading is closed; what stays so, as somebody reads there, the next start closes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(READINGS_END):
            while context.activity.readings:  # noqa: ASYNC110 - a set has no event
                await asyncio.sleep(0.1)


async def release_vaults(context: Context, vaults: Vaults) -> None:
    """Wait for what moves a vault; where the host goes down, take down all that are up, side by side."""
    await asyncio.gather(*(_let_go(context, vault) for vault in vaults.all()))


async def _let_go(context: Context, vault: ManagedVault) -> None:
    await vault.settled()
    if not (context.activity.going_down and vault.config.is_imported_by_zvault and vault.lease.exists):
        return
    say, pool = journald.make_vault_logger(vault.name), vault.config.pool
    try:
        if await vault.assembly().zpool.kernel_state(pool) == "SUSPENDED":
            say(f"pool {pool} is suspended, and stays imported: nothing more can be written to it")
        else:
            await vault.down(say)
    except ZvaultError as error:
        log.error("vault %s: %s", vault.name, error, extra={"VAULT": vault.name})
    except Exception:
        log.exception("taking vault %s down failed", vault.name)  # the others go down all the same
