"""What each error of a model means at each node: what is asked again, of whom, and how the run ends.

The table was written from what is promised (Fallbacks in `docs/guides/models.md`):

- `timeout`: no second try of the same model, which is skipped from then on; the next model, then the router's.
- `invalid` (no chat completion at all): one more try. A document (decision, review, question, design, judgement) is
  asked of the same model; an agent and the final answer ask the next one, or the same if there is no other.
- `connection`, `500`, `429` (with Retry-After): two more tries, then the next model with as many, and the router's.
- `400`: no second try, since the endpoint refuses; the next model.
- With the default `model_wait_seconds` the models that failed for now, all but those of `invalid` and `400`, are asked
  again for a minute (`test_model_waits.py`); the platform here waits for none.
- Then the node goes on without the model. The supervisor: ready tasks run; else, where nothing is approved, the
  generalist gets the request once, if the run may use it and it was not tried before; else the answer is made of what
  is there. A reply that was sent back stands, marked. A task fails, and the supervisor decides again. Nothing is
  approved without a verdict, nor by a `FIXED` without a second one. Where the supervisor looked for more agents, its
  first decision stands, if it has tasks. The question before an answer is left out. The answer is the results as they
  are. What a judge could not be asked about fails the build; what it wrote and nobody can read leaves a criterion
  undecided.

A team adds calls: its decisions, its answer and the review of that.
Errors of tools are in `test_tool_error_classes.py`.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from starling.core.teams.spec import TeamSpec
from starling.infra.postgres.kill_switches import Target
from tests.support.error_table import (
    ACTOR,
    CUSTOM,
    DECISION,
    FIXED,
    IN_TEAM,
    FailingModel,
    Node,
    Row,
    degraded_models,
    failing_platform,
    for_new_tenant,
    make,
)
from tests.support.model_script import Answer, When
from tests.support.platform import BENCH, Platform, RunStream, Workbench, decision, task

pytestmark = pytest.mark.asyncio(loop_scope="module")

# node           | which decision, or which agent, fails
# error          | see above
# lasts          | `once`; `first`: at all models but the router's; `always`: at all
# asked          | the models that the node asked, each with its first letter: Large, Code for `coding`, a custom
#                | agent's or reviewer's Own, and Tiny, which is the router's
# calls, tools   | of the whole run
# codes          | of warnings and errors, without `llm_`; `model` tells of other tries, and is left out where the node
#                | gives up; so is `circuit_breaker`, by which a run comes to the question in place of an answer
MODEL_ERRORS = """
node           | error      | lasts  | asked     | calls | tools | status    | codes                      | reply
first decision | timeout    | once   | LT        | 5     | 1     | succeeded | model                      | All is well
first decision | invalid    | once   | LL        | 5     | 1     | succeeded | invalid_response           | All is well
first decision | connection | once   | LL        | 5     | 1     | succeeded | model                      | All is well
first decision | 500        | once   | LL        | 5     | 1     | succeeded | model                      | All is well
first decision | 429        | once   | LL        | 5     | 1     | succeeded | model                      | All is well
first decision | 400        | once   | LT        | 5     | 1     | succeeded | model                      | All is well
first decision | connection | first  | LLLT      | 7     | 1     | succeeded | model                      | All is well
first decision | 500        | first  | LLLT      | 7     | 1     | succeeded | model                      | All is well
first decision | 429        | first  | LLLT      | 7     | 1     | succeeded | model                      | All is well
first decision | timeout    | always | LT        | 4     | 0     | succeeded | timeout unplanned          | In short
first decision | invalid    | always | LL        | 4     | 0     | succeeded | invalid_response unplanned | In short
first decision | connection | always | LLLTTT    | 8     | 0     | succeeded | connection_error unplanned | In short
first decision | 500        | always | LLLTTT    | 8     | 0     | succeeded | server_error unplanned     | In short
first decision | 429        | always | LLLTTT    | 8     | 0     | succeeded | server_error unplanned     | In short
first decision | 400        | always | LT        | 4     | 0     | succeeded | server_error unplanned     | In short
with ready     | timeout    | always | LT        | 10    | 2     | succeeded | timeout                    | All is well
with ready     | invalid    | always | LL        | 10    | 2     | succeeded | invalid_response           | All is well
with ready     | connection | always | LLLTTT    | 14    | 2     | succeeded | connection_error           | All is well
with ready     | 500        | always | LLLTTT    | 14    | 2     | succeeded | server_error               | All is well
with ready     | 429        | always | LLLTTT    | 14    | 2     | succeeded | server_error               | All is well
with ready     | 400        | always | LT        | 10    | 2     | succeeded | server_error               | All is well
with results   | timeout    | always | LT        | 8     | 1     | succeeded | timeout                    | All is well
with results   | invalid    | always | LL        | 8     | 1     | succeeded | invalid_response           | All is well
with results   | connection | always | LLLTTT    | 12    | 1     | succeeded | connection_error           | All is well
with results   | 500        | always | LLLTTT    | 12    | 1     | succeeded | server_error               | All is well
with results   | 429        | always | LLLTTT    | 12    | 1     | succeeded | server_error               | All is well
with results   | 400        | always | LT        | 8     | 1     | succeeded | server_error               | All is well
with nothing   | timeout    | always | LT        | 8     | 0     | succeeded | timeout unplanned          | do t1
with nothing   | invalid    | always | LL        | 8     | 0     | succeeded | invalid_response unplanned | do t1
with nothing   | connection | always | LLLTTT    | 12    | 0     | succeeded | connection_error unplanned | do t1
with nothing   | 500        | always | LLLTTT    | 12    | 0     | succeeded | server_error unplanned     | do t1
with nothing   | 429        | always | LLLTTT    | 12    | 0     | succeeded | server_error unplanned     | do t1
with nothing   | 400        | always | LT        | 8     | 0     | succeeded | server_error unplanned     | do t1
looked further | invalid    | always | LL        | 6     | 1     | succeeded | invalid_response           | All is well
looked further | 500        | always | LLLTTT    | 10    | 1     | succeeded | server_error               | All is well
looked first   | 400        | always | LT        | 5     | 0     | succeeded | server_error unplanned     | In short
nor generalist | 400        | always | LTLT      | 7     | 0     | failed    | server_error unplanned     | do t1
generalist off | 500        | always | LLLTTT    | 9     | 0     | failed    | server_error               | do t1
2nd generalist | 500        | always | LLLTTT    | 11    | 0     | failed    | server_error               | do t1
sent back      | 500        | always | LLLTTT    | 7     | 0     | succeeded | server_error               | Not looked
sent back      | invalid    | always | LL        | 3     | 0     | succeeded | invalid_response           | Not looked
specialist     | invalid    | once   | TT        | 5     | 1     | succeeded | model                      | All is well
specialist     | connection | once   | TT        | 5     | 1     | succeeded | model                      | All is well
specialist     | 500        | once   | TT        | 5     | 1     | succeeded | model                      | All is well
specialist     | 429        | once   | TT        | 5     | 1     | succeeded | model                      | All is well
specialist     | timeout    | always | T         | 3     | 0     | failed    | timeout                    | do t1
specialist     | invalid    | always | TT        | 4     | 0     | failed    | invalid_response           | do t1
specialist     | connection | always | TTT       | 5     | 0     | failed    | connection_error           | do t1
specialist     | 500        | always | TTT       | 5     | 0     | failed    | server_error               | do t1
specialist     | 429        | always | TTT       | 5     | 0     | failed    | server_error               | do t1
specialist     | 400        | always | T         | 3     | 0     | failed    | server_error               | do t1
generalist     | timeout    | once   | LT        | 4     | 0     | succeeded | model                      | In short
generalist     | invalid    | once   | LT        | 4     | 0     | succeeded | model                      | In short
generalist     | connection | once   | LL        | 4     | 0     | succeeded | model                      | In short
generalist     | 500        | first  | LLLT      | 6     | 0     | succeeded | model                      | In short
generalist     | 429        | once   | LL        | 4     | 0     | succeeded | model                      | In short
generalist     | 400        | once   | LT        | 4     | 0     | succeeded | model                      | In short
generalist     | timeout    | always | LT        | 4     | 0     | failed    | timeout                    | do t1
generalist     | invalid    | always | LT        | 4     | 0     | failed    | invalid_response           | do t1
generalist     | connection | always | LLLTTT    | 8     | 0     | failed    | connection_error           | do t1
generalist     | 500        | always | LLLTTT    | 8     | 0     | failed    | server_error               | do t1
generalist     | 429        | always | LLLTTT    | 8     | 0     | failed    | server_error               | do t1
generalist     | 400        | always | LT        | 4     | 0     | failed    | server_error               | do t1
coder          | timeout    | once   | CT        | 4     | 0     | succeeded | model                      | In short
coder          | invalid    | once   | CT        | 4     | 0     | succeeded | model                      | In short
coder          | 429        | once   | CC        | 4     | 0     | succeeded | model                      | In short
coder          | 500        | first  | CCCT      | 6     | 0     | succeeded | model                      | In short
coder          | timeout    | always | CT        | 4     | 0     | failed    | timeout                    | do t1
coder          | invalid    | always | CT        | 4     | 0     | failed    | invalid_response           | do t1
coder          | connection | always | CCCTTT    | 8     | 0     | failed    | connection_error           | do t1
coder          | 500        | always | CCCTTT    | 8     | 0     | failed    | server_error               | do t1
coder          | 429        | always | CCCTTT    | 8     | 0     | failed    | server_error               | do t1
coder          | 400        | always | CT        | 4     | 0     | failed    | server_error               | do t1
custom agent   | timeout    | once   | OL        | 4     | 0     | succeeded | model                      | In short
custom agent   | invalid    | once   | OL        | 4     | 0     | succeeded | model                      | In short
custom agent   | 500        | first  | OOOLLLT   | 9     | 0     | succeeded | model                      | In short
custom agent   | timeout    | always | OLT       | 5     | 0     | failed    | timeout                    | do t1
custom agent   | invalid    | always | OL        | 4     | 0     | failed    | invalid_response           | do t1
custom agent   | connection | always | OOOLLLTTT | 11    | 0     | failed    | connection_error           | do t1
custom agent   | 500        | always | OOOLLLTTT | 11    | 0     | failed    | server_error               | do t1
custom agent   | 429        | always | OOOLLLTTT | 11    | 0     | failed    | server_error               | do t1
custom agent   | 400        | always | OLT       | 5     | 0     | failed    | server_error               | do t1
custom, tools  | invalid    | once   | TT        | 5     | 1     | succeeded | model                      | All is well
custom, tools  | timeout    | always | T         | 3     | 0     | failed    | timeout                    | do t1
custom, tools  | invalid    | always | TT        | 4     | 0     | failed    | invalid_response           | do t1
custom, tools  | connection | always | TTT       | 5     | 0     | failed    | connection_error           | do t1
custom, tools  | 500        | always | TTT       | 5     | 0     | failed    | server_error               | do t1
custom, tools  | 429        | always | TTT       | 5     | 0     | failed    | server_error               | do t1
custom, tools  | 400        | always | T         | 3     | 0     | failed    | server_error               | do t1
reviewer       | timeout    | once   | LT        | 5     | 1     | succeeded | model                      | All is well
reviewer       | invalid    | once   | LL        | 5     | 1     | succeeded | invalid_response           | All is well
reviewer       | connection | first  | LLLT      | 7     | 1     | succeeded | model                      | All is well
reviewer       | timeout    | always | LT        | 5     | 1     | failed    | timeout                    | do t1
reviewer       | invalid    | always | LL        | 5     | 1     | failed    | invalid_response           | do t1
reviewer       | connection | always | LLLTTT    | 9     | 1     | failed    | connection_error           | do t1
reviewer       | 500        | always | LLLTTT    | 9     | 1     | failed    | server_error               | do t1
reviewer       | 429        | always | LLLTTT    | 9     | 1     | failed    | server_error               | do t1
reviewer       | 400        | always | LT        | 5     | 1     | failed    | server_error               | do t1
own reviewer   | timeout    | once   | OL        | 4     | 0     | succeeded | model                      | In short
own reviewer   | invalid    | always | OO        | 5     | 0     | failed    | invalid_response           | do t1
own reviewer   | 429        | first  | OOOLLLT   | 9     | 0     | succeeded | model                      | In short
own reviewer   | 500        | always | OOOLLLTTT | 12    | 0     | failed    | server_error               | do t1
second verdict | invalid    | once   | LL        | 6     | 1     | succeeded | invalid_response           | All is well
second verdict | 400        | always | LT        | 6     | 1     | failed    | server_error               | do f1
second verdict | 500        | always | LLLTTT    | 10    | 1     | failed    | server_error               | do f1
answer         | timeout    | once   | LT        | 5     | 1     | succeeded | model                      | All is well
answer         | invalid    | once   | LT        | 5     | 1     | succeeded | model                      | All is well
answer         | connection | first  | LLLT      | 7     | 1     | succeeded | model                      | All is well
answer         | timeout    | always | LT        | 5     | 1     | succeeded | timeout                    | disk is fine
answer         | invalid    | always | LT        | 5     | 1     | succeeded | invalid_response           | disk is fine
answer         | connection | always | LLLTTT    | 9     | 1     | succeeded | connection_error           | disk is fine
answer         | 500        | always | LLLTTT    | 9     | 1     | succeeded | server_error               | disk is fine
answer         | 429        | always | LLLTTT    | 9     | 1     | succeeded | server_error               | disk is fine
answer         | 400        | always | LT        | 5     | 1     | succeeded | server_error               | disk is fine
question       | timeout    | always | T         | 14    | 1     | succeeded | timeout                    | All is well
question       | invalid    | always | TT        | 15    | 1     | succeeded | invalid_response           | All is well
question       | connection | always | TTT       | 16    | 1     | succeeded | connection_error           | All is well
question       | 500        | always | TTT       | 16    | 1     | succeeded | server_error               | All is well
question       | 429        | always | TTT       | 16    | 1     | succeeded | server_error               | All is well
question       | 400        | always | T         | 14    | 1     | succeeded | server_error               | All is well
team           | invalid    | once   | LL        | 8     | 1     | succeeded | invalid_response           | All is well
team           | timeout    | always | LT        | 4     | 0     | failed    | timeout                    | do t1
team           | invalid    | always | LL        | 4     | 0     | failed    | invalid_response           | do t1
team           | connection | always | LLLTTT    | 8     | 0     | failed    | connection_error           | do t1
team           | 500        | always | LLLTTT    | 8     | 0     | failed    | server_error               | do t1
team           | 429        | always | LLLTTT    | 8     | 0     | failed    | server_error               | do t1
team           | 400        | always | LT        | 4     | 0     | failed    | server_error               | do t1
team, ready    | 500        | always | LLLTTT    | 17    | 2     | succeeded | server_error               | All is well
team, ready    | 400        | always | LT        | 13    | 2     | succeeded | server_error               | All is well
team, results  | 400        | always | LT        | 11    | 1     | succeeded | server_error               | All is well
team, nothing  | 400        | always | LT        | 7     | 0     | failed    | server_error               | do t1
member         | invalid    | once   | LT        | 8     | 1     | succeeded | model                      | All is well
member         | 500        | first  | LLLT      | 10    | 1     | succeeded | model                      | All is well
member         | timeout    | always | LT        | 6     | 0     | failed    | timeout                    | do t1
member         | invalid    | always | LT        | 6     | 0     | failed    | invalid_response           | do t1
member         | connection | always | LLLTTT    | 10    | 0     | failed    | connection_error           | do t1
member         | 500        | always | LLLTTT    | 10    | 0     | failed    | server_error               | do t1
member         | 429        | always | LLLTTT    | 10    | 0     | failed    | server_error               | do t1
member         | 400        | always | LT        | 6     | 0     | failed    | server_error               | do t1
member, coding | 429        | once   | CC        | 8     | 1     | succeeded | model                      | All is well
member, coding | invalid    | always | CT        | 6     | 0     | failed    | invalid_response           | do t1
member, coding | 500        | always | CCCTTT    | 10    | 0     | failed    | server_error               | do t1
member review  | invalid    | once   | LL        | 8     | 1     | succeeded | invalid_response           | All is well
member review  | invalid    | always | LL        | 7     | 1     | failed    | invalid_response           | do t1
member review  | 500        | always | LLLTTT    | 11    | 1     | failed    | server_error               | do t1
team answer    | invalid    | once   | LT        | 8     | 1     | succeeded | model                      | All is well
team answer    | 500        | always | LLLTTT    | 12    | 1     | succeeded | server_error               | All is well
both answers   | 400        | always | LTLT      | 9     | 1     | succeeded | server_error               | disk is fine
team review    | timeout    | once   | LT        | 8     | 1     | succeeded | model                      | All is well
team review    | invalid    | always | LL        | 8     | 1     | failed    | invalid_response           | do t1
team review    | connection | always | LLLTTT    | 12    | 1     | failed    | connection_error           | do t1
CrewAI member  | invalid    | once   | LTL       | 9     | 1     | succeeded | model                      | All is well
CrewAI member  | connection | first  | LLLTT     | 11    | 1     | succeeded | model                      | All is well
CrewAI member  | timeout    | always | LT        | 6     | 0     | failed    | timeout                    | do t1
CrewAI member  | invalid    | always | LT        | 6     | 0     | failed    | invalid_response           | do t1
CrewAI member  | 500        | always | LLLTTT    | 10    | 0     | failed    | server_error               | do t1
CrewAI member  | 429        | always | LLLTTT    | 10    | 0     | failed    | server_error               | do t1
CrewAI member  | 400        | always | LT        | 6     | 0     | failed    | server_error               | do t1
designer       | timeout    | always | LT        | 2     | 0     | failed    | timeout                    | 1 attempt
designer       | invalid    | always | LL        | 2     | 0     | failed    | invalid_response           | 1 attempt
designer       | connection | always | LLLTTT    | 6     | 0     | failed    | connection_error           | 1 attempt
designer       | 500        | always | LLLTTT    | 6     | 0     | failed    | server_error               | 1 attempt
designer       | 429        | always | LLLTTT    | 6     | 0     | failed    | server_error               | 1 attempt
designer       | 400        | always | LT        | 2     | 0     | failed    | server_error               | 1 attempt
judge          | timeout    | always | LT        | 6     | 1     | failed    | timeout                    | 1 attempt
judge          | connection | always | LLLTTT    | 10    | 1     | failed    | connection_error           | 1 attempt
judge          | 500        | always | LLLTTT    | 10    | 1     | failed    | server_error               | 1 attempt
judge          | 429        | always | LLLTTT    | 10    | 1     | failed    | server_error               | 1 attempt
judge          | 400        | always | LT        | 6     | 1     | failed    | server_error               | 1 attempt
judge          | invalid    | always | LLLL      | 12    | 2     | succeeded | invalid_response           | unproven
"""

ERRORS = {
    "timeout": Answer(hold="never"),
    "invalid": Answer(body="<html>busy</html>", content_type="text/html"),
    "connection": Answer("half an answer", cut_after=1),
    "500": Answer(status=500, body='{"error": {"message": "not today"}}'),
    "429": Answer(status=429, headers={"Retry-After": "0.01"}, body='{"error": {"message": "too many"}}'),
    "400": Answer(status=400, body='{"error": {"message": "the input is too long"}}'),
}


def first_fails(agent: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return task("t0", agent), task("t1", agent)


def with_ready(agent: str) -> Answer:
    return decision(*first_fails(agent), task("t2", agent, after=["t1"]))


LOOKED, T0, TO_TEAM = decision(task("t1", BENCH)), task("t0", BENCH, "do t1"), decision(task("t1", "machines"))
ANSWER = When(contains="You write the final answer")
T1, WITH_TOOLS = When(contains='<task id="t1">'), When(contains='<task id="t1"', tool="look")
NODES = {
    "first decision": Node([DECISION], [LOOKED]),
    "with ready": Node([DECISION], [with_ready(BENCH)], 1),
    "with results": Node([DECISION], [decision(*first_fails(BENCH))], 1),
    "with nothing": Node([DECISION], [decision(T0)], 1),
    "nor generalist": Node([DECISION, T1], [decision(T0)], 1),
    "generalist off": Node([DECISION], [decision(T0)], 1),
    "2nd generalist": Node([DECISION], [decision(task("t0", "generalist", "do t1"))], 1),
    "looked further": Node([DECISION], [decision(task("t1", BENCH), look_for=["a ladder"])], 1),
    "looked first": Node([DECISION], [decision(look_for=["a ladder"])], 1),
    "sent back": Node([DECISION], [decision(reply="It is fine.")], 1, request="Look at a thing."),
    "specialist": Node([WITH_TOOLS], [LOOKED]),
    "generalist": Node([T1], [decision(task("t1", "generalist"))]),
    "coder": Node([T1], [decision(task("t1", "coder"))]),
    "custom agent": Node([T1], [decision(task("t1", "poet"))]),
    "custom, tools": Node([WITH_TOOLS], [decision(task("t1", "watcher"))]),
    "reviewer": Node([When(schema="verdict")], [LOOKED]),
    "own reviewer": Node([When(schema="verdict")], [decision(task("t1", "writer"))]),
    "second verdict": Node([When(schema="verdict", contains=f"<output>{FIXED}")], [decision(task("f1", BENCH))]),
    "question": Node([When(schema="question")], [decision(T0, task("t2", BENCH)), *[decision(T0)] * 3]),
    "answer": Node([ANSWER], [LOOKED]),
    "team": Node([IN_TEAM], [TO_TEAM]),
    "team, ready": Node([IN_TEAM], [TO_TEAM], 1, in_team=[with_ready("looker")]),
    "team, results": Node([IN_TEAM], [TO_TEAM], 1, in_team=[decision(*first_fails("looker"))]),
    "team, nothing": Node([IN_TEAM], [TO_TEAM], 1, in_team=[decision(task("t0", "looker"))]),
    "member": Node([WITH_TOOLS], [TO_TEAM]),
    "member, coding": Node([WITH_TOOLS], [decision(task("t1", "coders"))]),
    "member review": Node([When(schema="verdict", contains='agent="looker"')], [TO_TEAM]),
    "team answer": Node([replace(ANSWER, last_contains="<user_request>do t1")], [TO_TEAM]),
    "both answers": Node([ANSWER], [TO_TEAM]),
    "team review": Node([When(schema="verdict", contains='agent="machines"')], [TO_TEAM]),
    "CrewAI member": Node([WITH_TOOLS], [decision(task("t1", "crew"))]),
    "designer": Node([When(schema="designer")], [], agent="architect"),
    "judge": Node([When(schema="judge")], [], in_team=[decision(task("t1", "looker"))] * 2),
}
TRIED = TeamSpec.model_validate(
    {
        "name": "machines",
        "purpose": "Looks after machines.",
        "members": [{"name": "looker", "role": "looks", "goal": "Look.", "server": "bench", "runtime": "native"}],
        "criteria": [{"id": "told", "text": "It says how it is.", "kind": "judged"}],
        "examples": [{"id": it, "input": f"Look at the {it}.", "criteria": ["told"]} for it in ("disk", "door")],
    }
)


@pytest.fixture(scope="module")
def failing() -> FailingModel:
    return FailingModel()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def module_platform(
    module_database_url: str, failing: FailingModel, workbench_process: Workbench, tmp_path_factory: Any
) -> AsyncGenerator[Platform]:
    folder = tmp_path_factory.mktemp("platform")
    async with failing_platform(module_database_url, failing, workbench_process, folder) as platform:
        yield platform


@pytest.fixture
def platform(module_platform: Platform) -> Platform:
    return for_new_tenant(module_platform)


async def run(platform: Platform, name: str, node: Node) -> RunStream:
    """Make what a node needs, and return the stream of the run that comes to it."""
    for agent in ("machines", "crew", "coders", "poet", "watcher", "writer"):
        if f'"{agent}"' in str(node.plan):
            await make(platform, agent)
    if name.startswith("looked"):  # the supervisor may look for agents where it isn't shown all of them
        for number in range(platform.settings.limits.shortlist):
            config = CUSTOM["poet"].model_copy(update={"id": f"poet{number}"})
            await platform.services.agents.create(platform.caller, config, ACTOR)
    if name == "generalist off":
        off = Target("agent", "generalist", platform.caller.tenant)
        await platform.services.storage.switches.off(off, "It makes things up.", ACTOR)
    if name == "judge":
        await platform.services.teams.add(platform.caller, TRIED.name, TRIED, ACTOR)
        return await platform.finish((await platform.services.builds.proof(platform.caller, TRIED.name, None)).key)
    return await platform.ask(node.request, **({"agent": node.agent} if node.agent else {}))


@pytest.mark.parametrize("row", Row.all(MODEL_ERRORS), ids=str)
async def test_model_error_at_a_node(platform: Platform, failing: FailingModel, row: Row) -> None:
    node = NODES[row["node"]]
    failing.begin(node, ERRORS[row["error"]], row["lasts"])

    stream = await run(platform, row["node"], node)

    usage = stream.done["usage"]
    told = {code.removeprefix("llm_") for code in stream.codes} - {"circuit_breaker"}
    codes = told if "model" in row.codes else told - {"model"}
    seen = [failing.asked, usage["model_calls"], usage["tool_calls"], stream.status, codes]
    assert seen == [row["asked"], int(row["calls"]), int(row["tools"]), row["status"], row.codes], stream.reply
    assert row["reply"] in stream.reply
    assert usage["model_calls"] == len(platform.model.requests)
    if row["asked"] == "LT" and row["error"] == "timeout" and row["lasts"] == "once":
        assert "scripted:large" in degraded_models(platform)
