"""Daemons that differ in every agent but `ada`, and everything that a caller can see of them."""

import asyncio
import hashlib
import os
import re
import uuid
from contextlib import contextmanager, suppress

import grpc

from memoryd.v1 import entry_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd_server.cli.local_daemon import LocalDaemon
from memoryd_server.rpc.wire import make_cursor
from rpc.agent_calls import ENTRY_CALLS
from rpc.callers import bearer, new_token
from rpc.qmd_calls import qmd_settings
from rpc.wire import TIMEOUT, Home, quiet
from waiting import eventually

ADA = {
    "MEMORY.md": "# Ada\n\nthe heron nests by the weir\n",
    "memory/2026-01-02.md": "# Log\n\nAda counted seven herons at dawn\n\n" + "reeds and water and mist\n" * 40,
    "memory/plan.md": "# Plan\n\nbuild a hide near the weir before spring\n",
}
# A call that runs out of time would look different for that alone.
PATIENCE_SECONDS = 90
REQUEST_ID = "the-same-for-every-daemon"
VOLATILE_TYPES = {"google.protobuf.Timestamp", "google.protobuf.Duration"}
# Names of runs are random, events are numbered with the snapshots that came too fast to be sent, and the size of an
# index depends on when SQLite tidied up.
VOLATILE_FIELDS = {"sync_id", "cursor", "sequence", "size_bytes", "entry_id", "next_page_token", "version_id"}
# Revisions begin with the time at which an index was begun; which calls show the same one is what counts.
REVISIONS = {"revision", "index_revision"}
ENTRY_PATH = re.compile(r"entries/[0-9a-f-]{36}")
VERSION_ID = re.compile(rb"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
PASSING = {"progress", "heartbeat"}


class IsolationDaemon:
    """Run a daemon whose agent `ada` is the same in every instance. `others` maps ids to (settings, files).

    With `qmd`, that command answers searches.
    """

    def __init__(self, root, provider, others, qmd=None):
        self.home = Home(root)
        self.others = others
        self._revisions = {}
        for path, text in ADA.items():
            self.home.put(path, text)
        entries = [{"id": "ada", "default": True}]
        for name, (settings, files) in others.items():
            entries.append({"id": name, "workspace": str(root / name), **settings})
            for path, text in files.items():
                file = root / name / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(text)
        remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
        defaults = {"memorySearch": {"provider": "openai-compatible", "model": "words", "remote": remote}}
        listen = ["127.0.0.1:0", f"unix:{self.home.socket}"]
        own = {"listen": listen, "entries": {"enabled": True}, "writes": "edit"}
        settings = quiet({"memoryd": own, "agents": {"defaults": defaults, "list": entries}})
        if qmd is not None:
            self.home.environ = {"PATH": os.defpath, "HOME": str(root)}
            settings["memory"] = qmd_settings(qmd)["memory"]
        self.daemon = LocalDaemon(self.home.settings(settings, listen=None), background=False)

    @property
    def served(self):
        return self.daemon._daemon

    @contextmanager
    def running(self):
        # The name is the same in each daemon; without one, the history has the ID of the token.
        _, self.token = new_token(self.home, "ada", name="ada", scopes=["admin", "edit"])
        self.home.store_files()
        self.daemon.start()
        try:
            with (
                grpc.insecure_channel(self.served.server.addresses[0]) as by_tcp,
                grpc.insecure_channel(f"unix:{self.home.socket}") as by_socket,
            ):
                self.stub, self.owner = (stubs.MemoryServiceStub(channel) for channel in (by_tcp, by_socket))
                self.entries, self.owner_entries = (EntryServiceStub(channel) for channel in (by_tcp, by_socket))
                list(self.owner.Sync(pb.SyncRequest(agent_id="ada"), timeout=TIMEOUT))
                # The first use opens the entries, for which a recall does not wait.
                with suppress(grpc.RpcError):
                    request = entry_service_pb2.RecallRequest(agent_id="ada", query="x")
                    self.owner_entries.Recall(request, timeout=TIMEOUT)
                self.cursor_of_another = make_cursor(uuid.uuid4().hex, 4)
                self.version_of_another = uuid.uuid4().hex
                for agent in self.others:
                    with suppress(grpc.RpcError):
                        request = pb.MemoryWriteRequest(agent_id=agent, path="memory/edited.md", content="otter")
                        self.version_of_another = self.owner.MemoryWrite(request, timeout=TIMEOUT).version_id
                    with suppress(grpc.RpcError):
                        *_, last = self.owner.Sync(pb.SyncRequest(agent_id=agent), timeout=TIMEOUT)
                        self.cursor_of_another = last.cursor
                yield self
        finally:
            self.daemon.stop()

    def act(self, agent_id, text):
        """Append, search and remember as another agent, if this daemon has it."""
        if agent_id in self.others:
            with suppress(grpc.RpcError):
                self.owner.MemoryAppend(pb.MemoryAppendRequest(agent_id=agent_id, text=text), timeout=TIMEOUT)
                request = pb.MemoryWriteRequest(agent_id=agent_id, path="memory/edited.md", content=text)
                with suppress(grpc.RpcError):
                    self.owner.MemoryWrite(request, timeout=TIMEOUT)
                self.owner.MemorySearch(pb.MemorySearchRequest(agent_id=agent_id, query=text), timeout=TIMEOUT)
            with suppress(grpc.RpcError):
                entry = entry_service_pb2.RememberRequest(agent_id=agent_id, text=text)
                self.owner_entries.Remember(entry, timeout=TIMEOUT)

    def seen(self, method, request, token):
        """Return everything that a call shows to its caller."""
        credential = bearer(self.token if token == "ada" else token)["metadata"] if token else ()
        metadata = (*credential, ("x-request-id", REQUEST_ID))
        call = getattr(self.entries if method in ENTRY_CALLS else self.stub, method)
        messages, failure = [], None
        try:
            if method in {"Sync", "WatchIndex"}:
                stream = call(request, timeout=PATIENCE_SECONDS, metadata=metadata)
                for message in stream:
                    messages.append(message)
                    if method == "WatchIndex":
                        stream.cancel()
                        break
            else:
                messages.append(call(request, timeout=PATIENCE_SECONDS, metadata=metadata))
        except grpc.RpcError as error:
            failure = (
                error.code().name,
                self._plain(error.details()),
                sorted((key, self._plain(value)) for key, value in error.trailing_metadata() or ()),
            )
        lasting = [message for message in messages if not _is_passing(message)]
        return failure, [self._plain(str(self._steady(message))) for message in lasting]

    def own_version(self):
        """Return the ID of the newest write of ada, or of none."""
        request = pb.MemoryHistoryRequest(agent_id="ada", page_size=1)
        versions = self.owner.MemoryHistory(request, timeout=TIMEOUT).versions
        return versions[0].version_id if versions else "0" * 32

    def current_hash(self, path):
        """Return the SHA-256 of a file of ada's workspace; of nothing if the path is none."""
        self.home.load_files()
        file = self.home.workspace / path
        inside = bool(path) and ".." not in path and file.is_relative_to(self.home.workspace) and file.is_file()
        return hashlib.sha256(file.read_bytes() if inside else b"").hexdigest()

    def settle(self):
        """Wait until no sync of ada is running."""
        memory = self.served.agents.agent("ada")
        waiting = eventually(lambda: memory.index.coordinator.active is None)
        asyncio.run_coroutine_threadsafe(waiting, self.daemon._loop).result(TIMEOUT)

    def _steady(self, message):
        """Return a copy without times and random names; revisions are numbered by first occurrence."""
        copy = type(message)()
        copy.CopyFrom(message)
        _strip(copy, self._revisions)
        return copy

    def _plain(self, value):
        """Replace this daemon's folder, whose name is of the same length for every one, its database and random ids."""
        if isinstance(value, bytes):
            return VERSION_ID.sub(b"ID", value.replace(str(self.home.root).encode(), b"ROOT"))
        own = value.replace(str(self.home.root), "ROOT").replace(self.home.store.location, "DATABASE")
        return ENTRY_PATH.sub("entries/ID", VERSION_ID.sub(b"ID", own.encode()).decode())


def _is_passing(message):
    return isinstance(message, pb.SyncResponse) and message.WhichOneof("event") in PASSING


def _strip(message, revisions):
    for field, value in message.ListFields():
        inner = field.message_type
        if (inner and inner.full_name in VOLATILE_TYPES) or field.name in VOLATILE_FIELDS:
            message.ClearField(field.name)
        elif field.name in REVISIONS:
            setattr(message, field.name, revisions.setdefault(value, len(revisions) + 1))
        elif inner and not inner.GetOptions().map_entry:
            for part in [value] if hasattr(value, "ListFields") else value:
                _strip(part, revisions)
