"""A key shows nowhere: not in the log, an answer, an error, Status, a file of the state directory, or the command."""

import json

import grpc
import pytest

from fake_providers import SERVERS, Fault, fake_provider
from memoryd.v1 import memory_pb2
from memoryd_server.app.config import agent_config
from openclaw_rows import put_own_profiles, put_secret

# One for each place that a secret can come from, and one that the provider makes up of it.
SENTINEL = "sentinel-5ecret"
PLACES = ("remote", "block", "profile", "environment", "file", "row")
VECTOR = memory_pb2.SEARCH_MODE_VECTOR
VARIABLES = {
    "gemini": "GOOGLE_API_KEY",
    "ollama": "OLLAMA_API_KEY",
    "lmstudio": "LM_API_TOKEN",
    "bedrock": "AWS_BEARER_TOKEN_BEDROCK",
}


def configured(home, name, server, place):
    """Settings with the key at this place, and secrets in headers and the address besides."""
    key = f"{SENTINEL}-key"
    host = server.url.replace("//", f"//joe:{SENTINEL}-password@") + f"?sig={SENTINEL}-signature"
    headers = {"X-Private": f"{SENTINEL}-header"}
    settings = {
        "models": {"providers": {name: {"headers": headers, "baseUrl": host}}},
        "agents": {"defaults": {"memorySearch": {"provider": name, "model": server.model}}},
    }
    if place == "remote":
        settings["agents"]["defaults"]["memorySearch"]["remote"] = {"apiKey": key}
    elif place == "block":
        settings["models"]["providers"][name]["apiKey"] = key
    elif place == "profile":
        file = home.state_dir / "agents" / "main" / "agent" / "auth-profiles.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"profiles": {"x": {"type": "api_key", "provider": name, "key": key}}}))
    elif place == "file":
        file = home.root / "secrets.json"
        file.write_text(json.dumps({"key": key}))
        file.chmod(0o600)
        settings["secrets"] = {"providers": {"main": {"source": "file", "path": str(file)}}}
        settings["models"]["providers"][name]["apiKey"] = {"source": "file", "provider": "main", "id": "/key"}
    elif place == "row":
        reference = {"source": "store", "provider": "default", "id": "KEY"}
        put_secret(home.state_dir, "KEY", key)
        put_own_profiles(home.state_dir, {"x": {"type": "api_key", "provider": name, "keyRef": reference}})
    else:
        home.environ = {VARIABLES.get(name, f"{name.upper()}_API_KEY"): key}
    return settings


def repeating(status):
    """An error that repeats everything that the caller sent."""
    words = " ".join(f"{SENTINEL}-{part}" for part in ("key", "password", "signature", "header"))
    return lambda _texts: Fault(status=status, body={"error": {"message": f"Bearer {words}", "code": words}})


async def everything_told(daemon):
    """All that a client can get to see, as bytes, and what the daemon wrote."""
    told = [(await daemon.status(probe=True)).SerializeToString()]
    told += [event.SerializeToString() for event in await daemon.sync()]
    told.append((await daemon.search("the ferry in the fog", explain=True)).SerializeToString())
    try:
        told.append((await daemon.search("the other ferry", mode=VECTOR)).SerializeToString())
    except grpc.aio.AioRpcError as error:
        told += [error.details().encode(), *(str(pair).encode() for pair in error.trailing_metadata() or ())]
    return told


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, PLACES[number % len(PLACES)]) for number, name in enumerate(SERVERS) if name != "openai-compatible"]
    + [("openai-compatible", "block"), ("openai", "profile"), ("openai", "environment"), ("voyage", "environment")]
    + [("openai", "file"), ("openai", "row")],
)
async def test_a_key_is_never_shown_in_any_answer_of_the_provider(home, serve, name, place):
    home.write(boat="the red ferry sails at dawn")
    with fake_provider(name, [f"{SENTINEL}-key"]) as server:
        daemon = await serve(configured(home, name, server, place))
        told = []
        for status in (401, 400, 429, 500, None):
            server.refuse = repeating(status) if status else lambda _texts: None
            home.write(**{f"note-{status}": f"a new note of {status}"})
            told += await everything_told(daemon)
        assert server.key_of(server.requests[-1]) == f"{SENTINEL}-key", "else nothing could show"
        assert server.requests[-1].headers["x-private"] == f"{SENTINEL}-header"
        assert (await daemon.status()).index.pending_embeddings == 0
        settings = home.settings(json.loads((home.state_dir / "memoryd.json5").read_text()))
        await daemon.stop()
    shown = [repr(settings), json.dumps(settings.describe()), repr(agent_config(settings.agent(""), settings))]
    assert not [text for text in (daemon.log.getvalue(), *shown) if SENTINEL in text]
    assert not [data for data in told if SENTINEL.encode() in data]
    assert home.store.places_of(SENTINEL, ignoring=INPUTS) == []


# What the test itself wrote the key into.
INPUTS = {"memoryd.json5", "auth-profiles.json", *(f"openclaw.sqlite{suffix}" for suffix in ("", "-wal", "-shm"))}
