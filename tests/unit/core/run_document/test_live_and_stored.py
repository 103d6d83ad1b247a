"""Live events and stored rows give the same document, whatever a run did."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, get_args, get_origin

import orjson
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from starling.core.events.run_events import (
    Done,
    Plan,
    Reflection,
    RunStarted,
    TaskResult,
    TaskStart,
    ToolProgress,
    ToolResult,
    ToolStart,
)
from starling.core.events.stream import AnyEvent
from starling.core.run_document.builder import Row, RunDocumentBuilder
from starling.core.run_document.document import Feedback, RunDocument
from starling.core.run_document.rows import EventRow, RunRow
from starling.core.run_status import RunStatus

_BEGIN: Final = datetime(2026, 11, 23, tzinfo=UTC)
_CHARS: Final = 8
_STARTED: Final = RunStarted(run_id="r", thread_id="t", trace_id="tr", epoch=3, correlation_id="c")
_RUN: Final = RunRow("r", "t", "tr", "c", 3, RunStatus.RUNNING, "Order tea.", {}, _BEGIN)
_TYPES: Final[tuple[type[BaseModel], ...]] = get_args(get_args(AnyEvent.__value__)[0])
_OFTEN: Final = (TaskStart, ToolStart, ToolResult, ToolProgress, Reflection, TaskResult, Plan)

_PATHS = st.sampled_from(["t1", "t1.2", "t2", "t3", "t3/t1", "t3/t1.2", "t3.2/t1", "t3/t2/t1", "never/planned", ""])
_CALL_IDS = st.sampled_from(["t1.0.0", "t1.1.0", "t1.2.0.0", "t3/t1.0.0", "unknown.9.9"])
_VALUES: Final[dict[Any, st.SearchStrategy[Any]]] = {
    "path": _PATHS,
    "call_id": _CALL_IDS,
    ("id", str): st.sampled_from(["t1", "t2", "t3"]),
    str: st.sampled_from(["", "Order tea", "x" * 20, "日本", "\x00"]),
    int: st.integers(0, 3),
    float: st.floats(0, 100),
    datetime: st.just(_BEGIN),
    dict: st.sampled_from([{}, {"item": "tea", "of": {"kind": ["green"]}}]),
}


def _values(name: str, kind: Any) -> st.SearchStrategy[Any]:
    if get_origin(kind) is list:
        return st.lists(_values("", get_args(kind)[0]), max_size=3)
    places: Sequence[Any] = name, (name, kind), kind, get_origin(kind)
    if known := [_VALUES[place] for place in places if place in _VALUES]:
        return known[0]
    return _models(kind) if isinstance(kind, type(BaseModel)) else st.from_type(kind)


def _models(kind: type[BaseModel]) -> st.SearchStrategy[BaseModel]:
    """Return any events, or parts of events, of one type."""
    fields = kind.model_fields.items()
    needed = {name: _values(name, field.annotation) for name, field in fields if field.is_required()}
    optional = {name: _values(name, field.annotation) for name, field in fields if not field.is_required()}
    optional.pop("type", None)
    return st.fixed_dictionaries(needed, optional=optional).map(
        lambda data: kind.model_validate(data, by_name=True, by_alias=True)
    )


def _row(seq: int, event: BaseModel) -> EventRow:
    data = orjson.loads(event.model_dump_json(by_alias=True))
    return EventRow(seq, data["type"], data)


def _story(body: Sequence[BaseModel], end: Sequence[BaseModel]) -> list[EventRow]:
    return [_row(seq, event) for seq, event in enumerate([_STARTED, *body, *end], start=1)]


_IN_THE_MIDDLE: Final = [kind for kind in _TYPES if kind not in (RunStarted, Done)]
_STORIES = st.builds(
    _story,
    st.lists(st.sampled_from([*_IN_THE_MIDDLE, *_OFTEN * 4]).flatmap(_models), max_size=30),
    st.lists(_models(Done), max_size=1),
)


def _taken(rows: Iterable[Row], builder: RunDocumentBuilder | None = None) -> RunDocumentBuilder:
    builder = builder or RunDocumentBuilder(_CHARS)
    for row in rows:
        builder.take(row, _at(row))
    return builder


def _at(row: Row) -> datetime:
    return _BEGIN + timedelta(seconds=row.seq if isinstance(row, EventRow) else 0)


def _told(document: RunDocument) -> Sequence[Any]:
    """Return the parts of a document that come from events."""
    return document.status, document.plans, document.tasks, document.notices, document.builds, document.logs


def _stored(story: Sequence[EventRow]) -> RunRow:
    run, last = replace(_RUN, events=story[-1].seq), story[-1]
    if last.type != "done":
        return run
    result = {name: value for name, value in last.data.items() if name != "type"}
    return replace(run, status=RunStatus(result["status"]), ended_at=_at(last), result=result)


@given(_STORIES, st.integers(0, 40))
def test_live_events_and_stored_rows_in_any_order_of_parts_give_equal_documents(
    story: Sequence[EventRow], place: int
) -> None:
    feedback = Feedback("ann", 0.5, "Late.", _BEGIN, _BEGIN)
    live = _taken(story)

    stored = _taken([_stored(story), *story, feedback])
    mixed = _taken([*story[:place], _stored(story), feedback, *story[place:]])

    assert _told(live.document()) == _told(stored.document()) == _told(mixed.document())


@given(_STORIES)
def test_documents_of_each_prefix_change_neither_one_another_nor_the_last(story: Sequence[EventRow]) -> None:
    builder, given_rows = RunDocumentBuilder(_CHARS), deepcopy(story)

    prefixes = [(document := _taken([row], builder).document(), deepcopy(document)) for row in story]

    assert [then for then, _ in prefixes] == [copied for _, copied in prefixes]
    assert builder.document() == prefixes[-1][0] == _taken(story).document()
    assert story == given_rows


@given(_STORIES)
def test_texts_of_plans_are_cut(story: Sequence[EventRow]) -> None:
    plans = _taken(story).document().plans

    texts = [text for one in plans for text in (*one.plan, *(task["task"] for task in one.tasks), one.thought_process)]
    assert all(len(text) <= _CHARS for text in texts)


@given(_STORIES, st.integers(1, 40))
def test_stream_that_begins_in_the_middle_never_raises(story: Sequence[EventRow], after: int) -> None:
    document = _taken([_RUN, *story[after:]]).document()

    assert all(task.seq == 0 or task.seq > after for task in document.tasks)


@given(_STORIES, st.data())
def test_events_seen_before_a_reconnect_change_nothing(story: Sequence[EventRow], data: st.DataObject) -> None:
    seen = data.draw(st.integers(1, len(story)))
    again = data.draw(st.integers(0, seen))

    repeated = _taken([*story[:seen], *story[again:]])

    assert repeated.document() == _taken(story).document()
