"""What of a transcript was said, and what the gateway wrote into it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memoryd_server.sources.transcript_text import parse_message

SENDER = 'Sender (untrusted metadata):\n```json\n{\n  "label": "web",\n  "id": "web"\n}\n```\n\n'
INFO = '[Wed 2026-03-11 23:51 PDT] Conversation info (untrusted metadata):\n```json\n{"message_id": "1"}\n```\n'
NOTICE = (
    "System (untrusted): [2026-04-28 09:11:56 UTC] Exec completed (keen, code 0) :: built\n\n"
    "An async command you ran earlier has completed. Handle the result internally.\nCurrent time: Tuesday"
)
INTERNAL = "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnoise\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"


def said(role, text, **more):
    record = {"type": "message", "message": {"role": role, "content": text, **more}}
    message = parse_message(7, json.dumps(record))
    return None if message is None else message.labelled


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"{SENDER}how is the heron?", "how is the heron?"),
        (f"{INFO}{SENDER}[Sun 2026-04-19 00:33 GMT+8] how is it?", "how is it?"),
        (f"{INTERNAL}\nhow is it?\n{INTERNAL}", "how is it?"),
        ("System: [2026-04-16 09:58:10 UTC] Node connected\n\nhow is it?", "how is it?"),
        ("[Sun 2026-04-19 00:33 UTC] how is it?", "how is it?"),
        ("[2026-04-19] how is it?", "[2026-04-19] how is it?"),
        ("the words (untrusted metadata): are not a block", "the words (untrusted metadata): are not a block"),
        ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> never ends", "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>> never ends"),
        ("tell me about HEARTBEAT_OK", "tell me about HEARTBEAT_OK"),
        ("what is in HEARTBEAT.md?", "what is in HEARTBEAT.md?"),
        ("[OpenClaw heartbeat poll] What is this?", "[OpenClaw heartbeat poll] What is this?"),
        ("Why do I see [OpenClaw cron wake]", "Why do I see [OpenClaw cron wake]"),
        ("[OpenClaw exec completion]\nWhat is this?", "[OpenClaw exec completion] What is this?"),
        ("Explain the heartbeat monitor scratch context", "Explain the heartbeat monitor scratch context"),
        (
            "Follow the heartbeat monitor scratch context: is that a prompt?",
            "Follow the heartbeat monitor scratch context: is that a prompt?",
        ),
        ("It says: Exec finished (node=n1, code 0)", "It says: Exec finished (node=n1, code 0)"),
        ("exec completed, and what now?", "exec completed, and what now?"),
        ("Exec failed (see the log, please)", "Exec failed (see the log, please)"),
        ("Delivery: next week", "Delivery: next week"),
    ],
)
def test_the_wrapping_of_a_users_message_is_left_out(text, kept):
    assert said("user", text) == f"User: {kept}"


@pytest.mark.parametrize(
    "text",
    [
        "Read HEARTBEAT.md if it exists. Follow it strictly. If nothing needs attention, reply HEARTBEAT_OK.",
        "Look into HEARTBEAT.md, and reply HEARTBEAT_OK when there is nothing.",
        NOTICE,
        "[cron:0b1c daily] Write the report",
        "[OpenClaw heartbeat poll]",
        "\n [OpenClaw heartbeat poll] \n",
        "[OpenClaw cron wake]",
        "[OpenClaw session event]",
        "[OpenClaw exec completion]",
        "[OpenClaw exec completion]\nDisable automatic completion turns with tools.exec.notifyOnExit=false; and more.",
        "Delivery: to send a message, use the tool.\n\n[OpenClaw heartbeat poll]",
        "Follow the heartbeat monitor scratch context when there is one. If nothing needs attention, reply NO_REPLY.",
        "Follow the heartbeat monitor scratch context when there is one. Use heartbeat_respond to report.\nMore",
        "Run the following periodic tasks (only those due now):\nAfter completing all due tasks, reply NO_REPLY.",
        "Exec finished (node=n1 id=7, code 0)\nbuilt",
        "exec finished: the build",
        "Exec completed (keen-fox, code 0) :: built",
        "Exec failed (keen_fox, signal SIGTERM)",
        "An async command completion event was triggered, but no command output was found.",
        "[Inter-session message] from=agent:main:sub\nhello",
        "A new session was started via /new or /reset. Greet the user.",
        INTERNAL,
        SENDER,
        "Current time: Saturday, May 30th, 2026 - 3:34 PM (UTC)",
        " \n\t ",
        "",
    ],
)
def test_messages_of_the_gateway_itself_are_left_out(text):
    assert said("user", text) is None


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("HEARTBEAT_OK", None),
        ("**HEARTBEAT_OK**", None),
        ("NO_REPLY.", None),
        ("All is well. HEARTBEAT_OK", "All is well."),
        ("HEARTBEAT_OK\n\nThe disk is full, though.", "The disk is full, though."),
        ("[[reply_to_current]] It nests.", "It nests."),
        ("The word NO_REPLY ends a flush", "The word NO_REPLY ends a flush"),
    ],
)
def test_an_agents_silence_is_left_out(text, kept):
    assert said("assistant", text) == (None if kept is None else f"Assistant: {kept}")


@pytest.mark.parametrize("kind", ["inter_session", "internal_system"])
def test_a_record_marked_as_not_spoken_is_left_out(kind):
    assert said("user", "hello", provenance={"kind": kind}) is None
    assert said("user", "hello", provenance={"kind": "user"}) == "User: hello"


def test_an_answer_to_another_session_is_kept():
    assert said("assistant", "hello", provenance={"kind": "inter_session"}) == "Assistant: hello"
    assert said("assistant", "hello", provenance={"kind": "internal_system"}) is None
    assert said("user", "hello", provenance={"kind": ["inter_session"], "sourceTool": {}}) == "User: hello"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "null",
        "[]",
        '"message"',
        "1e999",
        "9" * 5_000,
        "[" * 100_000,
        '{"type": "message"}',
        '{"type": "message", "message": 1}',
        '{"type": "message", "message": {"role": ["user"], "content": "x"}}',
        '{"type": "message", "message": {"role": "user", "content": {"text": "x"}}}',
        '{"type": "message", "message": {"role": "user", "content": [1, null, {"type": "text"}, {"text": "x"}]}}',
        '{"type": "custom", "message": {"role": "user", "content": "x"}}',
    ],
)
def test_a_record_of_any_other_shape_is_passed_over(line):
    assert parse_message(1, line) is None


def test_a_byte_order_mark_before_the_first_record_is_no_part_of_it():
    line = "\ufeff" + json.dumps({"type": "message", "message": {"role": "user", "content": "first"}})
    assert parse_message(1, line).labelled == "User: first"


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "message", "role", "content", "text", "provenance", "kind"]) | st.text(max_size=3),
            inner | st.sampled_from(["message", "user", "assistant", "text"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(_JSON.map(json.dumps) | st.text())
def test_no_record_breaks_the_flattening(line):
    message = parse_message(1, line)
    if message is not None:
        assert message.text
        assert "\n" not in message.labelled
        assert "\0" not in message.labelled
        message.labelled.encode()
