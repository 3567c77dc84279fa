"""What becomes of values: units, fallbacks, and rules between keys."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from memoryd_server.settings.rules import Duration, FloatRange, IntRange, Size, duration_ms, size_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5m", 300_000),
        ("5", 300_000),
        ("0s", 0),
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("250ms", 250),
        (" 1H30M ", 5_400_000),
        ("1d", 86_400_000),
        ("", None),
        ("soon", None),
        ("5 parsecs", None),
        ("-5m", None),
        ("\u0665m", None),
        ("1.m", None),
        ("1 2", None),
        ("1" * 5000 + "!", None),
        ("1m" * 5000 + "!", None),
    ],
)
def test_a_duration_is_read_in_minutes_unless_it_says_otherwise(text, expected):
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2mb", 2**21), ("2 MB", 2**21), ("1.5k", 1536), ("7", 7), ("7b", 7), ("0", 0), ("x", None), ("2 miles", None)],
)
def test_a_size_is_read_in_bytes_unless_it_says_otherwise(text, expected):
    assert size_bytes(text) == expected


@pytest.mark.parametrize(
    ("raw", "expected"),
    [(1, 1), ("2mb", 2**21), (0, 0), (2.9, 2), (-1, 2_097_152), ("lots", 2_097_152)],
)
def test_the_transcripts_size_is_a_number_or_a_text_or_the_default(home, raw, expected):
    own = {"agents": {"defaults": {"compaction": {"memoryFlush": {"forceFlushTranscriptBytes": raw}}}}}
    assert home.load(own=own).agent("").compaction.memory_flush.force_flush_transcript_bytes == expected


@pytest.mark.parametrize(("raw", "expected"), [("10s", 10_000), ("0s", 0), ("never", 300_000)])
def test_qmds_interval_is_a_duration_or_the_default(home, raw, expected):
    own = {"memory": {"qmd": {"update": {"interval": raw}}}}
    assert home.load(own=own).agent("").memory.qmd.update.interval_ms == expected


def test_numbers_that_make_no_sense_for_compaction_and_qmd_become_the_default(home):
    own = {
        "agents": {"defaults": {"compaction": {"reserveTokensFloor": -1, "memoryFlush": {"softThresholdTokens": 9.9}}}},
        "memory": {"qmd": {"limits": {"timeoutMs": 0, "maxResults": -3}, "update": {"debounceMs": 0}}},
    }
    agent = home.load(own=own).agent("")
    assert agent.compaction.reserve_tokens_floor is None
    assert agent.compaction.memory_flush.soft_threshold_tokens == 9
    assert (agent.memory.qmd.limits.timeout_ms, agent.memory.qmd.limits.max_results) == (4000, 6)
    assert agent.memory.qmd.update.debounce_ms == 0


@pytest.mark.parametrize(
    ("sources", "allowed", "expected"),
    [
        (["sessions"], False, ("memory",)),
        (["sessions"], True, ("sessions",)),
        (["memory", "sessions", "memory"], False, ("memory",)),
        ([], True, ("memory",)),
    ],
)
def test_sessions_are_a_source_only_when_allowed(home, sources, allowed, expected):
    assert home.search(sources=sources, experimental={"sessionMemory": allowed}).sources == expected


FLAG = '"sessions" is ignored, because memorySearch.experimental.sessionMemory is not true; only memory is indexed'


@pytest.mark.parametrize(
    ("defaults", "agent", "places"),
    [
        ({"sources": ["sessions"]}, {}, ["agents.defaults"]),
        ({"sources": ["memory", "sessions"], "experimental": {"sessionMemory": False}}, {}, ["agents.defaults"]),
        ({}, {"sources": ["sessions"]}, ["agents.list[a]"]),
        ({"sources": ["sessions"]}, {"sources": ["sessions"]}, ["agents.list[a]"]),
        ({"sources": ["sessions"]}, {"sources": ["memory"]}, []),
        ({"sources": ["sessions"], "experimental": {"sessionMemory": True}}, {}, []),
        ({"sources": ["sessions"]}, {"experimental": {"sessionMemory": True}}, []),
        ({"sources": []}, {}, []),
    ],
)
def test_a_source_that_is_ignored_is_warned_of_with_its_flag(home, defaults, agent, places):
    own = {"agents": {"defaults": {"memorySearch": defaults}, "list": [{"id": "a", "memorySearch": agent}]}}
    file = home.own
    expected = [f"{file}: {place}.memorySearch.sources: {FLAG}" for place in places]
    assert list(home.load(own=own).warnings) == expected


@pytest.mark.parametrize(
    ("tokens", "overlap", "expected"), [(100, 500, 99), (1, 5, 0), (50, None, 49), (400, -1, 0), (10, 9, 9)]
)
def test_an_overlap_is_less_than_a_chunk(home, tokens, overlap, expected):
    assert home.search(chunking={"tokens": tokens, "overlap": overlap}).chunking.overlap == expected


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"provider": "openai"}, "text-embedding-3-small"),
        ({"provider": "ollama"}, "nomic-embed-text"),
        ({"provider": "none"}, ""),
        ({"provider": "openai", "model": "own"}, "own"),
    ],
)
def test_the_model_is_the_providers_unless_it_is_named(home, keys, expected):
    assert home.search(**keys).model == expected


@pytest.mark.parametrize(
    ("remote", "kept"),
    [(None, False), ({"batch": {}}, False), ({"apiKey": " "}, False), ({"baseUrl": "http://h"}, True)],
)
def test_a_local_provider_has_remote_settings_only_when_they_are_used(home, remote, kept):
    assert (home.search(provider="local", remote=remote).remote is not None) == kept


def test_a_blank_key_counts_as_not_set(home):
    assert home.search(remote={"apiKey": "  "}).remote.api_key is None
    assert home.search(remote={"apiKey": "k"}).remote.api_key == SecretStr("k")


@pytest.mark.parametrize(
    ("path", "expected"),
    [("hf:org/model.gguf", "hf:org/model.gguf"), ("~/m.gguf", "{home}/m.gguf"), ("m.gguf", "{home}/.openclaw/m.gguf")],
)
def test_a_models_file_is_absolute_and_its_address_untouched(home, path, expected):
    assert home.search(local={"modelPath": path}).local.model_path == expected.format(home=home.path)


def test_a_channel_rule_of_the_older_name_dm_means_direct(home):
    own = {"memory": {"qmd": {"scope": {"rules": [{"action": "allow", "match": {"chatType": "dm"}}]}}}}
    assert home.load(own=own).agent("").memory.qmd.scope.rules[0].match.chat_type == "direct"


def test_settings_cannot_be_changed(home):
    settings = home.load()
    with pytest.raises(ValidationError, match="frozen"):
        settings.service.files_per_transaction = 5
    with pytest.raises(AttributeError):
        settings.agent("").workspace = None


numbers = st.one_of(st.integers(), st.floats())


@given(numbers, st.sampled_from([IntRange(1, 20), IntRange(0, fallback=7), FloatRange(0, 1)]))
def test_a_rule_changes_a_value_once_and_says_so(raw, rule):
    used = rule.apply(raw)
    finite = raw == raw and abs(raw) != float("inf")  # noqa: PLR0124 -- NaN is not itself
    if finite:
        assert rule.apply(used) == used
        assert (rule.complaint(raw) is None) == (used == raw)


@given(st.text())
def test_any_text_is_a_duration_and_a_size_or_the_default(text):
    assert isinstance(Duration("5m").apply(text), int)
    assert isinstance(Size(1).apply(text), int)
