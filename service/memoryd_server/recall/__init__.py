"""Recall: what a turn is searched for, which passages are shown, and the block that is inserted before the turn."""

from memoryd_server.recall.block import Block, Budget, Passage, Selection, make_block, select
from memoryd_server.recall.conversation import CONVERSATION_WORDS
from memoryd_server.recall.fence import CHARS_PER_TOKEN, WARNING, escape_line, fenced, indented_lines
from memoryd_server.recall.relevance import LeastConfidence, hits_of_dates, is_relevant, past_dates
from memoryd_server.recall.shown import FileLines, SeenPassages, ShownPassages
from memoryd_server.recall.turn import read_turn, with_context

__all__ = [
    "CHARS_PER_TOKEN",
    "CONVERSATION_WORDS",
    "WARNING",
    "Block",
    "Budget",
    "FileLines",
    "LeastConfidence",
    "Passage",
    "SeenPassages",
    "Selection",
    "ShownPassages",
    "escape_line",
    "fenced",
    "hits_of_dates",
    "indented_lines",
    "is_relevant",
    "make_block",
    "past_dates",
    "read_turn",
    "select",
    "with_context",
]
