"""The teams of each tenant, one of them inside the other, and their activation over HTTP."""

from typing import Any

import aiohttp

from tests.chaos.workload import CLERKS, DESK

_PERSONA = {"role": "Clerk", "goal": "Does what is ordered, once."}
_TEAMS: tuple[dict[str, Any], ...] = (
    {
        "name": CLERKS,
        "purpose": "Reads, puts and charges what is ordered.",
        "members": [
            {"name": "reader", **_PERSONA, "server": "till"},
            {"name": "keeper", **_PERSONA, "server": "vault"},
        ],
    },
    {
        "name": DESK,
        "purpose": "Takes orders, and has clerks for some of them.",
        "members": [
            {"name": "reader", **_PERSONA, "server": "till", "tools": ["till.read_it"]},
            {"name": "cashier", **_PERSONA, "server": "till", "reflect": "never"},
            {"name": CLERKS, **_PERSONA, "team": CLERKS},
        ],
    },
)


async def activate_teams(api: str, key: str, runtime: str) -> None:
    """Import and activate the teams of the tenant that a key is of; `runtime` executes their members."""
    async with aiohttp.ClientSession(api, headers={"Authorization": f"Bearer {key}"}) as client:
        for team in _TEAMS:
            spec = {**team, "members": [{**member, "runtime": runtime} for member in team["members"]]}
            await _send(client, f"/v1/teams/{spec['name']}/versions", {"spec": spec})
            await _send(client, f"/v1/teams/{spec['name']}/activate", {})


async def _send(client: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> None:
    async with client.post(path, json=body) as response:
        assert response.status in (200, 201), await response.text()
