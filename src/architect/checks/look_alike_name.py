"""Rule: names can be told from those of other agents and parts at sight."""

from collections.abc import Collection, Iterator

from architect.team_world import TeamWorld, is_reserved
from starling.core.agents import RESERVED, SPECIALIST_PREFIX
from starling.core.look_alike_names import skeleton
from starling.core.model_output.names import plain_name
from starling.core.teams.spec import Finding, TeamSpec


def check(team: TeamSpec, world: TeamWorld) -> Iterator[Finding]:
    """Return the names that look like another agent's or team's, or like one that belongs to the platform.

    Names that differ in nothing but separators are left to other rules, but for those of servers, of teams that
    aren't active and of archived agents: only a new team is compared with these. What an active version of the team has
    is not reported: it was accepted.
    """
    active = world.teams.get(team.name)
    if active is None:
        others = {*world.agents, *world.teams, *world.builtins, *RESERVED}
        hidden = {*world.agents, *world.archived_agents, *world.teams} if world.grant else set[str]()
        found = list(_findings("name", team.name, others, hidden))
        yield from found
        kinds = {
            "a server": world.servers,
            "a team that is not active": world.inactive,
            "an archived agent": world.archived_agents,
        }
        look = skeleton(plain_name(team.name))
        known = ((other, kind) for kind, others in kinds.items() for other in sorted(others))
        alike = next((one for one in known if skeleton(plain_name(one[0])) == look), None)
        if alike and not found and team.name not in world.inactive:
            other, kind = alike
            is_same = f"belongs to {kind}" if other == team.name else f"looks like {other!r}, the name of {kind}"
            if other in hidden or (other in world.servers and not world.reaches(other)):
                is_same = "can't be used"
            yield Finding("name", "look_alike_name", f"The name {team.name!r} {is_same}.", "Choose another name.")
    accepted = {member.name for member in active.members} if active else set[str]()
    for number, member in enumerate(team.members):
        if member.name not in accepted:
            yield from _findings(f"members[{number}].name", member.name, RESERVED)


def _findings(path: str, name: str, others: Collection[str], hidden: Collection[str] = ()) -> Iterator[Finding]:
    look = skeleton(plain_name(name))
    alike = [other for other in sorted(others) if skeleton(plain_name(other)) == look]
    if any(plain_name(other) == plain_name(name) for other in alike) or is_reserved(name):
        return
    if not alike and look.startswith(skeleton(plain_name(SPECIALIST_PREFIX))):
        alike = [f"{SPECIALIST_PREFIX}…"]
    if alike:
        reason = "can't be used" if alike[0] in hidden else f"looks like {alike[0]!r}"
        yield Finding(path, "look_alike_name", f"The name {name!r} {reason}.", "Choose another name.")
