"""`agents.defaults.compaction`: when the agent is told to write its notes before the host shrinks its context."""

from typing import Annotated, Literal

from .block import Block
from .rules import Size, Whole

_TRANSCRIPT_BYTES = 2 * 2**20
_SYSTEM_PROMPT = (
    "This session is close to compaction: what is only in the context will soon be gone. "
    "Store what should last in the memory files now."
)
_PROMPT = (
    "Write down what should be remembered from this session in memory/YYYY-MM-DD.md, and in no other file. "
    "Append to it; never overwrite what it holds. "
    "MEMORY.md and other curated files are read-only for now. "
    "If there is nothing to store, reply with NO_REPLY."
)


class MemoryFlushSettings(Block):
    """The turn in which the agent writes lasting notes. A number that makes no sense becomes the default."""

    enabled: bool = True
    """Whether flushes are asked for. true or false; default true."""
    soft_threshold_tokens: Annotated[int, Whole(0, fallback=4000)] = 4000
    """Room left before the reserve at which a flush is due. Tokens, at least 0; default 4000."""
    force_flush_transcript_bytes: Annotated[int, Size(_TRANSCRIPT_BYTES)] = _TRANSCRIPT_BYTES
    """Size of the transcript at which a flush is due whatever the tokens; 0 means never. Bytes, a number or a size such
    as `"2mb"`; default 2097152."""
    prompt: str = _PROMPT
    """What the agent is asked; YYYY-MM-DD becomes today's date. Text; default memoryd's own."""
    system_prompt: str = _SYSTEM_PROMPT
    """What is added to the agent's system prompt. Text; default memoryd's own."""


class CompactionSettings(Block):
    """What memoryd reads of the host's compaction; its other keys are not about memory."""

    reserve_tokens_floor: Annotated[int, Whole(0, fallback=20_000)] = 20_000
    """Tokens that the host keeps free. Tokens, at least 0; default 20000."""
    post_index_sync: Literal["off", "async", "await"] = "async"
    """What a compaction does about the index. off, async, await; default "async"."""
    memory_flush: MemoryFlushSettings = MemoryFlushSettings()
    """The flush."""
