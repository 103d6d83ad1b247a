"""Reading records of runs page by page."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from starling.app.cli.platform.api_requests import Api
from starling.app.cli.platform.api_source import ApiDocuments
from starling.app.cli.platform.run_source import RecordFilter
from starling.core.json import canonical

RUNS = [f"run-{number}" for number in range(25)]


@dataclass
class Pages(Api):
    """Answers with pages of RUNS, and remembers what it was asked for."""

    asked: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])

    @property
    def place(self) -> str:
        return "test"

    def send(self, method: str, path: str, body: object = None, *, seconds: float | None = None) -> tuple[str, bytes]:
        del method, body, seconds
        query = dict(parse_qsl(urlsplit(path).query))
        self.asked.append(query)
        begin = RUNS.index(query["before"]) + 1 if "before" in query else 0
        found = RUNS[begin : begin + int(query["limit"])]
        more = begin + len(found) < len(RUNS)
        page: dict[str, Any] = {"records": [{"run_id": run} for run in found], "next": found[-1] if more else None}
        return "application/json", canonical(page).encode()


@pytest.mark.parametrize(("limit", "pages"), [(None, ["10", "10", "10"]), (12, ["10", "2"]), (3, ["3"])])
def test_records_are_read_as_far_as_they_are_wanted(limit: int | None, pages: list[str]) -> None:
    api = Pages()

    found = [record["run_id"] for record in ApiDocuments(api).records(RecordFilter(status="failed", limit=limit))]

    assert found == RUNS[:limit]
    assert [query["limit"] for query in api.asked] == pages
    assert {query["status"] for query in api.asked} == {"failed"}


def test_next_page_is_read_once_the_records_before_it_were_used() -> None:
    api = Pages()

    records = ApiDocuments(api).records(RecordFilter())
    for _ in range(10):
        next(records)

    assert len(api.asked) == 1
