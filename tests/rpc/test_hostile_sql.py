"""With everything in PostgreSQL, hostile text in any field of any request of an agent affects no other agent."""

import json
from collections import Counter
from contextlib import contextmanager, suppress

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import embedding_server
from memoryd.v1 import entry_service_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd.v1 import memory_service_pb2_grpc as stubs
from memoryd.v1.entry_service_pb2_grpc import EntryServiceStub
from memoryd_server.cli.local_daemon import LocalDaemon
from openclaw_host import free_port
from postgres_server import missing, postgres_server  # noqa: F401 -- a fixture
from properties import examples
from rpc.agent_calls import AGENT_CALLS, ENTRY_CALLS
from rpc.callers import bearer, new_token
from rpc.wire import TIMEOUT, Home, quiet

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.attacks,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]

DATABASE = "hostile_sql"
SECRET = "otter"
# A failure of the daemon or of a statement, and not of the request.
FAILURES = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "UNAVAILABLE"}
FRAGMENTS = [
    "'",
    '"',
    "''",
    "$$",
    "$1",
    "$body$",
    "--",
    "/*",
    ";",
    "\\",
    "\\'",
    "E'\\x00'",
    "U&'\\0041'",
    "\0",
    "%",
    "%s",
    "%(agent)s",
    "%(path)s",
    "%%",
    "_",
    "*",
    "?",
    "[a-z]",
    "{}",
    "{among}",
    "{0}",
    ":agent",
    "::bytea",
    "\n",
    "\t",
    "\u202e\u2066",
    "שלום مرحبا",
    "\U0001f600",
    "\ufffd",
    "bob",
    SECRET,
    "'; DROP SCHEMA memoryd CASCADE; --",
    "$$; DROP TABLE memoryd.documents; $$",
    "' OR agent_id <> '",
    "'||set_config('memoryd.agent','bob',false)||'",
    "'; SET memoryd.agent = 'bob'; --",
    "'); UPDATE memoryd.documents SET content = ''; --",
    "\\copy memoryd.documents to stdout",
    "ROLLBACK; RESET ROLE; BEGIN;",
    "& | ! <-> :*",
    "(a+)+$",
    "9223372036854775808",
    "x" * 3_000,
    "é" * 1_500,
]
hostile = st.one_of(
    st.sampled_from(FRAGMENTS), st.lists(st.sampled_from(FRAGMENTS), min_size=1, max_size=4).map("".join)
)
EMPTY_HASH, OWN_HASH = "", "the hash of the document"
OWN_VERSION = "a write of ada"
# Values with which a call reaches the database.
USEFUL = {
    "agent_id": st.sampled_from(["ada"] * 3 + ["", "bob"]),
    "path": st.one_of(
        hostile.map("memory/{}.md".format),
        hostile,
        st.sampled_from(["MEMORY.md", "memory/plan.md", "memory/secret.md"]),
    ),
    "expected_sha256": st.sampled_from([EMPTY_HASH, OWN_HASH, "0" * 64]),
    "idempotency_key": hostile.filter(lambda text: text.isascii() and text.isprintable()).map(lambda text: text[:128]),
}
USEFUL["new_path"] = USEFUL["path"]
OTHERS = {
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_FLOAT: st.sampled_from([0.0, 0.5, 1.0]),
    FieldDescriptor.CPPTYPE_DOUBLE: st.sampled_from([0.0, 0.5, 1.0]),
}
REQUESTS = {
    **AGENT_CALLS,
    "MemoryWrite": pb.MemoryWriteRequest(path="memory/plan.md", expected_sha256=OWN_HASH, content="x"),
    "MemoryMove": pb.MemoryMoveRequest(path="memory/plan.md", new_path="memory/moved.md", expected_sha256=OWN_HASH),
    "MemoryRestore": pb.MemoryRestoreRequest(version_id=OWN_VERSION, path="memory/plan.md", expected_sha256=OWN_HASH),
    "ListAgents": pb.ListAgentsRequest(),
}


