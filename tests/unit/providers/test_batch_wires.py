"""What is sent to make a batch job, and what a server's answers about it mean. The rest is in tests/rpc."""

import math

import pytest

from fake_providers import Fault, fake_provider
from memoryd_server.errors import EmbeddingUnavailable
from memoryd_server.providers.http_client import OutcomeUnknown
from memoryd_server.providers.http_errors import ResourceMissing
from memoryd_server.providers.pacing import WaitLimit
from memoryd_server.providers.pool import select
from memoryd_server.providers.provider import EmbeddingConfig, RemoteConfig
from memoryd_server.providers.remote import JobState, batches_of

KEY = "key-of-this-test-0123456789"
ENDLESS = WaitLimit(math.inf, lambda: False)
TEXTS = {"a" * 64: "the red ferry", "b" * 64: "the herön \ud800 \n waits"}


@pytest.fixture(params=["openai", "gemini", "voyage"])
def server(request):
    with fake_provider(request.param, [KEY]) as server:
        yield server


@pytest.fixture
def api(server):
    remote = RemoteConfig(server.provider, server.model, server.url, (KEY,))
    provider = select(EmbeddingConfig(server.provider, (remote,))).provider
    yield batches_of(provider)
    provider.close()


def test_texts_arrive_whole_under_their_keys_and_the_job_under_its_name(server, api):
    job_id = api.submit("memoryd-1", TEXTS, ENDLESS)
    (job,) = server.jobs.values()
    assert job.problem == ""
    assert job.texts == {"a" * 64: "the red ferry", "b" * 64: "the herön ? \n waits"}
    assert api.find("memoryd-1", ENDLESS) == job_id
    assert api.find("memoryd-2", ENDLESS) is None


def test_a_job_is_found_behind_many_others(server, api):
    wanted = api.submit("memoryd-1", TEXTS, ENDLESS)
    (job,) = server.jobs.values()
    for _ in range(150):
        server.make_job("other", b"", {**job.request, "metadata": {}})
    assert api.find("memoryd-1", ENDLESS) == wanted


def test_answers_come_by_their_keys(server, api):
    job_id = api.submit("memoryd-1", TEXTS, ENDLESS)
    assert not api.job_state(job_id, ENDLESS).over
    state = api.job_state(job_id, ENDLESS)
    assert (state.over, state.reason, len(state.outputs)) == (True, "", 1)
    answers = dict(api.answers(state.outputs[0], ENDLESS))
    assert set(answers) == set(TEXTS)
    assert all(len(values) == server.native_dimensions for values in answers.values())


def test_a_job_that_is_not_there_is_distinguished_from_a_server_that_fails(server, api):
    with pytest.raises(ResourceMissing):
        api.job_state("batches/none", ENDLESS)


def test_a_creation_whose_answer_is_lost_is_not_repeated(server, api):
    made = server.make_job

    def lose(*arguments):
        made(*arguments)
        raise server.refused(503, "overloaded")

    server.make_job = lose
    with pytest.raises(OutcomeUnknown):
        api.submit("memoryd-1", TEXTS, ENDLESS)
    assert len(server.jobs) == 1


def test_a_creation_that_was_one_too_many_is_repeated(server, api):
    server.faults.extend([Fault(), server.limited(0)])
    api.submit("memoryd-1", TEXTS, ENDLESS)
    assert len(server.jobs) == 1


def test_an_output_that_is_cut_short_raises_amid_its_lines(server, api):
    job_id = api.submit("memoryd-1", TEXTS, ENDLESS)
    api.job_state(job_id, ENDLESS)
    state = api.job_state(job_id, ENDLESS)
    server.faults.append(server.reset())
    with pytest.raises(EmbeddingUnavailable):
        list(api.answers(state.outputs[0], ENDLESS))
    assert len(list(api.answers(state.outputs[0], ENDLESS))) == len(TEXTS)


def test_why_a_job_failed_holds_no_key(server, api):
    server.fates.append("failed")
    job_id = api.submit("memoryd-1", TEXTS, ENDLESS)
    next(iter(server.jobs.values())).problem = f"the key {KEY} may not"
    state = api.job_state(job_id, ENDLESS)
    assert state == JobState(state.word, over=True, reason="the key *** may not")
