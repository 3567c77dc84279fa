"""A hook of Claude Code for `UserPromptSubmit`: prints what the memory contains about the prompt.

Claude Code passes the event as JSON on standard input and adds the output to the conversation. If there is nothing to
print, the reason is on standard error. The exit status is always 0, since a failure must not block the prompt.
docs/recall.md has the settings.

echo '{"session_id": "s1", "prompt": "how do we roll back?"}' | python recall_hook.py [AGENT]
"""

import json
import sys

from memoryd.client import connect
from memoryd.messages import MemoryRecallResponse

TIMEOUT_SECONDS = 1.0


def recall(event: dict[str, str], agent: str) -> MemoryRecallResponse:
    """Return what is known about the prompt of an event and was not shown to its session before."""
    with connect() as client:
        return client.recall(
            text=event["prompt"],
            # The key of a direct chat: private, but not the agent's main session.
            session_key=f"agent:{agent}:claude-code:direct:{event['session_id']}",
            remember_shown=True,
            timeout=TIMEOUT_SECONDS,
        )


def main() -> None:
    """Print the block for the event on standard input."""
    try:
        answer = recall(json.load(sys.stdin.buffer), *(sys.argv[1:] or ["main"]))
    except Exception as error:  # noqa: BLE001 -- a hook must not disturb the prompt
        print(f"no memories: {error}", file=sys.stderr)
    else:
        if answer.block:
            print(answer.block)
        else:
            print(f"no memories: {answer.silent_explanation}", file=sys.stderr)


if __name__ == "__main__":
    main()
