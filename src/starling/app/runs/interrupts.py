"""Answers to the interrupts of runs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

from mcp_gateway.schemas.validation import faults
from starling.core.errors import ForbiddenError, InvalidRequestError, NotFoundError
from starling.core.json import JsonObject, storable
from starling.core.json_schemas.compiled import compiled
from starling.core.principal import LOCAL_REMEDY, Principal, Scope
from starling.core.teams.building import ACTIVATE_TEAM
from starling.infra.postgres.audit import Actor
from starling.infra.postgres.runs.acceptance import RunKey
from starling.infra.postgres.runs.interrupts import (
    InterruptAnswer,
    InterruptRepository,
    StoredInterrupt,
    is_of_build,
)

_OTHER_KEY = "Answer with a key that reaches at least as much."


@dataclass(frozen=True, slots=True)
class InterruptService:
    """Validates answers against the schema of their interrupt, stores them and wakes the waiting runs."""

    repository: InterruptRepository

    async def answer(self, key: RunKey, answers: Sequence[InterruptAnswer], actor: Actor, caller: Principal) -> None:
        """Answer interrupts of a run, all or none of them; repeating the same answers changes nothing.

        The caller's grant limits which calls it may decide on; activations of teams need the scope `admin`. Without
        a key or the local token only questions can be answered. Raises InvalidRequestError that says where a payload
        is wrong, NotFoundError, ForbiddenError, ConflictError.
        """
        asked = {item.id: item for item in await self.repository.of_run(key)}
        ids = [answer.id for answer in answers]
        if len(set(ids)) < len(ids):
            raise InvalidRequestError("An interrupt has more than one answer.", "Send one answer for each interrupt.")
        wrong: list[str] = []
        for number, answer in enumerate(answers):
            found = asked.get(answer.id)
            if found is None and asked:
                raise NotFoundError("interrupt", answer.id)
            if found and answer.state == "resolved":
                wrong += faults(compiled(found.responseSchema), answer.payload, f"[{number}].payload")
        await self._check_reach(key, [asked[given] for given in ids if given in asked], caller)
        if wrong:
            raise InvalidRequestError(
                f"The answer doesn't fit what was asked for: {'; '.join(wrong)}.",
                "The interrupt's `responseSchema` says what is expected.",
            )
        await self.repository.answer(key, [_storable(answer) for answer in answers], actor.name, actor.origin)

    async def answer_one(self, answer: InterruptAnswer, actor: Actor, caller: Principal) -> RunKey:
        """Answer one interrupt of the caller's tenant and return its run. Raises as `answer` does."""
        key = RunKey(caller.tenant, (await self.repository.one(caller.tenant, answer.id)).run_id)
        await self.answer(key, [answer], actor, caller)
        return key

    async def _check_reach(self, key: RunKey, asked: Sequence[StoredInterrupt], caller: Principal) -> None:
        """Refuse decisions on calls outside the caller's grant, and answers to runs that reach more than it."""
        if caller.keyless and (decisions := {item.kind for item in asked} - {"clarification"}):
            raise ForbiddenError(
                f"A request without a key or the local token can't decide ({', '.join(sorted(decisions))}): a server "
                "of this machine could have sent it.",
                LOCAL_REMEDY,
            )
        names = [str(item.call["name"]) for item in asked if item.call]
        if ACTIVATE_TEAM in names and Scope.ADMIN not in caller.scopes:
            raise ForbiddenError(
                f"The key {caller.key_id} lacks the scope 'admin', so it can't decide on the activation of a team.",
                "Answer with a key that has it.",
            )
        if Scope.TEAMS not in caller.scopes and any(
            item.kind == "clarification" and is_of_build(item.path) for item in asked
        ):
            raise ForbiddenError(
                f"The key {caller.key_id} lacks the scope 'teams', so it can't say what a team is built for.",
                "Answer with a key that has it.",
            )
        grant = caller.grant
        if grant is None:
            return
        names = [name for name in names if name != ACTIVATE_TEAM]
        if beyond := [name for name in names if not grant.permits(name.partition(".")[0], name)]:
            raise ForbiddenError(f"This key may not call {beyond[0]}, so it can't decide on a call of it.", _OTHER_KEY)
        if any(item.call is None for item in asked) and not grant.covers(await self.repository.grant_of(key)):
            raise ForbiddenError(
                "The run may call more than this key, so this key can't answer its questions or raise its budget.",
                _OTHER_KEY,
            )


def _storable(answer: InterruptAnswer) -> InterruptAnswer:
    payload = storable(answer.payload if answer.state == "resolved" else {})
    return replace(answer, payload=cast("JsonObject", payload))
