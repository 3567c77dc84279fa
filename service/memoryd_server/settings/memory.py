"""The `memory` block, and the blocks `compaction` and `startupContext` of `agents.defaults`.

They configure the backend, qmd, citations, the memory flush and the notes that a session loads at its start.
"""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from memoryd_server.settings.rules import Duration, IntRange, OneOf, SettingsBlock, Size


class ScopeMatch(SettingsBlock):
    """The conditions of a rule on a session; all that are set must match."""

    channel: str | None = None
    """The channel of the session. Name; default unset."""
    chat_type: Literal["direct", "group", "channel"] | None = None
    """The type of the chat. direct, group, channel; default unset."""
    key_prefix: str | None = None
    """The start of the session key without `agent:<id>:`. Text; default unset."""
    raw_key_prefix: str | None = None
    """The start of the whole session key. Text; default unset."""

    @field_validator("chat_type", mode="before")
    @classmethod
    def _dm_is_direct(cls, value: object) -> object:
        return "direct" if value == "dm" else value


class ScopeRule(SettingsBlock):
    """One rule. The first rule that matches decides."""

    action: Literal["allow", "deny"]
    """Whether the rule allows or denies searches. allow, deny; default none, the key is required."""
    match: ScopeMatch = ScopeMatch()
    """The sessions to which the rule applies."""


class ScopeSettings(SettingsBlock):
    """The sessions that may search. A scope in the settings replaces the default scope as a whole."""

    default: Literal["allow", "deny"] = "allow"
    """The action for sessions that no rule matches. allow, deny; default "allow"."""
    rules: Annotated[tuple[ScopeRule, ...], Field(strict=False)] = ()
    """The rules, in order."""


class QmdPath(SettingsBlock):
    """A folder that QMD indexes in addition to the default memory."""

    path: str
    """The folder, or a single Markdown file; relative to the workspace. Path; default none, the key is required."""
    pattern: str = "**/*.md"
    """The files of the folder that are indexed. Glob; default "**/*.md"."""
    name: str | None = None
    """The name of the collection. It is converted to lower case, and characters other than letters and digits to "-".
    Name; default custom-<number>."""


class QmdSessionsSettings(SettingsBlock):
    """The export of session transcripts for QMD."""

    enabled: bool = False
    """Whether transcripts are exported for QMD, with secrets masked. true or false; default false."""
    export_dir: str | None = None
    """The folder of the exported transcripts. Path; default <qmd dir>/sessions."""
    retention_days: Annotated[int | None, IntRange(1, fallback=None)] = None
    """The age above which transcripts are not exported; unset exports all. Days, at least 1; default unset."""


class QmdUpdateSettings(SettingsBlock):
    """When QMD updates its index."""

    interval_ms: Annotated[int, Duration("5m")] = Field(300_000, alias="interval")
    """The time between two updates; `"0s"` disables them. A duration such as `"90s"` or `"5m"`, in minutes without a
    unit; default "5m"."""
    debounce_ms: Annotated[int, IntRange(0, fallback=15_000)] = 15_000
    """The minimum time between two updates. Milliseconds, at least 0; default 15000."""
    on_boot: bool = True
    """Whether memoryd runs an update when it starts. It always runs one if QMD has no index of the agent yet, or if the
    collections have changed. true or false; default true."""
    wait_for_boot_sync: bool = False
    """Whether the start waits for the end of that update. true or false; default false."""
    embed_interval_ms: Annotated[int, Duration("60m")] = Field(3_600_000, alias="embedInterval")
    """The time between two runs of `qmd embed`; with `"0s"` it runs only once after the start, and with each `Sync`. A
    duration such as `"90s"` or `"5m"`, in minutes without a unit; default "60m"."""
    command_timeout_ms: Annotated[int, IntRange(1, fallback=30_000)] = 30_000
    """The time limit of short commands. Milliseconds, at least 1; default 30000."""
    update_timeout_ms: Annotated[int, IntRange(1, fallback=120_000)] = 120_000
    """The time limit of `qmd update`. Milliseconds, at least 1; default 120000."""
    embed_timeout_ms: Annotated[int, IntRange(1, fallback=120_000)] = 120_000
    """The time limit of `qmd embed`. Milliseconds, at least 1; default 120000."""


class QmdLimitsSettings(SettingsBlock):
    """The limits of a search through QMD."""

    max_results: Annotated[int, IntRange(1, fallback=6)] = 6
    """The maximum number of results. Results, at least 1; default 6."""
    max_snippet_chars: Annotated[int, IntRange(1, fallback=700)] = 700
    """The maximum length of a snippet. Characters, at least 1; default 700."""
    max_injected_chars: Annotated[int, IntRange(1, fallback=4000)] = 4000
    """The maximum length of all snippets together. Characters, at least 1; default 4000."""
    timeout_ms: Annotated[int, IntRange(1, fallback=4000)] = 4000
    """The time limit of a search. Milliseconds, at least 1; default 4000."""


