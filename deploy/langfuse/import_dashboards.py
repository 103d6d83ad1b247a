"""Imports the dashboards of this folder into a Langfuse project; a second import changes only what differs.

Reads the settings of Langfuse that Starling has: LANGFUSE_HOST, LANGFUSE_PUBLIC_KEY, LANGFUSE_SECRET_KEY. Widgets and
dashboards are known by their names, which begin with `Starling: `; others are left alone. Exit codes: 0 done, 1 refused
by Langfuse or out of reach, 2 wrong settings or an unknown version.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx
from langfuse.api import LangfuseAPI
from langfuse.api.core import ApiError
from langfuse.api.core.pydantic_utilities import parse_obj_as
from langfuse.api.unstable import CreateDashboardWidgetRequest, DashboardDefinition
from pydantic import ValidationError

from starling.core.errors import StarlingError
from starling.core.settings.schema import Settings
from starling.infra.tracing.destination import destination_of

FOLDER: Final = Path(__file__).parent / "dashboards"
OLDEST, NEWEST_MAJOR = (4, 59), 4  # the unstable API as the package langfuse 5.0.4 has it
_PAGE, _SECONDS = 100, 30.0

type Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Importer:
    """Creates and changes dashboards, or with `dry_run` only says what it would do."""

    client: LangfuseAPI
    dry_run: bool

    def run(self, dashboards: Sequence[Body]) -> int:
        """Import all dashboards; return how many widgets and dashboards were or would be changed."""
        unstable = self.client.unstable
        widgets = {one.name: one for one in _all(unstable.dashboard_widgets.list)}
        existing = {one.name: one for one in _all(unstable.dashboards.list)}
        changes = 0
        for dashboard in dashboards:
            ids: list[str] = []
            for tile in dashboard["widgets"]:
                done, widget_id = self._widget(tile["widget"], widgets.get(tile["widget"]["name"]))
                changes += done
                ids.append(widget_id)
            changes += self._dashboard(dashboard, ids, existing.get(dashboard["name"]))
        return changes

    def _widget(self, wanted: Body, found: Any) -> tuple[bool, str]:
        """Return whether a widget had to be created or changed, and its id."""
        if found is not None and not _differs(wanted, _json(found)):
            return False, found.id
        self._say("change" if found else "create", f"widget {wanted['name']!r}")
        if self.dry_run:
            return True, found.id if found else ""
        request = parse_obj_as(CreateDashboardWidgetRequest, wanted)
        given = {name: getattr(request, name) for name in request.model_fields_set}
        api = self.client.unstable.dashboard_widgets
        return True, (api.update(found.id, **given) if found else api.create(**given)).id

    def _dashboard(self, dashboard: Body, ids: Sequence[str], found: Any) -> bool:
        """Create or change a dashboard if it isn't there or differs; return whether that was so."""
        tiles = zip(dashboard["widgets"], ids, strict=True)
        placed = [
            {"type": "widget", "id": f"starling-{number}", "widgetId": widget_id, **tile["placement"]}
            for number, (tile, widget_id) in enumerate(tiles, start=1)
        ]
        wanted = {"name": dashboard["name"], "description": dashboard["description"], "definition": {"widgets": placed}}
        if found is not None and not _differs(wanted, _json(found)):
            return False
        self._say("change" if found else "create", f"dashboard {wanted['name']!r}")
        if not self.dry_run:
            definition = parse_obj_as(DashboardDefinition, wanted["definition"])
            given: dict[str, Any] = wanted | {"definition": definition}
            api = self.client.unstable.dashboards
            _ = api.update(found.id, **given) if found else api.create(**given)
        return True

    def _say(self, what: str, which: str) -> None:
        print(f"{'would ' if self.dry_run else ''}{what} {which}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Import the dashboards and return the exit code."""
    parser = argparse.ArgumentParser(description="Imports Starling's dashboards into a Langfuse project.")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be created or changed")
    parser.add_argument("--any-version", action="store_true", help="also for versions of Langfuse that are not known")
    options = parser.parse_args(arguments)
    try:
        destination = destination_of(Settings())
    except StarlingError as error:
        return _fail(2, str(error))
    if destination is None or not destination.langfuse:
        return _fail(2, "Set LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY to the keys of the project.")
    client = LangfuseAPI(base_url=destination.langfuse, headers=dict(destination.headers), timeout=_SECONDS)
    return _import(client, destination.langfuse, options)


def _import(client: LangfuseAPI, host: str, options: argparse.Namespace) -> int:
    try:
        version = client.health.health().version
        if not options.any_version and not _is_known(version):
            said = f"{host} is Langfuse {version}; the dashboards are for {'.'.join(map(str, OLDEST))} to 4.x."
            return _fail(2, f"{said} Try --any-version.")
        changes = Importer(client, options.dry_run).run(list(_dashboards()))
    except ApiError as error:
        return _fail(1, f"{host} answered {error.status_code}: {getattr(error.body, 'message', error.body)}")
    except httpx.HTTPError as error:
        return _fail(1, f"{host} can't be reached: {error}")
    except (ValidationError, AttributeError):  # the client checks little of an answer
        return _fail(
            1, f"{host} answered in a form that Langfuse's API doesn't have. Check LANGFUSE_HOST and the keys."
        )
    print(f"{changes} changes{' to make' if options.dry_run else ' made'}")
    return 0


def _dashboards() -> Iterator[Body]:
    for path in sorted(FOLDER.glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def _is_known(version: str) -> bool:
    major, _, rest = version.lstrip("v").partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        return False
    return (int(major), int(minor)) >= OLDEST and int(major) <= NEWEST_MAJOR


def _all(pages: Callable[..., Any]) -> Iterator[Any]:
    """Yield the items of all pages of a list."""
    number, last = 1, 1
    while number <= last:
        page = pages(page=number, limit=_PAGE)
        yield from page.data
        number, last = number + 1, page.meta.total_pages


def _json(model: Any) -> Any:
    return json.loads(model.json())


def _differs(wanted: Any, found: Any) -> bool:
    """Return whether anything wanted is not so; what Langfuse adds of its own doesn't count."""
    if isinstance(wanted, Mapping):
        names = cast("Body", wanted)
        return any(_differs(names[name], found.get(name)) for name in names)
    if isinstance(wanted, list):
        items, others = cast("list[Any]", wanted), cast("list[Any]", found)
        return len(items) != len(others) or any(map(_differs, items, others))
    return wanted != found


def _fail(code: int, text: str) -> int:
    print(text, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
