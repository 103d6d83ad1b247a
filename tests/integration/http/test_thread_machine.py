"""Any order of imports, runs, forks, checkouts, rewinds, prunings and deletions keeps the lines of all branches.

So do kills of the database's connections in the middle of them: a change is made as a whole, or not at all.
"""

from collections.abc import Generator
from functools import partial
from http import HTTPStatus
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from starling.core.ids import new_id
from starling.core.principal import Scope
from starling.infra.postgres.engine import connected, fetch_autocommit
from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.soak import rounds
from tests.support.sse import read_events
from tests.support.thread_model import IMPORTS, BranchModel, ThreadModel, messages, shown

TENANTS = ("default", "elsewhere")
tenants, picks = st.sampled_from(TENANTS), st.integers(0, 60)
kills = st.sampled_from((0, 0, 0, 1, 2, 3, 4, 6, 8))
"""At which of its statements a change is killed; 0, or more than it has: at none."""

# Each statement that changes a thread, or what belongs to one, counts down; at zero its own connection is ended, and
# what its transaction did before is lost. Claims of runs only update them, and would be repeated after seconds.
KILLS = """
CREATE SEQUENCE statements_left INCREMENT -1 MINVALUE -9000000000 MAXVALUE 1000 START -1;
CREATE FUNCTION count_down() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('statements_left') = 0 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN NULL; END $$;
CREATE TRIGGER kill AFTER INSERT OR DELETE ON runs FOR EACH STATEMENT EXECUTE FUNCTION count_down();"""
KILLS_AT = """
CREATE TRIGGER kill AFTER INSERT OR UPDATE OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION count_down();"""
CHANGED = ("threads", "branches", "states", "events")
COUNT_FROM = "SELECT setval('statements_left', %(statements)s)"


