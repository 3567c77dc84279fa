"""A token for one agent learns nothing about another: every call is answered as in a daemon without that agent."""

from contextlib import ExitStack, contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_providers import embedding_server
from fake_qmd.installs import make_fake
from memoryd.v1 import entry_service_pb2 as entry_pb
from memoryd.v1 import memory_pb2, sync_event_pb2
from memoryd.v1 import memory_service_pb2 as pb
from memoryd_server.rpc.wire import make_cursor, make_page_token
from properties import examples
from rpc.agent_calls import AGENT_CALLS
from rpc.editing import digest
from rpc.isolation import IsolationDaemon

pytestmark = [pytest.mark.attacks, pytest.mark.slow]

FOREIGN_CURSOR = "the cursor of another agent's run"
FOREIGN_VERSION = "a write of another agent"
OWN_VERSION = "a write of ada"
CURRENT = "the hash of the file of ada"
BOB = {
    "memory/secret.md": b"# Bob\n\nthe otter hides the key under the boathouse\n",
    "MEMORY.md": b"# Bob\n\nlikes otters\n",
}
CHANGED = {"memory/secret.md": b"# Bob\n\nnothing to see here, and much of it\n" * 30, "memory/deep/a.md": b"badger\n"}
SHARING = {"memorySearch": {"multimodal": {"enabled": True}, "extraPaths": ["../workspace"]}}
OTHERS = (
    {},
    {"bob": ({}, BOB), "main": ({}, {"MEMORY.md": b"# Main\n\nthe otter again\n"})},
    {
        "bob": (SHARING, CHANGED),
        "main": ({"memorySearch": {"enabled": False}}, {}),
        "zed": ({}, {"memory/secret.md": b"badger"}),
    },
)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory):
    """Three daemons: ada alone, with bob and main, and with others of other content."""
    with three_daemons(tmp_path_factory.mktemp("w")) as made:
        yield made


@pytest.fixture(scope="module")
def qmd_daemons(tmp_path_factory):
    """The same three, where qmd answers."""
    base = tmp_path_factory.mktemp("q")
    with three_daemons(base, make_fake(base / "bin").path) as made:
        yield made


@contextmanager
def three_daemons(base, qmd=None):
    with embedding_server() as provider, ExitStack() as stack:
        made = []
        for number, others in enumerate(OTHERS):
            root = base / f"daemon-{number}"
            root.mkdir()
            made.append(stack.enter_context(IsolationDaemon(root, provider, others, qmd).running()))
        yield made


agent_ids = st.sampled_from(
    ["ada", "ada", "ada", "ADA", " ada", "bob", "Bob", "main", "zed", "", " ", "nobody", "böb", "b" * 5_000]
)
tokens = st.sampled_from(["ada"] * 8 + ["", "wrong"])
queries = st.sampled_from(
    ["heron weir", "otter boathouse", "badger", "key", "Bob", "seven herons", "", "x" * 5_000]
) | st.text(max_size=20)
paths = st.sampled_from(
    [
        "MEMORY.md",
        "memory/plan.md",
        "memory/secret.md",
        "memory/none.md",
        "ROOT/bob/memory/secret.md",
        "ROOT/bob/MEMORY.md",
        "ROOT/nobody/MEMORY.md",
        "ROOT/workspace/MEMORY.md",
        "../bob/memory/secret.md",
        "../zed/memory/secret.md",
        "memory/../../bob/memory/secret.md",
        "ROOT/state/memory/bob.memoryd.sqlite",
        "",
    ]
)
page_tokens = st.sampled_from(
    ["", "x", *(make_page_token("agents", name) for name in ("ada", "bob", "a")), make_page_token("files", "a")]
)
sizes = st.sampled_from([0, 1, 2, 1_000, -1])
cursors = st.sampled_from(["", "", FOREIGN_CURSOR, "no cursor", make_cursor("0" * 32, 3)])
# The content that the file has, none, and that of a file of another agent.
seen_hashes = st.sampled_from(["", CURRENT, CURRENT, digest(BOB["memory/secret.md"]), "0" * 64])
versions = st.sampled_from(["", OWN_VERSION, OWN_VERSION, FOREIGN_VERSION, "0" * 32])
none = st.just(pb.FileDeletion())
session_keys = st.sampled_from(["", "agent:ada:cli:direct:test", "agent:bob:cli:direct:test"])
ages = st.sampled_from([None, {"seconds": 60}, {"seconds": -1}])
modes = st.sampled_from(memory_pb2.SearchMode.values())
sync_modes = st.sampled_from(sync_event_pb2.SyncMode.values())
NOW = {"seconds": 1_790_000_000}

