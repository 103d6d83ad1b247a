"""What Python programs are promised: one request with its steps, over HTTP and inside of the program."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal

import starling
from starling.client.conversations import Client
from starling.client.orchestrator import Orchestrator
from starling.core.errors import StarlingError
from starling.core.ids import new_id
from starling.core.principal import Scope
from tests.support.command_line import new_workspace
from tests.support.effect_recorder import AGENT, EffectRecorder
from tests.support.gateway_harness import free_port
from tests.support.governed_platform import CHARGE, READ, Governed, governed_api
from tests.support.local_access import TOKEN
from tests.support.model_script import Answer
from tests.support.model_server import ModelServer
from tests.support.otlp_collector import Collector
from tests.support.platform import ScriptedModel, calls, decision, task, verdict

DEAD = Answer(status=500, body='{"error": {"message": "no model"}}')


@dataclass(frozen=True, slots=True)
class Program:
    """A client of a platform, its scripted model and its server with effects."""

    client: Client
    script: ScriptedModel
    model: ModelServer
    effects: EffectRecorder

    def say(self, text: str, session: str = "", **more: Any) -> Any:
        return Orchestrator(self.client).handle_user_request(session or new_id(), text, **more)

    def one_task(self, *answers: Answer, reply: str = "Done [1].") -> None:
        self.script.run(decision(task("t1", AGENT)), t1=answers, qa=Answer(reply))

    def thread(self, session: str) -> dict[str, Any]:
        return self.client.get(f"/v1/threads/{session}")


@pytest.fixture(scope="module")
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def served(
    portal: BlockingPortal, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Governed]:
    folder = tmp_path_factory.mktemp("served")
    with portal.wrap_async_context_manager(governed_api(module_database_url, folder, approval="unsafe")) as api:
        yield api


@contextmanager
def environment(folder: Path, model: ModelServer, **variables: str) -> Generator[EffectRecorder]:
    """Let the block run in a folder with an `mcp.json`, and with a scripted model."""
    effects = EffectRecorder(folder / "effects")
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"effects": effects.as_server(approval="unsafe")}}))
    providers = json.dumps({"scripted": {"base_url": model.url}})
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in {
            "STARLING_DATA_DIR": str(folder / "data"), "STARLING_MODEL": "scripted:small",
            "STARLING_PROVIDERS": providers, "STARLING_SKILLS": "false",
            "STARLING_LIMITS": '{"model_wait_seconds": 0}', **variables,
        }.items():  # fmt: skip
            patch.setenv(name, value)
        yield effects


@pytest.fixture(scope="module")
def inside(
    portal: BlockingPortal, database_server: Any, database_copy: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Program]:
    """The platform in this process, on a database of its own."""
    script = ScriptedModel()
    with (
        database_server.database(database_copy) as url,
        portal.wrap_async_context_manager(ModelServer(script)) as model,
        environment(tmp_path_factory.mktemp("inside"), model, DATABASE_URL=url) as effects,
        starling.in_process() as client,
    ):
        yield Program(client, script, model, effects)


@pytest.fixture(params=["served", "inside"])
def program(request: pytest.FixtureRequest) -> Generator[Program]:
    found: Governed | Program = request.getfixturevalue(request.param)
    client = found.client if isinstance(found, Program) else Client(found.url, TOKEN)
    program = Program(client, found.script, found.model, found.effects)
    program.script.forget()
    program.model.forget()
    program.effects.file.unlink(missing_ok=True)
    yield program
    if not isinstance(found, Program):
        client.close()


def of(result: Any, kind: str) -> list[dict[str, Any]]:
    return [step["metadata"] for step in result["steps"] if step["type"] == kind]


# The result


def test_result_has_reply_steps_and_trace_and_nothing_else(program: Program) -> None:
    program.one_task(READ)

    result = program.say("Read a.")

    assert set(result) == {"reply", "steps", "trace_id"}
    assert (result["reply"], len(bytes.fromhex(result["trace_id"]))) == ("Done [1].", 16)
    assert {"llm_call", "tool_call", "plan", "summary"} <= {step["type"] for step in result["steps"]}
    assert all(set(step) == {"type", "description", "metadata"} and step["description"] for step in result["steps"])
    assert json.loads(json.dumps(result)) == result


def test_steps_name_roles_models_tools_and_say_that_nothing_failed(program: Program) -> None:
    program.one_task(READ)

    result = program.say("Read a.")

    assert {step["model_role"] for step in of(result, "llm_call")} == {"reasoning", "router"}
    assert [(step["tool_name"], step["is_error"]) for step in of(result, "tool_call")] == [("effects.read_it", False)]
    assert {step["is_error"] for kind in ("llm_call", "summary") for step in of(result, kind)} == {False}
    assert not any("span_id" in step["metadata"] for step in result["steps"])  # nothing is traced


def test_spans_of_steps_are_those_of_the_trace(
    portal: BlockingPortal, database_server: Any, database_copy: str, tmp_path: Path
) -> None:
    with (
        database_server.database(database_copy) as url,
        portal.wrap_async_context_manager(Collector()) as collector,
        portal.wrap_async_context_manager(governed_api(url, tmp_path, otlp_endpoint=collector.url)) as api,
        closing(Client(api.url, TOKEN)) as client,
    ):
        api.one_task(READ)
        result: Any = Orchestrator(client).handle_user_request("s", "Read a.")
        named = {step["metadata"]["span_id"] for step in result["steps"]}

    spans = {span.id: span.trace_id for span in collector.spans}
    assert len(named) > 3
    assert {spans.get(one) for one in named} == {result["trace_id"]}


# Modes, channels, sessions


@pytest.mark.parametrize("mode", ["CONSERVATIVE", "MODERATE", "EXPLORATORY"])
@pytest.mark.parametrize("channel", ["CHAT", "SYSTEM_HEALTH"])
def test_mode_and_channel_reach_the_run(program: Program, mode: str, channel: str) -> None:
    program.one_task(CHARGE)
    session = new_id()

    result = program.say("Charge a.", session, mode=mode, channel=channel)

    [run] = program.client.get("/v1/runs", thread_id=session)["runs"]
    assert program.effects.done() == []
    assert (run["status"] == "waiting") == (mode != "CONSERVATIVE"), result
    assert result["reply"]


def test_coding_task_goes_to_the_coder(program: Program) -> None:
    program.script.agent("t1", Answer("print(1)"))
    program.script.reviewer(verdict("APPROVED"))
    program.script.qa(Answer("print(1) [1]."))

    result = program.say("Write it.", channel="CODE_TASK")

    assert "print(1)" in result["reply"]
    assert "coding" in {step["model_role"] for step in of(result, "llm_call")}
    assert not any("You supervise agents" in str(body["messages"]) for body in program.model.bodies)


def test_supervisor_of_the_next_turn_sees_the_plan_of_its_own_session_only(program: Program) -> None:
    mine, other = new_id(), new_id()
    for session, text in ((mine, "read the red book"), (other, "read the blue book")):
        program.script.forget()
        program.script.run(decision(task("t1", AGENT, text)), t1=READ, qa=Answer("Done [1]."))
        program.say("Read.", session)
    program.script.forget()
    program.script.supervisor(decision(reply="You know it."))
    program.model.forget()

    program.say("And now?", mine)
    program.say("And now?", new_id())

    told = [str(body["messages"]) for body in program.model.bodies if "You supervise agents" in str(body["messages"])]
    assert ["red book" in text for text in told] == [True, False]
    assert not any("blue book" in text for text in told)


def test_two_requests_of_one_session_at_once_both_get_an_answer(program: Program) -> None:
    program.script.supervisor(decision(reply="Fine."))
    session = new_id()

    with ThreadPoolExecutor(2) as pool:
        results = [one.result() for one in [pool.submit(program.say, text, session) for text in ("One.", "Two.")]]

    assert [result["reply"] for result in results] == ["Fine.", "Fine."]
    assert len({result["trace_id"] for result in results}) == 2


# What a session has used


def metrics_of(program: Program, session: str) -> Any:
    return program.thread(session)["session_metrics"]


def test_metrics_of_a_session_add_up_and_its_last_plan_is_the_last_one(program: Program) -> None:
    session = new_id()
    program.script.run(decision(task("t1", AGENT, "read the red book")), t1=READ, qa=Answer("Done [1]."))
    program.say("Read.", session)
    first = metrics_of(program, session)
    program.script.forget()
    program.script.run(decision(task("t1", AGENT, "read the blue book")), t1=READ, qa=Answer("Done [1]."))
    program.say("Read.", session)
    second, shown = metrics_of(program, session), program.thread(session)
    program.say("Read.", new_id())

    assert (first["model_calls"], first["tool_calls"], first["errors"]) == (4, 1, 0)
    assert {name: 2 * count for name, count in first.items()} == second == metrics_of(program, session)
    assert first["tokens"] == 4 * (11 + 7)
    assert "blue book" in str(shown["last_plan"])
    assert "red book" not in str(shown["last_plan"])


def test_failed_calls_are_counted_as_errors(program: Program) -> None:
    session = new_id()
    program.one_task(calls(("read_it", {"what": "a", "answer": "fail"})))

    program.say("Read a.", session)

    assert metrics_of(program, session)["errors"] >= 1


def test_command_shows_plan_and_metrics(served: Governed) -> None:
    served.forget()
    served.one_task(READ)
    session = new_id()
    with closing(Client(served.url, TOKEN)) as client:
        Orchestrator(client).handle_user_request(session, "Read a.")
        told = client.get(f"/v1/threads/{session}")
    with new_workspace(STARLING_URL=served.url, STARLING_API_KEY=TOKEN) as workspace:
        printed = workspace.starling("conversation", "show", session).stdout
        document = workspace.json("conversation", "show", session)

    assert "do t1" in printed
    assert [document[part] for part in ("last_plan", "session_metrics")] == [told["last_plan"], told["session_metrics"]]
    assert "1 run, 4 model calls, 1 tool call" in printed


def test_session_of_another_tenant_is_not_seen(served: Governed, portal: BlockingPortal) -> None:
    served.forget()
    served.one_task(READ)
    key: Any = portal.call(lambda: served.key(Scope.RUN, tenant="elsewhere"))
    session = new_id()
    with closing(Client(served.url, TOKEN)) as client:
        Orchestrator(client).handle_user_request(session, "Read a.")
    served.forget()
    served.script.supervisor(decision(reply="Fine."))

    with closing(Client(served.url, key["Authorization"].removeprefix("Bearer "))) as client:
        result: Any = Orchestrator(client).handle_user_request(session, "What was it?")
        found = client.get(f"/v1/threads/{session}")

    assert result["reply"] == "Fine."
    assert "do t1" not in str([body["messages"] for body in served.model.bodies])
    assert (found["session_metrics"]["tool_calls"], found["session_metrics"]["model_calls"]) == (0, 1)


# What fails


FAILING: list[tuple[str, Callable[[Program], None]]] = [
    ("every model", lambda program: program.script.supervisor(DEAD)),
    ("a model that writes nonsense", lambda program: program.script.supervisor(Answer("Sure! Let me think."))),
    ("a model that writes a page", lambda program: program.script.supervisor(Answer(body="<html>503</html>"))),
    ("a model that is cut off", lambda program: program.script.supervisor(Answer("{", cut_after=1))),
    ("the model of an agent", lambda program: program.one_task(DEAD)),
    ("a tool", lambda program: program.one_task(calls(("read_it", {"what": "a", "answer": "fail"})))),
    ("a tool that breaks the protocol", lambda program: program.one_task(
        calls(("read_it", {"what": "a", "answer": "malformed"})))),
    ("a tool that is not there", lambda program: program.one_task(calls(("fly", {"what": "a"})))),
    ("arguments that are none", lambda program: program.one_task(calls(("read_it", '{"what": ')))),
    ("an agent that is not there", lambda program: program.script.supervisor(decision(task("t1", "nobody")))),
]  # fmt: skip


@pytest.mark.parametrize(("what", "script"), FAILING, ids=[name for name, _ in FAILING])
def test_failures_of_models_and_tools_are_in_reply_and_steps_and_never_raised(
    program: Program, what: str, script: Callable[[Program], None]
) -> None:
    script(program)

    result = program.say(f"What if {what} fails?")

    assert result["reply"]
    errors = [step for step in result["steps"] if step["metadata"].get("is_error")]
    assert errors, result["steps"]
    assert of(result, "summary")[-1]["is_error"]


def test_failed_tool_has_its_flag_its_name_and_its_code(program: Program) -> None:
    program.one_task(calls(("read_it", {"what": "a", "answer": "fail"})))

    result = program.say("Read a.")

    [call, *_] = of(result, "tool_call")
    assert (call["tool_name"], call["is_error"], bool(call["error"])) == ("effects.read_it", True, True)


def test_failed_model_has_its_flag_its_role_and_its_code(program: Program) -> None:
    program.script.supervisor(DEAD)

    result = program.say("Think.")

    asked = of(result, "llm_call")
    assert {(call["model_role"], call["is_error"]) for call in asked} == {("reasoning", True)}
    assert all(call["error"] for call in asked)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "RECKLESS"}, {"mode": "moderate"}, {"mode": ""}, {"channel": "SMS"}, {"channel": "chat"},
        {"session_id": "x" * 300}, {"user_message": ""}, {"user_message": "x" * 100_001},
        {"user_message": "half of a pair: \ud800"}, {"session_id": "\ud800"},
    ],
    ids=lambda wrong: f"{next(iter(wrong))}-{next(iter(wrong.values()))[:6]!a}",
)  # fmt: skip
def test_what_the_api_refuses_is_raised_as_an_error_that_says_what_to_do(
    program: Program, wrong: dict[str, str]
) -> None:
    program.script.supervisor(decision(reply="Fine."))
    usual: dict[str, Any] = {"session_id": new_id(), "user_message": "Hi."}

    with pytest.raises(StarlingError) as raised:
        Orchestrator(program.client).handle_user_request(**usual | wrong)

    assert str(raised.value)
    assert program.model.bodies == []


def test_platform_that_is_away_and_a_wrong_key_are_raised(served: Governed) -> None:
    with closing(Client(f"http://127.0.0.1:{free_port()}")) as away, pytest.raises(StarlingError, match="not answer"):
        Orchestrator(away).handle_user_request("s", "Hi.")
    with closing(Client(served.url, "sk-starling-wrong")) as stranger, pytest.raises(StarlingError):
        Orchestrator(stranger).handle_user_request("s", "Hi.")


def test_answer_that_is_none_of_the_api_is_raised_as_one_of_our_errors() -> None:
    """Of a proxy that asks to sign in, say."""

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Sign in</html>")

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        with closing(Client(f"http://127.0.0.1:{server.server_port}")) as client, pytest.raises(StarlingError):
            Orchestrator(client).handle_user_request("s", "Hi.")
        server.shutdown()


# What waits


def test_reply_of_a_run_that_asks_is_its_question_and_the_next_message_answers_it(program: Program) -> None:
    session = new_id()
    program.script.supervisor(decision(question="Which colour?"), decision(reply="Red it is."))

    asked, answered = program.say("Paint.", session), program.say("Red.", session)

    assert "Which colour?" in asked["reply"]
    assert (answered["reply"], answered["trace_id"]) == ("Red it is.", asked["trace_id"])
    assert len(program.client.get("/v1/runs", thread_id=session)["runs"]) == 1


def test_reply_of_a_run_that_waits_for_an_approval_says_so_and_nothing_is_done_until_a_person_answers(
    program: Program,
) -> None:
    session = new_id()
    program.one_task(CHARGE)

    asked = program.say("Charge a.", session)
    [question] = program.client.get("/v1/approvals")["interrupts"][-1:]

    assert "effects.charge" in asked["reply"]
    assert {"plan", "llm_call"} < {step["type"] for step in asked["steps"]}
    assert asked["steps"][-1]["metadata"]["code"] == "waits_for_approval"
    assert program.effects.done() == []
    program.client.post(f"/v1/approvals/{question['id']}", {"status": "resolved", "payload": {"approved": True}})
    program.script.supervisor(decision(reply="Fine."))
    program.say("Thanks.", session)
    assert program.effects.done() == ["charge a"]


def test_message_behind_a_run_that_waits_for_a_person_gets_its_reply_once_the_person_answered(
    program: Program,
) -> None:
    session = new_id()
    program.one_task(CHARGE)
    program.say("Charge a.", session)
    program.script.forget()
    program.one_task(READ, reply="Read [1].")
    program.script.qa(Answer("Read [1]."))

    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(program.say, "Read a.", session)
        with pytest.raises(TimeoutError):
            second.result(1)
        runs = program.client.get("/v1/runs", thread_id=session, status="waiting")["runs"]
        [question] = program.client.get("/v1/approvals", run_id=runs[0]["run_id"])["interrupts"]
        path = f"/v1/approvals/{question['id']}"
        program.client.post(path, {"status": "resolved", "payload": {"approved": False}})
        result = second.result(30)

    assert result["reply"] == "Read [1]."
    assert set(program.effects.done()) == {"read_it a"}


# Inside of a program


def test_request_that_is_under_way_when_the_block_ends_ends_with_an_error_and_its_run_goes_on_later(
    portal: BlockingPortal, database_url: str, tmp_path: Path
) -> None:
    script = ScriptedModel()
    script.supervisor(decision(reply="Fine."))
    script.held = True
    with (
        portal.wrap_async_context_manager(ModelServer(script)) as model,
        environment(tmp_path, model, DATABASE_URL=database_url),
        ThreadPoolExecutor(1) as pool,
    ):
        with starling.in_process() as client:
            asked = pool.submit(Orchestrator(client).handle_user_request, "s", "Hi.")
            portal.call(model.received, 1)
        with pytest.raises(StarlingError):
            asked.result(20)
        script.held = False
        portal.call(model.stop)
        with starling.in_process() as client:
            [run] = client.get("/v1/runs", thread_id="s")["runs"]

    assert run["status"] in ("queued", "running", "failed")


def test_platform_inside_a_program_listens_on_no_address(inside: Program) -> None:
    def listening() -> set[int]:
        return {one.laddr.port for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN}

    inside.script.forget()
    inside.script.supervisor(decision(reply="Fine."))
    before = listening()

    assert inside.say("Hi.")["reply"] == "Fine."
    assert listening() == before
    assert len(before) <= 6  # those of this test: models, collectors and the platform of other tests


PROGRAM = """
import asyncio, psutil, starling
from starling.core.errors import StarlingError

