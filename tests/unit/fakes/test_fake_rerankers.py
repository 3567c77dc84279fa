"""The fake rerankers refuse what the real ones refuse."""

import httpx
import pytest

from fake_providers import RERANKERS, fake_reranker

KEY = "key-of-the-test"


def good(server):
    return {"model": server.model, "query": "red ferry", "documents": ["a red ferry", "tea"]}


def post(server, body, key=KEY, path=None):
    host = server.url.removesuffix(server.prefix)
    with httpx.Client(trust_env=False) as client:
        return client.post(host + (path or server.paths[0]), json=body, headers={"authorization": f"Bearer {key}"})


@pytest.mark.parametrize("name", RERANKERS)
def test_a_right_request_is_answered_best_first(name):
    with fake_reranker(name, [KEY]) as server:
        reply = post(server, good(server)).json()
    found = reply[server.list_name]
    assert [item["index"] for item in found] == [0, 1]
    assert found[0]["relevance_score"] > found[1]["relevance_score"]


WRONG = {
    "unknown field": {"surprise": 1},
    "no query": {"query": ""},
    "no documents": {"documents": []},
    "one text": {"documents": "tea"},
    "empty document": {"documents": [""]},
    "number": {"documents": [1]},
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", RERANKERS)
def test_a_wrong_request_is_refused(name, wrong):
    with fake_reranker(name, [KEY]) as server:
        assert post(server, {**good(server), **WRONG[wrong]}).status_code == 400


@pytest.mark.parametrize("name", [name for name in RERANKERS if name != "llama-server"])
def test_an_unknown_model_is_refused(name):
    with fake_reranker(name, [KEY]) as server:
        assert post(server, {**good(server), "model": "another"}).status_code in {400, 404}


@pytest.mark.parametrize("name", RERANKERS)
def test_a_wrong_key_and_a_wrong_path_are_refused(name):
    with fake_reranker(name, [KEY]) as server:
        assert post(server, good(server), key="wrong").status_code == 401
        assert post(server, good(server), path="/v9/rerank").status_code == 404


def test_the_number_of_results_has_another_name_at_voyage():
    for name, field in (("jina", "top_n"), ("voyage", "top_k")):
        with fake_reranker(name) as server:
            assert len(post(server, {**good(server), field: 1}).json()[server.list_name]) == 1
    with fake_reranker("voyage") as server:
        assert post(server, {**good(server), "top_n": 1}).status_code == 400