def requests(method):
    """A strategy for requests of ada, otherwise valid, with other values in up to three fields."""
    base = type(REQUESTS[method])()
    base.CopyFrom(REQUESTS[method])
    if method != "ListAgents":
        base.agent_id = "ada"
    return changed(base, most=3, depth=3)


def changed(base, most, depth):
    """A strategy for copies of a message with other values in some fields, hostile ones in fields of text."""
    fields = [field for field in base.DESCRIPTOR.fields if field.message_type is None or depth]
    if not fields:
        return st.just(base)
    names = st.lists(st.sampled_from(fields), max_size=most, unique_by=lambda field: field.name)
    given = names.flatmap(lambda chosen: st.fixed_dictionaries({each.name: values(each, depth) for each in chosen}))
    return given.map(lambda given: filled(base, given))


def filled(base, given):
    message = type(base)()
    message.CopyFrom(base)
    for name, value in given.items():
        field = message.DESCRIPTOR.fields_by_name[name]
        if field.is_repeated:
            message.ClearField(name)
            getattr(message, name).extend(value)
        elif field.message_type is not None:
            getattr(message, name).CopyFrom(value)
        else:
            setattr(message, name, value)
    return message


def values(field, depth):
    """A strategy for values of a field."""
    one = value_of(field, depth)
    return st.lists(one, min_size=1, max_size=2) if field.is_repeated else one


def value_of(field, depth):
    if field.message_type is not None:
        return changed(GetMessageClass(field.message_type)(), most=4, depth=depth - 1)
    if field.enum_type is not None:
        return st.sampled_from([value.number for value in field.enum_type.values])
    if field.cpp_type == field.CPPTYPE_STRING:
        texts = USEFUL.get(field.name, hostile) | hostile
        return hostile.map(str.encode) if field.type == field.TYPE_BYTES else texts
    return OTHERS.get(field.cpp_type, st.integers(0, 3))


calls = st.one_of([st.tuples(st.just(method), requests(method)) for method in REQUESTS])


