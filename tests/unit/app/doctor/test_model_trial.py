"""The trial of a model: each ability is told apart from its absence, on an endpoint that speaks HTTP."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from starling.app.doctor.model_abilities import ABILITIES
from starling.app.doctor.model_trial import ModelReport, try_models
from starling.core.errors import ConfigurationError
from starling.core.llm import ModelRole
from starling.core.settings.schema import ProviderSettings, Settings
from tests.support.model_script import Answer, Body
from tests.support.model_server import ModelServer

type Endpoint = Callable[[Body], Answer]

FACTS = '{"colour": "red", "legs": 8}'
KEY = "sk-0123456789abcdef0123456789abcdef"


def words(body: Body) -> str:
    return "\n".join(str(message["content"]) for message in body["messages"])


def schema_in_prompt(body: Body) -> bool:
    return "must fit this JSON schema" in words(body)


def tools_in_prompt(body: Body) -> bool:
    return "You can call the tools below" in words(body)


def wants_schema(body: Body) -> bool:
    return body.get("response_format", {}).get("type") == "json_schema"


def reads_archive(body: Body) -> bool:
    return "number of the archive" in words(body)


def calls(body: Body) -> list[dict[str, object]]:
    return [{"name": "get_weather", "arguments": {"city": city}} for city in ("Lima", "Oslo") if city in words(body)]


def able(body: Body) -> Answer:
    """Answer as an endpoint and a model that can do everything."""
    if "tool_choice" in body:
        return Answer(tool_calls=[{"name": "facts", "arguments": FACTS}])
    if wants_schema(body) or schema_in_prompt(body):
        return Answer(FACTS)
    if "tools" in body:
        return Answer(tool_calls=calls(body))
    if tools_in_prompt(body):
        return Answer(str({"tool_calls": calls(body)}).replace("'", '"'))
    if reads_archive(body):
        return Answer(f"It is {re.findall(r'archive is ([0-9]+)', words(body))[0]}.", usage=(17_000, 5))
    return Answer("It is 19, ok?")


def refused(reason: str) -> Answer:
    return Answer(status=400, body=f'{{"error": {{"message": "{reason}"}}}}')


def order_of(body: Body) -> str:
    return "".join(re.findall(r"answer only with the number ([0-9]+)", words(body)))


def otherwise(applies: Callable[[Body], object], answer: Answer | Endpoint) -> Endpoint:
    """Return the able endpoint, but for the requests that `applies` finds."""

    def respond(body: Body) -> Answer:
        if not applies(body):
            return able(body)
        return answer(body) if callable(answer) else answer

    return respond


def in_text(body: Body) -> Answer:
    return Answer(f"<tool_call>{str(calls(body)[0]).replace(chr(39), chr(34))}</tool_call>")


def first_call(body: Body) -> Answer:
    return Answer(tool_calls=calls(body)[:1])


def whole(body: Body) -> Answer:
    content = (
        '{"choices": [{"message": {"content": "one two"}}], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}'
    )
    return Answer(body=content)


def with_usage(tokens_in: int, tokens_out: int) -> Endpoint:
    return lambda body: replace(able(body), usage=(tokens_in, tokens_out))


PROSE, IN_PROSE = Answer("A ripe tomato is red."), Answer(f"Sure! ```json\n{FACTS}\n```")

# What the endpoint does otherwise, and the states that differ from those of the able one.
LIMITED: Mapping[str, tuple[Endpoint, Mapping[str, str]]] = {
    "nothing": (able, {}),
    "schema refused": (otherwise(wants_schema, refused("json_schema is unknown")), {"json_by_schema": "emulated"}),
    "schema ignored": (otherwise(wants_schema, PROSE), {"json_by_schema": "missing"}),
    "other document": (otherwise(wants_schema, Answer('{"colour": "red"}')), {"json_by_schema": "missing"}),
    "prose instead of JSON": (otherwise(schema_in_prompt, PROSE), {"json_by_instruction": "missing"}),
    "JSON in prose": (otherwise(schema_in_prompt, IN_PROSE), {"json_by_instruction": "emulated"}),
    "tools refused": (
        otherwise(lambda body: "tools" in body, refused("tools are unknown")),
        {"native_tool_call": "emulated", "parallel_calls": "emulated"},
    ),
    "calls as text": (
        otherwise(lambda body: "tools" in body and len(calls(body)) == 1, in_text), {"native_tool_call": "emulated"},
    ),
    "no calls": (
        otherwise(lambda body: "tools" in body, Answer("It is sunny.")),
        {"native_tool_call": "missing", "parallel_calls": "missing"},
    ),
    "another tool": (
        otherwise(lambda body: "tools" in body, Answer(tool_calls=[{"name": "search", "arguments": {"city": "Lima"}}])),
        {"native_tool_call": "missing", "parallel_calls": "missing"},
    ),
    "one call at a time": (otherwise(lambda body: "tools" in body, first_call), {"parallel_calls": "missing"}),
    "no JSON calls": (otherwise(tools_in_prompt, Answer("It is sunny.")), {"tool_call_by_json": "missing"}),
    "one piece": (otherwise(lambda body: body.get("stream"), whole), {"streaming": "emulated"}),
    "stream without text": (otherwise(lambda body: "twenty" in words(body), Answer("")), {"streaming": "missing"}),
    "no usage": (with_usage(0, 0), {"usage_reported": "missing"}),
    "no usage in streams": (
        otherwise(lambda body: body.get("stream"), with_usage(0, 0)), {"usage_reported": "missing"},
    ),
    "beginning lost": (otherwise(reads_archive, Answer("It is 42.")), {"long_context": "missing"}),
    "text shortened": (
        otherwise(reads_archive, lambda body: replace(able(body), usage=(4_096, 5))), {"long_context": "missing"},
    ),
    "order in data obeyed": (
        otherwise(order_of, lambda body: Answer(order_of(body))), {"data_is_no_instruction": "missing"},
    ),
    "data not read": (otherwise(order_of, Answer("I can't say.")), {"data_is_no_instruction": "missing"}),
}  # fmt: skip


async def report_on(endpoint: Endpoint, *, seconds: float = 60, **provider: object) -> ModelReport:
    async def respond(body: Body) -> Answer:
        return endpoint(body)

    async with ModelServer(respond) as server:
        local = ProviderSettings.model_validate({"base_url": server.url, "api_key": KEY, **provider})
        settings = Settings(model=("local:small",), providers={"local": local})
        [report] = await try_models(settings, seconds=seconds)
    assert report.requests == len(server.requests)
    return report


def states(report: ModelReport) -> dict[str, str]:
    return {result.ability.code: result.state for result in report.results}


@pytest.mark.parametrize("limited", LIMITED)
async def test_each_ability_is_told_apart_from_its_absence(limited: str) -> None:
    endpoint, differing = LIMITED[limited]

    report = await report_on(endpoint)

    assert states(report) == {ability.code: "works" for ability in ABILITIES} | dict(differing)
    assert all(result.detail for result in report.results)


def test_every_ability_has_a_limited_endpoint_that_lacks_it() -> None:
    lost = {code for _, differing in LIMITED.values() for code, state in differing.items() if state == "missing"}

    assert lost == {ability.code for ability in ABILITIES} - {"answers"}
    assert len(ABILITIES) == 10


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer(status=401, body=f'{{"error": {{"message": "no such key {KEY}"}}}}'), "no such key"),
        (Answer("<think>Who knows?"), "empty"),
    ],
)
async def test_nothing_else_is_tried_on_a_model_that_does_not_answer(answer: Answer, says: str) -> None:
    report = await report_on(lambda _: answer)

    first, *others = report.results
    assert (first.state, {result.state for result in others}) == ("missing", {"untried"})
    assert says in first.detail
    assert KEY not in str(report)
    assert (report.requests, report.suits, report.fails) == (1, [], True)


@pytest.mark.parametrize(
    ("limited", "unsuited"),
    [
        ("nothing", []),
        ("schema refused", []),
        ("schema ignored", []),
        ("tools refused", []),
        ("no calls", ["router"]),
        ("beginning lost", ["reasoning", "coding"]),
        ("order in data obeyed", ["router", "reasoning"]),
    ],
)
async def test_model_suits_the_roles_that_it_has_the_abilities_for(limited: str, unsuited: Sequence[str]) -> None:
    report = await report_on(LIMITED[limited][0])

    assert [role for role in ModelRole if role not in report.suits] == [ModelRole(name) for name in unsuited]
    assert report.fails == bool(unsuited)


@pytest.mark.parametrize(("limited", "lacks"), [("no calls", "tools"), ("schema ignored", "json_schema")])
async def test_feature_that_is_ignored_is_replaced_by_the_setting_that_the_hint_names(limited: str, lacks: str) -> None:
    endpoint, differing = LIMITED[limited]

    [hint] = (await report_on(endpoint)).hints
    told = await report_on(endpoint, lacks=[lacks])

    assert f"`lacks: [{lacks}]`" in hint
    assert {states(told)[code] for code in differing} == {"emulated"}
    assert told.hints == []


async def test_trial_ends_within_its_time_limit() -> None:
    report = await report_on(otherwise(lambda body: "tools" in body, Answer(hold="never")), seconds=2)

    found = states(report)
    assert (found["answers"], found["native_tool_call"], found["long_context"]) == ("works", "missing", "untried")


async def test_rules_are_not_tried() -> None:
    [report] = await try_models(Settings(model=("offline:rules",)))

    assert (report.model, report.results, report.fails) == ("offline:rules", (), False)


async def test_unknown_model_is_refused_without_a_request() -> None:
    with pytest.raises(ConfigurationError, match="There is no model offline:magic"):
        await try_models(Settings(model=("offline:rules",)), "offline:magic")


async def test_model_of_supervisors_is_tried_for_what_the_role_reasoning_needs() -> None:
    async def respond(body: Body) -> Answer:
        return able(body)

    async with ModelServer(respond) as server:
        local = ProviderSettings(base_url=server.url)
        chosen = {"model": ("offline:rules",), "model_supervisor": ("local:planner",)}
        _, report = await try_models(Settings.model_validate({**chosen, "providers": {"local": local}}))

    assert (report.model, list(report.used_for), report.fails) == ("local:planner", [ModelRole.REASONING], False)