REQUESTS = {
    "MemorySearch": st.builds(
        lambda **fields: pb.MemorySearchRequest(now=NOW, **fields),
        agent_id=agent_ids, query=queries, mode=modes, explain=st.booleans(), session_key=session_keys,
        min_score=st.sampled_from([0.0, 0.35]), max_total_chars=st.sampled_from([10, 1_000]),
        max_staleness=ages,
    ),
    "ExplainMiss": st.builds(
        lambda search, **fields: pb.ExplainMissRequest(search=pb.MemorySearchRequest(now=NOW, **search), **fields),
        agent_id=agent_ids, path=paths, line=st.none() | st.integers(0, 50),
        search=st.fixed_dictionaries(
            {"query": queries, "mode": modes, "session_key": session_keys, "agent_id": st.just("") | agent_ids}
        ),
    ),
    "MemoryRecall": st.builds(
        lambda **fields: pb.MemoryRecallRequest(now=NOW, **fields),
        agent_id=agent_ids, text=queries, explain=st.booleans(), session_key=session_keys,
        remember_shown=st.booleans(), min_confidence=st.sampled_from([0.0, 0.1]), max_chars=st.sampled_from([300, 900]),
        max_staleness=ages,
    ),
    "MemoryGet": st.builds(
        pb.MemoryGetRequest,
        agent_id=agent_ids, path=paths, start_line=st.integers(0, 50), max_staleness=ages,
    ),
    "Status": st.builds(pb.StatusRequest, agent_id=agent_ids, probe=st.booleans()),
    "Sync": st.builds(
        pb.SyncRequest,
        agent_id=agent_ids, cursor=cursors, dry_run=st.booleans(), mode=sync_modes,
    ),
    "WatchIndex": st.builds(pb.WatchIndexRequest, agent_id=agent_ids),
    "FlushDecision": st.builds(
        lambda **fields: pb.FlushDecisionRequest(now=NOW, **fields),
        agent_id=agent_ids, total_tokens=st.integers(-1, 200_000),
    ),
    "MemoryAppend": st.builds(
        lambda **fields: pb.MemoryAppendRequest(now=NOW, **fields),
        agent_id=agent_ids, path=paths, text=queries, idempotency_key=st.sampled_from(["", "one", "two"]),
    ),
    "MemoryWrite": st.one_of(
        st.builds(pb.MemoryWriteRequest, agent_id=agent_ids, path=paths, expected_sha256=seen_hashes, content=queries),
        st.builds(pb.MemoryWriteRequest, agent_id=agent_ids, path=paths, expected_sha256=seen_hashes, delete_file=none),
        st.builds(
            lambda **fields: pb.MemoryWriteRequest(insert={"text": "a bittern"}, **fields),
            agent_id=agent_ids, path=paths, expected_sha256=seen_hashes,
            idempotency_key=st.sampled_from(["", "one", "two"]),
        ),
    ),
    "MemoryMove": st.builds(
        pb.MemoryMoveRequest, agent_id=agent_ids, path=paths, new_path=paths, expected_sha256=seen_hashes,
    ),
    "MemoryHistory": st.builds(
        pb.MemoryHistoryRequest,
        agent_id=agent_ids, path=paths, version_id=versions, include_diffs=st.booleans(), page_size=sizes,
        page_token=page_tokens | st.sampled_from([make_page_token("history", number) for number in ("1", "9")]),
    ),
    "MemoryRestore": st.builds(
        pb.MemoryRestoreRequest, agent_id=agent_ids, path=paths, version_id=versions, expected_sha256=seen_hashes,
    ),
    "MemoryForget": st.builds(pb.MemoryForgetRequest, agent_id=agent_ids, path=paths),
    "SessionContext": st.builds(pb.SessionContextRequest, agent_id=agent_ids),
    "SessionArchive": st.builds(pb.SessionArchiveRequest, agent_id=agent_ids),
    "SessionAppend": st.builds(
        pb.SessionAppendRequest,
        agent_id=agent_ids, session_key=session_keys, session_id=st.sampled_from(["x", "../x"]),
        records=st.lists(st.sampled_from(["{}", "[]", "{"]), max_size=2),
        expected_records=st.none() | st.integers(-1, 2),
    ),
    "ListFiles": st.builds(pb.ListFilesRequest, agent_id=agent_ids, page_size=sizes, page_token=page_tokens),
    "Remember": st.builds(
        entry_pb.RememberRequest,
        agent_id=agent_ids, text=queries, idempotency_key=st.sampled_from(["", "one", "two"]),
    ),
    "Recall": st.builds(entry_pb.RecallRequest, agent_id=agent_ids, query=queries),
    "Forget": st.builds(entry_pb.ForgetRequest, agent_id=agent_ids, query=queries),
    "ListEntries": st.builds(entry_pb.ListEntriesRequest, agent_id=agent_ids, page_size=sizes),
    "SuggestCapture": st.builds(entry_pb.SuggestCaptureRequest, agent_id=agent_ids, user_messages=st.lists(queries)),
    "RecallBlock": st.builds(entry_pb.RecallBlockRequest, agent_id=agent_ids, prompt=queries),
    "ListAgents": st.builds(pb.ListAgentsRequest, page_size=sizes, page_token=page_tokens),
}  # fmt: skip
calls = st.one_of([st.tuples(st.just(name), request, tokens) for name, request in REQUESTS.items()])
deeds = st.tuples(
    st.just("meanwhile"), st.sampled_from(["bob", "main", "zed"]), st.sampled_from(["otter", "heron weir"])
)


