"""The programs of docs/recall.md run as they are printed, against a real daemon."""

import json
import re
import subprocess
import sys

import pytest

from clients.languages import LANGUAGES
from clients.runner import REPOSITORY
from daemon_process import environment, serving

pytestmark = pytest.mark.clients

PAGE = (REPOSITORY / "docs" / "recall.md").read_text("utf-8")
TYPESCRIPT = REPOSITORY / "clients" / "typescript"
(TYPESCRIPT_LANGUAGE,) = (each for each in LANGUAGES if each.name == "typescript")
QUESTION = "What is the staging database called?"
FACT = "The staging database was renamed to quokka."
# 25 messages of 900 tokens exceed the 20,000 tokens at which a window of 32,000 is flushed.
LONG_MESSAGES = ["word " * 720] * 25
# A busy machine can exceed the second that the programs wait for a recall.
PATIENT = {"timeout=1.0": "timeout=60", "timeoutMs: 1000": "timeoutMs: 60_000"}


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def patient(program):
    (short,) = (short for short in PATIENT if short in program)
    return program.replace(short, PATIENT[short])


def run(command, folder, daemon, messages=()):
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=environment(daemon.home) | {"MEMORYD_STATE_DIR": str(daemon.state)},
        input="".join(f"{message}\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done


def notes(daemon):
    """Return the notes that the programs have written."""
    files = sorted(daemon.workspace.glob("memory/*.md"))
    return "".join(each.read_text("utf-8") for each in files if not each.name.startswith("2025-"))


@pytest.fixture
def daemon(tmp_path):
    workspace, state = tmp_path / "w", tmp_path / "s"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "2025-02-08.md").write_text(f"# Log\n\n{FACT}\n", "utf-8")
    for day in range(10, 30):
        other = workspace / "memory" / f"2025-03-{day}.md"
        other.write_text(f"# Log\n\nWe watered the plants and sorted box {day}.\n", "utf-8")
    with serving(workspace, state, home=tmp_path) as served:
        assert served.memoryd("index").returncode == 0
        yield served


def agent(daemon, tmp_path, messages, **replaced):
    """Run the Python program of the page in a session with these messages."""
    program = patient("\n\n".join(blocks("python")))
    for old, new in replaced.values():
        assert old in program
        program = program.replace(old, new)
    (tmp_path / "agent.py").write_text(program, "utf-8")
    return run([sys.executable, "agent.py", daemon.state], tmp_path, daemon, messages)


def test_the_agent_answers_from_its_memory_and_archives_the_session(daemon, tmp_path):
    done = agent(daemon, tmp_path, [QUESTION, "thanks!", "What is the name of the staging database?"])
    # The last question has no new answer, and the stub does not read its earlier replies.
    assert done.stdout == f"# Log\n{FACT}\nI do not know.\nI do not know.\n"
    assert "recalled memory/2025-02-08.md#L1-L3 of 2025-02-08 (words: " in done.stderr
    assert "RECALL_SILENT_REASON_NO_QUERY" in done.stderr
    assert "RECALL_SILENT_REASON_ALREADY_SEEN" in done.stderr
    archive = notes(daemon)
    assert QUESTION in archive
    assert FACT in archive
    assert "relevant-memories" not in archive
    assert "archived 6 messages in memory/" in done.stderr


def test_an_archived_session_is_forgotten_by_remember_shown(daemon, tmp_path):
    for _ in range(2):
        assert FACT in agent(daemon, tmp_path, [QUESTION]).stdout


def test_the_agent_continues_without_its_memory(daemon, tmp_path):
    limits = {"deadline": ("timeout=60", "timeout=0.000001")}
    done = agent(daemon, tmp_path, [QUESTION], **limits)
    assert done.stdout == "I do not know.\n"
    assert "no recall: " in done.stderr


def test_the_agent_stores_what_the_model_writes_at_a_flush(daemon, tmp_path):
    model = {"model": ('"NO_REPLY" if "NO_REPLY" in system', '"- The release is on Friday." if "NO_REPLY" in system')}
    agent(daemon, tmp_path, LONG_MESSAGES, **model)
    assert notes(daemon).splitlines().count("- The release is on Friday.") == 1
    agent(daemon, tmp_path, LONG_MESSAGES)
    assert notes(daemon).splitlines().count("- The release is on Friday.") == 1, "the stub writes nothing"


def test_a_memory_is_returned_again_after_a_flush(daemon, tmp_path):
    answers = agent(daemon, tmp_path, [QUESTION, QUESTION, *LONG_MESSAGES, QUESTION]).stdout
    assert answers.count(FACT) == 2


def test_the_tools_of_the_page_return_what_the_model_asks_for(daemon, tmp_path):
    calls = """
with connect() as client:
    print(run_tool(client, "memory_search", '{"query": "staging database", "maxResults": 1}'))
    print(",")
    print(run_tool(client, "memory_get", '{"path": "memory/2025-02-08.md", "from": 3, "lines": 1}'))
    print(",")
    print(run_tool(client, "memory_get", '{"path": "memory/none.md"}'))
"""
    program = "\n\n".join(blocks("python")).partition('if __name__ == "__main__":')[0]
    (tmp_path / "tools.py").write_text(program + calls, "utf-8")
    searched, read, missing = json.loads(f"[{run([sys.executable, 'tools.py'], tmp_path, daemon).stdout}]")
    assert searched["results"][0]["path"] == "memory/2025-02-08.md"
    assert read["text"] == FACT
    assert "FILE_NOT_FOUND" in missing["error"]


@pytest.mark.parametrize(
    "language", [pytest.param(TYPESCRIPT_LANGUAGE, id="typescript", marks=TYPESCRIPT_LANGUAGE.marks)]
)
def test_the_typescript_program_prints_the_block_of_each_message(language, daemon, tmp_path):
    language.or_skip()
    (program,) = blocks("ts")
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "recall.ts").write_text(patient(program), "utf-8")
    (folder / "package.json").write_text('{"type": "module"}', "utf-8")
    packages = {"@memoryd/client": TYPESCRIPT, "@types/node": TYPESCRIPT / "node_modules" / "@types" / "node"}
    for name, source in packages.items():
        link = folder / "node_modules" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(source, target_is_directory=True)
    compiler = TYPESCRIPT / "node_modules" / "typescript" / "bin" / "tsc"
    options = ["--strict", "--target", "es2022", "--module", "nodenext"]
    run(["node", compiler, *options, "recall.ts"], folder, daemon)
    done = run(["node", "recall.js"], folder, daemon, [QUESTION, "thanks!"])
    assert re.fullmatch(
        rf"<relevant-memories>\n.*\n\[1\] memory/2025-02-08\.md#L1-L3 \(2025-02-08\)\n.*{re.escape(FACT)}\n"
        r"</relevant-memories>\nnothing: NO_QUERY\n",
        done.stdout,
        re.DOTALL,
    ), done
