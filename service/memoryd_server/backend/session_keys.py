"""What a session's key says of who is listening. Pure."""

_MAIN = "main"
# A thread of the main session has a key of its own: `main:thread:<thread>`.
_THREAD = "thread"
_LEAST_PARTS_OF_A_THREAD = 3
_PARTS_OF_AN_AGENT = 2


def is_main_session(session_key: str, agent_id: str) -> bool:
    """Whether the key names the agent's private main session, or a thread of it.

    That is `main` or `agent:<agent_id>:main`. Groups, channels, chats with a peer of their own, scheduled jobs and
    sub-agents are not, nor is another agent's main session, nor a missing key: of these nothing says that they are
    private.
    """
    parts = session_key.strip().lower().split(":")
    if parts[0] == "agent":
        if parts[1:_PARTS_OF_AN_AGENT] != [agent_id]:
            return False
        parts = parts[_PARTS_OF_AN_AGENT:]
    is_thread = len(parts) >= _LEAST_PARTS_OF_A_THREAD and parts[1] == _THREAD and all(parts)
    return parts[:1] == [_MAIN] and (len(parts) == 1 or is_thread)
