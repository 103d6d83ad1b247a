"""Whatever the models of all nodes answer, and whoever answers, cancels or ends processes meanwhile: runs end soundly.

No exception escapes, every run ends or waits for a person within its bounds, and the promises about verdicts hold.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from starling.core.agents import LLMAgentConfig
from starling.core.errors import InvalidRequestError
from starling.core.teams.building import BuildRequest
from starling.core.teams.stars import Member, StarSpec
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.interrupts import InterruptAnswer, StoredInterrupt
from tests.integration.brain.test_teams import BENCH_WORKER, PERSONA
from tests.support.interrupted_runs import open_interrupts, take_job
from tests.support.misbehaving_model import (
    ANSWER,
    ANYWHERE,
    CALLS,
    CAST,
    DECISIONS,
    DESIGNER,
    DESIGNS,
    JUDGE,
    JUDGEMENTS,
    LANES,
    MISBEHAVIOURS,
    QUESTION,
    QUESTIONS,
    SUPERVISOR,
    VERDICTS,
    MisbehavingModel,
    Script,
    Talk,
    fitting,
)
from tests.support.model_server import ModelServer
from tests.support.platform import CALLER, Platform, Workbench, open_platform
from tests.support.run_promises import LIMITS, BegunRun, EndedRun
from tests.support.soak import rounds

type Stop = tuple[Literal["crash", "cancel"], int]
"""What happens to a run while a model is asked for it, and at which of these calls, from 0."""

ACTOR = Actor.local("test")
CREWAI = Member(
    name="persona", persona=PERSONA, server="bench", tools=("bench.look",), runtime="crewai", reflect="risky"
)
TEAMS = (
    StarSpec(name="machines", purpose="Looks after machines.", members=(BENCH_WORKER,)),
    StarSpec(name="crew", purpose="Looks after crews.", members=(CREWAI,)),
)
CUSTOM = (
    LLMAgentConfig(id="critic", behavior_template="You judge."),
    LLMAgentConfig(id="scout", behavior_template="You look.", tools=("bench.look",), reflect="never"),
    LLMAgentConfig(
        id="keeper",
        behavior_template="You change things.",
        tools=("shop.look", "shop.change"),
        reflection_agent_id="critic",
    ),
)
PAYLOADS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "approve": {
        "clarification": {"answer": "The first one."},
        "approval": {"approved": True},
        "budget": {"tokens": 60},
        "in_doubt": {"resolution": "give_up"},
    },
    "refuse": {"approval": {"approved": False, "note": "No."}},  # others are cancelled
    "wrong": {
        "clarification": {"answer": 7},
        "approval": {"approved": "perhaps"},
        "budget": {"tokens": -1},
        "in_doubt": {},
    },
}
USUAL = 20  # examples
MOST_WAITS = 12
LOOPS = {SUPERVISOR: ["in a loop"], QUESTION: ["asks"], "t1": ["failing"]}


@dataclass(frozen=True, slots=True)
class Known:
    """A run of these tasks, or a build where there are none, whose lanes misbehave; what becomes of its questions."""

    scripts: Mapping[str, Script]
    plan: Sequence[str]
    config: Mapping[str, Any]
    stop: Stop | None
    how: str

    def __str__(self) -> str:
        scripts = (f"{lane}: {', '.join(script.names)}" for lane, script in self.scripts.items())
        return f"{'; '.join(scripts)} ({self.how})"


def known(
    scripts: Mapping[str, Sequence[str]], *plan: str, stop: Stop | None = None, how: str = "approve", **config: Any
) -> Known:
    return Known({lane: Script(names, stubborn=True) for lane, names in scripts.items()}, plan, config, stop, how)


KNOWN = [
    known({SUPERVISOR: ["400"]}, "t1", stop=("crash", 0)),
    known({SUPERVISOR: ["valid", "400"], "t2": ["words", "words", "valid"]}, "t1", "t2", "t3", stop=("crash", 4)),
    known({SUPERVISOR: ["question"], QUESTION: ["asks"]}, "t1"),
    known(LOOPS, "t1", replan="always"),
    known(LOOPS, "t1", how="refuse", mode="CONSERVATIVE"),
    known({"review t1": ["fixed", "approved", "valid"]}, "t1", "t3"),
    known({"review t1": ["fixed", "rejected"]}, "t1", "t5"),
    known({"review t1": ["rejected", "fixed", "approved"]}, "t1", "t2", replan="always"),
    known({"review t4": ["fixed once"]}, "t4"),
    known({"review t3": ["rejected"]}, "t3", "t1", reflect="always"),
    known({"review m1": ["rejected"], "review t1": ["unknown verdict"]}, "t1", "t5", reflect="never"),
    known({"review m2": ["fixed", "approved"]}, "t6", "t3", reflect="always"),
    known({"review t7": ["rejected", "approved"], "t7": ["change"]}, "t7", "t1", reflect="risky"),
    known({"review t2": ["rejected", "approved"]}, "t2", "t1", reflect="risky", stop=("crash", 3)),
    known({"review t2": ["rejected"]}, "t2", "t1", how="refuse", reflect="never"),
    known({ANSWER: ["cut off", "blank"]}, "t1", "t3", stop=("cancel", 3)),
    known({DESIGNER: ["unsafe"], JUDGE: ["undecided"]}),
    known({DESIGNER: ["unsafe"]}, how="refuse"),
    known({DESIGNER: ["wrong members", "valid"], JUDGE: ["unmet"]}),
    known({JUDGE: ["web page"]}, stop=("crash", 4)),
    known({"m1": ["words"], "team": ["others"]}),
]
NUMBERS = count(1)


def each() -> Iterator[Known]:
    """Give runs and builds in which each node misbehaves once in each way of its kind, several nodes in a run."""
    for number, decision in enumerate(DECISIONS):
        task_id = [*CAST][number % len(CAST)]
        lane = {"t5": "m1", "t6": "m2"}.get(task_id, task_id)
        kinds = {lane: CALLS, f"review {lane}": VERDICTS, ANSWER: ANYWHERE, QUESTION: QUESTIONS}
        scripts = {one: Script([[*kind][number % len(kind)]]) for one, kind in kinds.items()}
        yield Known({SUPERVISOR: Script([decision])} | scripts, (task_id,), {}, None, "approve")
    for number, design in enumerate(DESIGNS):
        judgement = [*JUDGEMENTS][number % len(JUDGEMENTS)]
        yield Known({DESIGNER: Script([design]), JUDGE: Script([judgement])}, (), {}, None, "approve")


plans = st.sampled_from([("t1", "t2", "t3"), ("t1", "t3"), ("t2", "t4"), ("t1", "t5"), ("t7", "t3"), ("t6",)])
usual = (
    SUPERVISOR,
    QUESTION,
    ANSWER,
    "team",
    "m1",
    *(f"{of}t{number}" for of in ("", "review ") for number in (1, 2, 3)),
)
lanes = st.sampled_from(usual) | st.sampled_from(LANES)
stops = st.none() | st.tuples(st.sampled_from(["crash", "cancel"]), st.integers(0, 7))
agents = sorted({*CAST.values(), "generalist"})


def config_of(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


configs = st.builds(
    config_of,
    mode=st.sampled_from([None, "CONSERVATIVE", "EXPLORATORY"]),
    replan=st.sampled_from([None, "always"]),
    reflect=st.sampled_from([None, "always", "risky", "never"]),
    limits=st.sampled_from([*[None] * 6, {"tokens": 20}, {"tokens": 100}]),
    agent=st.sampled_from([*[None] * 12, *agents]),
)
picks = st.integers(0, 60)


def script_of(lane: str) -> st.SearchStrategy[tuple[str, Script]]:
    """Misbehaviours of a lane's kind, twice as often as any others."""
    own = st.sampled_from(fitting(lane))
    names = st.lists(st.one_of(own, own, st.sampled_from(list(MISBEHAVIOURS))), min_size=1, max_size=4)
    return st.tuples(st.just(lane), st.builds(Script, names, st.booleans()))


