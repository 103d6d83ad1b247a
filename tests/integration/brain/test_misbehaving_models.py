"""Whatever the model answers at each call of each node: the run ends with a structured result, within its bounds."""

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from starling.core.teams.stars import StarSpec
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import InterruptAnswer
from tests.integration.brain.test_teams import BENCH_WORKER
from tests.support.interrupted_runs import ANSWERER, execute_run, open_interrupts
from tests.support.misbehaving_model import (
    FORBIDDEN,
    LANES,
    MISBEHAVIOURS,
    QUESTION,
    SUPERVISOR,
    Behaviour,
    MisbehavingModel,
    fitting,
    verdicts,
)
from tests.support.model_server import ModelServer
from tests.support.platform import Platform, RunStream, Workbench, open_platform
from tests.support.soak import rounds

TEAM = StarSpec(name="machines", purpose="Looks after machines.", members=(BENCH_WORKER,))
LIMITS: Mapping[str, Any] = {
    "model_call_seconds": 1.5,
    "tasks_per_plan": 8,
    "supervisor_calls": 4,
    "tool_calls_per_task": 12,
}
USUAL = 60  # examples
MOST_WAITS = 12
LOOPS = Behaviour({SUPERVISOR: ["in a loop"], QUESTION: ["asks"], "t1": ["failing"]}, frozenset(LANES))
AGENTS = {"mcp_agent_bench", "mcp_agent_shop", "machines", "looker", "generalist", "coder", "architect"}
ENDED = {"succeeded", "failed", "budget_exhausted"}
_THREADS = count(1)
_TAKE_JOB = text("DELETE FROM procrastinate_jobs WHERE queueing_lock = :run AND status = 'todo'")


def script_of(lane: str) -> st.SearchStrategy[list[str]]:
    """Misbehaviours of a lane's kind, twice as often as any others."""
    own = st.sampled_from(fitting(lane))
    return st.lists(st.one_of(own, own, st.sampled_from(list(MISBEHAVIOURS))), max_size=5)


behaviours = st.builds(
    Behaviour,
    st.fixed_dictionaries({lane: script_of(lane) for lane in LANES}),
    st.frozensets(st.sampled_from(LANES)),
    st.none() | st.tuples(st.sampled_from(LANES), st.integers(0, 2)),
)
answers = st.lists(st.booleans(), max_size=MOST_WAITS)
limits: st.SearchStrategy[Any] = st.fixed_dictionaries({"tokens": st.sampled_from([20, 100])})
no_fields: Mapping[str, st.SearchStrategy[Any]] = {}
configs: st.SearchStrategy[Mapping[str, Any]] = st.fixed_dictionaries(
    no_fields,
    optional={
        "mode": st.sampled_from(["CONSERVATIVE", "EXPLORATORY"]),
        "replan": st.just("always"),
        "limits": limits,
        "agent": st.sampled_from(["mcp_agent_shop", "machines", "generalist"]),
    },
)


@pytest.fixture(scope="module")
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def model() -> MisbehavingModel:
    return MisbehavingModel()


@pytest.fixture(scope="module")
def platform(
    portal: BlockingPortal,
    model: MisbehavingModel,
    module_database_url: str,
    workbench_process: Workbench,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Platform]:
    servers = {"bench": workbench_process.as_server("read"), "shop": workbench_process.as_server("unsafe")}
    folder = tmp_path_factory.mktemp("platform")
    with portal.wrap_async_context_manager(ModelServer(model)) as server:
        opening = open_platform(module_database_url, server, servers, folder, **LIMITS)
        with portal.wrap_async_context_manager(opening) as platform:
            portal.call(platform.activate, TEAM)
            yield platform


async def ended(platform: Platform, model: MisbehavingModel, resolves: Sequence[bool], **config: Any) -> RunStream:
    """Execute a run until it ends; each answer resolves what it waits for, where it can, or cancels it."""
    degraded: Any = platform.brain._parts.models  # pyright: ignore[reportPrivateUsage]
    degraded.inner._memory.degraded.clear()
    key = await platform.accept("How are disk and door?", thread=f"thread-{next(_THREADS)}", **config)
    async with platform.executing(key) as life:  # until it ends or waits, or the model holds an answer back
        held = asyncio.create_task(model.held.wait())
        await asyncio.wait({life, held}, return_when=asyncio.FIRST_COMPLETED)
        held.cancel()
    for wait in range(MOST_WAITS):
        row = await platform.services.runs.documents.row(key)
        if row.result is None and not await open_interrupts(platform, key):
            await execute_run(platform, key)
        if not await open_interrupts(platform, key):
            return await platform.stream(key)
        await answer(platform, key, resolve=wait < len(resolves) and resolves[wait])
    raise AssertionError("the run asks again and again")


