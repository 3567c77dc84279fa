"""A setting that memoryd does not understand never lets notes or questions reach a provider over HTTP."""

import importlib.util
import json
import threading

import pytest

from entry_fixture import needs_lancedb
from fake_providers import Fault, fake_provider, vector
from memoryd.v1 import entry_service_pb2 as entry_pb
from memoryd.v1 import memory_pb2, sync_event_pb2
from rpc.wire import TIMEOUT, by_meaning, check_refused, kinds, paths, quiet
from waiting import eventually

FULL = sync_event_pb2.SYNC_MODE_FULL
KEYWORD, VECTOR, HYBRID = (
    memory_pb2.SEARCH_MODE_KEYWORD,
    memory_pb2.SEARCH_MODE_VECTOR,
    memory_pb2.SEARCH_MODE_HYBRID,
)
UNSET = memory_pb2.SEARCH_MODE_UNSPECIFIED
KEY = "key-of-this-test-0123456789"
NONE = {"memorySearch": {"provider": "none"}}
SECRET = {"source": "exec", "provider": "vault", "id": "openai"}


@pytest.fixture
def openai(home):
    """OpenAI's API on loopback; the environment has a key for it."""
    home.environ = {"OPENAI_API_KEY": KEY}
    home.write(boat="the red ferry sails at dawn", tea="green tea without sugar")
    with fake_provider("openai", [KEY]) as server:
        yield server


def with_openclaw(home, openai, settings):
    """Write `settings` as openclaw.json, with the address of `openai`; return where they are."""
    merged = json.loads(json.dumps(settings))
    providers = merged.setdefault("models", {}).setdefault("providers", {})
    providers.setdefault("openai", {}).setdefault("baseUrl", openai.url)
    file = home.state_dir / "openclaw.json"
    file.write_text(json.dumps(merged))
    return file


async def reload(running, settings=None):
    return await running.daemon.reload(lambda: running.home.settings(quiet(settings)))


async def check_nothing_is_sent(running, server, where):
    """Use everything that asks a provider, and look for the name of the setting where it is to be shown."""
    for request in ({}, {"mode": FULL}, {"dry_run": True}, {"mode": FULL, "dry_run": True}):
        await running.sync(**request)
    for mode in (UNSET, HYBRID):
        answer = await running.search("ferry", mode=mode)
        assert (answer.info.served_mode, paths(answer)) == (KEYWORD, ["memory/boat.md"])
        (skipped,) = [d for d in answer.info.degradations if kinds([d]) == ["VECTOR_LEG_SKIPPED"]]
        assert where in skipped.reason
    assert paths(await running.search("ferry", mode=KEYWORD)) == ["memory/boat.md"]
    await check_refused(
        running.search("ferry", mode=VECTOR), "FAILED_PRECONDITION", "EMBEDDING_NOT_CONFIGURED", mentions=where
    )
    status = await running.status(probe=True)
    assert (status.embedding.provider, status.embedding.probe.ok) == ("", False)
    assert where in status.embedding.reason
    assert where in status.embedding.probe.error
    assert [where in d.reason for d in status.degradations if kinds([d]) == ["VECTOR_LEG_SKIPPED"]] == [True]
    told = [w for w in status.service.settings_warnings if "remote embeddings are disabled for every agent" in w]
    assert [w.startswith(where) for w in told].count(True) == 1
    assert server.requests == []


