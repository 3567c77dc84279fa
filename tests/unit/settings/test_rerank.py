"""`memoryd.rerank`: what the settings of the reranker mean, and that one that is not understood sends nothing more."""

import json

import pytest

from memoryd_server.settings import RefusedSettings
from memoryd_server.settings.resolved import changed_keys

SECRET = "s3cr3t-value"
URL = "https://rerank.invalid/v1"


def rerank(home, own=None, **block):
    return home.load(own={"memoryd": {"rerank": block}, **(own or {})})


def http(home, own=None, **block):
    return rerank(home, own, **{"provider": "http", "baseUrl": URL, **block})


def shown(access):
    keys = [key.get_secret_value() for key in access.keys]
    return access.base_url, keys, {name: value.get_secret_value() for name, value in access.headers.items()}


def test_reranking_is_off_by_default(home):
    loaded = home.load()
    block = loaded.service.rerank
    assert (block.provider, block.candidates, block.timeout_ms, block.weight) == ("none", 30, 300, 0.7)
    assert loaded.rerank_access.known_values() == {}


def test_address_key_and_headers_may_name_variables(home):
    home.environ.update(HOST="rerank.invalid", KEY=SECRET, TENANT="blue")
    access = http(home, baseUrl="https://${HOST}/v1", apiKey="${KEY}", headers={"X-Tenant": "${TENANT}"}).rerank_access
    assert shown(access) == ("https://rerank.invalid/v1", [SECRET], {"x-tenant": "blue"})
    assert (access.problem, access.missing) == ("", None)


@pytest.mark.parametrize("block", [{"baseUrl": "https://${NO}"}, {"apiKey": "${NO}"}, {"headers": {"a": "${NO}"}}])
def test_a_variable_that_is_not_set_is_a_problem_and_nothing_may_be_sent(home, block):
    access = http(home, **{"apiKey": SECRET, **block}).rerank_access
    assert "the variable NO, which is not set" in access.problem
    assert shown(access) == ("", [], {})


@pytest.mark.parametrize("place", [lambda ref: {"apiKey": ref}, lambda ref: {"headers": {"Authorization": ref}}])
def test_a_secret_ref_is_resolved(home, place):
    home.environ["KEY"] = SECRET
    loaded = http(home, **place({"source": "env", "provider": "default", "id": "KEY"}))
    assert SECRET in json.dumps(shown(loaded.rerank_access))
    assert loaded.warnings == ()


def test_a_secret_ref_without_a_value_is_reported_and_no_other_key_is_used(home):
    home.environ["OPENAI_API_KEY"] = "another-key"
    loaded = http(home, apiKey={"source": "env", "provider": "default", "id": "KEY"})
    assert "the variable KEY is not set" in str(loaded.rerank_access.missing)
    assert shown(loaded.rerank_access) == ("", [], {})
    (warning,) = loaded.warnings
    assert warning.startswith(f"{home.own}: memoryd.rerank.apiKey: a SecretRef that does not resolve")


@pytest.mark.parametrize("provider", ["none", "local"])
def test_secrets_are_read_for_http_only(home, provider):
    loaded = http(home, provider=provider, apiKey={"source": "env", "provider": "default", "id": "KEY"})
    assert loaded.rerank_access.known_values() == {}
    assert loaded.warnings == ()


def test_a_file_with_secrets_is_read_once_for_agents_and_reranker(home, tmp_path):
    runs, command = tmp_path / "runs", tmp_path / "command"
    values = json.dumps({"protocolVersion": 1, "values": {"a": "key-a", "b": "key-b"}})
    command.write_text(f"#!/bin/sh\ncat > /dev/null\necho run >> {runs}\nprintf '%s' '{values}'\n")
    command.chmod(0o700)
    ref = {"source": "exec", "provider": "vault"}
    own = {
        "secrets": {
            "providers": {"vault": {"source": "exec", "command": str(command), "trustedDirs": [str(tmp_path)]}}
        },
        "models": {"providers": {"openai": {"apiKey": {**ref, "id": "a"}}}},
        "agents": {"defaults": {"memorySearch": {"provider": "openai"}}},
    }
    block = {"provider": "http", "baseUrl": URL, "apiKey": {**ref, "id": "b"}}
    loaded = home.load(own={**own, "memoryd": {"rerank": block, "secrets": {"exec": True}}})
    assert shown(loaded.rerank_access)[1] == ["key-b"]
    assert [key.get_secret_value() for key in loaded.agent("").provider_access["openai"].keys] == ["key-a"]
    assert runs.read_text() == "run\n"