async def answer(platform: Platform, key: RunKey, *, resolve: bool) -> None:
    given: list[InterruptAnswer] = []
    for asked in await open_interrupts(platform, key):
        payloads: dict[str, Any] = {
            "clarification": {"answer": "The first one."},
            "approval": {"approved": True},
            "budget": {"tokens": 60},
        }
        is_resolved = resolve and asked.kind in payloads
        state = "resolved" if is_resolved else "cancelled"
        given.append(InterruptAnswer(asked.id, state, payloads[asked.kind] if is_resolved else {}))
    async with platform.services.storage.engine.begin() as connection:  # a worker would have taken the run's job
        await connection.execute(_TAKE_JOB, {"run": key.id})
    await platform.services.runs.interrupts.answer(key, given, ANSWERER)


def check_plans(stream: RunStream, most_decisions: int) -> None:
    for path, plans in grouped(stream.of("plan"), "path").items():
        assert len(plans) <= most_decisions, path
        assert [plan["version"] for plan in plans] == list(range(1, len(plans) + 1)), path
        assert len(plans[-1]["tasks"]) <= LIMITS["tasks_per_plan"], path
    assert len(stream.of("clarification")) <= 2


def check_tasks(stream: RunStream, model: MisbehavingModel, workbench: Workbench) -> None:
    starts, results = grouped(stream.of("task_start"), "path"), grouped(stream.of("task_result"), "path")
    assert results.keys() >= starts.keys()
    for path, started in starts.items():
        assert len(results[path]) == 1, path
        assert [one["attempt"] for one in started] == list(range(1, len(started) + 1)), path
        assert len(started) <= 2, path
        assert started[0]["agent"] in AGENTS
    reviews = grouped(stream.of("reflection"), "path")
    for path, (result,) in results.items():
        if result["status"] != "approved":
            continue
        last = reviews[path][-1]
        assert (last["attempt"], last["status"] in ("APPROVED", "FIXED")) == (result["attempt"], True), path
        told = verdicts(model.answered[f"review {result['task_id']}"])
        fixes = told[told.index("FIXED") :] if last["status"] == "FIXED" else told
        assert "APPROVED" in fixes, path  # of the fixed text, too
    done, asked = Counter(workbench.done()), model.calls
    unsafe = {call for call in asked if call.startswith("change t2")}  # its agent is that of the shop
    repeatable = {call: times for call, times in asked.items() if call not in unsafe and model.held.is_set()}
    assert not done - asked - Counter(repeatable)  # a crash may repeat reads
    assert FORBIDDEN not in str(done)


def grouped(events: Sequence[Mapping[str, Any]], name: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        groups.setdefault(event[name], []).append(event)
    return groups


@rounds(USUAL, soak=1_000, name="examples")
def test_run_ends_within_its_bounds_whatever_the_model_answers(
    portal: BlockingPortal, platform: Platform, model: MisbehavingModel, workbench: Workbench, examples: int
) -> None:
    @settings(max_examples=examples, derandomize=examples == USUAL)
    @given(behaviours, answers, configs)
    @example(Behaviour({SUPERVISOR: ["400"]}, crash=("t1", 0)), [], {})
    @example(Behaviour({SUPERVISOR: ["valid", "400"], "t2": ["words", "words"]}, crash=("t3", 0)), [], {})
    @example(Behaviour({SUPERVISOR: ["question"], QUESTION: ["asks"]}, frozenset(LANES)), [True] * MOST_WAITS, {})
    @example(LOOPS, [True] * MOST_WAITS, {"replan": "always"})
    @example(LOOPS, [], {"mode": "CONSERVATIVE"})
    def check(behaviour: Behaviour, resolves: Sequence[bool], config: Mapping[str, Any]) -> None:
        workbench.forget()
        model.begin(behaviour)

        stream = portal.call(partial(ended, platform, model, resolves, **config))

        assert stream.status in ENDED
        assert stream.reply.strip()
        assert not {"internal", "recursion_limit"} & set(stream.codes)
        assert stream.kinds.count("done") == 1
        check_plans(stream, LIMITS["supervisor_calls"])
        check_tasks(stream, model, workbench)
        has_result = any(one["status"] == "approved" for one in stream.of("task_result"))
        assert stream.status != "succeeded" or has_result or not stream.of("task_start")

    check()