def once(session):
    with starling.in_process() as client:
        assert not [one for one in psutil.Process().net_connections() if one.status == psutil.CONN_LISTEN]
        return client, starling.Orchestrator(client).handle_user_request(session, "Read a.")

async def main():
    return once("again")  # as a notebook does, in whose thread a loop runs

client, first = once("again")
_, second = asyncio.run(main())
try:
    starling.Orchestrator(client).handle_user_request("late", "Read a.")
except StarlingError as error:
    print("late:", error)
try:
    with starling.in_process():
        raise KeyError("mine")
except KeyError as error:
    print("raised:", error)
with starling.in_process() as client:
    print("metrics:", client.get("/v1/threads/again")["session_metrics"]["tool_calls"])
print("replies:", first["reply"], second["reply"])
"""


def test_program_opens_the_platform_again_and_again_and_leaves_nothing_behind(
    portal: BlockingPortal, database_url: str, tmp_path: Path
) -> None:
    script = ScriptedModel()
    script.run(decision(task("t1", AGENT)), t1=READ, qa=Answer("Done [1]."))
    with (
        portal.wrap_async_context_manager(ModelServer(script)) as model,
        environment(tmp_path, model, DATABASE_URL=database_url) as effects,
    ):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 0, done.stderr
    assert "late: " in done.stdout
    assert "raised: 'mine'" in done.stdout
    assert "metrics: 2" in done.stdout
    assert "replies: Done [1]. Done [1]." in done.stdout
    assert effects.done() == ["read_it a", "read_it a"]
    assert "Traceback" not in done.stderr


def test_wrong_settings_are_raised_when_the_platform_is_opened(
    portal: BlockingPortal, database_url: str, tmp_path: Path
) -> None:
    with (
        portal.wrap_async_context_manager(ModelServer(ScriptedModel())) as model,
        environment(tmp_path, model, DATABASE_URL=database_url, STARLING_LIMITS='{"nothing": 1}'),
        pytest.raises(StarlingError, match="nothing"),
        starling.in_process(),
    ):
        pass


def test_table_of_the_folder_holds_inside_a_program(portal: BlockingPortal, database_url: str, tmp_path: Path) -> None:
    script = ScriptedModel()
    script.run(decision(task("t1", AGENT)), t1=CHARGE, qa=Answer("Done [1]."))
    (tmp_path / "starling.yaml").write_text("governance: {modes: {MODERATE: {effects: [read]}}}")
    with (
        portal.wrap_async_context_manager(ModelServer(script)) as model,
        environment(tmp_path, model, DATABASE_URL=database_url) as effects,
        starling.in_process() as client,
    ):
        result: Any = Orchestrator(client).handle_user_request("s", "Charge a.", mode="EXPLORATORY")
        bound: Any = Orchestrator(client).handle_user_request("t", "Charge a.", mode="MODERATE")

    assert "effects.charge" in result["reply"]
    assert (of(bound, "summary")[-1]["is_error"], effects.done()) == (True, [])
