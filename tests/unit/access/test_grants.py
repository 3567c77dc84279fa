"""The scopes of tokens: what includes what, how the store keeps them, and which grant they give."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.access.grants import ALL_AGENTS_GRANT, DEFAULT_SCOPES, Scope, expand_scopes
from memoryd_server.access.token_store import TokenStore
from memoryd_server.access.tokens import TokenVerifier
from memoryd_server.errors import SettingsError
from memoryd_server.observe import make_log

NOW = datetime(2026, 5, 4, 12, 30, 15, tzinfo=UTC)
READ, APPEND, EDIT, ADMIN = Scope

# As version 0.1.0 writes a store.
OLD_STORE = """{
  "version": 1,
  "tokens": [
    {
      "id": "3fa9c1d2",
      "name": "gateway",
      "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
      "agents": [
        "ada",
        "bob"
      ],
      "created": "2026-05-04T12:30:15+00:00",
      "expires": null
    },
    {
      "id": "971aedfd",
      "name": "",
      "sha256": "60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752",
      "agents": null,
      "created": "2026-05-04T12:30:15+00:00",
      "expires": "2026-08-02T12:30:15+00:00"
    }
  ]
}
"""


@pytest.fixture
def store(files):
    return TokenStore(files.store)


@pytest.fixture
def ring(files):
    return TokenVerifier(files, lambda: NOW, make_log("error", "json"))


def put(store, text):
    store.path.parent.mkdir(exist_ok=True)
    store.path.write_text(text)
    store.path.chmod(0o600)


def granted(ring, token):
    ring.refresh()
    return ring.grant(token.encode())


@pytest.mark.parametrize(
    ("scopes", "expanded"),
    [
        ([READ], {READ}),
        ([APPEND], {READ, APPEND}),
        ([EDIT], {READ, APPEND, EDIT}),
        ([ADMIN], {READ, APPEND, ADMIN}),
        ([ADMIN, EDIT], set(Scope)),
        ([READ, APPEND], {READ, APPEND}),
    ],
)
def test_a_scope_includes_others(scopes, expanded):
    assert expand_scopes(scopes) == expanded


def test_the_default_scope_does_not_include_edit():
    assert DEFAULT_SCOPES == (ADMIN,)


def test_an_old_store_is_read_and_its_tokens_have_the_default_scope(store):
    put(store, OLD_STORE)
    records = store.read()
    assert [record.token_id for record in records] == ["3fa9c1d2", "971aedfd"]
    assert [record.scopes for record in records] == [None, None]
    assert [record.granted_scopes for record in records] == [(ADMIN,), (ADMIN,)]


def test_a_store_without_scoped_tokens_is_written_as_before(store):
    put(store, OLD_STORE)
    record, _ = store.add("new", None, NOW, None)
    assert store.revoke(record.token_id)
    assert store.path.read_text() == OLD_STORE


def test_a_scoped_token_adds_its_scopes_to_its_own_entry_only(store):
    put(store, OLD_STORE)
    store.add("", None, NOW, None, scopes=[EDIT, READ, EDIT])
    *old, new = json.loads(store.path.read_text())["tokens"]
    assert old == json.loads(OLD_STORE)["tokens"]
    assert new["scopes"] == ["read", "edit"]
    assert store.read()[-1].scopes == (READ, EDIT)


@pytest.mark.parametrize("scopes", [[], None, "read", {"read": True}, [1], [None], ["write"], ["READ"], ["read", ""]])
def test_scopes_that_are_not_known_are_refused(store, scopes):
    content = json.loads(OLD_STORE)
    content["tokens"][0]["scopes"] = scopes
    put(store, json.dumps(content))
    with pytest.raises(SettingsError, match="is damaged"):
        store.read()


def test_a_token_needs_a_scope(store):
    with pytest.raises(ValueError, match="at least one scope"):
        store.add("", None, NOW, None, scopes=[])
    assert not store.path.exists()


_NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
_TOKENS = st.tuples(
    _NAMES,
    st.none() | st.lists(st.sampled_from(["ada", "bob", "main"]), min_size=1),
    st.none() | st.integers(1, 10**9).map(lambda seconds: NOW + timedelta(seconds=seconds)),
    st.none() | st.lists(st.sampled_from(Scope), min_size=1),
)


@given(st.lists(_TOKENS, max_size=4))
def test_every_record_is_read_back_as_it_was_added(tokens):
    with TemporaryDirectory() as folder:
        store = TokenStore(Path(folder) / "tokens.json")
        added = []
        for name, agents, expires, scopes in tokens:
            record, _ = store.add(name, agents, NOW, expires, scopes=scopes)
            assert set(record.granted_scopes) == set(scopes or DEFAULT_SCOPES)
            added.append(record)
        assert store.read() == tuple(added)
        entries = json.loads(store.path.read_text())["tokens"] if tokens else []
        assert ["scopes" in entry for entry in entries] == [scopes is not None for *_, scopes in tokens]


@pytest.mark.parametrize("scopes", [[READ], [APPEND], [EDIT], [ADMIN], [EDIT, ADMIN], None])
def test_the_grant_of_a_token_has_its_scopes(ring, store, scopes):
    record, token = store.add("", ["ada"], NOW, None, scopes=scopes)
    grant = granted(ring, token)
    assert {scope for scope in Scope if grant.may(scope)} == expand_scopes(scopes or [ADMIN])
    assert (grant.agents, grant.token_id, grant.share) == ({"ada"}, record.token_id, record.token_id)


def test_a_caller_of_the_unix_socket_has_all_scopes():
    assert all(ALL_AGENTS_GRANT.may(scope) for scope in Scope)
    assert ALL_AGENTS_GRANT.caller == "local"


def test_a_token_of_the_token_file_cannot_edit(ring, files):
    files.plain.parent.mkdir()
    files.plain.write_text("plain\n")
    files.plain.chmod(0o600)
    grant = granted(ring, "plain")
    assert (grant.scopes, grant.caller) == ({READ, APPEND, ADMIN}, "token file")


def test_the_caller_is_the_name_of_the_token_or_its_id(ring, store):
    named, unnamed = store.add("gateway", None, NOW, None), store.add("", None, NOW, None)
    assert granted(ring, named[1]).caller == "gateway"
    assert granted(ring, unnamed[1]).caller == unnamed[0].token_id


def test_changed_scopes_in_the_store_apply_to_the_next_call(ring, store):
    _, token = store.add("", None, NOW, None, scopes=[EDIT])
    assert granted(ring, token).may(EDIT)
    put(store, store.path.read_text().replace('"edit"', '"read"'))
    assert granted(ring, token).scopes == {READ}
