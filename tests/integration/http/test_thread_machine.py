"""Any order of imports, runs, forks, checkouts, rewinds, prunings and deletions keeps the lines of all branches."""

from collections.abc import Generator
from functools import partial
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
from tests.integration.http.conftest import SERVERS, LiveApi, running_api
from tests.support.soak import rounds
from tests.support.sse import read_events
from tests.support.thread_model import IMPORTS, BranchModel, ThreadModel, messages, shown

TENANTS = ("default", "elsewhere")
tenants, picks = st.sampled_from(TENANTS), st.integers(0, 60)


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
        yield live


class Threads(RuleBasedStateMachine):
    """A thread of the same name in each of two tenants, beside the models of both."""

    def __init__(self, portal: BlockingPortal, api: LiveApi) -> None:
        super().__init__()
        self.portal, self.api = portal, api
        self.keys = {tenant: portal.call(partial(api.key, *Scope, tenant=tenant)) for tenant in TENANTS}
        self.thread = f"m/{new_id()}"
        self.models: dict[str, ThreadModel | None] = dict.fromkeys(TENANTS)
        self.runs: dict[str, set[str]] = {tenant: set() for tenant in TENANTS}

    def send(self, tenant: str, what: str, body: Any = None, status: int = 200) -> Any:
        send = partial(self.api.post, f"/v1/threads/{self.thread}{what}", status, json=body, headers=self.keys[tenant])
        return self.portal.call(send)

    def show(self, tenant: str) -> ThreadModel | None:
        return self.portal.call(shown, self.api, self.thread, self.keys[tenant])

    def picked(self, tenant: str, pick: int) -> tuple[ThreadModel, str]:
        model = self.models[tenant]
        assert model is not None
        return model, sorted(model.branches)[pick % len(model.branches)]

    @initialize(tenant=tenants)
    def begin(self, tenant: str) -> None:
        self.add(tenant, 0, IMPORTS[-1])

    @rule(tenant=tenants, pick=picks, roles=st.sampled_from(IMPORTS))
    def add(self, tenant: str, pick: int, roles: tuple[str, ...]) -> None:
        model = self.models[tenant] = self.models[tenant] or ThreadModel({"main": BranchModel()})
        branch, text = sorted(model.branches)[pick % len(model.branches)], f"{tenant} {new_id()}"
        before = model.branches[branch]
        status = 409 if before.hidden else 201 if before.takes_a_message else 422
        self.send(tenant, "/states", {"branch": branch, "messages": messages(roles, text)}, status)
        if status == 201 and (now := self.show(tenant)):
            ends = "AssistantMessageState" if len(roles) > 1 else "UserMessageState"
            model.append(branch, now, ["UserMessageState", ends], text)

    @rule(tenant=tenants, pick=picks, text=st.sampled_from(["hello", "How full is this disk?"]))
    def run(self, tenant: str, pick: int, text: str) -> None:
        model = self.models[tenant] = self.models[tenant] or ThreadModel({"main": BranchModel()})
        names = [*sorted(name for name, one in model.branches.items() if not one.hidden), None]
        branch = names[pick % len(names)]
        run_id = self.portal.call(self._run, tenant, {"input": text, "thread_id": self.thread, "branch": branch})
        now = self.show(tenant)
        assert now is not None
        model.append(branch or model.current, now, ["UserMessageState", "FinishedState"], text)
        assert run_id in model.runs
        self.runs[tenant].add(run_id)

    async def _run(self, tenant: str, body: Any) -> str:
        async with self.api.client.post("/v1/agent/run", json=body, headers=self.keys[tenant]) as response:
            assert response.status == 200, await response.text()
            events = [event async for event in read_events(response)]
            assert events[-1].type == "done"
            return response.headers["X-Run-Id"]

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, pick=picks, at=picks)
    def fork(self, tenant: str, pick: int, at: int) -> None:
        model, branch = self.picked(tenant, pick)
        name, position = f"b{new_id()}", at % (len(model.branches[branch].line) + 1)
        self.send(tenant, "/fork", {"branch": branch, "position": position, "name": name}, 201)
        model.fork(branch, position, name)

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, pick=picks)
    def checkout(self, tenant: str, pick: int) -> None:
        model, branch = self.picked(tenant, pick)
        hidden = model.branches[branch].hidden
        self.send(tenant, "/checkout", {"branch": branch}, 409 if hidden else 200)
        model.current = model.current if hidden else branch

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants, pick=picks, at=picks)
    def rewind(self, tenant: str, pick: int, at: int) -> None:
        model, branch = self.picked(tenant, pick)
        position = at % (len(model.branches[branch].line) + 1)
        body = {"branch": branch, "position": position}
        if model.branches[branch].hidden:
            self.send(tenant, "/rewind", body, 409)
        else:
            hidden = self.send(tenant, "/rewind", body)["hidden"]
            model.rewind(branch, position, hidden and hidden["id"])

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants)
    def prune(self, tenant: str) -> None:
        model, _ = self.picked(tenant, 0)
        before = set(model.branches)
        removed = self.send(tenant, "/prune")
        model.prune()
        assert set(removed["branches"]) == before - set(model.branches)
        self.check_runs(tenant)

    @precondition(lambda self: all(self.models.values()))
    @rule(tenant=tenants)
    def delete(self, tenant: str) -> None:
        self.portal.call(partial(self.api.delete, f"/v1/threads/{self.thread}", headers=self.keys[tenant]))
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
    def platform_shows_the_lines_of_the_model(self) -> None:
        for tenant, model in self.models.items():
            now = self.show(tenant)
            assert (now is None) == (model is None)
            if model:
                model.check(now)


@rounds(usual=8, soak=400, name="examples")
def test_lines_of_branches_in_any_order_of_changes(portal: BlockingPortal, live: LiveApi, examples: int) -> None:
    class OnLiveApi(Threads):
        def __init__(self) -> None:
            super().__init__(portal, live)

    run_state_machine_as_test(OnLiveApi, settings=settings(max_examples=examples, stateful_step_count=20))
