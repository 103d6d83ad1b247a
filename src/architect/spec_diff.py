"""How two team specs differ: as text and as paths."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import zip_longest
from typing import Final, cast

from architect.yaml_subset import dump_yaml
from starling.core.json import Json
from starling.core.teams.spec import TeamSpec

_NOTHING: Final = object()


@dataclass(frozen=True, slots=True)
class SpecDiff:
    """A unified diff of two specs as YAML, and the paths, such as `members[0].role`, of what differs."""

    text: str
    paths: tuple[str, ...]


def spec_diff(before: TeamSpec, after: TeamSpec, *, names: tuple[str, str]) -> SpecDiff:
    """Return how one spec differs from an earlier one; `names` stand in the diff's first lines."""
    old, new = (spec_yaml(spec).splitlines(keepends=True) for spec in (before, after))
    text = "".join(unified_diff(old, new, fromfile=names[0], tofile=names[1]))
    written = [spec.model_dump(mode="json", exclude_defaults=True) for spec in (before, after)]
    return SpecDiff(text, tuple(_paths("", *written)))


def spec_yaml(spec: TeamSpec) -> str:
    """Return a spec as YAML without what is the default anyway."""
    return dump_yaml({"version": spec.version, **spec.model_dump(mode="json", exclude_defaults=True)})


def _paths(path: str, before: object, after: object) -> Iterator[str]:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        old, new = cast("Mapping[str, Json]", before), cast("Mapping[str, Json]", after)
        for key in sorted({*old, *new}):
            yield from _paths(f"{path}.{key}".lstrip("."), old.get(key, _NOTHING), new.get(key, _NOTHING))
    elif isinstance(before, list) and isinstance(after, list):
        pairs = zip_longest(cast("Sequence[Json]", before), cast("Sequence[Json]", after), fillvalue=_NOTHING)
        for number, (old, new) in enumerate(pairs):
            yield from _paths(f"{path}[{number}]", old, new)
    elif before != after:
        yield path