NOT_UNDERSTOOD = {
    "memorySearch": NONE,
    "memory.search.$include": {"memory": {"search": {"$include": "./memory.json5", "provider": "openai"}}},
    "agents.entries.main.memorySearch": {
        "memory": {"search": {"provider": "openai"}},
        "agents": {"entries": {"main": {"memorySearch": {"provider": "none"}}}},
    },
    "agents.entries.main.enabled": {
        "memory": {"search": {"provider": "openai"}},
        "agents": {"entries": {"main": {"enabled": False}}},
    },
    "memorry": {"memorry": {"search": {"provider": "none"}}},
    "$include": {"$include": "./memory.json5"},
    "agents.$include": {"agents": {"$include": "./agents.json5"}},
    "agents.defaults.memorysearch": {"agents": {"defaults": {"memorysearch": {"provider": "none"}}}},
    "agents.defaults.memory": {"agents": {"defaults": {"memory": {"search": {"provider": "none"}}}}},
    "agents.list[main].enabled": {"agents": {"list": [{"id": "main", "enabled": False}]}},
    "models.providers.openai.baseurl": {"models": {"providers": {"openai": {"baseurl": "https://private.invalid"}}}},
    "plugins.enabled": {"plugins": {"enabled": False}},
    "plugins.entries.openai.enabled": {"plugins": {"entries": {"openai": {"enabled": False}}}},
    "plugins.slots.memory": {"plugins": {"slots": {"memory": False}}},
    "plugins.slots.memory of another plugin": {"plugins": {"slots": {"memory": "memory-wiki"}}},
    "plugins.deny": {"plugins": {"deny": ["*"]}},
    "plugins.allow": {"plugins": {"allow": ["telegram"]}},
    "plugins.entries.memory-core.config.embedding": {
        "plugins": {"entries": {"memory-core": {"config": {"embedding": {"provider": "none"}}}}}
    },
    "models.providers.openai.enabled": {"models": {"providers": {"openai": {"enabled": False}}}},
    "models.providers.openai.disabled": {"models": {"providers": {"openai": {"disabled": True}}}},
    "agents.defaults.Memory": {"agents": {"defaults": {"Memory": {"search": {"provider": "none"}}}}},
    "agents.defaults.memorySearch of a wrong type": {"agents": {"defaults": {"memorySearch": False}}},
}


@pytest.mark.parametrize("name", NOT_UNDERSTOOD)
async def test_nothing_is_sent_while_a_setting_is_not_understood(home, serve, openai, name):
    file = with_openclaw(home, openai, NOT_UNDERSTOOD[name])
    running = await serve()
    await check_nothing_is_sent(running, openai, f"{file}: {name.partition(' ')[0]}")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"agents": {"defaults": {"memorySearch": {"store": {"fts": {"tokenizer": "trigram"}}, "inputType": "x"}}}},
        {"memory": {"qmd": {"rerank": False}}},
        {"models": {"providers": {"anthropic": {"apiKey": SECRET}}}},
        {"plugins": {"slots": {"memory": "memoryd"}, "entries": {"memory-core": {"enabled": False}}}},
    ],
)
async def test_a_key_that_cannot_restrict_what_is_sent_disables_nothing(home, serve, openai, settings):
    with_openclaw(home, openai, settings)
    running = await serve()
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID
    assert set(openai.texts) == {"the red ferry sails at dawn", "green tea without sugar", "ferry"}


async def test_a_null_in_memoryds_own_file_takes_the_setting_away(home, serve, openai):
    with_openclaw(home, openai, NONE)
    running = await serve({"memorySearch": None})
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID


@pytest.mark.parametrize("variable", ["OPENCLAW_CONFIG_PATH", "MEMORYD_PROVIDER", "OPENAI_BASE_URL"])
async def test_a_variable_that_is_not_read_disables_remote_embeddings(home, serve, openai, variable):
    home.environ[variable] = "/elsewhere/openclaw.json"
    settings = {} if variable == "OPENAI_BASE_URL" else {"models": {"providers": {"openai": {"baseUrl": openai.url}}}}
    running = await serve(settings)
    await running.synced()
    status = await running.status(probe=True)
    assert status.embedding.reason.endswith(f"does not understand env {variable}")
    assert openai.requests == []


async def test_a_server_on_loopback_that_needs_no_key_gets_nothing_either(home, serve, openai):
    with_openclaw(home, openai, NONE)
    with fake_provider("ollama") as ollama:
        remote = {"baseUrl": ollama.url}
        running = await serve({"agents": {"defaults": {"memorySearch": {"provider": "ollama", "remote": remote}}}})
        await running.synced(mode=FULL)
        assert "VECTOR_LEG_SKIPPED" in kinds((await running.search("ferry", mode=HYBRID)).info.degradations)
        assert (await running.status(probe=True)).embedding.requested_provider == "ollama"
        assert ollama.requests == []


async def test_neither_a_fallback_nor_batch_jobs_are_used(home, serve, openai, provider):
    with_openclaw(home, openai, NONE)
    blocks = {"openai-compatible": {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}}
    search = {"provider": "openai", "fallback": "openai-compatible", "remote": {"batch": {"pollIntervalMs": 20}}}
    settings = {"agents": {"defaults": {"memorySearch": search}}, "memoryd": {"batchMinChunks": 1}}
    running = await serve({**settings, "models": {"providers": blocks}})
    for _ in range(3):
        await running.synced(mode=FULL)
    assert (await running.status(probe=True)).embedding.fallback_from == ""
    assert (openai.requests, provider.requests) == ([], [])


