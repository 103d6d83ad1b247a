"""States and their envelope."""

import json
import zlib
from base64 import b64decode
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from starling.core.conversation.states import (
    KINDS,
    AgentResultState,
    AskedCall,
    BaseState,
    Envelope,
    FinishedState,
    UserMessageState,
    decode,
    encode,
    fields_of,
    load_extensions,
    migration,
)
from starling.core.conversation.turn import unpack
from starling.core.errors import InvalidRequestError

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=3)


def asked(name: str, text: str) -> AskedCall:
    return {"id": name, "type": "function", "function": {"name": name, "arguments": text}}


ASKED = st.builds(asked, TEXT, TEXT)
FIELDS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    str | None: st.none() | TEXT,
    float: NUMBERS,
    float | None: st.none() | NUMBERS,
    dict[str, Any]: OBJECTS,
    list[AskedCall]: st.lists(ASKED, max_size=2),
}


def states_of(kind: type[BaseState]) -> st.SearchStrategy[BaseState]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "__version__"}
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

    assert envelope.compressed == (length + len('{"text":""}') > 2_048)
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


GOLDEN = json.loads((Path(__file__).parent / "golden_states.json").read_text())


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden["name"])
def test_stored_states_of_every_version_are_read(golden: dict[str, Any]) -> None:
    stored: dict[str, Any] = {**golden["envelope"], "data": b64decode(golden["envelope"]["data"])}

    read = unpack(Envelope(**stored))

    assert [[type(one.state).__name__, fields_of(one.state), one.ts, one.agent, one.parent] for one in read] == (
        golden["states"]
    )


def test_golden_files_have_every_kind_in_every_version() -> None:
    single = {(one["envelope"]["t"], one["envelope"]["v"]) for one in GOLDEN}

    assert {(name, v) for name, kind in KINDS.items() for v in range(1, kind.__version__ + 1)} <= single
    assert {one[0] for golden in GOLDEN if golden["envelope"]["t"] == "Turn" for one in golden["states"]} == set(KINDS)


def test_an_older_version_is_migrated_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    migrations: dict[tuple[str, int], Any] = {}
    monkeypatch.setattr("starling.core.conversation.states._MIGRATIONS", migrations)
    monkeypatch.setattr(UserMessageState, "__version__", 3)
    migration("UserMessageState", 1)(lambda data: {"content": data["message"]})
    migration("UserMessageState", 2)(lambda data: {"text": data["content"]})

    found = decode(Envelope(1, "UserMessageState", 0, b'{"message":"Hi."}', compressed=False))

    assert found == UserMessageState(text="Hi.")
    assert sorted(migrations) == [("UserMessageState", 1), ("UserMessageState", 2)]


def test_kinds_of_installed_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True, slots=True)
    class OwnState(BaseState):
        custom_field: str

    class Entry:
        def load(self) -> type[BaseState]:
            return OwnState

    def entries(**_: str) -> list[Entry]:
        return [Entry()]

    monkeypatch.setattr("starling.core.conversation.states.entry_points", entries)
    monkeypatch.setattr("starling.core.conversation.states.KINDS", dict(KINDS))
    load_extensions.cache_clear()

    assert decode(encode(OwnState("own"), 0)) == OwnState("own")
