"""Texts of validation errors."""

from enum import StrEnum
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from starling.core.agents import AgentName
from starling.core.validation_errors import fault_list

NAME = "must be at most 48 lower-case letters, digits, _ and -,"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def check_even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: float = 1


class Form(BaseModel):
    """One field for each kind of fault."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=3, pattern="^[a-z]+$")] = "a"
    long: Annotated[str, Field(min_length=2)] = "aa"
    count: Annotated[int, Field(gt=0)] = 1
    even: Annotated[int, AfterValidator(check_even)] = 2
    on: bool = True
    colour: Colour = Colour.RED
    kind: Literal["a", "b"] = "a"
    words: Annotated[tuple[str, ...], Field(max_length=1)] = ()
    some: Annotated[list[str], Field(min_length=1)] = ["x"]
    by_name: dict[str, int] = {}
    inner: Inner = Inner()
    id: UUID | None = None
    agent: AgentName = "a"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"name": ""}, "name: must not be empty"),
        ({"name": "abcd"}, "name: must have at most 3 characters"),
        ({"name": "A"}, "name: must match pattern '^[a-z]+$'"),
        ({"name": 5}, "name: must be a text"),
        ({"long": "x"}, "long: must have at least 2 characters"),
        ({"count": 0}, "count: must be greater than 0"),
        ({"count": "many"}, "count: must be a whole number"),
        ({"even": 3}, "even: must be even"),
        ({"on": "perhaps"}, "on: must be true or false"),
        ({"colour": "green"}, "colour: must be 'red' or 'blue'"),
        ({"kind": "c"}, "kind: must be 'a' or 'b'"),
        ({"words": "x"}, "words: must be a list"),
        ({"words": ["x", 5]}, "words.1: must be a text"),
        ({"words": ["x", "y"]}, "words: must have at most 1 item, not 2"),
        ({"some": []}, "some: must have at least 1 item, not 0"),
        ({"by_name": []}, "by_name: must be an object"),
        ({"inner": 5}, "inner: must be an object"),
        ({"inner": {"size": "big", "sizes": 1}}, "inner.size: must be a number; inner.sizes: there is no such field"),
        ({"id": "x"}, "id: must be a UUID"),
        *(
            ({"agent": name}, f"agent: {NAME} and begin with a letter or a digit")
            for name in ("", "My Team", "_a", "a" * 49)
        ),
        (5, "must be an object"),
    ],
)
def test_validation_error_is_listed_as_location_and_reason(given: Any, expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Form.model_validate(given)

    assert fault_list(caught.value.errors()) == expected
