"""A server with Langfuse's API of dashboards, whose requests are checked as Langfuse does: by its types and its views.

The fields of views are those that Langfuse 4 has for widgets (its data model, version 2).
"""

from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Self

from aiohttp import web
from langfuse.api import unstable

from tests.support import http_server
from tests.support.langfuse_schemas import errors

type Body = dict[str, Any]

PUBLIC_KEY, SECRET_KEY = "pk-lf-1", "sk-lf-secret"
_MOMENT: Final = "2026-11-20T11:12:01.250000Z"
_COMMON: Final = {"environment", "name", "sessionId", "tags", "traceName", "traceRelease", "traceVersion", "userId"}
_OF_SCORES: Final = _COMMON | {"dataType", "observationName", "source"}


@dataclass(frozen=True, slots=True)
class View:
    """What widgets may group by, measure and filter by."""

    dimensions: frozenset[str]
    measures: frozenset[str]
    filters: frozenset[str]


VIEWS: Final = {
    "observations": View(
        frozenset(
            _COMMON | {"level", "providedModelName", "type", "version", "release", "promptName", "promptVersion"}
        ),
        frozenset({"count", "latency", "totalCost", "totalTokens", "inputTokens", "outputTokens"}),
        frozenset(_COMMON | {"level", "metadata", "providedModelName", "type", "version", "release"}),
    ),
    "scores-numeric": View(
        frozenset(_OF_SCORES | {"value"}),
        frozenset({"count", "value"}),
        frozenset(_OF_SCORES | {"metadata", "value"}),
    ),
    "scores-categorical": View(
        frozenset(_OF_SCORES | {"stringValue"}),
        frozenset({"count"}),
        frozenset(_OF_SCORES | {"metadata", "stringValue"}),
    ),
}
_OPERATORS: Final = {
    "string": {"=", "contains", "does not contain", "starts with", "ends with"},
    "number": {"=", ">", "<", ">=", "<="},
    "stringOptions": {"any of", "none of"},
}
_VALUES: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "number": lambda value: isinstance(value, int | float),
    "stringOptions": lambda value: isinstance(value, list),
}


@dataclass
class DashboardServer:
    """Keeps widgets and dashboards; `changes` are the methods and paths that wrote, `refused` what was wrong."""

    version: str | None = "4.59.0"
    widgets: dict[str, Body] = field(default_factory=dict[str, Body])
    dashboards: dict[str, Body] = field(default_factory=dict[str, Body])
    changes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    refused: list[str] = field(default_factory=list[str])

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._authorized])
        app.router.add_get("/api/public/health", self._health)
        for path, kept, of in (
            ("/api/public/unstable/dashboard-widgets", self.widgets, "Widget"),
            ("/api/public/unstable/dashboards", self.dashboards, ""),
        ):
            create = getattr(unstable, f"CreateDashboard{of}Request")
            change = getattr(unstable, f"UpdateDashboard{of}Request")
            app.router.add_get(path, self._list(kept))
            app.router.add_post(path, self._store(kept, create))
            app.router.add_patch(f"{path}/{{id}}", self._store(kept, change))
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        self._listening = await http_server.start(self._runner)
        return self

    async def __aexit__(self, *_: object) -> None:
        await http_server.stop(self._runner, self._listening)

    @property
    def url(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    @web.middleware
    async def _authorized(self, request: web.Request, handler: Callable[..., Any]) -> web.StreamResponse:
        expected = f"Basic {b64encode(f'{PUBLIC_KEY}:{SECRET_KEY}'.encode()).decode()}"
        if request.path != "/api/public/health" and request.headers.get("Authorization") != expected:
            wrong = {"message": "Invalid credentials", "code": "authentication_failed"}
            return web.json_response(wrong, status=HTTPStatus.UNAUTHORIZED)
        return await handler(request)

    async def _health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "OK", "version": self.version})

    def _list(self, kept: Mapping[str, Body]) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            number, limit = int(request.query["page"]), min(int(request.query["limit"]), 2)  # several pages
            items = list(kept.values())
            pages = max(1, -(-len(items) // limit))
            meta = {"page": number, "limit": limit, "totalItems": len(items), "totalPages": pages}
            return web.json_response({"data": items[(number - 1) * limit : number * limit], "meta": meta})

        return answer

    def _store(self, kept: dict[str, Body], schema: Any) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            body: Body = await request.json()
            wrong = errors(schema, body) or list(self._faults(body))
            if wrong:
                self.refused += wrong
                return web.json_response({"code": "invalid_request", "message": "; ".join(wrong)}, status=400)
            self.changes.append((request.method, request.path))
            name = request.match_info.get("id") or f"id-{len(self.widgets) + len(self.dashboards)}"
            stored = kept.get(name, {"id": name, "createdAt": _MOMENT, "description": "", "filters": []})
            kept[name] = {**stored, **body, "updatedAt": _MOMENT}
            if kept is self.widgets:
                kept[name].setdefault("chartConfig", {"type": kept[name]["chartType"]})
            return web.json_response(kept[name])

        return answer

    def _faults(self, body: Body) -> Iterator[str]:
        """Yield what Langfuse refuses though it fits the types."""
        if "view" in body:
            yield from widget_faults(body)
        placed: Sequence[Body] = body.get("definition", {}).get("widgets", ())
        if len({tile["id"] for tile in placed}) < len(placed):
            yield "Placement ids must be unique"
        yield from (f"there is no widget {tile['widgetId']}" for tile in placed if tile["widgetId"] not in self.widgets)


def widget_faults(widget: Body) -> Iterator[str]:
    """Yield which fields of a widget its view doesn't have, and filters that fit no type."""
    view = VIEWS[widget["view"]]
    yield from (f"dimension {one['field']}" for one in widget["dimensions"] if one["field"] not in view.dimensions)
    yield from (f"measure {one['measure']}" for one in widget["metrics"] if one["measure"] not in view.measures)
    if len(widget["dimensions"]) > 1 and widget["chartType"] != "PIVOT_TABLE":
        yield "Only pivot table widgets can have multiple dimensions"
    if widget.get("chartConfig", {}).get("type", widget["chartType"]) != widget["chartType"]:
        yield "chartConfig.type must match chartType"
    for one in widget["filters"]:
        kind = one["type"]
        if one["column"] not in view.filters:
            yield f"filter column {one['column']}"
        if one["operator"] not in _OPERATORS.get(kind, ()) or not _VALUES[kind](one["value"]):
            yield f"filter {one}"
