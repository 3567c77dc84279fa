"""What is refused, what is only warned of, and in which words."""

import pytest

from memoryd_server.settings import ExtraPathSettings


def search(**keys):
    return {"agents": {"defaults": {"memorySearch": keys}}}


SEARCH = "agents.defaults.memorySearch"
FLUSH = "agents.defaults.compaction.memoryFlush"

REFUSED = [
    ({"memory": {"search": {"provder": "none"}}}, 'memory.search.provder: unknown key (did you mean "provider"?)'),
    ({"memory": {"serch": {}}}, 'memory.serch: unknown key (did you mean "search"?)'),
    (
        {"memory": {"search": {"sources": ["sesions"]}}},
        "memory.search.sources[0]: expected one of memory, sessions (did",
    ),
    ({"memory": {"search": {"inputType": ""}}}, "memory.search.inputType: "),
    (
        {"agents": {"entries": {"a": {"memory": {"search": {"querry": {}}}}}}},
        'agents.entries.a.memory.search.querry: unknown key (did you mean "query"?)',
    ),
    (
        {"agents": {"entries": {"a": {"memory": {"serch": {}}}}}},
        'agents.entries.a.memory.serch: unknown key (did you mean "search"?)',
    ),
    ({"agents": {"entries": {"a": {"memory": 5}}}}, "agents.entries.a.memory: expected an object, found a number"),
    ({"agents": {"entries": {"a": []}}}, "agents.entries.a: expected an object, found an array"),
    ({"agents": {"entries": {"a": {"workspace": 1}}}}, "agents.entries.a.workspace: expected a string, found a num"),
    ({"agents": {"entries": {"a": {"agentDir": 1}}}}, "agents.entries.a.agentDir: expected a string, found a num"),
    ({"agents": {"entries": {"a": {"default": 1}}}}, "agents.entries.a.default: expected true or false, found a num"),
    ({"agents": {"entries": {"A": {}, "a": {}}}}, 'agents.entries.a: another agent has the id "a"'),
    (search(qurey={}), f'{SEARCH}.qurey: unknown key (did you mean "query"?)'),
    (search(max_results=1), f"{SEARCH}.max_results: unknown key"),
    (search(zzzzzz=1), f"{SEARCH}.zzzzzz: unknown key\n"),
    (search(query={"maxresults": 3}), f'{SEARCH}.query.maxresults: unknown key (did you mean "maxResults"?)'),
    (search(query={"max_results": 3}), f'{SEARCH}.query.max_results: unknown key (did you mean "maxResults"?)'),
    (search(query={"maxResults": "3"}), f"{SEARCH}.query.maxResults: expected a whole number, found a string"),
    (search(query={"maxResults": True}), f"{SEARCH}.query.maxResults: expected a whole number, found true or false"),
    (search(query={"minScore": []}), f"{SEARCH}.query.minScore: expected a number, found an array"),
    (search(query=[]), f"{SEARCH}.query: expected an object, found an array"),
    (search(enabled="yes"), f"{SEARCH}.enabled: expected true or false, found a string"),
    (search(extraPaths="x"), f"{SEARCH}.extraPaths: expected an array, found a string"),
    (search(extraPaths=["x", 5]), f"{SEARCH}.extraPaths[1]: expected a string or an object, found a number"),
    (search(extraPaths=[None]), f"{SEARCH}.extraPaths[0]: expected a string or an object, found null"),
    (search(extraPaths=[{"pattern": "*"}]), f"{SEARCH}.extraPaths[0].path: the key is required"),
    (search(extraPaths=[{"path": 5}]), f"{SEARCH}.extraPaths[0].path: expected a string, found a number"),
    (
        search(extraPaths=["x", {"path": "y", "patern": "*"}]),
        f'{SEARCH}.extraPaths[1].patern: unknown key (did you mean "pattern"?)',
    ),
    (
        search(extraPaths=[{"path": "x", "pattern": "{a,b}" * 100}]),
        f"{SEARCH}.extraPaths[0].pattern: the braces have more than 64 alternatives",
    ),
    (search(extraPaths=[{"path": "x", "pattern": "!(a)"}]), f'{SEARCH}.extraPaths[0].pattern: the pattern has "!("'),
    (search(sources=["memroy"]), f'{SEARCH}.sources[0]: expected one of memory, sessions (did you mean "memory"?)'),
    (search(sources=[7]), f"{SEARCH}.sources[0]: expected one of memory, sessions\n"),
    (search(remote={"apiKey": 5}), f"{SEARCH}.remote.apiKey: expected a string, found a number"),
    (search(remote={"headers": {"X": 5}}), f"{SEARCH}.remote.headers.X: expected a string, found a number"),
    (search(store={"driver": "duckdb"}), f"{SEARCH}.store.driver: expected one of sqlite"),
    ("{agents: {defaults: {memorySearch: {query: {minScore: NaN}}}}}", f"{SEARCH}.query.minScore: expected a finite"),
    ("{agents: {defaults: {memorySearch: {cache: {maxEntries: Infinity}}}}}", f"{SEARCH}.cache.maxEntries: expected a"),
    ({"agents": {"defaults": {"memorySearch": 5}}}, f"{SEARCH}: expected an object, found a number"),
    ({"agents": {"defaults": []}}, "agents.defaults: expected an object, found an array"),
    ({"agents": 5}, "agents: expected an object, found a number"),
    ({"agents": {"list": {}}}, "agents.list: expected an array, found an object"),
    ({"agents": {"list": [5]}}, "agents.list[0]: expected an object, found a number"),
    ({"agents": {"list": [{"id": "a", "default": 1}]}}, "agents.list[a].default: expected true or false, found a num"),
    ({"agents": {"list": [{"id": "a", "workspace": 1}]}}, "agents.list[a].workspace: expected a string, found a num"),
    (
        {"agents": {"list": [{"id": "a", "memorySearch": {"synk": 1}}]}},
        'agents.list[a].memorySearch.synk: unknown key (did you mean "sync"?)',
    ),
    ({"agents": {"defaults": {"compaction": {"memoryFlush": {"promt": ""}}}}}, f"{FLUSH}.promt: unknown key (did you"),
    ({"memory": {"backend": "qdm"}}, 'memory.backend: expected one of builtin, qmd (did you mean "qmd"?)'),
    ({"memory": {"citation": "on"}}, 'memory.citation: unknown key (did you mean "citations"?)'),
    (
        {"memory": {"qmd": {"paths": [{"path": "x", "patern": ""}]}}},
        'memory.qmd.paths[0].patern: unknown key (did you mean "pattern"?)',
    ),
    ({"memory": {"qmd": {"paths": [{}]}}}, "memory.qmd.paths[0].path: the key is required"),
    ({"memory": {"qmd": {"update": {"interval": 5}}}}, "memory.qmd.update.interval: expected a duration such as"),
    ({"memory": 5}, "memory: expected an object, found a number"),
    ({"memoryd": {"listn": []}}, 'memoryd.listn: unknown key (did you mean "listen"?)'),
    ({"memoryd": {"listen": "unix:x"}}, "memoryd.listen: expected an array, found a string"),
    ({"memoryd": {"tls": {"certFile": "/c"}}}, "memoryd.tls: certFile and keyFile must be set together"),
    ({"memoryd": {"tls": {"clientCaFile": "/c"}}}, "memoryd.tls: clientCaFile requires certFile and keyFile"),
    (
        {"memoryd": {"log": {"level": "warn"}}},
        "memoryd.log.level: expected one of debug, info, warning, error (did you",
    ),
    ({"memoryd": {"tokenFile": 5}}, "memoryd.tokenFile: expected a string, found a number"),
    (
        {"memoryd": {"readers": 2, "store": {"url": "postgresql://m@db/m"}}},
        "memoryd: readers must be 0 if store.url is set",
    ),
]


