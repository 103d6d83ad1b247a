"""Clients that poll run statuses and try to reach runs of other tenants."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from tests.chaos.api_client import ApiClient
from tests.chaos.client_history import Accepted

_VIEWS = (("GET", ""), ("GET", "/events"), ("GET", "/artifacts"), ("POST", "/cancel"), ("POST", "/resume"))
_LISTS = ("/v1/runs", "/v1/approvals")


@dataclass(frozen=True, slots=True)
class TenantPoller:
    """Polls with the key of one tenant."""

    api: ApiClient

    async def poll_own_runs(self, stop: asyncio.Event) -> None:
        """Poll the statuses of the tenant's own runs, ended ones included, until `stop` is set."""
        while not stop.is_set():
            await asyncio.sleep(self.api.rng.uniform(0.1, 0.4))
            if own := self._runs(theirs=False):
                recent = own[-8:] if self.api.rng.random() < 0.7 else own
                await self.check_status(self.api.rng.choice(recent).run_id)

    async def check_status(self, run_id: str) -> None:
        asked = monotonic()
        status, told = await self.api.request("GET", f"/v1/runs/{run_id}")
        if status == 200:
            self.api.history.record_status(run_id, told["status"], asked)
        elif status == 404:
            self.api.history.add_violation("an accepted run is there", "the API answered 404", run_id)

    async def try_foreign_runs(self, stop: asyncio.Event) -> None:
        """Try to read, cancel and answer runs of other tenants until `stop` is set: the API must say 404."""
        while not stop.is_set():
            await asyncio.sleep(self.api.rng.uniform(0.5, 1.5))
            if foreign := self._runs(theirs=True):
                await self._try_foreign_run(self.api.rng.choice(foreign))
                await self._check_list(self.api.rng.choice(_LISTS))

    async def _try_foreign_run(self, foreign: Accepted) -> None:
        method, view = self.api.rng.choice(_VIEWS)
        path = f"/v1/runs/{foreign.run_id}{view}"
        answer = [{"interruptId": foreign.run_id, "status": "cancelled"}] if view == "/resume" else None
        status, _ = await self.api.request(method, path, json=answer)
        self.api.history.cross_tenant_requests += status != 0
        if status not in (0, 404):
            said = f"{self.api.tenant} received {status} from {method} {path}, which is of {foreign.tenant}"
            self.api.history.add_violation("tenants are isolated", said, foreign.run_id)

    async def _check_list(self, path: str) -> None:
        """Check that a list contains no run of another tenant."""
        _, told = await self.api.request("GET", path)
        for run in self._runs(theirs=True):
            if run.run_id in str(told):
                self.api.history.add_violation("tenants are isolated", f"{path} has it", run.run_id)

    def _runs(self, *, theirs: bool) -> Sequence[Accepted]:
        runs = self.api.history.accepted.values()
        return [run for run in runs if (run.tenant != self.api.tenant) == theirs]
