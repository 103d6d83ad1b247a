"""Where the nodes of a graph stand in a drawing: in layers, each to the right of those that it depends on."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter


@dataclass(frozen=True, slots=True)
class Place:
    """A column from the left and a row in it from above, both from 0."""

    column: int
    row: int


def layout(depends_on: Mapping[str, Collection[str]]) -> dict[str, Place]:
    """Return the place of each node: one column behind the last of those it depends on, in the order of the mapping.

    Nodes that are no keys are left out. Raises graphlib.CycleError.
    """
    known = {node: [one for one in before if one in depends_on] for node, before in depends_on.items()}
    columns: dict[str, int] = {}
    for node in TopologicalSorter(known).static_order():
        columns[node] = max((columns[one] + 1 for one in known[node]), default=0)
    rows: Counter[int] = Counter()
    places: dict[str, Place] = {}
    for node in known:
        places[node] = Place(columns[node], rows[columns[node]])
        rows[columns[node]] += 1
    return places
