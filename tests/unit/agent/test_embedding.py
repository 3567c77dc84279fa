"""Which questions get a vector, and what is said where they do not."""

import time

import pytest

from index_fixture import IndexFixture, RecordingObserver
from memoryd_server.agent.embedding import AgentEmbedding
from memoryd_server.agent.threads import ProviderExecutors
from memoryd_server.app.config import agent_config
from memoryd_server.errors import EmbeddingNotConfigured, EmbeddingUnavailable
from memoryd_server.model import DegradationKind, Source
from memoryd_server.providers.pool import ProviderSelection
from memoryd_server.search.query import SearchMode, SearchQuery
from memoryd_server.settings.loading import load
from word_provider import WordProvider

NOT_CONFIGURED = ProviderSelection(None, "auto", "no embedding provider is configured")


@pytest.fixture
def side_of(tmp_path):
    settings = load(environ={}, home=tmp_path, flags={"state_dir": str(tmp_path / "state")})
    config = agent_config(settings.agents["main"], settings)
    threads = ProviderExecutors()
    unused = IndexFixture(tmp_path / "unused").store

    def made_of(selection, store=unused, **options):
        return AgentEmbedding(config, selection, store, lambda: None, threads, **options)

    yield made_of
    threads.shutdown()


@pytest.fixture
def index(tmp_path):
    index = IndexFixture(tmp_path).open()
    index.write("memory/a.md", "heron")
    index.sync()
    yield index
    index.close()


def query(mode=SearchMode.UNSPECIFIED, text="heron"):
    return SearchQuery(
        text=text,
        max_results=6,
        min_score=0.0,
        min_score_is_requested=False,
        sources=(Source.MEMORY,),
        mode=mode,
        max_snippet_chars=700,
        citations=False,
        max_total_chars=None,
        deadline=time.monotonic() + 30,
    )


def made(side, index):
    """The side after its provider has made the index's vectors."""
    side.embedder.run(index.store.writer(), RecordingObserver(), confirmed=True, should_stop=lambda: False)
    return side


def of(provider):
    return ProviderSelection(provider, provider.spec.provider)


def kinds(side):
    return [degradation.kind for degradation in side.degradations() if degradation.wanted != "sqlite-vec"]


async def test_the_vector_leg_alone_is_refused_with_the_reason(side_of):
    with pytest.raises(EmbeddingNotConfigured, match="no embedding provider is configured"):
        await side_of(NOT_CONFIGURED).query_vector(query(SearchMode.VECTOR))


@pytest.mark.parametrize("mode", [SearchMode.UNSPECIFIED, SearchMode.HYBRID])
async def test_without_a_provider_a_hybrid_question_has_the_reason_in_place_of_a_vector(side_of, mode):
    asked = await side_of(NOT_CONFIGURED).query_vector(query(mode))
    assert (asked.vector, asked.reason) == (None, "no embedding provider is configured")


@pytest.mark.parametrize(
    ("requested", "expected"), [("auto", []), ("none", []), ("local", [DegradationKind.VECTOR_LEG_SKIPPED])]
)
def test_only_a_provider_that_was_asked_for_is_missed(side_of, requested, expected):
    assert kinds(side_of(ProviderSelection(None, requested, "why"))) == expected


async def test_the_keyword_leg_alone_asks_no_provider(side_of, index):
    provider = WordProvider()
    asked = await made(side_of(of(provider)), index).query_vector(query(SearchMode.KEYWORD))
    assert asked.vector is None
    assert provider.questions == []


async def test_a_question_gets_its_vector_when_the_index_has_the_providers(side_of, index):
    side = made(side_of(of(WordProvider())), index)
    assert (await side.query_vector(query(SearchMode.HYBRID))).vector is not None
    assert kinds(side) == []


async def test_before_the_first_vector_no_provider_is_asked(side_of, index):
    provider = WordProvider()
    side = side_of(of(provider), index.store)
    side.load_state()
    assert "a sync makes them" in (await side.query_vector(query(SearchMode.HYBRID))).reason
    with pytest.raises(EmbeddingUnavailable, match="a sync makes them"):
        await side.query_vector(query(SearchMode.VECTOR))
    assert provider.questions == []
    assert kinds(side) == [DegradationKind.VECTORS_PENDING]


async def test_vectors_of_another_model_are_never_met_by_this_ones(side_of, index):
    made(side_of(of(WordProvider())), index)
    provider = WordProvider("other")
    side = side_of(of(provider), index.store)
    side.load_state()
    assert "'words'" in (await side.query_vector(query(SearchMode.HYBRID))).reason
    with pytest.raises(EmbeddingUnavailable, match="'words'"):
        await side.query_vector(query(SearchMode.VECTOR))
    assert provider.questions == []
    assert kinds(side) == [DegradationKind.IDENTITY_MISMATCH]
    made(side, index)
    assert (await side.query_vector(query(SearchMode.VECTOR))).vector is not None


async def test_a_question_that_shows_another_model_is_reported_once_and_meets_no_old_vector(side_of, index):
    provider, told = WordProvider(told=False), []
    side = made(side_of(of(provider), on_mismatch=lambda: told.append(1)), index)
    assert (await side.query_vector(query(text="a"))).vector is not None
    assert told == []
    provider.dimensions = 8
    for text in ("b", "c", "a"):
        asked = await side.query_vector(query(text=text))
        assert asked.vector is None
        assert "dimensions was '16', is '8'" in asked.reason
    assert told == [1]
    assert kinds(side) == [DegradationKind.IDENTITY_MISMATCH]
    provider.dimensions = 16
    assert (await side.query_vector(query(text="d"))).vector is not None
    assert kinds(side) == []


async def test_a_provider_that_is_down_is_an_error_only_where_it_was_asked_for_alone(side_of, index):
    provider = WordProvider()
    side = made(side_of(of(provider)), index)
    provider.down = "it is down"
    assert (await side.query_vector(query(SearchMode.HYBRID, "a question"))).reason == "it is down"
    with pytest.raises(EmbeddingUnavailable, match="it is down"):
        await side.query_vector(query(SearchMode.VECTOR, "another"))
    assert kinds(side) == [DegradationKind.VECTOR_LEG_SKIPPED]


async def test_a_probe_says_what_calling_the_provider_showed(side_of):
    provider = WordProvider()
    assert (await side_of(of(provider)).probe(time.monotonic() + 5)).error == ""
    provider.down = "it is down"
    assert (await side_of(of(provider)).probe(time.monotonic() + 5)).error == "it is down"
    assert (await side_of(NOT_CONFIGURED).probe(time.monotonic() + 5)).error == "no embedding provider is configured"
