"""What each branch of a thread has to hold, and what a platform says that it holds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from tests.support.http_client import ApiClient

_CALL: Final = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_MESSAGES: Final[Mapping[str, Mapping[str, Any]]] = {
    "user": {"role": "user"},
    "answer": {"role": "assistant"},
    "call": {"role": "assistant", "tool_calls": [_CALL]},
    "result": {"role": "tool", "tool_call_id": "c"},
}
IMPORTS: Final = (("user",), ("user", "answer"), ("user", "call", "result", "answer"))


def messages(roles: Sequence[str], text: str) -> list[dict[str, Any]]:
    """Return messages of the chat API, each with this text."""
    return [{**_MESSAGES[role], "content": text} for role in roles]


@dataclass(frozen=True, slots=True)
class BranchModel:
    """The states on the line of a branch, as texts that tell one from another, and where it begins."""

    line: tuple[str, ...] = ()
    hidden: bool = False
    parent: str | None = None
    fork: int = 0

    @property
    def runs(self) -> set[str]:
        return {run for state in self.line if (run := json.loads(state)["run_id"])}

    @property
    def takes_a_message(self) -> bool:
        """Whether a message of the user may follow: not where something has no result yet."""
        open_ends = ("ToolCallState", "AgentCallState", "WaitingState")
        return not self.hidden and not (self.line and json.loads(self.line[-1])["t"] in open_ends)


@dataclass(slots=True)
class ThreadModel:
    """All branches of a thread by their names; hidden ones too, until they are pruned."""

    branches: dict[str, BranchModel] = field(default_factory=dict[str, BranchModel])
    current: str = "main"

    @property
    def runs(self) -> set[str]:
        """The runs of which a state can be reached."""
        return set[str]().union(*(branch.runs for branch in self.branches.values()))

    @property
    def shape(self) -> object:
        """What two models of the same thread have in common; the names of hidden branches are not chosen."""
        lines = [("" if one.hidden else name, one.line) for name, one in self.branches.items()]
        return self.current, sorted(lines)

    def copy(self) -> Self:
        return replace(self, branches=dict(self.branches))

    def fork(self, branch: str, position: int, name: str) -> None:
        self.branches[name] = BranchModel(self.branches[branch].line[:position], parent=branch, fork=position)

    def rewind(self, branch: str, position: int, hidden: str | None) -> None:
        """Keep the whole line on a hidden branch; None where another branch has it."""
        line = self.branches[branch].line
        self.branches[branch] = replace(self.branches[branch], line=line[:position])
        if hidden:
            self.branches[hidden] = BranchModel(line, hidden=True)
        assert any(other.line[: len(line)] == line for other in self.branches.values())

    def prune(self) -> None:
        """Keep of hidden branches what a visible one begins with."""
        reached: dict[str, int] = {}
        for branch in [one for one in self.branches.values() if not one.hidden]:
            parent, end = branch.parent, branch.fork
            while parent:
                reached[parent] = max(reached.get(parent, 0), end)
                parent, end = self.branches[parent].parent, min(end, self.branches[parent].fork)
        for name, branch in list(self.branches.items()):
            if branch.hidden and name in reached:
                self.branches[name] = replace(branch, line=branch.line[: reached[name]])
            elif branch.hidden:
                del self.branches[name]

    def append(self, branch: str, shown: Self, kinds: Sequence[str], text: str = "") -> None:
        """Take what the platform shows beyond the line of a branch: as many states, which begin and end so."""
        line, more = self.branches[branch].line, shown.branches[branch].line[len(self.branches[branch].line) :]
        added = [json.loads(state) for state in more]
        assert [added[0]["t"], added[-1]["t"]] == [kinds[0], kinds[-1]]
        assert text in more[0]
        self.branches[branch] = replace(self.branches[branch], line=line + more)

    def check(self, shown: Self | None) -> None:
        """Check that the platform shows this; take over which branches begin on which."""
        assert shown is not None
        assert {name: (one.hidden, one.line) for name, one in shown.branches.items()} == {
            name: (one.hidden, one.line) for name, one in self.branches.items()
        }
        assert shown.current == self.current
        self.branches = shown.branches


def told(state: Mapping[str, Any]) -> str:
    """Return a state as a text; where it is stored may change."""
    return json.dumps({name: value for name, value in state.items() if name not in ("reference", "branch", "position")})


async def shown(api: ApiClient, thread: str, headers: Mapping[str, str]) -> ThreadModel | None:
    """Return what a platform says of a thread, None if there is none; its tips and positions are checked."""
    async with api.client.get(f"/v1/threads/{thread}", headers=headers) as response:
        if response.status == 404:
            return None
        assert response.status == 200, await response.text()
        known = await response.json()
    model = ThreadModel(current=known["branch"])
    assert len({branch["id"] for branch in known["branches"]}) == len(known["branches"])
    for branch in known["branches"]:
        states: list[dict[str, Any]] = []
        more: int | None = 0
        while more is not None:
            query = {"branch": branch["id"], "after": str(more), "limit": "200"}
            page = await api.get(f"/v1/threads/{thread}/states", params=query, headers=headers)
            states, more = [*states, *page["states"]], page["next"]
        assert [state["position"] for state in states] == list(range(1, branch["tip"] + 1))
        assert len({state["reference"] for state in states}) == len(states)
        assert all((state["parent"] or 0) < state["position"] for state in states)
        line = tuple(map(told, states))
        model.branches[branch["id"]] = BranchModel(
            line, branch["hidden"], branch["parent"], branch["fork_position"] or 0
        )
    for one in model.branches.values():
        assert one.parent is None or one.line[: one.fork] == model.branches[one.parent].line[: one.fork]
    return model
