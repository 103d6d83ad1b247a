"""The fast encoder stores what `storable` would, whatever a value contains."""

import math
from datetime import UTC, datetime
from uuid import UUID

import orjson
import pytest

from starling.core.json import storable
from starling.infra.fast_json import storable_json, storable_with_json


@pytest.mark.parametrize(
    "value",
    [
        pytest.param({"text": "plain", "none": None, "list": [1, 2.5, True]}, id="plain JSON"),
        pytest.param({"text": "a\x00b"}, id="NUL"),
        pytest.param({"text": "written as \\u0000"}, id="the escape of NUL as text"),
        pytest.param({"text": "a\ud800b"}, id="lone surrogate"),
        pytest.param({"number": math.nan}, id="NaN"),
        pytest.param({"number": -math.inf, "none": None}, id="infinity beside null"),
        pytest.param({"number": 2**63}, id="more than 64 bits with a sign"),
        pytest.param({"number": 2**70}, id="more than 64 bits"),
        pytest.param({"number": 2**63 - 1}, id="the largest integer"),
        pytest.param({"at": datetime(2026, 1, 1, tzinfo=UTC)}, id="a time"),
        pytest.param({"id": UUID(int=1), "none": None}, id="a UUID"),
    ],
)
def test_json_of_a_value_equals_that_of_its_storable_form(value: object) -> None:
    assert orjson.loads(storable_json(value)) == storable(value)


def test_a_value_without_anything_to_replace_is_returned_as_it_is() -> None:
    value = {"text": "plain"}

    assert storable_with_json(value)[0] is value
