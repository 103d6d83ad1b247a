"""Responses fit the schema at `/openapi.json`, for valid and invalid requests."""

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft202012Validator
from schemathesis import GenerationMode, checks, openapi

from starling.core.events.stream import ANY_EVENT
from starling.core.ids import new_id
from starling.core.principal import Scope
from tests.integration.http.conftest import LiveApi
from tests.support.local_access import AS_ADMIN
from tests.support.soak import rounds

pytestmark = pytest.mark.asyncio(loop_scope="module")

CHECKS: list[Any] = [checks.response_schema_conformance, checks.content_type_conformance]


@schemathesis.serializer("application/jsonl")
def lines_of(_context: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send lines as they are: Schemathesis has no serializer for them."""
    return value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")


ROUTES = Path(__file__).parents[3] / "docs/reference/routes.md"
STARTING = {"POST /v1/registry/plan", "POST /v1/registry/reload"}  # they would run the commands that are made up
DONE = {
    *("GET /tools", "POST /execute", "GET /v1/models", "POST /v1/chat/completions", "POST /v1/responses"),
    *("GET /v1/servers", "GET /v1/keys", "POST /v1/keys", "POST /process", "POST /v1/agent/run"),
}
NO_KEY_SUFFICES = {"POST /v1/doctor", "POST /v1/console/sessions"}  # a local token, a code
BOUNDED = settings(
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def keeps_its_promise(operation: Any, mode: GenerationMode, examples: int, headers: Mapping[str, str]) -> set[int]:
    """Send requests that are made up, and those that the document has as examples; return the statuses."""
    statuses: set[int] = set()

    def send(case: Any, headers: Mapping[str, str]) -> None:
        response = case.call_and_validate(checks=CHECKS, timeout=60, headers=headers)
        assert response.status_code in {*range(500), 502}, response.text  # 502: the MCP server of the request is away
        statuses.add(response.status_code)

    def answers(case: Any) -> None:
        send(case, headers)

    def documented_is_answered(case: Any) -> None:
        send(case, {**headers, "Idempotency-Key": new_id()})  # the documented key is the same for all routes

    documented = operation.get_strategies_from_examples() if mode is GenerationMode.POSITIVE else ()
    settings(BOUNDED, max_examples=examples)(given(operation.as_strategy(generation_mode=mode))(answers))()
    for example in documented:
        settings(BOUNDED, max_examples=1)(given(example)(documented_is_answered))()
    return statuses


# Runs that were begun in the background take random numbers in this process while Hypothesis makes its own.
@pytest.mark.filterwarnings("ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning")
@pytest.mark.parametrize("mode", list(GenerationMode))
@rounds(2, soak=25, name="examples")
async def test_responses_conform_to_the_openapi_document(api: LiveApi, mode: GenerationMode, examples: int) -> None:
    schema: Any = await asyncio.to_thread(openapi.from_url, f"{api.url}/openapi.json", headers=AS_ADMIN, timeout=60)
    every = [found.ok() for found in schema.get_all_operations()]
    chosen = [operation for operation in every if mode is GenerationMode.POSITIVE or operation.body]
    answered: dict[str, set[int]] = {}

    for operation in chosen:
        if operation.label not in STARTING:
            key = await api.key(*Scope)  # one each, for the limit of its rate
            answered[operation.label] = await asyncio.to_thread(keeps_its_promise, operation, mode, examples, key)

    assert {route for route, statuses in answered.items() if statuses <= {401, 403, 429}} <= NO_KEY_SUFFICES
    if mode is GenerationMode.POSITIVE:
        documented = set(re.findall(r"^\| `([A-Z]+ /[^`]*)`", ROUTES.read_text("utf-8"), re.MULTILINE))
        assert answered.keys() == documented - STARTING
        assert {route for route in DONE if not {200, 201} & answered[route]} == set()


async def test_every_error_is_described_as_a_problem(api: LiveApi) -> None:
    described = await api.get("/openapi.json")
    responses = described["paths"]["/v1/runs/{run_id}/events"]["get"]["responses"]

    assert set(responses) >= {"200", "404", "422"}
    assert {media for status in ("404", "422") for media in responses[status]["content"]} == {
        "application/problem+json"
    }
    assert "HTTPValidationError" not in described["components"]["schemas"]


async def test_every_event_is_described_where_it_is_streamed(api: LiveApi) -> None:
    described = await api.get("/openapi.json")
    schemas, events = described["components"]["schemas"], described["paths"]["/v1/runs/{run_id}/events"]["get"]

    sent = events["responses"]["200"]["content"]["text/event-stream"]["schema"]["properties"]
    assert sent["data"]["contentSchema"] == {"$ref": "#/components/schemas/AnyEvent"}
    told = {
        kind: schemas[ref.rpartition("/")[2]] for kind, ref in schemas["AnyEvent"]["discriminator"]["mapping"].items()
    }
    assert set(told) >= {"run_started", "plan", "thinking", "tool_start", "tool_result", "gap", "error", "done"}
    assert set(told) >= {"approval_required", "clarification", "budget_required", "in_doubt"}
    assert {"id", "message", "responseSchema", "expiresAt", "call"} <= set(told["approval_required"]["required"])


def described_content(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Give what is sent and answered as JSON or as a stream: where, and its schema with all that it refers to."""
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            parts = {"body": operation.get("requestBody", {}), **operation["responses"]}
            for where, part in parts.items():
                for media, content in part.get("content", {}).items():
                    if where[0] in "b2" and media != "text/plain":
                        yield f"{method} {path} {where}", content["schema"] | {"components": described["components"]}


async def test_every_request_and_response_body_has_a_valid_example(api: LiveApi) -> None:
    described = await api.get("/openapi.json")

    found = list(described_content(described))

    assert len(found) > len(described["paths"])
    for where, schema in found:
        name = schema.get("$ref", "").rpartition("/")[2]
        examples = (described["components"]["schemas"][name] if name else schema).get("examples")
        assert examples, where
        for example in examples:
            assert [error.message for error in Draft202012Validator(schema).iter_errors(example)] == [], where
            if "event" in schema.get("properties", {}):
                assert ANY_EVENT.validate_json(example["data"]).type == example["event"]


@pytest.mark.parametrize("path", ["/health", "/ready"])
async def test_open_paths_describe_no_status_403(api: LiveApi, path: str) -> None:
    described = await api.get("/openapi.json")

    responses = described["paths"][path]["get"]["responses"]
    assert {"200", "401", "429"} <= set(responses)
    assert "403" not in responses
    assert "403" in described["paths"]["/v1/runs"]["get"]["responses"]


@pytest.mark.parametrize("page", ["/docs", "/redoc"])
async def test_documentation_pages_load_nothing_from_other_hosts(api: LiveApi, page: str) -> None:
    async with api.client.get(page) as response:
        html = await response.text()
    loaded = [link for link in re.findall(r"""(?:src|href)=["']([^"']+)""", html) if not link.startswith("data:")]

    assert loaded
    for link in loaded:
        async with api.client.get(link) as response:
            assert response.status == 200
            assert response.url.host == "127.0.0.1"
