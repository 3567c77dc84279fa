"""Whatever text a value holds, its message can be sent, and only text that cannot be sent changes."""

import dataclasses
import enum
import types
import typing

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st

from memoryd.v1 import memory_pb2, memory_service_pb2
from memoryd_server.agent.file_listing import ListedFile
from memoryd_server.agent.files import FileRange
from memoryd_server.agent.sync_run import RunProgress
from memoryd_server.entries.model import Entry, ScoredEntry
from memoryd_server.model import Degradation, FileFailure
from memoryd_server.rpc import entry_service, responses, session_messages, status_response
from memoryd_server.rpc.wire import build_message
from memoryd_server.search.query import Hit, RetrieverReport
from memoryd_server.sessions.context import ContextFile
from memoryd_server.sources.watch_scope import WatchedRoot
from properties import examples

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
COUNTS = st.integers(0, 2**31 - 1)


PLAIN = {str: ANY_TEXT, int: COUNTS, float: st.floats(0, 1), bool: st.booleans()}


def values_of(kind):
    """Values of a field's type, with any text."""
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(values_of, inside))
    if origin is tuple:
        return st.lists(values_of(inside[0]), max_size=3).map(tuple)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    return any_of(kind) if dataclasses.is_dataclass(kind) else PLAIN.get(kind, st.none())


def any_of(kind):
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in dataclasses.fields(kind)})


REPLIES = {
    "degradation": (Degradation, responses.degradation),
    "hit": (Hit, lambda hit: responses.search_result(hit, explain=True)),
    "leg": (RetrieverReport, responses.leg_report),
    "lines": (FileRange, responses.get_response),
    "file": (ListedFile, responses.file),
    "failure": (FileFailure, responses.file_failed),
    "progress": (RunProgress, responses.progress),
    "watcher": (WatchedRoot, responses.watcher),
    "context": (ContextFile, session_messages.context_file),
    "entry": (Entry, entry_service.entry),
    "scored": (ScoredEntry, lambda scored: entry_service.scored_entries([scored])[0]),
}


@pytest.mark.parametrize(("kind", "convert"), REPLIES.values(), ids=REPLIES)
@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_value_with_any_text_becomes_a_message(kind, convert, data):
    message = convert(data.draw(any_of(kind)))
    assert type(message).FromString(message.SerializeToString()) == message


@given(st.lists(ANY_TEXT), st.dictionaries(st.sampled_from(["version", "settings_error"]), ANY_TEXT))
def test_lists_of_any_text_become_a_message(texts, others):
    message = build_message(
        memory_pb2.ServiceStatus, settings_warnings=tuple(texts), start_time=Timestamp(seconds=1), **others
    )
    assert len(message.settings_warnings) == len(texts)
    assert message.start_time.seconds == 1


@given(st.text(), st.text())
def test_valid_text_is_sent_as_it_is(wanted, reason):
    made = build_message(memory_pb2.Degradation, wanted=wanted, reason=reason)
    assert (made.wanted, made.reason) == (wanted, reason)


def test_a_file_name_that_is_not_utf_8_can_be_read():
    assert build_message(memory_pb2.WatcherStatus, root="caf\udce9").root == "caf\\xe9"


def test_a_file_name_that_is_not_utf_8_can_be_read_in_nested_fields():
    fields = {"results": [{"path": "caf\udce9", "snippet": "é"}, {"path": "b"}]}
    made = build_message(memory_service_pb2.MemorySearchResponse, **fields)
    assert [(result.path, result.snippet) for result in made.results] == [("caf\\xe9", "é"), ("b", "")]


def test_other_mistakes_are_not_hidden():
    with pytest.raises(TypeError):
        build_message(memory_pb2.Degradation, wanted=7)
    with pytest.raises(ValueError, match="nothing"):
        build_message(memory_pb2.Degradation, nothing="")


def test_usage_of_a_model_with_any_name_becomes_a_message():
    usage = status_response.ProviderUsage(1, 2, 3, 4)
    assert status_response.provider_usage(("a\ud800", "b"), usage).provider == "a\ufffd"
