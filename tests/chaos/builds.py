"""Builds of teams that a tenant asks for: new ones, versions and proofs, several of them of one name at a time."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.chaos.workload import VAGUE, WANTING, PlannedRequest, of_a_build

_SHAPES = ("build", "build", "build", VAGUE, WANTING)
_PER_NAME = 4  # builds of a name, until the next name is used
_STORED_ONLY = 0.2  # fraction of the builds that don't want to activate what they store


@dataclass(frozen=True, slots=True)
class BuildWish:
    """A request for a build. `text` is its input, None where the platform words it."""

    planned: PlannedRequest
    path: str
    body: Mapping[str, Any]
    text: str | None


class BuildGenerator:
    """Generates the builds of one tenant."""

    def __init__(self, tenant: str, rng: random.Random) -> None:
        self._tenant = tenant
        self._dice = rng
        self._numbers = count()

    def next(self) -> BuildWish:
        """Return a build of a random kind."""
        number = next(self._numbers)
        rng, name = self._dice, f"crew_{number // _PER_NAME}"
        token = f"{self._tenant}-{rng.getrandbits(40):010x}-b{number}"
        planned = PlannedRequest(token, rng.choice(_SHAPES), of_a_build(rng))
        body = {"goal": planned.text, "partial": True, "activate": rng.random() >= _STORED_ONLY}
        match rng.choice(["named", "named", "named", "free", "version", "proof"]):
            case "named":
                return BuildWish(planned, "/v1/teams", {**body, "name": name}, planned.text)
            case "free":
                return BuildWish(planned, "/v1/teams", body, planned.text)
            case "version":
                return BuildWish(planned, f"/v1/teams/{self._earlier(number)}/versions", body, planned.text)
            case _:
                return BuildWish(planned, f"/v1/teams/{self._earlier(number)}/prove", {}, None)

    def _earlier(self, number: int) -> str:
        return f"crew_{self._dice.randint(0, number // _PER_NAME)}"
