"""The section of a system prompt that tells an agent to look into its memory before it answers, and to write it."""

from collections.abc import Collection
from typing import Final

from memoryd_server.recall.tools import GET, SEARCH

_TITLE: Final = "## Memory"
_WHEN: Final = "Before you answer about earlier work, decisions, dates, people, preferences or open tasks"
_SEARCH_AND_GET: Final = (
    f"{_WHEN}, call {SEARCH} with a question in plain words. Then read the lines that you need with {GET}, and no more "
    "than those."
)
_SEARCH_ONLY: Final = f"{_WHEN}, call {SEARCH} with a question in plain words, and answer from what it finds."
_GET_ONLY: Final = f"{_WHEN} that a memory file or note has been named for, read the lines that you need with {GET}."
_HONEST: Final = "If you find little or nothing, say that you looked; do not fill the gap with a guess."
_WRITE: Final = (
    "When you are asked to remember something, write it down at once, in {where}. What is only said is gone when the "
    "session ends."
)
_LOG: Final = "today's log, memory/YYYY-MM-DD.md"
_LOG_OR_LONG_TERM: Final = f"{_LOG}, or in MEMORY.md if it should hold for good"
_CITE: Final = "Name the source as path#line where that helps to check what you say."
_DO_NOT_CITE: Final = "Citations are off: do not name files or line numbers in your replies unless you are asked to."


def recall_prompt(tools: Collection[str], *, cites: bool, main_session: bool) -> str:
    """The section for an agent that is given `tools`; empty where neither memory tool is among them.

    `cites` is whether replies may name paths. `MEMORY.md` is spoken of in the private main session alone. The text
    holds no date, so that it stays the same from day to day and a provider's prompt cache can keep it.
    """
    if SEARCH in tools:
        how = _SEARCH_AND_GET if GET in tools else _SEARCH_ONLY
    elif GET in tools:
        how = _GET_ONLY
    else:
        return ""
    write = _WRITE.format(where=_LOG_OR_LONG_TERM if main_session else _LOG)
    return "\n".join((_TITLE, f"{how} {_HONEST}", write, _CITE if cites else _DO_NOT_CITE))
