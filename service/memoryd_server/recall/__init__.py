"""Recall: what a turn is searched for, which passages are shown, and the block that is inserted before the turn."""

from memoryd_server.recall.block import Block, Budget, Chosen, Passage, choose, make_block
from memoryd_server.recall.conversation import WORDS
from memoryd_server.recall.duplicates import fingerprint
from memoryd_server.recall.fence import escape_line, fenced
from memoryd_server.recall.relevance import LeastConfidence, is_relevant
from memoryd_server.recall.shown import FileLines, SeenPassages, ShownPassages
from memoryd_server.recall.turn import read_turn, with_context

__all__ = [
    "WORDS",
    "Block",
    "Budget",
    "Chosen",
    "FileLines",
    "LeastConfidence",
    "Passage",
    "SeenPassages",
    "ShownPassages",
    "choose",
    "escape_line",
    "fenced",
    "fingerprint",
    "is_relevant",
    "make_block",
    "read_turn",
    "with_context",
]