async def test_a_provider_of_no_known_id_hands_nothing_over_to_a_fallback(home, serve, openai):
    settings = {"agents": {"defaults": {"memorySearch": {"provider": "NONE", "fallback": "openai"}}}}
    with_openclaw(home, openai, settings)
    running = await serve()
    for _ in range(3):
        await running.synced(mode=FULL)
    assert "fallback openai is not used" in (await running.status()).embedding.reason
    assert openai.requests == []


async def test_a_setting_of_one_agent_disables_every_agent_and_shows_its_id_to_none_of_them(home, serve, openai):
    (home.state_dir / "workspace-bird" / "memory").mkdir(parents=True)
    (home.state_dir / "workspace-bird" / "memory" / "b.md").write_text("a kestrel")
    bird = {"id": "bird", "enabled": False}
    with_openclaw(home, openai, {"agents": {"list": [{"id": "main"}, bird]}})
    running = await serve()
    for agent_id in ("main", "bird"):
        await running.synced(agent_id=agent_id, mode=FULL)
    own, other = [(await running.status(agent_id=each)).embedding.reason for each in ("bird", "main")]
    assert "agents.list[bird].enabled" in own
    assert "a setting of another agent" in other
    assert "bird" not in other
    assert openai.requests == []


# Reloads


async def test_a_reload_stops_remote_calls_and_the_next_one_allows_them_without_embedding_anything_again(
    home, serve, openai
):
    file = with_openclaw(home, openai, {})
    running = await serve()
    await running.synced()
    assert (await running.search("ferry", mode=HYBRID)).info.served_mode == HYBRID
    texts = list(openai.texts)
    openai.requests.clear()
    with_openclaw(home, openai, NONE)
    report = await reload(running)
    assert (report.error, "remoteEmbeddingsBlockedBy" in report.changed) == ("", True)
    assert any(f"{file}: memorySearch" in line["warning"] for line in running.logged("warn-settings"))
    await check_nothing_is_sent(running, openai, f"{file}: memorySearch")
    home.write(later="the kettle is in the shed")
    await running.synced()
    with_openclaw(home, openai, {})
    assert (await reload(running)).error == ""
    assert openai.requests == []
    await running.synced()
    assert openai.texts == ["the kettle is in the shed"]
    answer = await running.search("ferry", mode=VECTOR)
    assert paths(answer)[0] == "memory/boat.md"
    assert list(answer.info.degradations) == []
    assert sorted(texts) == ["ferry", "green tea without sugar", "the red ferry sails at dawn"]


@pytest.mark.parametrize("mode", [sync_event_pb2.SYNC_MODE_INCREMENTAL, FULL])
async def test_vectors_stay_in_the_index_while_remote_embeddings_are_disabled(home, serve, openai, mode):
    """Without the cache, a vector that was lost would be made again after the reload."""
    settings = {"agents": {"defaults": {"memorySearch": {"cache": {"enabled": False}}}}}
    with_openclaw(home, openai, settings)
    running = await serve()
    await running.synced()
    with_openclaw(home, openai, {**settings, **NONE})
    await reload(running)
    await running.synced(mode=mode)
    with_openclaw(home, openai, settings)
    await reload(running)
    openai.requests.clear()
    await running.synced()
    assert openai.requests == []
    assert (await running.status()).index.pending_embeddings == 0


async def test_a_reload_ends_the_requests_of_a_sync_that_is_running(home, serve, openai):
    home.many(300)
    with_openclaw(home, openai, {})
    asked, go = threading.Event(), threading.Event()

    def pause_sync(texts):
        asked.set()
        go.wait(TIMEOUT)

    openai.refuse = pause_sync
    running = await serve(background=True)
    await eventually(asked.is_set)
    with_openclaw(home, openai, NONE)
    assert (await reload(running)).error == ""
    sent = len(openai.requests)
    go.set()
    await running.synced()
    await running.synced(mode=FULL)
    assert len(openai.requests) == sent
    assert (await running.status()).embedding.provider == ""


