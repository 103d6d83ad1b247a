"""States and their envelope."""

import zlib
from dataclasses import replace
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brain.conversation.states import (
    KINDS,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    Envelope,
    FinishedState,
    UserMessageState,
    UserResponseState,
    WaitingState,
    decode,
    encode,
    render,
)
from starling.core.errors import InvalidRequestError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    str | None: st.none() | TEXT,
    float: NUMBERS,
    float | None: st.none() | NUMBERS,
    dict[str, Any]: OBJECTS,
    list[dict[str, Any]]: st.lists(OBJECTS, max_size=2),
}


def states_of(kind: type[BaseState]) -> st.SearchStrategy[BaseState]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "version"}
    known = {name: FIELDS[hint] for name, hint in hints.items() if hint in FIELDS}
    named = {name: st.sampled_from(hint.__args__) for name, hint in hints.items() if hint not in FIELDS}
    return st.builds(kind, **known, **named)


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_each_kind_comes_back_as_it_was(kind: type[BaseState]) -> None:
    @given(states_of(kind))
    def comes_back(state: BaseState) -> None:
        assert decode(encode(state, 1.5)) == state

    comes_back()


@given(st.integers(0, 6_000))
def test_a_long_state_is_compressed_and_comes_back(length: int) -> None:
    state = UserMessageState(text="x" * length)

    envelope = encode(state, 1.5)

    assert envelope.compressed == (length + len('{"text":"","meta":null}') > 2_048)
    assert decode(envelope) == state


def test_an_envelope_says_what_it_holds() -> None:
    envelope = encode(UserMessageState(text="Grüße", meta="m"), 1.5)

    assert envelope == Envelope(1, "UserMessageState", 1.5, '{"text":"Grüße","meta":"m"}'.encode(), compressed=False)


def test_a_compressed_envelope_is_zlib_over_json() -> None:
    envelope = encode(UserMessageState(text="x" * 5_000), 1.5)

    assert zlib.decompress(envelope.data).startswith(b'{"text":"xxx')
    assert len(envelope.data) < 200


def test_what_postgres_refuses_is_replaced() -> None:
    state = AgentResultState(correlation_id="a\0b\ud800", result={"c\0": float("nan")})

    assert decode(encode(state, 0)) == AgentResultState(correlation_id="a�b�", result={"c�": "nan"})


@pytest.mark.parametrize("change", [{"t": "FutureState"}, {"v": 2}, {"t": "BaseState"}])
def test_what_this_version_does_not_know_is_refused(change: dict[str, Any]) -> None:
    envelope = replace(encode(FinishedState(), 0), **change)

    with pytest.raises(InvalidRequestError, match="isn't known to this version"):
        decode(envelope)


def test_a_conversation_is_what_was_said_shortened() -> None:
    said = [
        UserMessageState(text="u" * 3_000),
        WaitingState(kind="user_input", deadline=1.0, correlation_id="c"),
        UserResponseState(text="r"),
        AssistantMessageState(content="a"),
        FinishedState(),
    ]

    assert render(said) == (
        {"role": "user", "content": "u" * 2_000},
        {"role": "user", "content": "r"},
        {"role": "assistant", "content": "a"},
    )
