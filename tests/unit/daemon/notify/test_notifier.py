"""The notifier against a real server: told once, tried again, kept over a restart, and never by a lie."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.unit.api.conforms import wrong_answer
from tests.unit.daemon.notify.notifier_world import (
    ERROR,
    FIGURES,
    Web,
    World,
    web_server,  # noqa: F401
    world_for_test,  # noqa: F401
)
from tests.unit.events import make_event
from tests.unit.ops.ops_world import HOUR, START
from tests.unit.patience import FOR_EVER, PATIENCE, eventually
from zvault.api import routes
from zvault.api.events import MessageEvent, RunStarted
from zvault.core.notify.outbox import FAILING_TRIES


async def test_a_failing_backup_is_told_once_and_its_recovery_once_over_restarts(
    world: World, web: Web
) -> None:
    table = {"webhook": web.url + "/hook", "after": "0s"}
    for run, result in [("1", "failed"), ("2", "failed"), ("3", "ok"), ("4", "ok")]:
        world.tell(x=table)
        world.ran(run, result)
        await world.look()
        await world.look()
        await world.down()
        world.up()
    assert web.titles == ["backup b failed when it ran last", "over: backup b failed when it ran last"]
    first = json.loads(web.got[0][1])["notices"][0]
    assert (first["topic"], first["why"], first["next"]) == ("run", "the stream broke: no space", "make room")


async def test_what_was_not_delivered_is_tried_again_also_by_the_next_daemon(world: World, web: Web) -> None:
    table = {"webhook": web.url, "after": "0s"}
    world.tell(x=table)
    web.status = 503
    world.ran("1", "failed")
    for tries in range(FAILING_TRIES + 1):
        assert ("notify x" in world.status.warnings) == (tries >= FAILING_TRIES)
        await world.look()
        world.later(HOUR)
    assert not web.got
    (told,) = world.notifier.documents()
    assert (told["state"], told["waiting"], told["last_success"]) == ("failing", 1, None)
    assert told["last_error"] == "it answered 503 Service Unavailable"
    assert wrong_answer({"targets": [told]}, routes.NOTIFY) == []
    assert "undelivered" in world.status.daemon_verdict().keys
    await world.down()
    world.up()
    world.tell(x=table)
    web.status = 200
    world.later(5 * HOUR)
    await world.look()
    await world.look()
    assert web.titles == ["backup b failed when it ran last"]
    assert "notify x" not in world.status.warnings
    assert world.notifier.documents()[0]["state"] == "ok"


async def test_others_are_told_that_one_cannot_be_reached(world: World, web: Web) -> None:
    world.tell(x={"webhook": "http://127.0.0.1:9/", "after": "0s"}, y={"webhook": web.url, "after": "0s"})
    world.ran("1", "failed")
    for _ in range(FAILING_TRIES + 1):
        await world.look()
        world.later(HOUR)
    assert web.titles == ["backup b failed when it ran last", "zvaultd cannot deliver notifications"]
    assert world.notifier.documents()[0]["waiting"] == 1, "it is not told of itself"


async def test_a_damaged_state_begins_anew_and_what_is_still_wrong_is_told_again(
    world: World, web: Web
) -> None:
    world.tell(x={"webhook": web.url, "after": "0s"})
    world.ran("1", "failed")
    await world.look()
    await world.down()
    for text in ("{", "[]", '{"boot_id": "x", "time": 1, "data": {"book": 5}}'):
        (world.folder / "notify" / "x").write_text(text)
        world.up()
        world.tell(x={"webhook": web.url, "after": "0s"})
        await world.look()
        await world.down()
    assert web.titles == ["backup b failed when it ran last"] * 4
    world.up()


async def test_a_state_that_cannot_be_written_stops_nothing(world: World, web: Web) -> None:
    world.tell(x={"webhook": web.url, "after": "0s"})
    (world.folder / "notify").write_text("a file where the folder should be")
    world.ran("1", "failed")
    await world.look()
    await world.look()
    assert len(web.got) == 1


async def test_what_grows_worse_by_the_minute_is_not_written_by_the_minute(world: World, web: Web) -> None:
    world.ran("1", "ok")
    config = world.where.env.config
    late = config.backup["b"].model_copy(update={"max_lag": HOUR}).named("b")
    world.where.env.config = config.model_copy(update={"backup": {"b": late}})
    world.tell(x={"webhook": web.url, "after": "0s"})
    world.later(2 * HOUR)
    await world.look()
    file = world.folder / "notify" / "x"
    written = file.stat().st_ino
    for _ in range(5):
        world.later(60)
        await world.look()
    assert web.titles == ["backup b is late"]
    assert file.stat().st_ino == written


async def test_a_lost_history_is_no_recovery(world: World, web: Web) -> None:
    world.tell(x={"webhook": web.url, "after": "0s"})
    world.ran("1", "failed")
    await world.look()
    await world.down()
    (world.folder / "history.sqlite").unlink()
    world.up()
    world.tell(x={"webhook": web.url, "after": "0s"})
    await world.look()
    assert len(web.got) == 1


async def test_what_is_no_longer_configured_is_forgotten(world: World, web: Web) -> None:
    world.tell(x={"webhook": web.url, "after": "0s"})
    world.ran("1", "failed")
    await world.look()
    world.tell()
    await world.look()
    assert not (world.folder / "notify" / "x").exists()
    assert world.notifier.documents() == []


async def test_switches_are_told_of_each_run_with_its_reason_and_last_lines(world: World, web: Web) -> None:
    world.tell(hc={"healthchecks": web.url + "/uuid", "backups": ["b"]})
    emit = world.runs.runner.emitter("r1", "b")
    emit(RunStarted(trigger="schedule"))
    await world.look()
    emit(MessageEvent(text="something to say"))
    emit(make_event("run-finished", trigger="schedule", result="failed", error=ERROR, seconds=1.0, **FIGURES))
    await world.look()
    emit = world.runs.runner.emitter("r2", "b")
    emit(RunStarted(trigger="schedule"))
    await world.look()
    emit(make_event("run-finished", trigger="schedule", result="ok", error=None, seconds=1.0, **FIGURES))
    await world.look()
    assert [path for path, _ in web.got] == ["/uuid/start", "/uuid/fail", "/uuid/start", "/uuid"]
    assert web.got[1][1] == "the stream broke: no space\nNext: make room\n\nsomething to say"
    emit = world.runs.runner.emitter("r3", "b")
    emit(RunStarted(trigger="restore"))
    emit(make_event("run-finished", trigger="restore", result="ok", error=None, seconds=1.0, **FIGURES))
    await world.look()
    assert len(web.got) == 4, "a restore backs nothing up"


async def test_a_run_that_was_cut_short_is_neither_success_nor_failure(world: World, web: Web) -> None:
    world.tell(hc={"healthchecks": web.url + "/uuid", "backups": ["b"]})
    emit = world.runs.runner.emitter("r1", "b")
    emit(RunStarted(trigger="schedule"))
    emit(
        make_event(
            "run-finished", trigger="schedule", result="interrupted", error=ERROR, seconds=1.0, **FIGURES
        )
    )
    await world.look()
    assert [path for path, _ in web.got] == ["/uuid/start"]


async def test_a_test_says_how_it_went_and_where_it_would_lie(world: World, web: Web, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("http://127.0.0.1:9/S3CRET\n")
    secret.chmod(0o600)
    world.tell(
        hook={"webhook": web.url},
        hc={"healthchecks": web.url + "/uuid", "backups": ["b"]},
        kuma={"uptime_kuma": web.url + "/push", "backups": ["b"]},
        down={"webhook": f"file:{secret}"},
        none={"webhook": "file:/nowhere/at/all"},
    )

    def states() -> dict[str, str]:
        return {one["name"]: one["state"] for one in world.notifier.documents()}

    assert set(states().values()) == {"untried"}, "nothing has shown that they can be reached"
    results = {one["target"]: one for one in await world.notifier.try_out(None)}
    assert wrong_answer({"results": list(results.values())}, routes.NOTIFY_TEST) == []
    found = {name: one["result"] for name, one in results.items()}
    assert found == {"hook": "sent", "hc": "sent", "kuma": "skipped", "down": "failed", "none": "failed"}
    assert sorted(path for path, _ in web.got) == ["/", "/uuid/log"]
    assert "S3CRET" not in str(results)
    assert results["down"]["error"] is not None
    assert results["down"]["error"]["why"] == "Connection refused"
    assert states() == {"hook": "ok", "hc": "ok", "kuma": "untried", "down": "failed", "none": "failed"}


async def test_a_secret_that_everybody_may_read_is_not_used(world: World, web: Web, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(web.url)
    secret.chmod(0o644)
    world.tell(x={"webhook": f"file:{secret}"})
    (result,) = await world.notifier.try_out("x")
    assert result["error"] is not None
    assert result["error"]["why"] == "every user of this host may read it"
    assert not web.got


async def test_a_kept_url_without_the_backups_name_is_not_one_switch_for_all(
    world: World, web: Web, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(web.url + "/uuid")
    secret.chmod(0o600)
    world.tell(x={"healthchecks": f"file:{secret}"})
    (result,) = await world.notifier.try_out("x")
    assert result["error"] is not None
    assert "several backups" in result["error"]["why"]
    secret.write_text(web.url + "/{backup}")
    (result,) = await world.notifier.try_out("x")
    assert result["result"] == "sent"
    assert web.got[0][0] == "/b/log"


async def test_one_target_that_hangs_keeps_no_other(world: World, web: Web) -> None:
    with_socket = await asyncio.start_server(lambda _r, _w: asyncio.sleep(FOR_EVER), "127.0.0.1", 0)
    port = with_socket.sockets[0].getsockname()[1]
    world.tell(
        a={"webhook": f"http://127.0.0.1:{port}/", "after": "0s", "timeout": "5m"},
        b={"webhook": web.url, "after": "0s"},
    )
    world.ran("1", "failed")
    world.notifier.consider()
    world.notifier.send_due()
    await eventually(lambda: web.got)
    assert world.notifier.documents()[0]["state"] == "waiting"
    async with asyncio.timeout(PATIENCE):
        await world.notifier.close()
    with_socket.close()


async def test_a_week_is_reported_once_after_it_ended_also_over_a_restart(world: World, web: Web) -> None:
    table = {"webhook": web.url + "/hook", "report": "weekly", "after": "1d"}
    world.tell(x=table)
    world.ran("1", "ok")
    await world.look()
    assert web.titles == []
    for day in range(1, 17):
        await world.down()
        world.up()
        world.later(day * 86400)
        world.tell(x=table)
        await world.look()
    reports = [json.loads(body) for _, body in web.got if json.loads(body)["event"] == "report"]
    assert len(reports) == 2
    weeks = ["16 to 22 November 2026", "23 to 29 November 2026"]
    assert [one["title"].split(": ")[1] for one in reports] == weeks
    assert "\nBACKUP  STATE" in reports[0]["text"]
    # Nothing is asked for any more, and then again: nothing old is told.
    for asked in ({**table, "report": None}, table):
        await world.down()
        world.up()
        world.later(30 * 86400)
        world.tell(x=asked)
        await world.look()
    assert sum(json.loads(body)["event"] == "report" for _, body in web.got) == 2


async def test_a_report_waits_for_the_end_of_quiet_hours(world: World, web: Web) -> None:
    quiet = {"webhook": web.url + "/hook", "report": "weekly", "after": "1d", "quiet": "00:00-23:59"}
    world.tell(x=quiet)
    await world.look()
    world.later(8 * 86400)
    await world.look()
    assert web.got == []
    world.tell(x={**quiet, "quiet": None})
    await world.look()
    assert [json.loads(body)["event"] for _, body in web.got].count("report") == 1


async def test_a_report_says_what_the_history_has_and_where_it_begins(world: World) -> None:
    world.tell()
    world.ran("1", "failed")
    world.ran("2", "ok")
    world.later(8 * 86400)
    report = world.notifier.report("weekly")
    only = world.notifier.report("weekly", ["nobody"])
    (backup,) = [one for one in report.backups if one.name == "b"]
    assert (backup.figures.runs, backup.figures.faults) == (2, 1)
    assert report.since == START + 3 * HOUR
    world.later(7 * 86400)
    assert world.notifier.report("weekly").since is None
    assert only.backups == ()
    assert only.vaults == ()
