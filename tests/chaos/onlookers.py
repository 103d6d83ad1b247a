"""Those who only look: how runs stand, and whether what belongs to others can be seen."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from tests.chaos.books import Accepted
from tests.chaos.desk import Desk

_VIEWS = (("GET", ""), ("GET", "/events"), ("GET", "/artifacts"), ("POST", "/cancel"), ("POST", "/resume"))
_LISTS = ("/v1/runs", "/v1/approvals")


@dataclass(frozen=True, slots=True)
class Onlooker:
    """One of a tenant's."""

    desk: Desk

    async def look(self, enough: asyncio.Event) -> None:
        """Keep asking how the tenant's runs stand, those that have ended too."""
        while not enough.is_set():
            await asyncio.sleep(self.desk.dice.uniform(0.1, 0.4))
            if own := self._runs(theirs=False):
                recent = own[-8:] if self.desk.dice.random() < 0.7 else own
                await self.look_at(self.desk.dice.choice(recent).run_id)

    async def look_at(self, run_id: str) -> None:
        asked = monotonic()
        status, told = await self.desk.asked("GET", f"/v1/runs/{run_id}")
        if status == 200:
            self.desk.books.saw(run_id, told["status"], asked)
        elif status == 404:
            self.desk.books.wrong("an accepted run is there", "who looked at it was told 404", run_id)

    async def pry(self, enough: asyncio.Event) -> None:
        """Keep asking for runs of other tenants, which are told apart from none; and stop them."""
        while not enough.is_set():
            await asyncio.sleep(self.desk.dice.uniform(0.5, 1.5))
            if foreign := self._runs(theirs=True):
                await self._pry_into(self.desk.dice.choice(foreign))
                await self._search(self.desk.dice.choice(_LISTS))

    async def _pry_into(self, foreign: Accepted) -> None:
        method, view = self.desk.dice.choice(_VIEWS)
        path = f"/v1/runs/{foreign.run_id}{view}"
        answer = [{"interruptId": foreign.run_id, "status": "cancelled"}] if view == "/resume" else None
        status, _ = await self.desk.asked(method, path, json=answer)
        self.desk.books.asked_across += status != 0
        if status not in (0, 404):
            said = f"{self.desk.tenant} was told {status} by {method} {path}, which is of {foreign.tenant}"
            self.desk.books.wrong("nothing of a tenant is visible to another", said, foreign.run_id)

    async def _search(self, path: str) -> None:
        """Look through a list for what isn't the tenant's."""
        _, told = await self.desk.asked("GET", path)
        for run in self._runs(theirs=True):
            if run.run_id in str(told):
                self.desk.books.wrong("nothing of a tenant is visible to another", f"{path} has it", run.run_id)

    def _runs(self, *, theirs: bool) -> Sequence[Accepted]:
        runs = self.desk.books.accepted.values()
        return [run for run in runs if (run.tenant != self.desk.tenant) == theirs]
