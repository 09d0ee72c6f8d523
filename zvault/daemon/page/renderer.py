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
from zvault.daemon.page import charts, dataset_view, files_view, page_views
from zvault.daemon.page.page_model import BackupPage, DatasetPage, FilesPage, Overview, RunPage
from zvault.daemon.page.page_words import SIGNS, show_duration, show_moment
from zvault.daemon.page.runbooks import Runbooks
from zvault.daemon.page.timeline import draw_timeline
from zvault.data import find_data_path

TEMPLATE_FOLDER = "page"

LIVE_PARTS = ("state", "needs", "running", "backups", "vaults")
"""Parts of the first page that change while one looks, by the id that they have in it."""

LIVE_HEADERS = {"X-Accel-Buffering": "no"}
"""For a proxy in between: changes are not to be held back."""

EVERY, EVERY_OF_A_RUN = 30, 5
"""Seconds after which a page is made anew; of the first one only where it is not told of changes."""


def _shown(value: object) -> object:
    """What stands in a page: text that is no markup may come from another end."""
    return make_printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


class PageRenderer:
    """Makes the pages. All files are read when it is made."""

    def __init__(self, zone: str, runbooks: Runbooks) -> None:
        self._zone = _zone(zone)
        self._runbooks = runbooks
        self._environment = Environment(
            loader=FileSystemLoader(find_data_path(TEMPLATE_FOLDER)),
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
        return (find_data_path(TEMPLATE_FOLDER) / name).read_bytes()

    def _render(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(values)

    def parts(self, found: Overview) -> dict[str, str]:
        """The HTML within each part of the first page that changes."""
        at = show_moment(found["now"], found["now"], self._zone)
        values: dict[str, dict[str, Any]] = {
            "state": {**page_views.show_state(found), "at": at, "host": found["host"]},
            "needs": page_views.show_needs(found, self._runbooks.of),
            "running": page_views.show_running(found, self._zone),
            "backups": page_views.show_backups(found, self._zone),
            "vaults": page_views.show_vaults(found, self._zone),
        }
        made = {name: self._render(f"part_{name}.html", **values[name]) for name in LIVE_PARTS}
        return {**made, "title": f"{values['state']['level']}: zvault on {found['host']}"}

    def overview(self, found: Overview, parts: dict[str, str]) -> str:
        """Render the first page."""
        return self._render(
            "overview.html",
            every=EVERY,
            host=found["host"],
            level=page_views.show_state(found)["level"],
            part=parts,
            week=page_views.show_week(found, self._zone),
            past=page_views.show_past(found["days"]),
            calendar=charts.draw_calendar(found["days"]),
        )

    def backup(self, found: BackupPage) -> str:
        """Render a backup's page."""
        limit, now = found["backup"]["max_lag_seconds"], found["now"]
        rows = found["datasets"]
        return self._render(
            "backup.html",
            every=EVERY,
            host=found["host"],
            at=show_moment(now, now, self._zone),
            one=page_views.show_backup(found["backup"], found["schedule"], now, self._zone),
            cards=page_views.list_backup_needs("backup", found["backup"], self._runbooks.of),
            datasets=page_views.show_datasets(rows, now, self._zone, limit) if rows is not None else None,
            total=found["total"],
            page=found["page"],
            pages=found["pages"],
            runs=page_views.show_runs(found["runs"], now, self._zone),
            past=page_views.show_past(found["days"]),
            calendar=charts.draw_calendar(found["days"]),
            lag=charts.draw_lag_chart(found["days"], limit),
            limit=show_duration(limit) if limit is not None else "",
            sent=charts.draw_sent_chart(found["days"]),
            mounts=[{**one, "at": show_moment(one["since"], now, self._zone)} for one in found["mounts"]],
            lists_files=found["lists_files"],
        )

    def dataset(self, found: DatasetPage) -> str:
        """Render a dataset's page."""
        now = found["now"]
        return self._render(
            "dataset.html",
            every=EVERY,
            host=found["host"],
            at=show_moment(now, now, self._zone),
            one=dataset_view.show_dataset(found, self._zone),
            line=draw_timeline([(made, bits) for made, bits in found["drawn"]], now),
            points=dataset_view.show_points(found, self._zone),
            page=found["page"],
            pages=found["pages"],
        )

    def files(self, found: FilesPage) -> str:
        """The page of a folder in a mounted snapshot."""
        return self._render("files.html", host=found["host"], one=files_view.show_files(found, self._zone))

    def run(self, found: RunPage, id: str) -> str:
        """Render a run's page."""
        now = found["now"]
        return self._render(
            "run.html",
            every=EVERY_OF_A_RUN if found["run"] is None or found["run"]["ended"] is None else 10 * EVERY,
            host=found["host"],
            id=id,
            at=show_moment(now, now, self._zone),
            run=page_views.show_runs([found["run"]], now, self._zone)[0]
            if found["run"] is not None
            else None,
            lines=[{**one, "at": show_moment(one["time"], now, self._zone)} for one in found["lines"]]
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


__all__ = ["LIVE_HEADERS", "PageRenderer", "jinja2"]
