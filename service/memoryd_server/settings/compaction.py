"""`agents.defaults.compaction`: when the agent is told to write its notes before the host shrinks its context."""

from typing import Annotated, Literal

from .block import Block
from .rules import Size, Whole

_TRANSCRIPT_BYTES = 2 * 2**20


class MemoryFlushSettings(Block):
    """The turn in which the agent writes lasting notes. A number that makes no sense becomes the default."""

    enabled: bool = True
    """Whether flushes are asked for. true or false; default true."""
    soft_threshold_tokens: Annotated[int, Whole(0, fallback=4000)] = 4000
    """Room left before the reserve at which a flush is due. Tokens, at least 0; default 4000."""
    force_flush_transcript_bytes: Annotated[int, Size(_TRANSCRIPT_BYTES)] = _TRANSCRIPT_BYTES
    """Size of the transcript at which a flush is due whatever the tokens; 0 means never. Bytes, a number or a size such
    as `"2mb"`; default 2097152."""
    prompt: str | None = None
    """What the agent is asked, instead of memoryd's own text; YYYY-MM-DD becomes today's date. Text; default unset."""
    system_prompt: str | None = None
    """What is added to the agent's system prompt, instead of memoryd's own text. Text; default unset."""


class CompactionSettings(Block):
    """What memoryd reads of the host's compaction; its other keys are not about memory."""

    reserve_tokens_floor: Annotated[int, Whole(0, fallback=20_000)] = 20_000
    """Tokens that the host keeps free. Tokens, at least 0; default 20000."""
    post_index_sync: Literal["off", "async", "await"] = "async"
    """What a compaction does about the index. off, async, await; default "async"."""
    memory_flush: MemoryFlushSettings = MemoryFlushSettings()
    """The flush."""
