"""The teams of a tenant in an epoch, loaded when its roster is first asked for."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from brain.registry.cards import Roster
from brain.registry.manifest import Manifest
from brain.registry.teams.binding import team_card, tools_of
from brain.registry.teams.repository import StarRepository
from starling.core.teams.stars import StarSpec


def pinned_teams(manifest: Manifest, tenant: str) -> dict[str, str]:
    """Return the hash of the star of each of a tenant's teams, by name."""
    keys = ((key.rpartition("/"), pin) for key, pin in manifest.teams.items())
    return {name: pin for (owner, _, name), pin in keys if owner == tenant}


def with_team(manifest: Manifest, tenant: str, star: StarSpec) -> Manifest:
    """Return the manifest with a team of this star and no other."""
    teams = {**manifest.teams, f"{tenant}/{star.name}": star.hash}
    return manifest.model_copy(update={"teams": dict(sorted(teams.items()))})


def without_team(manifest: Manifest, tenant: str, name: str) -> Manifest:
    """Return the manifest without a team."""
    gone = f"{tenant}/{name}"
    return manifest.model_copy(update={"teams": {key: pin for key, pin in manifest.teams.items() if key != gone}})


@dataclass(frozen=True, slots=True)
class _Built:
    """A tenant's roster with its teams, whose stars are by hash."""

    roster: Roster
    stars: Mapping[str, StarSpec]


class Teams:
    """Adds the teams of a tenant to the roster of an epoch; each pair of both is put together once."""

    def __init__(self, repository: StarRepository) -> None:
        self._repository = repository
        self._built: dict[tuple[int, str], _Built] = {}

    async def added(self, epoch: int, manifest: Manifest, roster: Roster, tenant: str) -> Roster:
        """Return the tenant's roster with its teams: no other agent of the same name is in it."""
        key = epoch, tenant
        if key not in self._built:
            self._built[key] = await self._with_teams(manifest, roster, tenant)
        return self._built[key].roster

    def keep_only(self, epochs: Collection[int]) -> None:
        """Forget what was put together for other epochs."""
        self._built = {key: built for key, built in self._built.items() if key[0] in epochs}

    async def _with_teams(self, manifest: Manifest, roster: Roster, tenant: str) -> _Built:
        pins = pinned_teams(manifest, tenant)
        if not pins:
            return _Built(roster, {})
        stars = await self._stars(tenant, frozenset(pins.values()))
        tools = tools_of(roster.cards)
        teams = {name: team_card(stars[pin], tools) for name, pin in pins.items()}
        return _Built(Roster({**roster.cards, **teams}), stars)

    async def _stars(self, tenant: str, hashes: frozenset[str]) -> Mapping[str, StarSpec]:
        """Return stars by hash; those of other epochs that are kept are not read again."""
        known = dict[str, StarSpec]()
        for (_, owner), built in self._built.items():
            known |= built.stars if owner == tenant else {}
        known = {pin: star for pin, star in known.items() if pin in hashes}
        if missing := hashes - known.keys():
            known |= await self._repository.stars(tenant, missing)
        return known