@pytest.mark.sqlite_only("the path of an index does not count with PostgreSQL")
async def test_an_agent_that_cannot_be_opened_with_the_new_settings_keeps_no_provider(home, serve, openai):
    with_openclaw(home, openai, {})
    running = await serve()
    await running.synced()
    openai.requests.clear()
    (home.root / "folder").mkdir()
    unusable = {"agents": {"defaults": {"memorySearch": {"store": {"path": str(home.root / "folder")}}}}}
    with_openclaw(home, openai, {**NONE, **unusable})
    assert "keeps its old settings" in (await reload(running)).error
    home.write(later="the kettle is in the shed")
    await running.synced()
    assert paths(await running.search("kettle")) == ["memory/later.md"]
    assert "memorySearch" in (await running.status(probe=True)).embedding.reason
    assert openai.requests == []
    with_openclaw(home, openai, {})
    assert (await reload(running)).error == ""
    await running.synced()
    assert openai.texts == ["the kettle is in the shed"]


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        ({"agents": {"defaults": {"memorySearch": {"qurey": {}}}}}, "qurey"),
        ({"memoryd": {"listen": ["0.0.0.0:7000"]}}, "TLS"),
    ],
)
async def test_a_reload_that_is_refused_stops_remote_calls_too(home, serve, openai, refused, words):
    with_openclaw(home, openai, {})
    running = await serve()
    await running.synced()
    openai.requests.clear()
    file = with_openclaw(home, openai, {**NONE, **{key: value for key, value in refused.items() if key != "memoryd"}})
    listen = refused.get("memoryd", {}).get("listen")
    flags = {"listen": listen} if listen else {}
    report = await running.daemon.reload(lambda: home.settings(quiet(), **flags))
    assert words in report.error
    await check_nothing_is_sent(running, openai, f"{file}: memorySearch")
    assert words in (await running.status()).service.settings_error
    with_openclaw(home, openai, {})
    assert (await reload(running)).error == ""
    home.write(later="the kettle is in the shed")
    await running.synced()
    assert openai.texts == ["the kettle is in the shed"]


REFUSED = {
    "agents.defaults.memorySearch": {"agents": {"defaults": {"memorySearch": False}}},
    "agents.defaults.memorySearch.provider": {"agents": {"defaults": {"memorySearch": {"provider": ["none"]}}}},
    "memory": {"memory": "none"},
    "memory.provider": {"memory": {"provider": "none"}},
    "models.providers.openai": {"models": {"providers": {"openai": False}}},
    "agents.list": {"agents": {"list": {"main": {"memorySearch": {"provider": "none"}}}}},
    "": '{"memory": {"search": {"provider": "none"',
}


@pytest.mark.parametrize("key", REFUSED)
async def test_refused_reload_about_providers_stops_remote_calls_until_the_file_is_right_again(
    home, serve, openai, key
):
    file = with_openclaw(home, openai, {})
    running = await serve()
    await running.synced()
    openai.requests.clear()
    right = file.read_text()
    text = REFUSED[key]
    file.write_text(text if isinstance(text, str) else json.dumps(text))
    # Without settings of memoryd's own: an object of its file would replace what is of a wrong type.
    assert "the settings cannot be used" in (await running.daemon.reload(home.settings)).error
    home.write(later="the kettle is in the shed")
    await running.synced()
    assert paths(await running.search("kettle", mode=HYBRID)) == ["memory/later.md"]
    assert f"{file}: {key}".removesuffix(": ") in (await running.status(probe=True)).embedding.reason
    assert openai.requests == []
    file.write_text(right)
    assert (await reload(running)).error == ""
    await running.synced()
    assert openai.texts == ["the kettle is in the shed"]


async def test_refused_reload_about_something_else_changes_nothing(home, serve, openai):
    with_openclaw(home, openai, {})
    running = await serve()
    await running.synced()
    openai.requests.clear()
    assert "memoryd.decayFloor" in (await reload(running, {"memoryd": {"decayFloor": "x"}})).error
    home.write(later="the kettle is in the shed")
    await running.synced()
    assert openai.texts == ["the kettle is in the shed"]


async def test_auto_that_is_blocked_misses_no_vectors_and_a_provider_that_is_named_does(home, serve, openai):
    with_openclaw(home, openai, NONE)
    running = await serve()
    done = await running.synced()
    assert (done.pending_embeddings, done.vectors_missing, kinds(done.degradations)) == (
        0,
        False,
        ["VECTOR_LEG_SKIPPED"],
    )
    answer = await running.search("ferry", mode=UNSET)
    assert kinds(answer.info.degradations) == ["VECTOR_LEG_SKIPPED"]
    assert "memorySearch" in answer.info.degradations[0].reason
    assert (await running.status()).index.pending_embeddings == 0
    with_openclaw(home, openai, {**NONE, "agents": {"defaults": {"memorySearch": {"provider": "openai"}}}})
    assert (await reload(running)).error == ""
    done = await running.synced()
    assert (done.pending_embeddings, done.vectors_missing) == (2, True)
    assert openai.requests == []


