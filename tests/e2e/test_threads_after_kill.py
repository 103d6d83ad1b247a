"""The platform is killed while threads change: each change was made as a whole, or not at all."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest

from tests.support.http_client import ApiClient
from tests.support.platform_process import PlatformProcess
from tests.support.thread_model import BranchModel, ThreadModel, messages, shown

_THREADS = 4
_CHANGES_BEFORE_A_KILL = 60
_KILLS = 8


@dataclass(slots=True)
class ChangedThread:
    """A thread that changes at random, and all that it may be: more than one only while a change is being made."""

    name: str
    random: Random
    noted: Callable[[], None]
    known: ThreadModel = field(default_factory=lambda: ThreadModel({"main": BranchModel()}))
    possible: list[ThreadModel] = field(default_factory=list[ThreadModel])
    count: int = 0
    begun: bool = False

    async def change(self, api: ApiClient) -> None:
        """Change it until the platform is gone."""
        with suppress(aiohttp.ClientError):
            while True:
                what, body = self._next()
                method, path = ("POST", f"/{what}") if what else ("DELETE", "")
                status = 201 if what in ("states", "fork") else 200
                await api.send(method, f"/v1/threads/{self.name}{path}", status, json=body)
                self.possible = self.possible[1:]
                self.noted()
                await self.check(api)

    async def check(self, api: ApiClient) -> None:
        """Check that it is one of what it may be."""
        now = await shown(api, self.name, {})
        self.begun, now = now is not None, now or ThreadModel({"main": BranchModel()})
        for name, branch in now.branches.items():
            texts = [json.loads(state)["data"] for state in branch.line]
            line = tuple(data.get("text") or data["content"] for data in texts)
            now.branches[name] = replace(branch, line=line)
        assert now.shape in [model.shape for model in self.possible]
        self.known, self.possible = now, [now]

    def _next(self) -> tuple[str, dict[str, Any]]:
        """Choose a change and note what it may lead to: what was, or, once it is acknowledged, one of the others."""
        self.count += 1
        after, text = self.known.copy(), f"{self.name} {self.count}"
        branch = self.random.choice([name for name, one in after.branches.items() if not one.hidden])
        line = after.branches[branch].line
        place: dict[str, Any] = {"branch": branch, "position": self.random.randint(0, len(line))}
        what = self.random.choice([*["states", "fork", "rewind"] * 4, "prune", "checkout", "checkout", ""])
        what = what if self.begun else "states"
        self.possible = [self.known, after]
        if what == "states":
            after.branches[branch] = replace(after.branches[branch], line=(*line, text, text))
            return what, {"branch": branch, "messages": messages(("user", "answer"), text)}
        if what == "fork":
            after.fork(branch, place["position"], text)
            return what, {**place, "name": text}
        if what == "prune":
            after.prune()
            return what, {}
        if what == "checkout":
            after.current = branch
            return what, {"branch": branch}
        if not what:  # a deletion
            self.possible[1] = ThreadModel({"main": BranchModel()})
            return what, {}
        with suppress(AssertionError):  # no other branch has the line: then it has to be on a hidden one
            without = after.copy()
            without.rewind(branch, place["position"], None)
            self.possible.append(without)
        after.rewind(branch, place["position"], "hidden")
        return what, place


@pytest.mark.soak
async def test_each_change_of_a_thread_is_made_as_a_whole_or_not_at_all(open_folder: Path) -> None:
    changes = asyncio.Semaphore(0)
    threads = [ChangedThread(f"t{n}", Random(n), changes.release) for n in range(_THREADS)]
    variables = {"STARLING_MODEL": "offline:rules", "STARLING_RATE_PER_MINUTE": "1000000"}
    async with PlatformProcess.running(open_folder, {}, variables) as platform:
        for _ in range(_KILLS):
            async with platform.client() as client, asyncio.TaskGroup() as tasks:
                for thread in threads:
                    tasks.create_task(thread.change(ApiClient("", client)))
                for _ in range(_CHANGES_BEFORE_A_KILL):
                    await changes.acquire()
                await platform.kill()
            await platform.start()
            async with platform.client() as client:
                for thread in threads:
                    await thread.check(ApiClient("", client))