@pytest.fixture(scope="module")
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module")
def live(
    portal: BlockingPortal, module_database_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Generator[LiveApi]:
    context = running_api(module_database_url, tmp_path_factory.mktemp("api"), SERVERS)
    with portal.wrap_async_context_manager(context) as live:
        portal.call(prepare_kills, module_database_url)
        yield live


async def prepare_kills(database_url: str) -> None:
    async with connected(database_url) as connection:
        await connection.execute("".join([KILLS, *map(KILLS_AT.format, CHANGED)]).encode())


class Threads(RuleBasedStateMachine):
    """A thread of the same name in each of two tenants, beside the models of both."""

    def __init__(self, portal: BlockingPortal, api: LiveApi) -> None:
        super().__init__()
        self.portal, self.api = portal, api
        self.keys = {tenant: portal.call(partial(api.key, *Scope, tenant=tenant)) for tenant in TENANTS}
        self.thread = f"m/{new_id()}"
        self.models: dict[str, ThreadModel | None] = dict.fromkeys(TENANTS)
        self.runs: dict[str, set[str]] = {tenant: set() for tenant in TENANTS}
        self.kill_at(0)

    def change(
        self, kill: int, tenant: str, what: str, body: Any = None, status: int = 200, method: str = "POST"
    ) -> Any:
        """Send a change, again if its connection was killed: then nothing may have changed."""
        self.kill_at(kill)
        address = f"/v1/threads/{self.thread}{what}"
        request = partial(self._answer, method, address, json=body, headers=self.keys[tenant])
        answered, answer = self.portal.call(request)
        if answered == HTTPStatus.SERVICE_UNAVAILABLE:
            self.platform_shows_the_lines_of_the_model()
            answered, answer = self.portal.call(request)
        assert answered == status, answer
        return answer

    async def _answer(self, method: str, address: str, **request: Any) -> tuple[int, Any]:
        async with self.api.client.request(method, address, **request) as response:
            return response.status, await response.json()

    def kill_at(self, statement: int) -> None:
        left = {"statements": statement or -1}
        self.portal.call(fetch_autocommit, self.api.services.storage.engine, COUNT_FROM, left)

    def show(self, tenant: str) -> ThreadModel | None:
        return self.portal.call(shown, self.api, self.thread, self.keys[tenant])

    def picked(self, tenant: str, pick: int) -> tuple[ThreadModel, str]:
        model = self.models[tenant]
        assert model is not None
        return model, sorted(model.branches)[pick % len(model.branches)]

    @initialize(kill=kills)
    def begin(self, kill: int) -> None:
        for tenant in TENANTS:
            self.add(tenant, kill, 0, IMPORTS[-1])

    @rule(tenant=tenants, kill=kills, pick=picks, roles=st.sampled_from(IMPORTS))
    def add(self, tenant: str, kill: int, pick: int, roles: tuple[str, ...]) -> None:
        model = self.models[tenant] or ThreadModel({"main": BranchModel()})
        branch, text = sorted(model.branches)[pick % len(model.branches)], f"{tenant} {new_id()}"
        before = model.branches[branch]
        status = 409 if before.hidden else 201 if before.takes_a_message else 422
        self.change(kill, tenant, "/states", {"branch": branch, "messages": messages(roles, text)}, status)
        self.models[tenant] = model
        if status == 201 and (now := self.show(tenant)):
            ends = "AssistantMessageState" if len(roles) > 1 else "UserMessageState"
            model.append(branch, now, ["UserMessageState", ends], text)

    @rule(tenant=tenants, kill=kills, pick=picks, text=st.sampled_from(["hello", "How full is this disk?"]))
    def run(self, tenant: str, kill: int, pick: int, text: str) -> None:
        model = self.models[tenant] = self.models[tenant] or ThreadModel({"main": BranchModel()})
        names = [*sorted(name for name, one in model.branches.items() if not one.hidden), None]
        branch = names[pick % len(names)]
        self.kill_at(kill)
        run_id = self.portal.call(self._run, tenant, {"input": text, "thread_id": self.thread, "branch": branch})
        now, before = self.show(tenant), model.runs
        assert now is not None
        model.append(branch or model.current, now, ["UserMessageState", "FinishedState"], text)
        assert model.runs == {*before, run_id}
        self.runs[tenant].add(run_id)

    async def _run(self, tenant: str, body: Any) -> str:
        async with self.api.client.post("/v1/agent/run", json=body, headers=self.keys[tenant]) as response:
            assert response.status == 200, await response.text()
            events = [event async for event in read_events(response)]
            assert events[-1].type == "done"
            return response.headers["X-Run-Id"]

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, kill=kills, pick=picks, at=picks)
    def fork(self, tenant: str, kill: int, pick: int, at: int) -> None:
        model, branch = self.picked(tenant, pick)
        name, position = f"b{new_id()}", at % (len(model.branches[branch].line) + 1)
        self.change(kill, tenant, "/fork", {"branch": branch, "position": position, "name": name}, 201)
        model.fork(branch, position, name)

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, kill=kills, pick=picks)
    def checkout(self, tenant: str, kill: int, pick: int) -> None:
        model, branch = self.picked(tenant, pick)
        hidden = model.branches[branch].hidden
        self.change(kill, tenant, "/checkout", {"branch": branch}, 409 if hidden else 200)
        model.current = model.current if hidden else branch

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, kill=kills, pick=picks, at=picks)
    def rewind(self, tenant: str, kill: int, pick: int, at: int) -> None:
        model, branch = self.picked(tenant, pick)
        position = at % (len(model.branches[branch].line) + 1)
        body = {"branch": branch, "position": position}
        if model.branches[branch].hidden:
            self.change(kill, tenant, "/rewind", body, 409)
        else:
            hidden = self.change(kill, tenant, "/rewind", body)["hidden"]
            model.rewind(branch, position, hidden and hidden["id"])

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, kill=kills)
    def prune(self, tenant: str, kill: int) -> None:
        model, _ = self.picked(tenant, 0)
        before = set(model.branches)
        removed = self.change(kill, tenant, "/prune")
        model.prune()
        assert set(removed["branches"]) == before - set(model.branches)
        self.check_runs(tenant)

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, kill=kills)
    def delete(self, tenant: str, kill: int) -> None:
        self.change(kill, tenant, "", method="DELETE")
        self.models[tenant] = None
        self.check_runs(tenant)

    def check_runs(self, tenant: str) -> None:
        """Check that runs went with their last state, and only then."""
        model = self.models[tenant]
        kept = model.runs if model else set[str]()
        for run in self.runs[tenant]:
            get = partial(self.api.get, f"/v1/runs/{run}", 200 if run in kept else 404, headers=self.keys[tenant])
            self.portal.call(get)
        self.runs[tenant] &= kept

    @invariant()
    def platform_has_the_accepted_runs_and_no_other(self) -> None:
        for tenant, accepted in self.runs.items():
            query = {"thread_id": self.thread, "limit": "200"}
            get = partial(self.api.get, "/v1/runs", params=query, headers=self.keys[tenant])
            assert {run["run_id"] for run in self.portal.call(get)["runs"]} == accepted

    @invariant()
    def platform_shows_the_lines_of_the_model(self) -> None:
        for tenant, model in self.models.items():
            now = self.show(tenant)
            assert (now is None) == (model is None)
            if model:
                model.check(now)


@rounds(usual=4, soak=400, name="examples")
def test_lines_of_branches_in_any_order_of_changes(portal: BlockingPortal, live: LiveApi, examples: int) -> None:
    class OnLiveApi(Threads):
        def __init__(self) -> None:
            super().__init__(portal, live)

    run_state_machine_as_test(OnLiveApi, settings=settings(max_examples=examples, stateful_step_count=20))