# Entries


def with_entries(server, **more):
    embedding = {"apiKey": KEY, "model": "words", "baseUrl": server.url, "dimensions": len(vector("x"))}
    entries = {"memory-lancedb": {"config": {"embedding": embedding}}}
    return {"plugins": {"slots": {"memory": "memory-lancedb"}, "entries": entries}, **more}


async def remember(running, text):
    return await running.entries.Remember(entry_pb.RememberRequest(text=text), timeout=TIMEOUT)


async def recall(running, query):
    return await running.entries.Recall(entry_pb.RecallRequest(query=query), timeout=TIMEOUT)


@needs_lancedb
@pytest.mark.parametrize("own", [True, False], ids=["own provider", "provider of the agent"])
async def test_entries_are_stored_and_recalled_without_their_provider(home, serve, openai, provider, own):
    settings = with_entries(provider)
    if not own:
        del settings["plugins"]["entries"]
    file = with_openclaw(home, openai, {**settings, **NONE})
    running = await serve()
    stored = await remember(running, "the heron nests by the weir")
    found = await recall(running, "heron")
    block = await running.entries.RecallBlock(entry_pb.RecallBlockRequest(prompt="heron"), timeout=TIMEOUT)
    await running.synced(mode=FULL)
    assert [scored.entry.text for scored in found.entries] == ["the heron nests by the weir"]
    for answer in (stored, found, block):
        (degradation,) = answer.degradations
        assert kinds([degradation]) == ["VECTOR_LEG_SKIPPED"]
        assert f"{file}: memorySearch" in degradation.reason
    assert (openai.requests, provider.requests) == ([], [])


@needs_lancedb
async def test_a_reload_stops_the_entries_provider_and_the_next_one_starts_it(home, serve, openai, provider):
    with_openclaw(home, openai, with_entries(provider))
    running = await serve()
    provider.refuse = lambda _texts: Fault(500, {"error": {"message": "down"}})
    await remember(running, "the heron nests by the weir")
    assert provider.requests
    with_openclaw(home, openai, with_entries(provider, **NONE))
    assert (await reload(running)).error == ""
    provider.requests.clear()
    provider.refuse = lambda _texts: None
    await remember(running, "otters hide keys")
    await recall(running, "heron")
    assert provider.requests == []
    with_openclaw(home, openai, with_entries(provider))
    assert (await reload(running)).error == ""
    await recall(running, "heron")
    await eventually(lambda: {"the heron nests by the weir", "otters hide keys"} <= set(provider.texts))


@needs_lancedb
@pytest.mark.parametrize("plugins", [{"slots": {"memory": "none"}}, {}], ids=["memory off", "entries off"])
async def test_entries_that_a_reload_switches_off_send_nothing_more(home, serve, provider, plugins):
    running = await serve(with_entries(provider))
    provider.refuse = lambda _texts: Fault(500, {"error": {"message": "down"}})
    await remember(running, "the heron nests by the weir")
    assert (await reload(running, {"plugins": plugins})).error == ""
    assert running.entry_memories._open == {}


# A local model is no remote provider


@pytest.mark.skipif(
    importlib.util.find_spec("llama_cpp") is None, reason="`make setup-local` installs llama-cpp-python"
)
async def test_a_model_on_this_machine_is_asked_for_as_before(home, serve, openai):
    with_openclaw(home, openai, NONE)
    search = {"provider": "local", "local": {"modelPath": str(home.root / "none.gguf")}, "fallback": "openai"}
    running = await serve({"agents": {"defaults": {"memorySearch": search}}})
    for _ in range(3):
        await running.synced(mode=FULL)
    status = await running.status(probe=True)
    assert (status.embedding.provider, status.embedding.fallback_from) == ("local", "")
    assert "none.gguf is missing" in status.embedding.reason
    assert openai.requests == []


async def test_the_provider_that_memoryds_own_file_names_is_disabled_too(home, serve, openai, provider):
    with_openclaw(home, openai, NONE)
    running = await serve(by_meaning(provider))
    await running.synced(mode=FULL)
    await running.search("ferry", mode=HYBRID)
    assert provider.requests == []