@pytest.mark.parametrize(("own", "complaint"), REFUSED, ids=[complaint for _, complaint in REFUSED])
def test_a_mistake_is_refused_with_file_and_path(home, own, complaint):
    message = home.refused(own=own) + "\n"
    assert f"  {home.own}: {complaint}" in message
    assert message.count("\n") == 2


def test_every_mistake_of_both_files_is_reported_together(home):
    message = home.refused(search(qurey=1, enabled=1), {"memoryd": {"limits": {"maxFileByte": 1}}, "memory": {"x": 1}})
    for expected in ("qurey", "memorySearch.enabled", "maxFileByte", "memory.x"):
        assert expected in message
    assert f"{home.reference}: {SEARCH}.qurey" in message
    assert f"{home.own}: memoryd.limits.maxFileByte" in message


def test_a_mistake_overridden_by_a_later_file_does_no_harm(home):
    settings = home.load(search(query={"maxResults": "x"}), search(query={"maxResults": 2}))
    assert settings.agent("").memory_search.query.max_results == 2


WARNED = [
    (search(multimodal={"enabled": True}), f"{SEARCH}.multimodal: a key of OpenClaw; memoryd does not implement"),
    (search(store={"fts": {"tokenizer": "trigram"}}), f"{SEARCH}.store.fts: a key of OpenClaw"),
    (search(local={"contextSize": 5}), f"{SEARCH}.local.contextSize: a key of OpenClaw"),
    (search(sync={"embeddingBatchTimeoutSeconds": 5}), f"{SEARCH}.sync.embeddingBatchTimeoutSeconds: a key of OpenC"),
    (search(qmd={"extraCollections": []}), f"{SEARCH}.qmd: a key of OpenClaw"),
    (
        {"memory": {"search": {"multimodal": {"enabled": True}}}},
        "memory.search.multimodal: a key of OpenClaw; memoryd does not implement it and ignores it: images and audio",
    ),
    (
        {"agents": {"entries": {"a": {"memory": {"search": {"store": {"fts": {"tokenizer": "trigram"}}}}}}}},
        "agents.entries.a.memory.search.store.fts: a key of OpenClaw",
    ),
    ({"memory": {"search": {"query": {"minScore": 2}}}}, "memory.search.query.minScore: 2 is not within 0..1; 1 is us"),
    (
        {"agents": {"defaults": {"startupContext": {"dailyMemoryDays": 20}}}},
        "agents.defaults.startupContext.dailyMemoryDays: 20 is not a whole number, 1..14; 14 is used",
    ),
    (
        {"agents": {"defaults": {"startupContext": {"dailyMemoryDay": 3}}}},
        'agents.defaults.startupContext.dailyMemoryDay: the key is ignored (did you mean "dailyMemoryDays"?)',
    ),
    (
        {"agents": {"defaults": {"userTimezone": "Mars/Base"}}},
        "agents.defaults.userTimezone: unknown time zone; the ho",
    ),
    (
        {"agents": {"defaults": {"contextLimits": {"memoryGetMaxChars": 0}}}},
        "agents.defaults.contextLimits.memoryGetMaxChars: 0 is not a whole number, 1..250000; 1 is used",
    ),
    (
        search(remote={"apiKey": {"source": "env"}}),
        f"{SEARCH}.remote.apiKey: a SecretRef that does not resolve: it has",
    ),
    ({"memory": {"qmd": {"rerank": False}}}, "memory.qmd.rerank: a key of OpenClaw"),
    ({"memory": {"qmd": {"mcporter": {"enabled": True}}}}, "memory.qmd.mcporter: a key of OpenClaw"),
    ({"memory": {"qmd": {"update": {"startup": "off"}}}}, "memory.qmd.update.startup: a key of OpenClaw"),
    ({"agents": {"defaults": {"compaction": {"memoryFlush": {"model": "x"}}}}}, f"{FLUSH}.model: a key of OpenClaw"),
    (
        search(provider="opnai"),
        f'{SEARCH}.provider: "opnai" is not known to this version of memoryd (did you mean "openai"?); emb',
    ),
    (search(query={"maxResults": 0}), f"{SEARCH}.query.maxResults: 0 is not a whole number, 1..50; 1 is used"),
    (search(cache={"maxEntries": 2.5}), f"{SEARCH}.cache.maxEntries: 2.5 is not a whole number, at least 1; 2 is used"),
    (search(query={"minScore": -1}), f"{SEARCH}.query.minScore: -1 is not within 0..1; 0 is used"),
    (
        {"memory": {"qmd": {"searchMode": "qery"}}},
        'memory.qmd.searchMode: "qery" is not one of search, vsearch, query;',
    ),
    (
        {"memory": {"qmd": {"update": {"interval": "soon"}}}},
        'memory.qmd.update.interval: "soon" is not a duration such',
    ),
    (
        {"memory": {"qmd": {"sessions": {"retentionDays": 0}}}},
        "retentionDays: 0 is not a whole number, at least 1; the",
    ),
    (
        {"agents": {"defaults": {"compaction": {"memoryFlush": {"forceFlushTranscriptBytes": "big"}}}}},
        f'{FLUSH}.forceFlushTranscriptBytes: "big" is not a number of bytes or a size',
    ),
    ({"memoryd": {"reconcileSeconds": 0}}, "memoryd.reconcileSeconds: 0 is not within 1..3600; 1 is used"),
    ({"memroyd": {}}, 'memroyd: the key is ignored (did you mean "memoryd"?)'),
    ({"agents": {"default": {}}}, 'agents.default: the key is ignored (did you mean "defaults"?)'),
    ({"agents": {"defaults": {"memorysearch": {}}}}, "agents.defaults.memorysearch: the key is ignored (did you mean"),
    ({"agents": {"list": [{"id": "a", "memorySerch": {}}]}}, "agents.list[a].memorySerch: the key is ignored"),
    ({"agents": {"defaults": {"compaction": {"memoryflush": {}}}}}, "agents.defaults.compaction.memoryflush: the key"),
]


