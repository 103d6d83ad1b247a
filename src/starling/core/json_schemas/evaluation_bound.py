"""How often the parts of a schema can be checked against one value: the bound of what a check costs."""

from collections.abc import Iterator, Sequence
from typing import Final

from starling.core.json_schemas.subschemas import REFERENCES, UNRESOLVED, Schema, Targets, of_children, of_same_value

_MOST_PARTS: Final = 3_000
_MOST_STEPS: Final = 200_000  # for all levels of a value together
_LARGEST: Final = 10**9


class UnboundedSchemaError(ValueError):
    """A schema that refers to itself without end, or that is too large. Says which."""


class EvaluationBound:
    """The most evaluations of parts of one schema on any one place of a value, by the value's depth.

    Recursive schemas are fine: they end with the value. Raises UnboundedSchemaError where a part is checked against
    the same value again and again, or if there are too many parts.
    """

    def __init__(self, root: Schema) -> None:
        self._targets = Targets(root)
        self._same: list[list[int]] = []
        self._one: list[list[int]] = []
        self._further: list[list[int]] = []
        self._index(root)
        order = _in_order(self._same)
        if order is None:
            raise UnboundedSchemaError(UNRESOLVED)  # it never comes to an end
        self._order = order
        edges = (self._same[part] + self._one[part] + self._further[part] for part in range(len(self._same)))
        self.is_recursive = _in_order(list(edges)) is None
        self._levels = [self._level(None)]

    def at(self, depth: int | None) -> int:
        """Return the bound for values of so many levels, for any value if the schema isn't recursive.

        Raises UnboundedSchemaError if it takes too long.
        """
        while (depth is None or len(self._levels) <= depth) and any(self._levels[-1]):
            if len(self._levels) * len(self._order) > _MOST_STEPS:
                raise UnboundedSchemaError("is too large for values that are nested so deeply")
            self._levels.append(self._level(self._levels[-1]))
        return max(level[0] for level in (self._levels if depth is None else self._levels[: depth + 1]))

    def _index(self, root: Schema) -> None:
        """Number all parts that the root leads to, itself first."""
        numbers = {id(root): 0}
        parts = [root]

        def number(part: Schema) -> int:
            if id(part) not in numbers:
                if len(parts) >= _MOST_PARTS:
                    raise UnboundedSchemaError("is too large")
                numbers[id(part)] = len(parts)
                parts.append(part)
            return numbers[id(part)]

        for part in parts:  # grows during the iteration
            one, further = of_children(part)
            self._same.append([number(other) for other in (*of_same_value(part), *self._referred(part))])
            self._one.append([number(other) for other in one])
            self._further.append([number(other) for other in further])

    def _referred(self, part: Schema) -> Iterator[Schema]:
        found = (self._targets.get(part[keyword]) for keyword in REFERENCES if keyword in part)
        return (target for target in found if target is not None)

    def _level(self, above: list[int] | None) -> list[int]:
        """Return the bound of each part for one level of a value; None stands for the first level."""
        found = [0] * len(self._order)
        for part in self._order:
            count = 1 if above is None else self._of_children(part, above)
            found[part] = min(_LARGEST, count + sum(found[other] for other in self._same[part]))
        return found

    def _of_children(self, part: int, above: list[int]) -> int:
        one = max((above[other] for other in self._one[part]), default=0)
        return one + sum(above[other] for other in self._further[part])


def _in_order(following: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the numbers so that each comes after those that follow from it, None where one follows from itself."""
    done: dict[int, bool] = {}
    order: list[int] = []
    for start in range(len(following)):
        stack = [(start, iter(following[start]))] if start not in done else []
        done.setdefault(start, False)
        while stack:
            part, rest = stack[-1]
            child = next(rest, None)
            if child is None:
                done[part] = True
                order.append(part)
                stack.pop()
            elif child not in done:
                done[child] = False
                stack.append((child, iter(following[child])))
            elif not done[child]:
                return None
    return order