def test_no_secret_is_shown(home):
    home.environ["KEY"] = SECRET
    url = f"https://joe:{SECRET}@rerank.invalid/v1?sig={SECRET}"
    loaded = http(home, baseUrl=url, apiKey="${KEY}", headers={"Authorization": f"Bearer {SECRET}"})
    described = loaded.describe()
    assert SECRET not in json.dumps(described) + repr(loaded)
    assert "memoryd.rerank.access" in {entry["key"] for entry in described}


@pytest.mark.parametrize("block", [{"provider": "htp"}, {"provider": False}, {"providr": "none"}, {"headers": "x"}])
def test_a_setting_that_is_not_understood_is_refused_and_blocks_what_is_sent(home, block):
    with pytest.raises(RefusedSettings, match=r"memoryd\.rerank\.") as refused:
        rerank(home, **block)
    assert [blocker.where.startswith(f"{home.own}: memoryd.rerank.") for blocker in refused.value.blockers] == [True]


def test_numbers_out_of_bounds_are_limited_with_a_warning(home):
    loaded = rerank(home, candidates=1000, timeoutMs=1, weight=2)
    block = loaded.service.rerank
    assert (block.candidates, block.timeout_ms, block.weight) == (100, 10, 1.0)
    assert len(loaded.warnings) == 3


@pytest.mark.parametrize("address", ["hf:a/b/c.gguf", "/models/c.gguf"])
def test_the_path_of_a_model_is_absolute_unless_it_is_an_address(home, address):
    assert rerank(home, provider="local", modelPath=address).service.rerank.model_path == address


def test_a_relative_path_of_a_model_is_relative_to_the_file(home):
    assert rerank(home, modelPath="m/c.gguf").service.rerank.model_path == str(home.state / "m/c.gguf")


def test_variables_set_the_block(home):
    home.environ.update(MEMORYD_RERANK__PROVIDER="http", MEMORYD_RERANK__BASE_URL=URL, MEMORYD_RERANK__API_KEY=SECRET)
    assert shown(home.load().rerank_access) == (URL, [SECRET], {})


def test_a_changed_key_is_reported_once(home):
    before, after = http(home, apiKey="a"), http(home, apiKey="b")
    assert changed_keys(before, after) == ("memoryd.rerank.apiKey",)


def test_a_variable_that_changed_is_reported_by_the_access(home):
    home.environ["KEY"] = "a"
    before = http(home, apiKey="${KEY}")
    home.environ["KEY"] = "b"
    assert changed_keys(before, http(home, apiKey="${KEY}")) == ("memoryd.rerank.access",)


def test_a_value_that_a_later_file_hides_blocks_what_is_sent(home):
    block = {"provider": "http", "baseUrl": URL}
    loaded = home.load({"memoryd": {"rerank": False}}, {"memoryd": {"rerank": block}})
    assert [blocker.where for blocker in loaded.remote_embeddings_blocked_by] == [f"{home.reference}: memoryd.rerank"]


@pytest.mark.parametrize("variable", ["MEMORYD_RERANKER", "MEMORYD_RERANK__PROVIDR"])
def test_an_unknown_variable_about_reranking_blocks_what_is_sent(home, variable):
    home.environ[variable] = "none"
    assert [blocker.where for blocker in home.load().remote_embeddings_blocked_by] == [f"env {variable}"]
