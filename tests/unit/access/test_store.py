import hashlib
import json
import os
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from memoryd_server.access.token_store import TokenStore
from memoryd_server.errors import SettingsError

NOW = datetime(2026, 5, 4, 12, 30, 15, 999, tzinfo=UTC)


@pytest.fixture
def store(files):
    return TokenStore(files.store)


def test_an_added_record_is_read_back_without_the_token(store):
    record, token = store.add("gateway", ["bob", "ada", "bob"], NOW, NOW + timedelta(days=90))
    assert store.read() == (record,)
    assert record.agents == ("ada", "bob")
    assert record.created == NOW.replace(microsecond=0)
    assert record.expires == record.created + timedelta(days=90)
    assert record.sha256 == hashlib.sha256(token.encode()).digest()
    assert token not in store.path.read_text()


def test_tokens_are_long_and_no_two_are_the_same(store):
    made = [store.add("", None, NOW, None) for _ in range(20)]
    assert len({token for _, token in made}) == len({record.token_id for record, _ in made}) == 20
    assert all(len(token) >= 50 and token.startswith("memoryd_") and token.isascii() for _, token in made)


def test_the_file_and_its_folder_are_for_the_owner_alone(store):
    before = os.umask(0)
    try:
        store.add("", None, NOW, None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


def test_only_the_token_of_that_id_is_revoked(store):
    (first, _), (second, _) = store.add("", None, NOW, None), store.add("", ["ada"], NOW, None)
    assert store.revoke(first.token_id)
    assert not store.revoke(first.token_id)
    assert not store.revoke("")
    assert store.read() == (second,)


def test_a_store_that_is_not_there_is_empty(store):
    assert store.read() == ()
    assert not store.path.exists()


ENTRY = {
    "id": "1", "name": "", "sha256": "0" * 64, "agents": None, "created": "2026-05-04T00:00:00+00:00", "expires": None,
}  # fmt: skip
DAMAGE = {
    "no JSON": "{",
    "another kind": "[]",
    "no tokens": '{"version": 1}',
    "a later version": json.dumps({"version": 2, "tokens": []}),
    "no object": json.dumps({"version": 1, "tokens": [1]}),
    **{
        f"{key} {value!r}": json.dumps({"version": 1, "tokens": [{**ENTRY, key: value}]})
        for key, value in [
            ("id", 1),
            ("sha256", "00"),
            ("sha256", "z" * 64),
            # An empty list could be taken for every agent, or for none.
            ("agents", []),
            ("agents", "ada"),
            ("agents", [1]),
            ("created", "yesterday"),
            ("expires", 5),
            ("expires", "2026-05-04T00:00:00"),
            ("read_only", True),
        ]
    },
    "a missing key": json.dumps({"version": 1, "tokens": [{k: v for k, v in ENTRY.items() if k != "agents"}]}),
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_store_is_refused_and_left_alone(store, content):
    store.path.parent.mkdir()
    store.path.write_text(content)
    store.path.chmod(0o600)
    with pytest.raises(SettingsError, match="is damaged"):
        store.read()
    with pytest.raises(SettingsError, match="is damaged"):
        store.add("", None, NOW, None)
    assert store.path.read_text() == content


def test_the_entry_that_the_cases_above_spoil_is_sound(store):
    store.path.parent.mkdir()
    store.path.write_text(json.dumps({"version": 1, "tokens": [ENTRY]}))
    store.path.chmod(0o600)
    assert [record.token_id for record in store.read()] == ["1"]


def test_commands_at_the_same_time_lose_no_token(store, tmp_path):
    script = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path;"
        "from memoryd_server.access import TokenStore;"
        "[TokenStore(Path(sys.argv[1])).add('', None, datetime.now(UTC), None) for _ in range(10)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, str(store.path)]) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert len({record.token_id for record in store.read()}) == 40


def test_a_store_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "state").write_text("a file where the folder should be")
    with pytest.raises(SettingsError, match="cannot write"):
        TokenStore(tmp_path / "state" / "tokens.json").add("", None, NOW, None)
