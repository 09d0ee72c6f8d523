"""Makes HTML of documents, by the templates in zvault/data/page. Every value is escaped there, wherever it is from."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import jinja2.debug  # imported only when a template fails, and then there is no file system any more
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from zvault import __version__
from zvault.core.printable import make_printable
from zvault.daemon.page import charts, dataset_view, files_view, views
from zvault.daemon.page.model import BackupPage, DatasetPage, FilesPage, Overview, RunPage
from zvault.daemon.page.runbooks import Runbooks
from zvault.daemon.page.timeline import timeline
from zvault.daemon.page.words import SIGNS, duration, moment
from zvault.data import path

FOLDER = "page"

PARTS = ("state", "needs", "running", "backups", "vaults")
"""Parts of the first page that change while one looks, by the id that they have in it."""

LIVE = {"X-Accel-Buffering": "no"}
"""For a proxy in between: changes are not to be held back."""

EVERY, EVERY_OF_A_RUN = 30, 5
"""Seconds after which a page is made anew; of the first one only where it is not told of changes."""


def _shown(value: object) -> object:
    """What stands in a page: text that is no markup may come from another end."""
    return make_printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class Renderer:
    """Makes the pages. All files are read when it is made."""

    def __init__(self, zone: str, runbooks: Runbooks) -> None:
        self._zone = _zone(zone)
        self._runbooks = runbooks
        self._environment = Environment(
            loader=FileSystemLoader(path(FOLDER)),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            finalize=_shown,
            cache_size=-1,
        )
        self._environment.globals.update(
            version=__version__, sign=SIGNS.__getitem__, zone=zone if self._zone is not UTC else "UTC"
        )
        for name in self._environment.list_templates(["html"]):
            self._environment.get_template(name)

    def file(self, name: str) -> bytes:
        """A file that is served as it is."""
        return (path(FOLDER) / name).read_bytes()

    def _render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)

    def parts(self, found: Overview) -> dict[str, str]:
        """The HTML within each part of the first page that changes."""
        at = moment(found["now"], found["now"], self._zone)
        values: dict[str, dict[str, Any]] = {
            "state": {**views.state(found), "at": at, "host": found["host"]},
            "needs": views.needs(found, self._runbooks.of),
            "running": views.running(found, self._zone),
            "backups": views.backups(found, self._zone),
            "vaults": views.vaults(found, self._zone),
        }
        made = {name: self._render(f"part_{name}.html", **values[name]) for name in PARTS}
        return {**made, "title": f"{values['state']['level']}: zvault on {found['host']}"}

    def overview(self, found: Overview, parts: dict[str, str]) -> str:
        """Render the first page."""
        return self._render(
            "overview.html",
            every=EVERY,
            host=found["host"],
            level=views.state(found)["level"],
            part=parts,
            week=views.week(found, self._zone),
            past=views.past(found["days"]),
            calendar=charts.calendar(found["days"]),
        )

    def backup(self, found: BackupPage) -> str:
        """Render a backup's page."""
        limit, now = found["backup"]["max_lag_seconds"], found["now"]
        rows = found["datasets"]
        return self._render(
            "backup.html",
            every=EVERY,
            host=found["host"],
            at=moment(now, now, self._zone),
            one=views.backup(found["backup"], found["schedule"], now, self._zone),
            cards=views.of_one("backup", found["backup"], self._runbooks.of),
            datasets=views.datasets(rows, now, self._zone, limit) if rows is not None else None,
            total=found["total"],
            page=found["page"],
            pages=found["pages"],
            runs=views.runs(found["runs"], now, self._zone),
            past=views.past(found["days"]),
            calendar=charts.calendar(found["days"]),
            lag=charts.lag_chart(found["days"], limit),
            limit=duration(limit) if limit is not None else "",
            sent=charts.sent_chart(found["days"]),
            mounts=[{**one, "at": moment(one["since"], now, self._zone)} for one in found["mounts"]],
            lists_files=found["lists_files"],
        )

    def dataset(self, found: DatasetPage) -> str:
        """Render a dataset's page."""
        now = found["now"]
        return self._render(
            "dataset.html",
            every=EVERY,
            host=found["host"],
            at=moment(now, now, self._zone),
            one=dataset_view.dataset(found, self._zone),
            line=timeline([(made, bits) for made, bits in found["drawn"]], now),
            points=dataset_view.points(found, self._zone),
            page=found["page"],
            pages=found["pages"],
        )

    def files(self, found: FilesPage) -> str:
        """The page of a folder in a mounted snapshot."""
        return self._render("files.html", host=found["host"], one=files_view.files(found, self._zone))

    def run(self, found: RunPage, id: str) -> str:
        """Render a run's page."""
        now = found["now"]
        return self._render(
            "run.html",
            every=EVERY_OF_A_RUN if found["run"] is None or found["run"]["ended"] is None else 10 * EVERY,
            host=found["host"],
            id=id,
            at=moment(now, now, self._zone),
            run=views.runs([found["run"]], now, self._zone)[0] if found["run"] is not None else None,
            lines=[{**one, "at": moment(one["time"], now, self._zone)} for one in found["lines"]]
            if found["lines"] is not None
            else None,
            more=found["more"],
        )

    def runbook(self, name: str) -> str:
        """Render a runbook's page."""
        return self._render("runbook.html", name=name, blocks=self._runbooks.blocks(name))


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return UTC


__all__ = ["LIVE", "Renderer", "jinja2"]
