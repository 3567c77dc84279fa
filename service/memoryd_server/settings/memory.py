"""`memory` and `compaction`: backend, qmd, flush.

`memory`: which backend answers, and whether results carry citations.

`agents.defaults.compaction`: when the agent is told to write its notes before the host shrinks its context.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from memoryd_server.settings.rules import Duration, IntRange, OneOf, SettingsBlock, Size


class ScopeMatch(SettingsBlock):
    """What a session must be like for a rule to hold; everything given must match."""

    channel: str | None = None
    """The session's channel. Name; default unset."""
    chat_type: Literal["direct", "group", "channel"] | None = None
    """The session's kind. direct, group, channel; default unset."""
    key_prefix: str | None = None
    """How the session key begins, without `agent:<id>:`. Text; default unset."""
    raw_key_prefix: str | None = None
    """How the whole session key begins. Text; default unset."""

    @field_validator("chat_type", mode="before")
    @classmethod
    def _dm_is_direct(cls, value: object) -> object:
        return "direct" if value == "dm" else value


class ScopeRule(SettingsBlock):
    """One rule; the first that matches decides."""

    action: Literal["allow", "deny"]
    """What the rule does. allow, deny; default none, the key is required."""
    match: ScopeMatch = ScopeMatch()
    """When the rule holds."""


class ScopeSettings(SettingsBlock):
    """Which sessions may search. Given, it replaces the default as a whole."""

    default: Literal["allow", "deny"] = "allow"
    """What holds when no rule matches. allow, deny; default "allow"."""
    rules: Annotated[tuple[ScopeRule, ...], Field(strict=False)] = ()
    """The rules, in order."""


class QmdPath(SettingsBlock):
    """A folder that QMD indexes besides the default memory."""

    path: str
    """The folder, or one Markdown file; relative to the workspace. Path; default none, the key is required."""
    pattern: str = "**/*.md"
    """Which of its files. Glob; default "**/*.md"."""
    name: str | None = None
    """The collection's name, made lower-case, with "-" for whatever is no letter or digit. Name; default
    custom-<number>."""


class QmdSessionsSettings(SettingsBlock):
    """Session transcripts for QMD."""

    enabled: bool = False
    """Whether transcripts are exported for QMD, secrets masked. true or false; default false."""
    export_dir: str | None = None
    """Where they go. Path; default <qmd dir>/sessions."""
    retention_days: Annotated[int | None, IntRange(1, fallback=None)] = None
    """Age at which transcripts are left out; unset means never. Days, at least 1; default unset."""


class QmdUpdateSettings(SettingsBlock):
    """When QMD indexes."""

    interval_ms: Annotated[int, Duration("5m")] = Field(300_000, alias="interval")
    """Time between two updates; `"0s"` means none. A duration such as `"90s"` or `"5m"`, in minutes without a unit;
    default "5m"."""
    debounce_ms: Annotated[int, IntRange(0, fallback=15_000)] = 15_000
    """Least time between two updates. Milliseconds, at least 0; default 15000."""
    on_boot: bool = True
    """Whether the start of memoryd updates. true or false; default true."""
    wait_for_boot_sync: bool = False
    """Whether the start waits for that update. true or false; default false."""
    embed_interval_ms: Annotated[int, Duration("60m")] = Field(3_600_000, alias="embedInterval")
    """Time between two runs of `qmd embed`; `"0s"` means only the first, and with `Sync`. A duration such as `"90s"` or
    `"5m"`, in minutes without a unit; default "60m"."""
    command_timeout_ms: Annotated[int, IntRange(1, fallback=30_000)] = 30_000
    """Longest run of a small command. Milliseconds, at least 1; default 30000."""
    update_timeout_ms: Annotated[int, IntRange(1, fallback=120_000)] = 120_000
    """Longest run of `qmd update`. Milliseconds, at least 1; default 120000."""
    embed_timeout_ms: Annotated[int, IntRange(1, fallback=120_000)] = 120_000
    """Longest run of `qmd embed`. Milliseconds, at least 1; default 120000."""


