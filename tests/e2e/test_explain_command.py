"""`memoryd explain` shows why a search does not find a file or a line, with a daemon and without one."""

import json

import pytest

from daemon_process import memoryd, serving

NOTES = {
    "MEMORY.md": "# Lasting\n\nThe harbour master is called Ilse.\n",
    "memory/2026-05-03.md": "# Ropes\n\nThe ropes are of hemp.\n",
    ".memoryignore": "drafts/\n",
    "memory/drafts/a.md": "The harbour master is called Jonas.\n",
}
QUERY = ("--query", "who is the harbour master")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workspace")
    for path, text in NOTES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def served(workspace, tmp_path_factory):
    with serving(workspace, tmp_path_factory.mktemp("state"), home=tmp_path_factory.mktemp("home")) as daemon:
        assert daemon.memoryd("index").returncode == 0
        yield daemon


def printed(done):
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_text_has_the_reason_the_chunk_and_its_score(served):
    found = printed(served.memoryd("explain", "MEMORY.md:3", *QUERY))
    assert found.startswith("MEMORY.md: found: ")
    assert "\n1.000 MEMORY.md:1-4\n" in found
    assert "    score: text 1.000, window 1.000, coverage 1.000, keyword_rank 1\n" in found
    assert printed(served.memoryd("explain", "memory/drafts/a.md", *QUERY)).startswith("memory/drafts/a.md: excluded: ")


def test_the_json_is_the_answer_of_the_call(served):
    done = served.memoryd("explain", "memory/2026-05-03.md", "--json", "--mode", "keyword", *QUERY)
    answer = json.loads(printed(done))
    assert (answer["path"], answer["reason"]) == ("memory/2026-05-03.md", "MISS_REASON_NO_MATCH")
    assert (answer["chunk"]["startLine"], answer["chunk"]["endLine"]) == (1, 4)


def test_an_explained_search_shows_the_parts_of_scores_and_what_it_dropped(served):
    command = ("search", "the harbour master and the ropes", "--explain", "--max-results", "1")
    found = printed(served.memoryd(*command)).splitlines()
    assert found[0].startswith("1.000 MEMORY.md:1-4")
    assert "    score: keyword 0.667, window 0.333" in found
    heading = found.index("Dropped:")
    (dropped,) = found[heading + 1 :]
    assert " memory/2026-05-03.md:1-4: below max results: lines 1-4 have rank 2, " in dropped
    answer = json.loads(printed(served.memoryd(*command, "--json")))
    assert [each["path"] for each in answer["dropped"]] == ["memory/2026-05-03.md"]
    assert "Not among" not in printed(served.memoryd(*command[:2]))


def test_the_options_of_the_search_apply(served):
    for options, reason in (
        (("--until", "2025"), "FILTERED"),
        (("--source", "entries"), "SOURCE_NOT_SEARCHED"),
        (("--abstain-below", "1"), "ABSTAINED"),
    ):
        done = served.memoryd("explain", "MEMORY.md", "--json", *options, "--query", "harbour master unheard")
        answer = json.loads(printed(done))
        assert answer["reason"] == f"MISS_REASON_{reason}"


def test_a_missing_query_is_wrong_usage(served):
    for options in ((), ("--query", " ")):
        done = served.memoryd("explain", "MEMORY.md", *options)
        assert (done.returncode, "query" in done.stderr) == (2, True)


def test_without_a_daemon_the_files_are_indexed_first(workspace, tmp_path):
    done = memoryd("explain", "MEMORY.md", "--json", *QUERY, "--workspace", str(workspace), home=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["reason"] == "MISS_REASON_FOUND"
