"""The settings of the soak test's daemon: usual ones, valid changes of these, and files that are wrong."""

import copy
import json

AGENTS = ("main", "heron", "guest")
GRACE_SECONDS = 3
MODELS = ("words-a", "words-b")

INVALID = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda _: "",
    "not an object": lambda _: "[1, 2",
    "binary": lambda _: "\x00\x01\x02",
    "deep": lambda _: '{"memoryd": ' + "[" * 20_000,
    "misspelt key": lambda _: '{"memoryd": {"reconcileSecond": 3}}',
    "wrong type": lambda _: '{"agents": {"defaults": {"memorySearch": {"sync": {"watchDebounceMs": "soon"}}}}}',
    "wrong limit": lambda text: json.dumps({**json.loads(text), "memoryd": {"limits": {"maxFileBytes": "all"}}}),
    "layout of another version": lambda text: json.dumps({**json.loads(text), "memorySearch": {"provider": "none"}}),
}
BLOCKING = "layout of another version"


class SettingsFile:
    """Write the daemon's settings. `chance` chooses among the changes."""

    def __init__(self, path, folder, provider_url, *, entries, chance):
        self.path = path
        self._folder, self._url, self._entries, self._chance = folder, provider_url, entries, chance

    def workspace(self, agent):
        """Return the workspace of an agent."""
        return self._folder / f"workspace-{agent}"

    def usual(self):
        """Return the settings at quiet points."""
        search = {
            "provider": "openai-compatible",
            "model": MODELS[0],
            "remote": {"baseUrl": self._url, "nonBatchConcurrency": 2},
            "experimental": {"sessionMemory": True},
            "sources": ["memory", "sessions"],
            "sync": {"watchDebounceMs": 100, "sessions": {"deltaBytes": 0, "deltaMessages": 0}},
            "query": {"maxResults": 6},
            "chunking": {"tokens": 400, "overlap": 80},
        }
        agents = [{"id": agent, "workspace": str(self.workspace(agent))} for agent in AGENTS]
        return {
            "agents": {"defaults": {"memorySearch": search}, "list": agents},
            "memoryd": {
                "log": {"level": "info", "format": "json"},
                "reconcileSeconds": 5,
                "idleSeconds": 20,
                "limits": {"shutdownGraceSeconds": GRACE_SECONDS},
                "entries": {"enabled": self._entries},
                "writes": "edit",
            },
        }

    def changed(self):
        """Return valid settings that differ from the usual ones in one or two places."""
        settings = copy.deepcopy(self.usual())
        defaults, ours = settings["agents"]["defaults"]["memorySearch"], settings["memoryd"]
        changes = [
            lambda: defaults["query"].update(maxResults=self._chance.randint(1, 50)),
            lambda: defaults["query"].update(hybrid={"mmr": {"enabled": True}, "temporalDecay": {"enabled": True}}),
            lambda: defaults["sync"].update(watchDebounceMs=self._chance.choice([0, 50, 1000])),
            lambda: defaults["sync"].update(watch=False),
            lambda: defaults["chunking"].update(tokens=self._chance.choice([100, 300])),
            lambda: defaults.update(model=MODELS[1]),
            lambda: defaults.update(provider="none"),
            lambda: defaults["remote"].update(nonBatchConcurrency=4),
            lambda: defaults.update(cache={"enabled": False}),
            lambda: defaults.update(store={"vector": {"enabled": False}}),
            lambda: ours.update(log={"level": "debug"}),
            lambda: ours.update(reconcileSeconds=1),
            lambda: ours.update(watcher={"mode": "polling", "pollSeconds": 0.5}),
            lambda: ours.update(idleSeconds=1),
            lambda: ours.update(history={"days": 1}),
            lambda: ours["limits"].update(tokenConcurrentCalls=32),
            settings["agents"]["list"].pop,
        ]
        for change in self._chance.sample(changes, self._chance.randint(1, 2)):
            change()
        return settings

    def write(self, settings):
        """Replace the file."""
        self.write_text(json.dumps(settings))

    def write_text(self, text):
        """Replace the file with a text."""
        spare = self.path.with_suffix(".new")
        spare.write_text(text)
        spare.replace(self.path)

    def write_invalid(self, kind):
        """Replace the file with one that is refused or, if `kind` is `BLOCKING`, disables remote embeddings."""
        self.write_text(INVALID[kind](json.dumps(self.usual())))