@pytest.mark.parametrize(("own", "warning"), WARNED, ids=[warning for _, warning in WARNED])
def test_a_harmless_mistake_is_one_warning(home, own, warning):
    warnings = home.load(own=own).warnings
    assert len(warnings) == 1
    assert warning in warnings[0]
    assert str(home.own) in warnings[0]


def test_keys_that_are_not_about_memory_are_ignored_in_silence(home):
    reference = {
        "gateway": {"port": 1},
        "models": {"providers": {"openai": {"apiKey": "k"}}},
        "plugins": {"entries": {"x": 1}},
        "agents": {
            "defaults": {"model": "m", "contextTokens": 5, "compaction": {"mode": "safeguard", "reserveTokens": 1}},
            "list": [{"id": "main", "name": "M", "identity": {}, "tools": {}}],
        },
    }
    assert home.load(reference).warnings == ()


def test_an_ignored_value_is_neither_used_nor_shown(home):
    settings = home.load(own=search(multimodal={"enabled": True, "maxFileBytes": 1}))
    assert not settings.agent("").memory_search.multimodal.enabled
    assert settings.origins["agents.list[main].memorySearch.multimodal.enabled"] == "default"


def test_an_extra_path_is_a_string_or_an_object_with_a_pattern(home):
    listed = ["a", {"path": " b "}, {"path": "c", "pattern": "*.md"}, {"path": "c ", "pattern": "*.md"}, "c", "b", " "]
    paths = home.search(extraPaths=[*listed, {"path": " ", "pattern": "x"}]).extra_paths
    assert paths == ("a", "b", ExtraPathSettings(path="c", pattern="*.md"), "c")


def test_an_extra_path_with_a_pattern_is_described_as_it_is_written(home):
    written = ["a", {"path": "c", "pattern": "*.md"}]
    settings = home.load(own=search(extraPaths=written))
    (value,) = [entry["value"] for entry in settings.describe() if entry["key"].endswith("memorySearch.extraPaths")]
    assert value == written


def test_the_keys_of_the_startup_context_that_are_the_hosts_are_ignored(home):
    startup = {"applyOn": ["new"], "enabled": False, "dailyMemoryDays": 3, "maxTotalChars": 50}
    loaded = home.load({"agents": {"defaults": {"startupContext": startup}}})
    assert loaded.warnings == ()
    read = loaded.agent("").startup_context
    assert (read.enabled, read.daily_memory_days, read.max_total_chars, read.max_file_chars) == (False, 3, 50, None)
    assert loaded.origins["agents.defaults.startupContext.dailyMemoryDays"] == str(home.reference)


def test_control_characters_of_a_file_reach_no_terminal(home):
    message = home.refused(own={"memory": {"\x1b[31m\nevil\ud800": 1}})
    assert "\x1b" not in message
    assert message.count("\n") == 1
    message.encode()