class Escapes(logging.Handler):
    """Keeps what was logged as an error, and what nobody awaited or caught."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name != "aiohttp.server":  # that of the models, whose callers hang up
            self.found.append(self.format(record))

    def on_loop(self, _: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self.found.append(f"{context['message']}: {context.get('exception')!r}")


@pytest.fixture(scope="module")
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def model() -> MisbehavingModel:
    return MisbehavingModel()


@pytest.fixture
def escapes(portal: BlockingPortal) -> Generator[Escapes]:
    escapes = Escapes()

    async def watch(handler: Any) -> None:
        asyncio.get_running_loop().set_exception_handler(handler)

    logging.root.addHandler(escapes)
    portal.call(watch, escapes.on_loop)
    yield escapes
    portal.call(watch, None)
    logging.root.removeHandler(escapes)


@pytest.fixture(scope="module")
def platform(
    portal: BlockingPortal,
    model: MisbehavingModel,
    module_database_url: str,
    workbench_process: Workbench,
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[Platform]:
    shop = workbench_process.as_server("unsafe")
    shop["x-starling"]["tools"] = {"change": {"approval": "always"}}
    servers = {"bench": workbench_process.as_server("read"), "shop": shop}
    folder = tmp_path_factory.mktemp("platform")
    with portal.wrap_async_context_manager(ModelServer(model)) as server:
        opening = open_platform(module_database_url, server, servers, folder, **LIMITS)
        with portal.wrap_async_context_manager(opening) as platform:
            portal.call(fill, platform)
            yield platform


async def fill(platform: Platform) -> None:
    for team in TEAMS:
        await platform.activate(team)
    for agent in CUSTOM:
        await platform.services.agents.create(CALLER, agent, ACTOR)


class Runs(RuleBasedStateMachine):
    """Runs and builds one after another, of which some wait or have lost their process, and models that misbehave.

    Which rules there are, and what they draw, doesn't depend on how far runs come: that takes time.
    """

    def __init__(
        self, portal: BlockingPortal, platform: Platform, model: MisbehavingModel, bench: Workbench, escapes: Escapes
    ) -> None:
        super().__init__()
        self.portal, self.platform, self.model, self.bench, self.escapes = portal, platform, model, bench, escapes
        self.runs: list[BegunRun] = []
        self.open: list[BegunRun] = []
        self.waits: dict[str, Sequence[StoredInterrupt]] = {}
        model.forget()

    @initialize(scripts=st.lists(lanes.flatmap(script_of), min_size=3, max_size=9))
    def begin(self, scripts: Sequence[tuple[str, Script]]) -> None:
        self.misbehave(scripts)

    @rule(scripts=st.lists(lanes.flatmap(script_of), min_size=1, max_size=4))
    def misbehave(self, scripts: Sequence[tuple[str, Script]]) -> None:
        for lane, script in scripts:
            self.model.misbehave(lane, script)

    @rule(plan=plans, config=configs, stop=stops)
    def send(self, plan: Sequence[str], config: Mapping[str, Any], stop: Stop | None = None) -> None:
        self.portal.call(self._send, plan, config, stop)

    async def _send(self, plan: Sequence[str], config: Mapping[str, Any], stop: Stop | None) -> None:
        key = await self.platform.accept("How are disk and door?", thread=f"thread-{next(NUMBERS)}", **config)
        await self._begin(BegunRun(key, Talk(plan), config), stop)

    @rule(script=st.sampled_from([DESIGNER, JUDGE]).flatmap(script_of), activate=st.booleans(), stop=stops)
    def build(self, script: tuple[str, Script], activate: bool, stop: Stop | None = None) -> None:
        self.misbehave([script])
        if not any(run.team for run in self.runs):  # they take long
            self.portal.call(self._build, activate, stop)

    async def _build(self, activate: bool, stop: Stop | None) -> None:
        request = BuildRequest(goal="Look at the disks.", name=f"watch_{next(NUMBERS)}", activate=activate)
        key = (await self.platform.services.builds.team(CALLER, request)).key
        await self._begin(BegunRun(key, Talk(), team=request.name or ""), stop)

    @rule(pick=picks, how=st.sampled_from(sorted(PAYLOADS)), alone=st.booleans())
    def answer(self, pick: int, how: str, alone: bool) -> None:
        """Answer a run that waits; one that lost its process goes on."""
        if self.open:
            self.portal.call(self._go_on, self.open[pick % len(self.open)], how, alone)

    async def _go_on(self, run: BegunRun, how: str, alone: bool) -> None:
        await (self._answer(run, how, alone) if run.key.id in self.waits else self._execute(run, None))

    @rule(pick=picks)
    def cancel(self, pick: int) -> None:
        """What waits or has lost its process ends at once; what has ended stays as it is."""
        if self.runs:
            self.portal.call(self._cancel, self.runs[pick % len(self.runs)])

    async def _cancel(self, run: BegunRun) -> None:
        run.cancelled |= run.end is None
        status = await self.platform.services.runs.cancellation.cancel(run.key)
        if run.end:
            assert status == run.end.status
        else:
            await self._settle(run)
            assert run.end

    async def _begin(self, run: BegunRun, stop: Stop | None) -> None:
        self.runs.append(run)
        self.open.append(run)
        await self._execute(run, stop)

    async def _execute(self, run: BegunRun, stop: Stop | None) -> None:
        """Execute a run until it ends or waits, or until what happens to it at the call of a model."""
        degraded: Any = self.platform.brain._parts.models  # pyright: ignore[reportPrivateUsage]
        degraded.inner._memory.degraded.clear()
        self.bench.forget()
        self.model.talk, talk = run.talk, run.talk
        talk.stop, talk.held = stop and stop[1], asyncio.Event()
        async with self.platform.executing(run.key) as life:
            held = asyncio.create_task(talk.held.wait())
            await asyncio.wait({life, held}, return_when=asyncio.FIRST_COMPLETED)
            held.cancel()
            if stop and not life.done():
                run.crashes += stop[0] == "crash"
                run.cancelled |= stop[0] == "cancel"
                if run.cancelled:
                    await self.platform.services.runs.cancellation.cancel(run.key)
            if run.cancelled or life.done():
                await life
        run.done += Counter(self.bench.done())
        await self._settle(run)
        assert run.end or self.waits.get(run.key.id) or run.crashes, "it neither ended nor waits"

    async def _settle(self, run: BegunRun) -> None:
        """Look what a run waits for, and check it once it has ended."""
        self.waits.pop(run.key.id, None)
        row = await self.platform.services.runs.documents.row(run.key)
        if row.result is None:
            if waits := await open_interrupts(self.platform, run.key):
                self.waits[run.key.id] = waits
            return
        self.open.remove(run)
        run.end = await self.platform.stream(run.key)
        assert await open_interrupts(self.platform, run.key) == []
        EndedRun(run, run.end, await self.platform.services.runs.documents.read(run.key)).check()
        if run.team and any(one["state"] == "active" for one in run.end.of("published")):
            await self.platform.services.teams.archive(CALLER, run.team, ACTOR)

    async def _answer(self, run: BegunRun, how: str, alone: bool) -> None:
        asked = self.waits[run.key.id][: 1 if alone else None]
        payloads = [(one.id, PAYLOADS[how].get(one.kind)) for one in asked]
        answers = [
            InterruptAnswer(name, "cancelled" if one is None else "resolved", one or {}) for name, one in payloads
        ]
        await take_job(self.platform, run.key)
        refused = False
        try:
            await self.platform.services.runs.answering.answer(run.key, answers, ACTOR, CALLER)
        except InvalidRequestError:
            refused = True
        assert refused == (how == "wrong")
        if refused:
            assert await open_interrupts(self.platform, run.key) == self.waits[run.key.id]
            return
        run.approved |= how == "approve"
        if len(asked) == len(self.waits[run.key.id]):
            await self._execute(run, None)
        else:
            self.waits[run.key.id] = await open_interrupts(self.platform, run.key)

    async def _end(self) -> None:
        for run in [*self.open]:
            for _ in range(MOST_WAITS):
                if run.end is None:
                    await self._go_on(run, "refuse", alone=False)
            assert run.end, "the run asks again and again"

    @invariant()
    def nothing_escapes(self) -> None:
        assert self.escapes.found == []

    def teardown(self) -> None:
        self.portal.call(self._end)


@pytest.fixture
def runs(
    portal: BlockingPortal, platform: Platform, model: MisbehavingModel, workbench: Workbench, escapes: Escapes
) -> Callable[[], Runs]:
    class OnPlatform(Runs):
        def __init__(self) -> None:
            super().__init__(portal, platform, model, workbench, escapes)

    return OnPlatform


@pytest.mark.parametrize("case", [*KNOWN, *each()], ids=str)
def test_run_ends_soundly_where_nodes_misbehave(runs: Callable[[], Runs], case: Known) -> None:
    machine = runs()
    machine.misbehave([*case.scripts.items()])
    if case.plan:
        machine.send(case.plan, case.config, case.stop)
    else:
        machine.build((JUDGE, case.scripts.get(JUDGE, Script())), activate=True, stop=case.stop)

    machine.answer(0, "wrong", alone=True)
    for _ in range(MOST_WAITS):
        machine.answer(0, case.how, alone=False)
    machine.teardown()

    machine.nothing_escapes()


@rounds(usual=USUAL, soak=300, name="examples")
def test_runs_end_soundly_whatever_models_answer(runs: Any, examples: int) -> None:
    is_usual = examples == USUAL
    phases = [Phase.generate] if is_usual else [*Phase]  # to shrink what fails takes minutes
    chosen = settings(max_examples=examples, stateful_step_count=20, derandomize=is_usual, phases=phases)
    run_state_machine_as_test(runs, settings=chosen)
