"""Files and texts are read only if a rule needs them; a candidate without them is dropped there."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from memoryd_server.model import Source
from memoryd_server.search.query import Candidate, RankingConfig
from memoryd_server.search.ranking import rank
from memoryd_server.store.rows import ChunkHead

NOW = datetime(2023, 6, 14, 10, tzinfo=UTC)
CANDIDATES = [Candidate(number, 1 - number / 10) for number in (1, 2, 3)]
HEADS = {number: ChunkHead(number, f"memory/2023-05-0{number}.md", Source.MEMORY, 0) for number in (1, 3)}
TEXTS = {1: "heron", 2: "kestrel"}


@pytest.fixture
def asked():
    return []


@pytest.fixture
def ordered(asked):
    def ordered(query="heron", **ranking):
        def heads():
            asked.append("heads")
            return HEADS

        def texts_of(ids):
            asked.append("texts")
            return {chunk_id: TEXTS[chunk_id] for chunk_id in ids if chunk_id in TEXTS}

        changed = replace(RankingConfig(), **ranking)
        found = rank(CANDIDATES, heads, query=query, now=NOW, ranking=changed, texts_of=texts_of, words_of=str.split)
        return [candidate.chunk_id for candidate in found.candidates]

    return ordered


def test_where_no_rule_applies_nothing_is_asked_and_nothing_changes(ordered, asked):
    assert ordered() == [1, 2, 3]
    assert asked == []


@pytest.mark.parametrize("changes", [{"decay": True}, {"query": "on 2023-05-03"}], ids=["decay", "a date"])
def test_where_time_counts_what_has_no_file_is_dropped(ordered, asked, changes):
    assert sorted(ordered(**changes)) == [1, 3]
    assert asked == ["heads"]


def test_where_variety_counts_what_has_no_text_is_dropped(ordered, asked):
    assert ordered(mmr=True) == [1, 2]
    assert asked == ["texts"]