class HostileDaemon:
    """A daemon with two agents, ada and bob, whose memory is in a database. Calls are those of ada."""

    def __init__(self, root, provider, server):
        self.home = Home(root)
        self.server = server
        url = server.create_database(DATABASE)
        # Only callers over TCP send tokens.
        self.address = f"127.0.0.1:{free_port()}"
        listen = [self.address, f"unix:{self.home.socket}"]
        own = {"listen": listen, "entries": {"enabled": True}, "writes": "edit", "store": {"url": url}}
        remote = {"baseUrl": provider.url, "apiKey": "sk-of-this-test"}
        search = {
            "provider": "openai-compatible",
            "model": "words",
            "remote": remote,
            "sources": ["memory", "sessions"],
        }
        agents = {
            "defaults": {"memorySearch": {**search, "experimental": {"sessionMemory": True}}},
            "list": [{"id": "ada", "default": True}, {"id": "bob"}],
        }
        self.daemon = LocalDaemon(
            self.home.settings(quiet({"memoryd": own, "agents": agents}), listen=None), background=False
        )

    @contextmanager
    def running(self):
        names = ["ada", *("".join(filter(str.isprintable, text)) for text in FRAGMENTS if len(text) < 50)]
        tokens = []
        for name in names:
            # Some are not allowed as names.
            with suppress(ValueError):
                tokens.append(new_token(self.home, "ada", name=name, scopes=["admin", "edit"])[1])
        assert len(tokens) > len(names) / 2
        self.daemon.start()
        try:
            with (
                grpc.insecure_channel(self.address) as by_tcp,
                grpc.insecure_channel(f"unix:{self.home.socket}") as by_socket,
            ):
                self.answered = Counter()
                self.stubs = stubs.MemoryServiceStub(by_tcp), EntryServiceStub(by_tcp)
                self.owner, self.owner_entries = stubs.MemoryServiceStub(by_socket), EntryServiceStub(by_socket)
                self.tokens = tokens
                self.write_for_bob()
                yield self
        finally:
            self.daemon.stop()

    def write_for_bob(self):
        """Store rows of bob in every table that a daemon fills."""
        for agent, text in (("bob", f"the {SECRET} hides the key"), ("ada", "the heron nests")):
            own = {"agent_id": agent}
            for path in ("memory/secret.md", "MEMORY.md"):
                self.owner.MemoryWrite(pb.MemoryWriteRequest(**own, path=path, content=f"# N\n\n{text}\n"))
            self.owner.MemoryAppend(pb.MemoryAppendRequest(**own, text=text, idempotency_key="key"))
            record = json.dumps({"type": "message", "message": {"role": "user", "content": text}})
            self.owner.SessionAppend(pb.SessionAppendRequest(**own, session_id="one", records=[record]))
            list(self.owner.Sync(pb.SyncRequest(**own), timeout=TIMEOUT))
            self.owner.MemoryForget(pb.MemoryForgetRequest(**own, path="MEMORY.md"))
            with suppress(grpc.RpcError):
                self.owner_entries.Recall(entry_service_pb2.RecallRequest(**own, query="x"), timeout=TIMEOUT)

    def call(self, method, request, token):
        """Return the code of a call of ada, or None, its messages, and its error."""
        call = getattr(self.stubs[method in ENTRY_CALLS], method)
        found = []
        try:
            answer = call(request, timeout=TIMEOUT, **bearer(token))
            if method == "WatchIndex":
                found.append(next(answer))
                answer.cancel()
            else:
                found += answer if method == "Sync" else [answer]
        except grpc.RpcError as error:
            return error.code().name, found, error.details()
        self.answered[method] += 1
        return None, found, ""

    def seen_by_bob(self):
        """Return what bob's calls show."""
        own = {"agent_id": "bob"}
        search = self.owner.MemorySearch(pb.MemorySearchRequest(**own, query=f"{SECRET} key"), timeout=TIMEOUT)
        return (
            [(hit.path, hit.snippet) for hit in search.results],
            self.owner.MemoryGet(pb.MemoryGetRequest(**own, path="memory/secret.md")).text,
            self.owner.MemoryGet(pb.MemoryGetRequest(**own, path="sessions/one.jsonl")).text,
            [file.path for file in self.owner.ListFiles(pb.ListFilesRequest(**own)).files],
            [each.version_id for each in self.owner.MemoryHistory(pb.MemoryHistoryRequest(**own)).versions],
        )

    def placed(self, request):
        """Return the request with the hash of the document that it names, and with the newest write of ada."""
        made = type(request)()
        made.CopyFrom(request)
        if getattr(made, "expected_sha256", "") == OWN_HASH:
            made.expected_sha256 = self._hash(made.path)
        if getattr(made, "version_id", "") == OWN_VERSION:
            history = pb.MemoryHistoryRequest(agent_id="ada", page_size=1)
            made.version_id = self.owner.MemoryHistory(history, timeout=TIMEOUT).versions[0].version_id
        return made

    def _hash(self, path):
        with self.server.admin(DATABASE) as connection:
            query = "SELECT encode(sha256, 'hex') FROM memoryd.documents WHERE agent_id = 'ada' AND path = %s"
            row = connection.execute(query, (path.replace("\0", ""),)).fetchone()
        return row[0] if row else ""

    def dump(self):
        """Return the rows of all agents but ada by table, and the names of everything in the database."""
        with self.server.admin(DATABASE) as connection:
            found = {}
            for table, has_agent in connection.execute(TABLES).fetchall():
                if table in OF_REPLICAS:
                    continue
                condition = "WHERE agent_id <> 'ada'" if has_agent else ""
                rows = connection.execute(f'SELECT t::text FROM memoryd."{table}" AS t {condition} ORDER BY 1')
                found[table] = rows.fetchall()
            found["", "names"] = connection.execute(NAMES).fetchall()
            return found


