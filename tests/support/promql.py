"""What PromQL expressions ask of metrics: their names, the labels that they name, and the values of these."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import promql_parser as promql


@dataclass(frozen=True, slots=True)
class Use:
    """One metric in an expression: values that its labels are compared with, and labels that it is grouped by."""

    metric: str
    matched: Mapping[str, Sequence[str]]
    grouped: frozenset[str] = field(default=frozenset())

    @property
    def labels(self) -> frozenset[str]:
        return self.grouped | self.matched.keys()


def uses(expression: str) -> list[Use]:
    """Return each use of a metric. Raises ValueError for an expression that can't be read."""
    parsed: Any = promql.parse(expression.replace("$__rate_interval", "5m"))
    return list(_uses(parsed, frozenset()))


def result_labels(expression: str) -> frozenset[str] | None:
    """Return the labels that the result of an aggregation has, None where it has those of its metric."""
    parsed: Any = promql.parse(expression)
    while isinstance(parsed, promql.BinaryExpr):
        parsed = parsed.lhs
    if isinstance(parsed, promql.Call) and parsed.func.name == "histogram_quantile":
        return frozenset(result_labels(str(parsed.args[1])) or ()) - {"le"}
    if isinstance(parsed, promql.AggregateExpr):
        return _grouping(parsed)
    return None


def _grouping(expression: Any) -> frozenset[str]:
    return frozenset(expression.modifier.labels) if expression.modifier else frozenset()


def _uses(node: Any, grouped: frozenset[str]) -> Iterator[Use]:
    match node:
        case promql.AggregateExpr():
            yield from _uses(node.expr, grouped | _grouping(node))
        case promql.BinaryExpr():
            yield from _uses(node.lhs, grouped)
            yield from _uses(node.rhs, grouped)
        case promql.Call():
            for argument in node.args:
                yield from _uses(argument, grouped)
        case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
            yield from _uses(node.expr, grouped)
        case promql.MatrixSelector():
            yield from _uses(node.vector_selector, grouped)
        case promql.VectorSelector():
            matched = {each.name: str(each.value).split("|") for each in node.matchers.matchers}
            yield Use(node.name or "", matched, grouped)
        case promql.NumberLiteral() | promql.StringLiteral():
            pass
        case _:
            raise ValueError(f"{type(node).__name__} isn't known here: {node}")
