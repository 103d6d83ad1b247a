"""The schemas that models are sent: short, and fit for strict decoding."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import BaseModel

from starling.core.llm import ResponseSchema

_OMITTED: Final = frozenset({"title", "description", "default", "$defs"})


def response_schema(
    name: str, document: type[BaseModel], *, optional: Sequence[str] = (), without: Sequence[str] = ()
) -> ResponseSchema:
    """Return the schema of a document as models are asked for it: they write every member, for strict decoding.

    Only members that are `optional` may be left out, and those of `without` aren't asked for. Recorded answers are
    found by the digest of this schema too.
    """
    full = document.model_json_schema()
    schema = _compact(full, full.get("$defs", {}))
    for member in without:
        del schema["properties"][member]
    return ResponseSchema(name, {**schema, "required": [it for it in schema["properties"] if it not in optional]})


def _compact(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without what only lengthens a prompt, which says what the members are; all are required.

    Definitions are put where they are referred to; titles, descriptions and defaults are left out.
    """
    if reference := schema.get("$ref"):
        schema = definitions[reference.removeprefix("#/$defs/")]
    compact = {key: value for key, value in schema.items() if key not in _OMITTED}
    if "items" in compact:
        compact["items"] = _compact(compact["items"], definitions)
    if "properties" in compact:
        compact["properties"] = {name: _compact(item, definitions) for name, item in compact["properties"].items()}
        compact["required"] = [*compact["properties"]]
    return compact
