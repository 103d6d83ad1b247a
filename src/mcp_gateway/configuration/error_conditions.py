"""Conditions under which a normal result of a tool is an error: data, with nothing in it that is evaluated."""

import re
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator

from mcp_gateway.schemas.linear_patterns import pattern_fault

_POINTER = re.compile(r"(?:/(?:[^/~]|~[01])*)*")
_CHARS = 1_000  # of a pattern or a text


class ErrorCondition(BaseModel):
    """One condition: on the value at a JSON pointer of the structured content, or on the text of the result.

    Exactly one of these: `equals` (the value is equal to it), `matches` (the value is a text in which the regular
    expression is found, in linear time), `exists` (whether there is a value), or, without a pointer, `text_contains`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    pointer: str | None = None
    equals: Any = None
    matches: Annotated[str, Field(min_length=1, max_length=_CHARS)] | None = None
    exists: bool | None = None
    text_contains: Annotated[str, Field(min_length=1, max_length=_CHARS)] | None = None

    @field_validator("pointer")
    @classmethod
    def _is_pointer(cls, value: str | None) -> str | None:
        if value is not None and not _POINTER.fullmatch(value):
            raise ValueError("must be a JSON pointer such as /status or /items/0/error")
        return value

    @field_validator("matches")
    @classmethod
    def _is_linear(cls, value: str | None) -> str | None:
        if value is not None and (fault := pattern_fault(value)):
            raise ValueError(fault)
        return value

    @model_validator(mode="after")
    def _one_test(self) -> Self:
        tests = self.model_fields_set & {"equals", "matches", "exists", "text_contains"}
        if len(tests) != 1:
            raise ValueError("must have exactly one of equals, matches, exists and text_contains")
        if (self.pointer is None) is not (tests == {"text_contains"}):
            raise ValueError("equals, matches and exists need a pointer, text_contains must have none")
        if tests != {"equals"} and getattr(self, next(iter(tests))) is None:
            raise ValueError("must not be null")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