class QmdLimitsSettings(SettingsBlock):
    """What a search through QMD may return."""

    max_results: Annotated[int, IntRange(1, fallback=6)] = 6
    """Results. Results, at least 1; default 6."""
    max_snippet_chars: Annotated[int, IntRange(1, fallback=700)] = 700
    """The length of a snippet. Characters, at least 1; default 700."""
    max_injected_chars: Annotated[int, IntRange(1, fallback=4000)] = 4000
    """The length of all snippets together. Characters, at least 1; default 4000."""
    timeout_ms: Annotated[int, IntRange(1, fallback=4000)] = 4000
    """Longest run of a search. Milliseconds, at least 1; default 4000."""


class QmdSettings(SettingsBlock):
    """The QMD backend. A number that makes no sense becomes the default."""

    command: str = "qmd"
    """The command; of several words the first is used. Command; default "qmd"."""
    search_mode: Annotated[str, OneOf(("search", "vsearch", "query"), "search")] = "search"
    """How QMD searches: for all words, by meaning, or with all its models. search, vsearch, query; default "search".
    """
    include_default_memory: bool = True
    """Whether the workspace's own memory and the extra paths are indexed. true or false; default true."""
    paths: Annotated[tuple[QmdPath, ...], Field(strict=False)] = ()
    """Further folders."""
    sessions: QmdSessionsSettings = QmdSessionsSettings()
    """Transcripts."""
    update: QmdUpdateSettings = QmdUpdateSettings()
    """Updates."""
    limits: QmdLimitsSettings = QmdLimitsSettings()
    """Limits."""
    scope: ScopeSettings = ScopeSettings(
        default="deny", rules=(ScopeRule(action="allow", match=ScopeMatch(chat_type="direct")),)
    )
    """Sessions that may search; by default direct chats only."""


class MemoryBlock(SettingsBlock):
    """Which backend answers, for every agent."""

    backend: Literal["builtin", "qmd"] = "builtin"
    """The engine that answers. builtin, qmd; default "builtin"."""
    citations: Literal["auto", "on", "off"] = "auto"
    """Whether results carry their citation; `auto` means in direct chats. auto, on, off; default "auto"."""
    qmd: QmdSettings = QmdSettings()
    """QMD."""


_TRANSCRIPT_BYTES = 2 * 2**20


class MemoryFlushSettings(SettingsBlock):
    """The turn in which the agent writes lasting notes. A number that makes no sense becomes the default."""

    enabled: bool = True
    """Whether flushes are asked for. true or false; default true."""
    soft_threshold_tokens: Annotated[int, IntRange(0, fallback=4000)] = 4000
    """Room left before the reserve at which a flush is due. Tokens, at least 0; default 4000."""
    force_flush_transcript_bytes: Annotated[int, Size(_TRANSCRIPT_BYTES)] = _TRANSCRIPT_BYTES
    """Size of the transcript at which a flush is due whatever the tokens; 0 means never. Bytes, a number or a size such
    as `"2mb"`; default 2097152."""
    prompt: str | None = None
    """What the agent is asked, instead of memoryd's own text; YYYY-MM-DD becomes today's date. Text; default unset."""
    system_prompt: str | None = None
    """What is added to the agent's system prompt, instead of memoryd's own text. Text; default unset."""


class CompactionSettings(SettingsBlock):
    """What memoryd reads of the host's compaction; its other keys are not about memory."""

    reserve_tokens_floor: Annotated[int, IntRange(0, fallback=20_000)] = 20_000
    """Tokens that the host keeps free. Tokens, at least 0; default 20000."""
    post_index_sync: Literal["off", "async", "await"] = "async"
    """What a compaction does about the index. off, async, await; default "async"."""
    memory_flush: MemoryFlushSettings = MemoryFlushSettings()
    """The flush."""
