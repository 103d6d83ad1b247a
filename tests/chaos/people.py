"""The person whom runs wait for: approves, answers, gives more tokens, and says of calls in doubt what servers say."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from tests.chaos.desk import Desk
from tests.chaos.orders import Order
from tests.chaos.town import LEASE_SECONDS

_LOOK_SECONDS = 0.3
_SURE_SECONDS = 4 * LEASE_SECONDS  # by then a call that left has arrived: nothing is stopped for more than two leases
_REFUSED, _NOT_ANSWERED, _ASKED_TWICE, _TALKS = 0.15, 0.2, 0.2, 0.5
_OPTIONAL = ("budget", "clarification")


@dataclass(slots=True)
class Person:
    """One tenant's."""

    desk: Desk
    _seen: dict[str, float] = field(default_factory=dict[str, float])
    _answers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    async def answer(self) -> None:
        """Answer what runs ask, for as long as nobody cancels it."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            status, told = await self.desk.asked("GET", "/v1/runs", params={"status": "waiting", "limit": "100"})
            for run in told["runs"] if status == 200 else ():
                await self._answer_run(run["run_id"])

    async def _answer_run(self, run_id: str) -> None:
        asked_at = monotonic()
        status, run = await self.desk.asked("GET", f"/v1/runs/{run_id}")
        if status != 200:
            return
        self.desk.books.saw(run_id, run["status"], asked_at)
        if any(asked["kind"] == "clarification" for asked in run["interrupts"]) and self.desk.dice.random() < _TALKS:
            await self._talk(run)
            return
        answers = [answer for asked in run["interrupts"] if (answer := self._answer_to(asked))]
        for _ in range(2 if self.desk.dice.random() < _ASKED_TWICE else 1):
            if answers:
                await self._send(run_id, answers)

    async def _talk(self, run: Mapping[str, Any]) -> None:
        """Answer a question with a plain message on its thread; where somebody was faster, that is an order."""
        text = Order(f"{self.desk.tenant}-answers-{run['interrupts'][0]['id']}", "direct").text
        body = {"input": text, "thread_id": run["thread_id"]}
        key = {"Idempotency-Key": f"answer-{run['interrupts'][0]['id']}"}
        await self.desk.asked("POST", "/v1/runs", json=body, headers=key)

    async def _send(self, run_id: str, answers: list[dict[str, Any]]) -> None:
        status, said = await self.desk.asked("POST", f"/v1/runs/{run_id}/resume", json=answers)
        if status >= 400 and status != 409:  # a run may have ended meanwhile
            self.desk.books.wrong("answers are taken", f"{status} {said}", run_id)

    def _answer_to(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer, the same however often it is asked for; None while it isn't known yet."""
        if known := self._answers.get(asked["id"]):
            return known
        if asked["kind"] == "in_doubt" and not self._is_sure(asked["id"]):
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
        status = "cancelled" if asked["kind"] in _OPTIONAL and self.desk.dice.random() < _NOT_ANSWERED else "resolved"
        answer = {"interruptId": asked["id"], "status": status, "payload": payload}
        return self._answers.setdefault(asked["id"], answer)

    def _is_sure(self, interrupt_id: str) -> bool:
        """Whether what left has arrived: the call was in doubt for long enough, and nobody is stopped just now."""
        seen = self._seen.setdefault(interrupt_id, monotonic())
        return monotonic() - seen > _SURE_SECONDS and not any(item.stopped for item in self.desk.town.services)

    def _in_doubt(self, call: Mapping[str, Any]) -> dict[str, Any]:
        what = call["args"]["what"]
        done = any((line["at"], line["what"]) == ("done", what) for line in self.desk.town.effects())
        self.desk.books.decided[what] = "done" if done else "not_done"
        return {"resolution": "done", "result": "It is in the books."} if done else {"resolution": "not_done"}

    def _approval(self, call: Mapping[str, Any]) -> dict[str, Any]:
        approved = self.desk.dice.random() >= _REFUSED
        self.desk.books.decided[call["args"]["what"]] = "approved" if approved else "refused"
        return {"approved": approved}