class QmdSettings(SettingsBlock):
    """The QMD backend. A number out of bounds is replaced by the default."""

    command: str = "qmd"
    """The command to run; only its first word is used. Command; default "qmd"."""
    search_mode: Annotated[str, OneOf(("search", "vsearch", "query"), "search")] = "search"
    """How QMD searches: `search` by keywords, `vsearch` by meaning, `query` with all its models. search, vsearch,
    query; default "search"."""
    include_default_memory: bool = True
    """Whether the memory files of the workspace and the extra paths are indexed. true or false; default true."""
    paths: Annotated[tuple[QmdPath, ...], Field(strict=False)] = ()
    """Additional folders."""
    sessions: QmdSessionsSettings = QmdSessionsSettings()
    """Transcripts."""
    update: QmdUpdateSettings = QmdUpdateSettings()
    """Updates."""
    limits: QmdLimitsSettings = QmdLimitsSettings()
    """Limits."""
    scope: ScopeSettings = ScopeSettings(
        default="deny", rules=(ScopeRule(action="allow", match=ScopeMatch(chat_type="direct")),)
    )
    """The sessions that may search; by default only direct chats."""


class MemoryBlock(SettingsBlock):
    """The search backend of every agent."""

    backend: Literal["builtin", "qmd"] = "builtin"
    """The backend that answers searches. builtin, qmd; default "builtin"."""
    citations: Literal["auto", "on", "off"] = "auto"
    """Whether results include a citation; `auto` includes it in direct chats. auto, on, off; default "auto"."""
    qmd: QmdSettings = QmdSettings()
    """QMD."""


class StartupContextSettings(SettingsBlock):
    """The notes that a SessionContext returns. The other keys of the block are the host's."""

    enabled: bool = True
    """Whether a SessionContext returns daily notes. true or false; default true."""
    daily_memory_days: Annotated[int, IntRange(1, 14)] = 2
    """The number of days whose notes are returned, including today. Days, 1..14; default 2."""
    max_file_bytes: Annotated[int | None, IntRange(1, 65_536)] = None
    """The size above which a note is not read; unset means `memoryd.limits.maxFileBytes`. Bytes, 1..65536; default
    unset."""
    max_file_chars: Annotated[int | None, IntRange(1, 10_000)] = None
    """The maximum length of the text of one note; unset means 65,536. Characters, 1..10000; default unset."""
    max_total_chars: Annotated[int | None, IntRange(1, 50_000)] = None
    """The maximum length of the texts of all notes together, in addition to the limit of the request; unset means no
    further limit. Characters, 1..50000; default unset."""


_TRANSCRIPT_BYTES = 2 * 2**20


class MemoryFlushSettings(SettingsBlock):
    """The flush: a turn in which the agent writes lasting notes. A number out of bounds is replaced by the default."""

    enabled: bool = True
    """Whether memoryd requests flushes. true or false; default true."""
    soft_threshold_tokens: Annotated[int, IntRange(0, fallback=4000)] = 4000
    """A flush is due when no more than this number of tokens is left before the reserve. If `reserveTokensFloor` is
    unset, at most half of the window without the reserve. Tokens, at least 0; default 4000."""
    force_flush_transcript_bytes: Annotated[int, Size(_TRANSCRIPT_BYTES)] = _TRANSCRIPT_BYTES
    """The size of the transcript at which a flush is due regardless of the tokens; 0 disables this. Bytes, a number or
    a size such as `"2mb"`; default 2097152."""
    prompt: str | None = None
    """The prompt for the agent, instead of the built-in text. YYYY-MM-DD is replaced by the date. Text; default unset.
    """
    system_prompt: str | None = None
    """The text that is added to the agent's system prompt, instead of the built-in text. Text; default unset."""


class CompactionSettings(SettingsBlock):
    """The keys of the host's compaction that memoryd reads; the others are ignored."""

    reserve_tokens_floor: Annotated[int | None, IntRange(0, fallback=None)] = None
    """The number of tokens that the host keeps free; unset means 20000, but at most a quarter of the context window.
    Tokens, at least 0; default unset."""
    post_index_sync: Literal["off", "async", "await"] = "async"
    """What a compaction does to the index: nothing, start a sync, or start a sync and wait for it. off, async, await;
    default "async"."""
    memory_flush: MemoryFlushSettings = MemoryFlushSettings()
    """The flush."""


class ContextLimits(SettingsBlock):
    """The limits of the host's context that memoryd reads; an agent's own takes precedence."""

    memory_get_max_chars: Annotated[int | None, IntRange(1, 250_000)] = None
    """The maximum length of the text of a MemoryGet, which is cut after a whole line if possible; unset means the limit
    of the API (see `MemoryGetResponse`). Characters, 1..250000; default unset."""
