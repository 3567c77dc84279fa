"""Settings in both layouts, alone, mixed and broken, and the addresses to which they let each agent send text."""

OPENAI, GEMINI, VOYAGE = (
    "https://api.openai.com/v1",
    "https://generativelanguage.googleapis.com/v1beta",
    "https://api.voyageai.com/v1",
)
SERVER = "http://127.0.0.1:9/v1"
KEYS = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "k", "VOYAGE_API_KEY": "k"}
CURRENT_FILE = {"meta": {"lastTouchedVersion": "2026.9.6"}}


def new(**search):
    return {"memory": {"search": search}}


def old(**search):
    return {"agents": {"defaults": {"memorySearch": search}}}


def agents(**entries):
    return {"agents": {"entries": entries}}


def key_reference(name):
    return {"source": "env", "provider": "default", "id": name}


def blocks(**providers):
    return {"models": {"providers": providers}}


NOTHING = {"main": set()}
TABLE = [
    # openclaw.json, memoryd.json5, addresses by agent
    ("no file", None, None, {"main": {OPENAI}}),
    ("empty files", {}, {}, {"main": {OPENAI}}),
    ("old: auto", old(provider="auto"), None, {"main": {OPENAI}}),
    ("old: none", old(provider="none"), None, NOTHING),
    ("old: gemini", old(provider="gemini"), None, {"main": {GEMINI}}),
    ("old: fallback", old(provider="gemini", fallback="voyage"), None, {"main": {GEMINI, VOYAGE}}),
    ("old: unknown", old(provider="opnai", fallback="openai"), None, NOTHING),
    ("old: server", old(remote={"baseUrl": SERVER}), None, {"main": {SERVER}}),
    ("old: top level", {"memorySearch": {"provider": "openai"}}, None, NOTHING),
    ("new: file without memory keys", CURRENT_FILE, None, NOTHING),
    ("new: unset", new(), None, NOTHING),
    ("new: model alone", new(model="text-embedding-3-large"), None, NOTHING),
    ("new: fallback alone", new(fallback="openai"), None, NOTHING),
    ("new: server alone", new(remote={"baseUrl": SERVER}), None, NOTHING),
    ("new: blank", new(provider=" "), None, NOTHING),
    ("new: auto", new(provider="auto"), None, {"main": {OPENAI}}),
    ("new: none", new(provider="none", fallback="openai"), None, NOTHING),
    ("new: gemini", new(provider="gemini", fallback="none"), None, {"main": {GEMINI}}),
    ("new: fallback", new(provider="openai", fallback="voyage"), None, {"main": {OPENAI, VOYAGE}}),
    ("new: unknown", new(provider="opnai", fallback="openai"), None, NOTHING),
    ("new: server without a key", new(provider="openai", remote={"baseUrl": SERVER}), None, NOTHING),
    ("new: server", new(provider="openai", remote={"baseUrl": SERVER, "apiKey": "k"}), None, {"main": {SERVER}}),
    ("new: disabled", new(provider="openai", enabled=False), None, NOTHING),
    ("new: included", new(provider="openai", **{"$include": "./x.json5"}), None, NOTHING),
    ("new: only main", agents(main={}), None, NOTHING),
    ("new: one agent", agents(a=new(provider="openai"), b={}), None, {"a": {OPENAI}, "b": set()}),
    (
        "new: all agents but one",
        {**new(provider="openai"), **agents(a=new(provider="none"), b={}, c=new(provider="gemini"))},
        None,
        {"a": set(), "b": {OPENAI}, "c": {GEMINI}},
    ),
    ("new: missing key", new(provider="openai", remote={"apiKey": key_reference("UNSET")}), None, NOTHING),
    (
        "new: a key stays at its address",
        {**new(provider="openai", remote={"baseUrl": SERVER}), **blocks(openai={"apiKey": "k"})},
        None,
        NOTHING,
    ),
    (
        "new: a provider of the settings",
        {**new(provider="mine", model="m"), **blocks(mine={"baseUrl": SERVER, "apiKey": "k"})},
        None,
        {"main": {SERVER}},
    ),
    (
        "new: a provider of the settings without its key",
        {
            **new(provider="mine", model="m", fallback="openai"),
            **blocks(mine={"baseUrl": SERVER, "apiKey": key_reference("UNSET")}),
        },
        None,
        NOTHING,
    ),
    ("both: missing include", {**old(provider="openai"), "memory": {"$include": "./x.json5"}}, None, NOTHING),
    ("both: one file", {**new(provider="none"), **old(provider="openai")}, None, NOTHING),
    ("both: older key in the own file", new(provider="none"), old(provider="gemini"), {"main": {GEMINI}}),
    ("both: older key narrows", new(provider="openai"), old(provider="none"), NOTHING),
    ("both: current key narrows", old(provider="openai"), new(provider="none"), NOTHING),
    ("both: unset in the current file", CURRENT_FILE, old(sync={"watch": False}), NOTHING),
    ("both: auto in the own file", CURRENT_FILE, old(provider="auto"), {"main": {OPENAI}}),
    ("both: a null for the provider", new(provider="openai"), new(provider=None), NOTHING),
    ("both: a null for the block", new(provider="none"), {"memory": {"search": None}}, NOTHING),
    (
        "both: an agent of the list",
        {"agents": {"list": [{"id": "a", "memorySearch": {"provider": "gemini"}}]}},
        new(),
        {"a": {GEMINI}},
    ),
]

# Files that cannot be used: the daemon does not start.
BROKEN = [
    '{"memory": {"search": {"provider": "openai"}',
    new(provider=["openai"]),
    new(provider="openai", enabled="no"),
    new(provder="none"),
    agents(a="none"),
    agents(**{"": {}}),
]