def placed(daemon, request):
    """The request with this daemon's folder and its foreign cursor filled in."""
    made = type(request)()
    made.CopyFrom(request)
    if hasattr(made, "path"):
        made.path = made.path.replace("ROOT", str(daemon.home.root))
    if hasattr(made, "new_path"):
        made.new_path = made.new_path.replace("ROOT", str(daemon.home.root))
    if getattr(made, "version_id", "") == FOREIGN_VERSION:
        made.version_id = daemon.version_of_another
    elif getattr(made, "version_id", "") == OWN_VERSION:
        made.version_id = daemon.own_version()
    if getattr(made, "expected_sha256", "") == CURRENT:
        made.expected_sha256 = daemon.current_hash(made.path)
    if getattr(made, "cursor", "") == FOREIGN_CURSOR:
        made.cursor = daemon.cursor_of_another
    return made


def seen(daemons, method, request, token):
    views = []
    for daemon in daemons:
        views.append(daemon.seen(method, placed(daemon, request), token))
        daemon.settle()
    return views


def test_every_call_of_the_contract_is_made():
    assert set(REQUESTS) == {*AGENT_CALLS, "ListAgents"}


def check_alike(daemons, steps):
    for step in steps:
        if step[0] == "meanwhile":
            for daemon in daemons:
                daemon.act(*step[1:])
            continue
        alone, *others = seen(daemons, *step)
        for other in others:
            assert other == alone, f"{other}\n{alone}"


@pytest.mark.slow
@settings(max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(calls | deeds, min_size=1, max_size=8))
def test_a_token_for_ada_sees_the_same_in_every_daemon(daemons, steps):
    check_alike(daemons, steps)


@pytest.mark.slow
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(calls | deeds, min_size=1, max_size=6))
def test_a_token_for_ada_sees_the_same_in_every_daemon_with_qmd(qmd_daemons, steps):
    check_alike(qmd_daemons, steps)


@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(steps=st.lists(calls | deeds, min_size=1, max_size=6))
def test_a_token_for_ada_sees_the_same_in_every_daemon_with_qmd_exhaustively(qmd_daemons, steps):
    check_alike(qmd_daemons, steps)


@pytest.mark.slow
def test_qmd_does_answer_ada_there(qmd_daemons):
    """Otherwise the two above would show nothing of it."""
    request = pb.MemorySearchRequest(agent_id="ada", query="heron", session_key="agent:ada:cli:direct:test")
    for daemon in qmd_daemons:
        answer = daemon.owner.MemorySearch(request, timeout=60)
        assert answer.info.backend == memory_pb2.BACKEND_QMD
        assert answer.results


@pytest.mark.parametrize("method", REQUESTS)
@pytest.mark.parametrize("agent_id", ["bob", "main", "zed", "nobody", ""])
def test_another_agent_is_refused_alike_whether_it_exists_or_not(daemons, method, agent_id):
    request = AGENT_CALLS.get(method, pb.ListAgentsRequest())
    if method in AGENT_CALLS:
        request = type(request)()
        request.CopyFrom(AGENT_CALLS[method])
        request.agent_id = agent_id
    (failure, messages), *others = seen(daemons, method, request, "ada")
    assert others == [(failure, messages)] * 2
    if method == "ListAgents":
        assert (failure, len(messages)) == (None, 1)
    else:
        assert failure[0] == "PERMISSION_DENIED"


def test_the_daemons_do_differ_to_one_who_may_see_it(daemons):
    """Otherwise the comparison above would compare nothing."""
    agents = [len(daemon.owner.ListAgents(pb.ListAgentsRequest()).agents) for daemon in daemons]
    assert agents == [1, 3, 4]
    for daemon in daemons:
        daemon.act("bob", "otter")
    embedded = [daemon.owner.Status(pb.StatusRequest(agent_id="ada")).embedding.calls for daemon in daemons]
    assert len(set(embedded)) > 1
