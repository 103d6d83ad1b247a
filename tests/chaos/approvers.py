"""Answers interrupts: approvals, questions, token budgets, and calls in doubt by what the servers have recorded."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from starling.core.teams.building import ACTIVATE_TEAM
from tests.chaos.api_client import ApiClient
from tests.chaos.cluster import LEASE_SECONDS
from tests.chaos.workload import PlannedRequest

_LOOK_SECONDS = 0.3
_SURE_SECONDS = 4 * LEASE_SECONDS  # then a dispatched call has arrived: nothing is stopped for more than two leases
_REFUSED, _NOT_ANSWERED, _ASKED_TWICE, _TALKS = 0.15, 0.2, 0.2, 0.5
_OPTIONAL = ("budget", "clarification")


@dataclass(slots=True)
class Approver:
    """Answers the interrupts of one tenant."""

    api: ApiClient
    _seen: dict[str, float] = field(default_factory=dict[str, float])
    _answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def answer(self) -> None:
        """Answer open interrupts until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            status, told = await self.api.request("GET", "/v1/runs", params={"status": "waiting", "limit": "100"})
            for run in told["runs"] if status == 200 else ():
                await self._answer_run(run["run_id"])

    async def _answer_run(self, run_id: str) -> None:
        asked_at = monotonic()
        status, run = await self.api.request("GET", f"/v1/runs/{run_id}")
        if status != 200:
            return
        self.api.history.record_status(run_id, run["status"], asked_at)
        if any(asked["kind"] == "clarification" for asked in run["interrupts"]) and self.api.rng.random() < _TALKS:
            await self._answer_by_message(run)
            return
        answers = [answer for asked in run["interrupts"] if (answer := self._answer_to(asked))]
        for _ in range(2 if self.api.rng.random() < _ASKED_TWICE else 1):
            if answers:
                await self._send(run_id, answers)

    async def _answer_by_message(self, run: Mapping[str, Any]) -> None:
        """Answer a question with a message on its thread; if it was answered already, the message is a new request."""
        text = PlannedRequest(f"{self.api.tenant}-answers-{run['interrupts'][0]['id']}", "direct").text
        body = {"input": text, "thread_id": run["thread_id"]}
        key = {"Idempotency-Key": f"answer-{run['interrupts'][0]['id']}"}
        await self.api.request("POST", "/v1/runs", json=body, headers=key)

    async def _send(self, run_id: str, answers: list[dict[str, Any]]) -> None:
        status, said = await self.api.request("POST", f"/v1/runs/{run_id}/resume", json=answers)
        for answer in answers if status == 409 else ():
            if answer["payload"].get("resolution") == "not_done":  # too early: the record is read once more
                self._answers.pop(answer["interruptId"], None)
        if status >= 400 and status != 409:  # a run may have ended meanwhile
            self.api.history.add_violation("answers are taken", f"{status} {said}", run_id)

    def _answer_to(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer, always the same for an interrupt; None while the effect of a call is not yet certain."""
        if known := self._answers.get(asked["id"]):
            return known
        if asked["kind"] == "in_doubt" and not self._has_settled(asked["id"]):
            return None
        match asked["kind"]:
            case "in_doubt":
                payload = self._in_doubt(asked["call"])
            case "approval":
                payload = self._approval(asked["call"])
            case "budget":
                payload = {"tokens": 10_000}
            case _:
                payload = {"answer": "this"}
        status = "cancelled" if asked["kind"] in _OPTIONAL and self.api.rng.random() < _NOT_ANSWERED else "resolved"
        answer = {"interruptId": asked["id"], "status": status, "payload": payload}
        return self._answers.setdefault(asked["id"], answer)

    def _has_settled(self, interrupt_id: str) -> bool:
        """Return whether a call in doubt has had time to arrive and no service is stopped."""
        seen = self._seen.setdefault(interrupt_id, monotonic())
        return monotonic() - seen > _SURE_SECONDS and not any(item.stopped for item in self.api.cluster.services)

    def _in_doubt(self, call: Mapping[str, Any]) -> dict[str, Any]:
        what = call["args"]["what"]
        done = any((line["at"], line["what"]) == ("done", what) for line in self.api.cluster.effects())
        self.api.history.decisions[what] = "done" if done else "not_done"
        return {"resolution": "done", "result": "It is on record."} if done else {"resolution": "not_done"}

    def _approval(self, call: Mapping[str, Any]) -> dict[str, Any]:
        approved = self.api.rng.random() >= _REFUSED
        if call["name"] == ACTIVATE_TEAM:
            self.api.history.activations[call["call_id"].partition("/")[0]] = approved
            return {"approved": approved}
        self.api.history.decisions[call["args"]["what"]] = "approved" if approved else "refused"
        return {"approved": approved}
