"""What is promised of every run, whatever its models answered: it ends within its bounds, and its verdicts hold."""

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from starling.core.run_document.document import RunDocument, TaskRecord
from starling.infra.postgres.runs.acceptance import RunKey
from tests.support.misbehaving_model import (
    ANSWER,
    DESIGNER,
    FORBIDDEN,
    JUDGE,
    QUESTION,
    SUPERVISOR,
    TEAMS,
    Talk,
    verdicts,
)
from tests.support.platform import RunStream

type Events = Sequence[Mapping[str, Any]]

LIMITS: Final[Mapping[str, Any]] = {
    "model_call_seconds": 0.6,
    "tasks_per_plan": 8,
    "supervisor_calls": 4,
    "tool_calls_per_task": 12,
}
ENDED: Final = {"succeeded", "failed", "budget_exhausted", "cancelled"}
POLICIES: Final[Mapping[str, str]] = {  # of those agents whose makers set one
    "scout": "never",
    "keeper": "always",
    "looker": "always",
    "persona": "risky",
}
AGENTS: Final = {
    *("mcp_agent_bench", "mcp_agent_shop", "scout", "keeper", "critic", "generalist", "coder", "architect"),
    *("machines", "crew", "looker", "persona"),
}
_STRICTNESS: Final = ("never", "risky", "always")
_ATTEMPTS, _QUESTIONS, _DESIGNS = 2, 2, 3
_ITERATIONS: Final = {"EXPLORATORY": 6}  # turns of an attempt; else 3
_NODES: Final = {SUPERVISOR, QUESTION, ANSWER, DESIGNER, JUDGE, *TEAMS}  # lanes that are of no task
_TRIES: Final = 3  # of one request at an endpoint that fails
_SOURCE: Final = re.compile(r'<result citation="\d+">(.*?)</result>', re.DOTALL)
_CRITERION: Final = re.compile(r'<criterion id="([^"]+)"')
_SEEN: Final = 60  # characters of a result that tell it from others, also where it is shown in part


