"""The hook for Claude Code, with the settings of docs/recall.md, real events and a real daemon."""

import json
import re
import shlex
import subprocess
import sys
import time

import pytest

from clients.runner import REPOSITORY
from daemon_process import environment, serving

pytestmark = pytest.mark.clients

SCRIPT = REPOSITORY / "clients" / "python" / "examples" / "claude_code" / "recall_hook.py"
PAGE = (REPOSITORY / "docs" / "recall.md").read_text("utf-8")
QUESTION = "When does the billing deployment take place?"


def configured():
    """The hook in the settings of the page, with the paths of this machine."""
    (settings,) = (json.loads(each) for each in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL) if '"hooks"' in each)
    (group,) = settings["hooks"]["UserPromptSubmit"]
    (hook,) = group["hooks"]
    return hook


def run(served, event, *arguments, text=None):
    """Run the command of the settings with an event as Claude Code sends it, or with other text on standard input."""
    hook = configured()
    paths = {"/path/to/environment/bin/python": sys.executable, "/path/to/recall_hook.py": str(SCRIPT)}
    command = [paths[part] for part in shlex.split(hook["command"])]
    sent = json.dumps({"cwd": "/", "hook_event_name": "UserPromptSubmit", "transcript_path": "/t.jsonl", **event})
    done = subprocess.run(
        [*command, *arguments],
        env=environment(served.home) | {"MEMORYD_ADDRESS": served.address},
        input=text if text is not None else sent,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture
def served(tmp_path):
    workspace, state = tmp_path / "w", tmp_path / "s"
    (workspace / "memory").mkdir(parents=True)
    (workspace / "memory" / "2026-04-02.md").write_text("The billing deployment takes place on Thursday.\n", "utf-8")
    for day in range(10, 30):
        other = workspace / "memory" / f"2026-03-{day}.md"
        other.write_text(f"We watered the plants and sorted box {day}.\n", "utf-8")
    with serving(workspace, state, home=tmp_path) as daemon:
        assert daemon.memoryd("index").returncode == 0
        yield daemon


def test_a_prompt_gets_its_memories_once_per_session(served):
    # The first call of a session can be later than a second on a busy machine, which is the time limit of the hook.
    found = next(
        done for n in range(10) if (done := run(served, {"session_id": f"s{n}", "prompt": QUESTION})).stdout.strip()
    )
    assert found.stdout.startswith("<relevant-memories>\n")
    assert found.stdout.endswith("</relevant-memories>\n")
    assert "memory/2026-04-02.md" in found.stdout
    assert "takes place on Thursday" in found.stdout
    assert found.stderr == ""


def test_the_session_of_an_event_is_not_shown_the_same_twice(served):
    shown = 0
    for _ in range(10):
        done = run(served, {"session_id": "s1", "prompt": QUESTION})
        shown += "Thursday" in done.stdout
        if "already seen" in done.stderr:
            break
    assert "already seen" in done.stderr
    assert shown <= 1
    assert done.stdout == ""


def test_nothing_is_printed_if_nothing_is_known(served):
    for prompt in ("thanks!", "/clear", "What is the capital of Portugal?"):
        done = run(served, {"session_id": "s1", "prompt": prompt})
        assert done.stdout == "", prompt
        assert done.stderr.startswith("no memories: "), prompt


@pytest.mark.parametrize("text", ["", "[]", "{}", "not JSON", '{"prompt": 7, "session_id": "s1"}'])
def test_an_event_of_another_form_does_not_block_the_prompt(served, text):
    done = run(served, {}, text=text)
    assert (done.stdout, done.stderr[:12]) == ("", "no memories:")


def test_an_agent_that_does_not_exist_does_not_block_the_prompt(served):
    done = run(served, {"session_id": "s1", "prompt": QUESTION}, "nobody-here")
    assert done.stdout == ""
    assert "nobody-here" in done.stderr


def test_a_stopped_daemon_does_not_block_the_prompt(served):
    served.process.kill()
    served.process.wait()
    began = time.monotonic()
    done = run(served, {"session_id": "s1", "prompt": QUESTION})
    assert done.stdout == ""
    assert done.stderr.startswith("no memories: ")
    # The limit in the settings, which is also enough for the start of Python on a busy machine.
    assert time.monotonic() - began < 10 * configured()["timeout"]
