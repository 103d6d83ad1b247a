"""A team's star as nodes and edges, and as the text of a Mermaid flowchart."""

import unicodedata
from collections.abc import Iterator
from dataclasses import asdict
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from starling.core.graph_layout import layout
from starling.core.teams.stars import StarSpec
from starling.core.text import one_line

_PLAIN: Final = frozenset(" -_.,()/")  # that mean nothing inside a quoted label; all others but letters are escaped
_ROLE_CHARS: Final = 60
_SHAPES: Final = {"team": '(["{}"])', "member": '["{}"]', "server": '[("{}")]'}


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Node(_Part):
    """The team, a member, or a server that members use."""

    id: str = Field(description="Names of the team and of the members down to this one, or the server after `server:`.")
    kind: Literal["team", "member", "server"]
    name: str
    role: str = Field(default="", description="Of a member: what it is. Of the team: what it is good for.")
    team: str | None = Field(default=None, description="Of a member: the team that it stands for.")
    runtime: str | None = Field(default=None, description="Of a member without a team: what executes it.")
    column: int = Field(default=0, description="From the left, where the graph is drawn in layers; from 0.")
    row: int = Field(default=0, description="From above, in its column; from 0.")


class Edge(_Part):
    """Who gives tasks to whom, and which tools of a server a member may call."""

    source: str
    target: str
    tools: tuple[str, ...] = Field(default=(), description="Full names, where the target is a server.")


class TeamGraph(_Part):
    """All nodes and edges of a team, in the order of the members."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def team_graph(star: StarSpec) -> TeamGraph:
    """Return the graph of a star, with the stars inside it."""
    parts = [Node(id=star.name, kind="team", name=star.name, role=star.purpose), *_members(star, star.name)]
    nodes = {part.id: part for part in parts if isinstance(part, Node)}
    edges = tuple(part for part in parts if isinstance(part, Edge))
    places = layout({node: [edge.source for edge in edges if edge.target == node] for node in nodes})
    placed = (node.model_copy(update=asdict(places[name])) for name, node in nodes.items())
    return TeamGraph(nodes=tuple(placed), edges=edges)


def _members(star: StarSpec, parent: str) -> Iterator[Node | Edge]:
    for member in star.members:
        place = f"{parent}/{member.name}"
        team, runtime = (member.team.name, None) if member.team else (None, member.runtime)
        role = member.persona.role
        yield Node(id=place, kind="member", name=member.name, role=role, team=team, runtime=runtime)
        yield Edge(source=parent, target=place)
        if member.team:
            yield from _members(member.team, place)
        elif member.server:
            server = f"server:{member.server}"
            yield Node(id=server, kind="server", name=member.server)
            yield Edge(source=place, target=server, tools=member.tools)


def mermaid(graph: TeamGraph) -> str:
    """Return a flowchart. Its ids are numbers, and no text of the graph can be anything but a label in it."""
    ids = {node.id: f"n{number}" for number, node in enumerate(graph.nodes)}
    lines = ["flowchart TD"]
    for node in graph.nodes:
        name = f"{node.name} (team {node.team})" if node.team else node.name
        label = "<br/>".join(_escaped(text) for text in (name, one_line(node.role, _ROLE_CHARS)) if text)
        lines.append(f"    {ids[node.id]}{_SHAPES[node.kind].format(label)}")
    for edge in graph.edges:
        label = f'|"{len(edge.tools)} tool{"s" if len(edge.tools) > 1 else ""}"|' if edge.tools else ""
        lines.append(f"    {ids[edge.source]} -->{label} {ids[edge.target]}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """Return the text of a label: letters and digits as they are, other characters as Mermaid's entity codes.

    Control and format characters, such as those that change the direction of writing, become spaces.
    """
    visible = (" " if unicodedata.category(sign).startswith("C") else sign for sign in " ".join(text.split()))
    return "".join(sign if sign.isalnum() or sign in _PLAIN else f"#{ord(sign)};" for sign in visible)