# They have no content of agents, and no policy. A replica renews its row every second.
OF_REPLICAS = {"leases", "replicas"}
UNPROTECTED = """SELECT relname FROM pg_class WHERE relnamespace = 'memoryd'::regnamespace AND relkind IN ('r', 'p')
    AND NOT (relrowsecurity AND relforcerowsecurity)"""
TABLES = """SELECT relname, EXISTS(SELECT FROM pg_attribute WHERE attrelid = c.oid AND attname = 'agent_id')
    FROM pg_class AS c WHERE relnamespace = 'memoryd'::regnamespace AND relkind IN ('r', 'p') ORDER BY 1"""
NAMES = """SELECT 'r', rolname::text, rolsuper::text FROM pg_roles
    UNION ALL SELECT 'n', nspname, nspowner::text FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%'
    UNION ALL SELECT 'c', relname, relrowsecurity::text || relforcerowsecurity FROM pg_class
        WHERE relnamespace::regnamespace::text IN ('memoryd', 'public')
    UNION ALL SELECT 'f', proname, proowner::text FROM pg_proc
        WHERE pronamespace::regnamespace::text IN ('memoryd', 'public')
    UNION ALL SELECT 'p', policyname, qual FROM pg_policies
    ORDER BY 1, 2, 3"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory, postgres_server):  # noqa: F811 -- the fixture
    with (
        embedding_server() as provider,
        HostileDaemon(tmp_path_factory.mktemp("h"), provider, postgres_server).running() as daemon,
    ):
        yield daemon


def test_each_table_with_documents_has_rows_of_both_agents(daemon):
    with daemon.server.admin(DATABASE) as connection:
        for table in ("documents", "append_keys", "history_records", "transcript_parts", "chunks", "vectors"):
            agents = connection.execute(f"SELECT DISTINCT agent_id FROM memoryd.{table} ORDER BY 1").fetchall()
            assert agents == [("ada",), ("bob",)], table


def test_hostile_requests_of_an_agent_neither_show_nor_change_anything_of_another(daemon):
    @settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
    @given(steps=st.lists(st.tuples(calls, st.integers(0, 10_000)), min_size=4, max_size=12))
    def check(steps):
        rows, seen = daemon.dump(), daemon.seen_by_bob()
        for (method, request), chance in steps:
            token = daemon.tokens[chance % len(daemon.tokens)]
            code, found, details = daemon.call(method, daemon.placed(request), token)
            assert code not in FAILURES, (method, request, details)
            assert f"the {SECRET} hides" not in str(found), method
        assert daemon.dump() == rows
        assert daemon.seen_by_bob() == seen

    check()
    # Most requests are valid, or this would show little.
    assert len(daemon.answered) > 0.8 * len(REQUESTS), daemon.answered
    with daemon.server.admin(DATABASE) as connection:
        count = "SELECT count(*) FROM memoryd.documents WHERE agent_id = 'ada'"
        assert connection.execute(count).fetchone()[0] > 3


def test_a_connection_without_an_agent_sees_and_changes_nothing_in_any_table(daemon):
    psycopg = pytest.importorskip("psycopg")
    before = daemon.dump()
    with psycopg.connect(daemon.server.url_of(DATABASE), autocommit=True) as connection:
        unprotected = {table for (table,) in connection.execute(UNPROTECTED).fetchall()}
        assert unprotected == OF_REPLICAS | {"schema_migrations"}
        found = connection.execute(TABLES).fetchall()
        tables = [table for table, has_agent in found if has_agent and table not in OF_REPLICAS]
        assert {"documents", "transcript_parts", "chunks"} < set(tables)
        for table in tables:
            name = f'memoryd."{table}"'
            assert connection.execute(f"SELECT count(*) FROM {name}").fetchone() == (0,), table
            assert connection.execute(f"UPDATE {name} SET agent_id = 'ada'").rowcount == 0, table
            assert connection.execute(f"DELETE FROM {name}").rowcount == 0, table
            with pytest.raises(psycopg.Error, match="row-level security"):
                connection.execute(f"INSERT INTO {name}(agent_id) VALUES('ada')")
    assert daemon.dump() == before