@dataclass(slots=True)
class BegunRun:
    """A run as its caller and its model know it."""

    key: RunKey
    talk: Talk
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    team: str = ""  # that it builds
    crashes: int = 0
    cancelled: bool = False
    approved: bool = False  # whether a person approved anything
    done: Counter[str] = field(default_factory=Counter[str])  # what the servers did for it
    end: RunStream | None = None


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that has ended, with its stream and its document."""

    run: BegunRun
    stream: RunStream
    document: RunDocument

    def check(self) -> None:
        self._check_end()
        self._check_bounds()
        self._check_tasks()
        for path in self._results:
            self._check_verdicts(path)
        self._check_sources()
        self._check_calls()
        if self.run.team:
            self._check_build()

    # the run

    def _check_end(self) -> None:
        stream = self.stream
        assert stream.status in ENDED
        assert stream.status == "cancelled" or not self.run.cancelled
        assert stream.reply.strip()
        assert not {"internal", "recursion_limit"} & set(stream.codes)
        assert stream.kinds.count("done") == 1
        has_result = any(one["status"] == "approved" for one in self._results.values())
        assert stream.status != "succeeded" or has_result or not self._starts

    def _check_bounds(self) -> None:
        """Decisions, plans, attempts and questions are bounded, and so are the requests to models that they take."""
        for path, plans in grouped(self.stream.of("plan"), "path").items():
            assert len(plans) <= LIMITS["supervisor_calls"], path
            assert [plan["version"] for plan in plans] == list(range(1, len(plans) + 1)), path
            assert len(plans[-1]["tasks"]) <= LIMITS["tasks_per_plan"], path
        assert len(self.stream.of("clarification")) <= _QUESTIONS
        assert len(self.stream.of("design")) <= _DESIGNS
        turns = _ITERATIONS.get(self.run.config.get("mode", ""), 3) + 2  # told once to call, and CrewAI's last answer
        attempts = Counter(one["task_id"] for one in self.stream.of("task_start"))
        for lane, answers in self.run.talk.answered.items():
            begun = attempts[lane.removeprefix("review ")] + self._lost
            each = 4 if lane.startswith("review ") else turns  # a verdict and that on its fix, each asked for twice
            most = self._most_requests(lane) if lane in _NODES else begun * each
            assert len(answers) <= most * _TRIES * (1 + self.run.crashes), lane
        used, requests = self.stream.done["usage"]["model_calls"], sum(map(len, self.run.talk.answered.values()))
        assert used <= requests
        assert used == requests or self.run.crashes or self.run.cancelled

    @property
    def _lost(self) -> int:
        """How many attempts at one task may have begun without an event: a crash loses what was not yet durable."""
        return _ATTEMPTS * self.run.crashes

    def _most_requests(self, lane: str) -> int:
        """Return how many documents and answers a node may be asked for, with those that are sent back once.

        A supervisor may be sent back, look for other agents, and reply where an agent is certain, once each.
        """
        cases = len(self.stream.of("proof")) + 1
        teams = [one for one in self.stream.of("task_start") if one["agent"] in ("machines", "crew")]
        stars = 1 + len(teams) + self._lost + (cases if self.run.team else 0)
        decisions = 4 * int(LIMITS["supervisor_calls"]) * stars
        asked = {ANSWER: 2 * stars, QUESTION: 2 * (_QUESTIONS + 1), DESIGNER: 2 * (_DESIGNS + 1), JUDGE: 2 * cases}
        return asked.get(lane, decisions)

    # its tasks

    @property
    def _starts(self) -> Mapping[str, Events]:
        return grouped(self.stream.of("task_start"), "path")

    @property
    def _results(self) -> Mapping[str, Mapping[str, Any]]:
        return {one["path"]: one for one in self.stream.of("task_result")}

    def _check_tasks(self) -> None:
        """Each task that began ended once, after attempts in their order."""
        results = grouped(self.stream.of("task_result"), "path")
        assert results.keys() >= self._starts.keys()
        assert {path for path, found in results.items() if len(found) > 1} == set()
        for path, started in self._starts.items():
            assert [one["attempt"] for one in started] == list(range(1, len(started) + 1)), path
            assert len(started) <= _ATTEMPTS, path
            assert started[0]["agent"] in AGENTS

    def _check_verdicts(self, path: str) -> None:
        """A task has at most one verdict on each attempt, and a result rests on the last one, or on its policy."""
        result, given = self._results[path], grouped(self.stream.of("reflection"), "path").get(path, ())
        numbers, statuses = [one["attempt"] for one in given], [one["status"] for one in given]
        assert numbers == sorted(set(numbers)), path
        assert set(numbers) <= {one["attempt"] for one in self._starts.get(path, ())}, path
        assert set(statuses[:-1]) <= {"REJECTED"}, path  # what was approved or fixed ends its task
        is_final = bool(given) and numbers[-1] == result["attempt"]
        if result["status"] == "failed":
            assert statuses[-1:] in ([], ["REJECTED"]) or self.run.cancelled, path
            return
        assert not is_final or statuses[-1] in ("APPROVED", "FIXED"), path
        assert not given or is_final, path
        self._check_policy(path, is_reviewed=is_final)
        if is_final:
            self._check_was_said(path, statuses[-1])
        if statuses[-1:] == ["FIXED"]:
            self._check_fix(path)

    def _check_policy(self, path: str, *, is_reviewed: bool) -> None:
        """A result is reviewed where the stricter of the policies of its maker and of its caller says so."""
        agent, task_id = self._results[path]["agent"], self._results[path]["task_id"]
        own, asked = POLICIES.get(agent), self.run.config.get("reflect")
        policy = max(own, asked or "never", key=_STRICTNESS.index) if own else asked or "always"
        changing = [one for one in self.stream.of("tool_start") if one["name"].startswith("shop.")]
        made = {one["call_id"] for one in self.stream.of("tool_result") if one["state"] in ("succeeded", "reused")}
        is_risky = any(one["path"] == path and one["call_id"] in made for one in changing)
        may_be_risky = any(task_id in one["path"] for one in changing)
        if agent == "architect" or policy == "never":
            assert not is_reviewed, path
        elif policy == "always" or is_risky:
            assert is_reviewed, path
        elif not may_be_risky:
            assert not is_reviewed, path

    def _check_was_said(self, path: str, status: str) -> None:
        """The reviewer said what the event says; of a fix it said so of the fixed text, too."""
        told = verdicts(self.run.talk.answered[f"review {self._results[path]['task_id']}"])
        assert "APPROVED" in (told[told.index("FIXED") :] if status == "FIXED" else told), path

    def _check_fix(self, path: str) -> None:
        """The result is the fixed text, and what the agent made is kept beside it."""
        task: TaskRecord = next(one for one in self.document.tasks if one.path == path)
        attempt = task.attempts[-1]
        assert attempt.verdict is not None
        refined = attempt.verdict.refined
        inside = [one.text for one in self.document.tasks if one.star == path]
        kept = [attempt.text, *inside, *(call.result for call in attempt.calls)]
        assert refined, path
        assert self._results[path]["summary"].startswith(refined[:_SEEN]), path
        assert any(text and text != refined for text in kept), path

    # its answer

    def _check_sources(self) -> None:
        """What the answer cites is approved, and a model that writes one, or a question, sees nothing else."""
        approved = {path: one for path, one in self._results.items() if one["status"] == "approved"}
        tasks = {(one["task_id"], one["agent"]) for path, one in approved.items() if "/" not in path}
        assert {(one["task_id"], one["agent"]) for one in self.stream.done["citations"]} <= tasks
        said = {_beginning(one["summary"]) for one in approved.values()}
        for text in (*self.run.talk.asked[ANSWER], *self.run.talk.asked[QUESTION]):
            shown = {_beginning(html.unescape(found)) for found in _SOURCE.findall(text)}
            assert shown <= said, shown - said

    def _check_calls(self) -> None:
        """The servers did what was asked for and granted; a crash may repeat reads."""
        asked, done = self.run.talk.calls, self.run.done
        unsafe = {call for call in asked if call.startswith(("change t2", "change t7"))}
        again = {call: times for call, times in asked.items() if self.run.crashes and call not in unsafe}
        assert not done - asked - Counter(again)
        assert FORBIDDEN not in str(done)

    def _check_build(self) -> None:
        """A version is stored once; what a judge found unmet is no team, and what nobody judged asks a person."""
        proofs, states = self.stream.of("proof"), [one["state"] for one in self.stream.of("published")]
        assert len({one["version"] for one in self.stream.of("published")}) <= 1
        assert len(states) == len(set(states))
        judge = self.run.talk
        judged = {name for text in judge.asked[JUDGE] for name in _CRITERION.findall(text)}
        named = " ".join(answer.content for answer in judge.answered[JUDGE])
        for one in proofs:
            decided = [found for found in one["criteria"] if found["decided"]]
            assert one["passed"] == all(found["met"] for found in decided), one["case"]
            inside = [found for path, found in self._results.items() if path.startswith(f"{one['trial_path']}/")]
            if any(found["status"] == "approved" for found in inside):  # else there was nothing to judge
                assert all(found["id"] in named for found in decided if found["id"] in judged), one["case"]
        if not all(one["passed"] for one in proofs):
            assert set(states) <= {"draft"}
        if states[:1] in (["active"], ["proven"]):
            assert sum(one["counts"] for one in proofs) > 1
        assert "active" not in states[1:] or self.run.approved


def _beginning(text: str) -> str:
    return " ".join(text.split())[:_SEEN].rstrip("…")


def grouped(events: Events, name: str) -> Mapping[str, Events]:
    """Return events by the value of a field, in their order."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        groups.setdefault(cast("str", event[name]), []).append(event)
    return groups
